"""Columns of text in a terminal, measured in the cells that the terminal draws: an East Asian wide character takes two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.cells import cell_len, set_cell_size

GAP = 2
"""Number of spaces between two columns."""

LEAST_CELLS = 6
"""A column is not cut to fewer cells than this."""


def cut(text: str, cells: int) -> str:
    """Return a text that takes at most ``cells`` cells. A longer one is cut and ends with an ellipsis.

    Example:
        >>> cut("two parrots", 8), cut("鸚鵡二羽", 6), cut("parrots", 7)
        ('two par…', '鸚鵡 …', 'parrots')
    """
    return text if cell_len(text) <= cells else f"{set_cell_size(text, cells - 1)}…"


def padded(text: str, cells: int, *, right: bool = False) -> str:
    """Return a text with spaces after it, or before it, so that it takes ``cells`` cells."""
    space = " " * (cells - cell_len(text))
    return space + text if right else text + space


def fitted_widths(natural: Sequence[int], weights: Mapping[int, float], cells: int) -> list[int]:
    """Return the widths of columns that together take at most ``cells`` cells, as far as columns may be cut.

    Args:
        natural: The width that each column needs.
        weights: The columns that may be cut. Of two such columns, one with twice the weight stays twice as wide.
        cells: Width of the terminal.
    """
    widths = list(natural)
    while sum(widths) + GAP * (len(widths) - 1) > cells:
        open_ = [column for column in weights if widths[column] > LEAST_CELLS]
        if not open_:
            break
        widths[max(open_, key=lambda column: widths[column] / weights[column])] -= 1
    return widths


def aligned(rows: Sequence[Sequence[str]], *, numeric: int, weights: Mapping[int, float], cells: int) -> list[str]:
    """Return rows of cells as aligned lines. Columns without any text are left out.

    Args:
        rows: The cells of each row.
        numeric: Number of columns at the start that are right-aligned.
        weights: The columns that may be cut, see `fitted_widths`.
        cells: Width of the terminal.
    """
    natural = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    shown = [column for column, width in enumerate(natural) if width]
    places = {place: weights[column] for place, column in enumerate(shown) if column in weights}
    widths = fitted_widths([natural[column] for column in shown], places, cells)
    lines = []
    for row in rows:
        texts = [
            padded(cut(row[column], width), width, right=column < numeric)
            for column, width in zip(shown, widths, strict=True)
        ]
        lines.append((" " * GAP).join(texts).rstrip())
    return lines
