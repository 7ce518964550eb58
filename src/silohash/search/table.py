"""Results as people read them: lines and a table for a terminal, and an HTML table for a notebook.

Captions, labels, ids and names come from other silos. Their invisible characters are replaced by code points (`visible`),
and everything is escaped before it reaches a browser. Columns in a terminal are measured in the cells that it draws: an East
Asian wide character takes two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

from silohash.base.optional import require
from silohash.base.visible import visible
from silohash.search.released import Hit

if TYPE_CHECKING:
    import pandas

    from silohash.search.hits import Hits

TABLE_CELLS = 80
"""Width of a table, in cells of a terminal."""

WEIGHTS = {"silo": 1.0, "id": 1.0, "caption": 3.0, "labels": 1.0}
"""Columns that are cut to fit the width, and how much room each keeps in proportion to the others."""

GAP = 2
"""Number of spaces between two columns."""

LEAST_CELLS = 6
"""A column is not cut to fewer cells than this."""

MOST_NAMED = 10
DIFFERENT_MODELS = (
    "The silos use different models. Hits are ordered by their rank within each silo, because distances of different silos "
    "are not comparable."
)
ONLY_SOME_SCORED = (
    "Some silos compared codes only. Hits are ordered by their rank within each silo, because scores and distances are not "
    "comparable."
)
RANKS_ONLY = (
    "Some silos release ranks and no distances. Hits are ordered by their rank within each silo, because nothing else is "
    "comparable."
)
NOTHING_CLOSE = "Nothing close: none of the items is likely what you asked for. The nearest follow."
PREVIEW_PIXELS = 48
"""Height of a preview in a notebook."""


def as_frame(hits: Hits) -> pandas.DataFrame:
    """Return a row per hit: the attributes of `Hit`, its caption, its labels and its further columns.

    Raises:
        UserError: If pandas is not installed.
    """
    require("pandas", "A table of hits")
    import pandas

    names = [*(each.name for each in fields(Hit) if each.name != "payload"), "caption", "labels"]
    rows = [{**{name: getattr(hit, name) for name in names}, **hit.columns} for hit in hits]
    return pandas.DataFrame(rows, columns=None if rows else names)


def as_lines(hits: Hits, cells: int = TABLE_CELLS) -> list[str]:
    """Return aligned lines: rank if there is one, score or distance, silo, id, caption and labels of each hit, cut to fit.

    The path of the hit's picture, if it exists on this machine, follows in a line of its own and is not cut.
    """
    rows = [_row(hit, hits, rank="rank ") for hit in hits]
    lines = []
    for hit, line in zip(hits, _aligned(rows, hits, first=0, cells=cells), strict=True):
        lines.append(line)
        if hit.path is not None:
            lines.append(f"    {shown_path(hit.path)}")
    return lines


def as_fields(hits: Hits) -> list[str]:
    """Return one line per hit for other programs, with eight fields that are separated by tabs and never cut.

    The fields are distance in bits, silo, id, caption, labels (joined with ``|``), path, rank and score. A field without a
    value is empty.
    """
    rows = (
        (hit.distance_bits, hit.silo, hit.id, hit.caption, "|".join(hit.labels), hit.path, hit.rank, hit.score)
        for hit in hits
    )
    return ["\t".join("" if value is None else visible(str(value)) for value in row) for row in rows]


def shown_path(path: Path) -> str:
    """Return a path for people to read: relative to the current folder if it is inside it."""
    here = Path.cwd()
    return visible(str(path.relative_to(here) if path.is_relative_to(here) else path))


def opening(hits: Hits) -> list[str]:
    """Return the lines that stand before the hits: one if nothing is close to the query."""
    return [NOTHING_CLOSE] if hits.nothing_close else []


def _ties(hits: Hits) -> Iterator[str]:
    """Yield a sentence if items at the place of the last hit are not shown."""
    if count := hits.ties_at_cut:
        last = f"rank {hits.places[-1]}" if not hits.comparable else f"{hits.places[-1]} bits"
        last = "at the place of the last one" if hits.places[-1] < 0 else last
        yield f"{count:,} more {'is' if count == 1 else 'are'} equally near ({last}). Increase k to see more."


def about_query(hits: Hits) -> list[str]:
    """Return sentences about words of the query that carry no weight, are not read, or are not compared by some silos."""
    found = [_about_words(hits)] if hits.unknown_words else []
    if hits.unread is not None:
        found.append(str(hits.unread))
    if hits.excluded_words:
        but = ", except by silos that do not compare words" if hits.by_code_only else ""
        found.append(f"Items with {', '.join(hits.excluded_words)} are left out{but}.")
    if hits.by_code_only:
        found.append(f"Searched by code only, without comparing words: {', '.join(hits.by_code_only)}.")
    return found


def notes(hits: Hits) -> list[str]:
    """Return sentences about what a result leaves out: words of the query, ties, missing silos, limits, the order."""
    found = about_query(hits)
    found += _ties(hits)
    found += [f"{silo} did not answer: {reason}" for silo, reason in hits.missing_silos.items()]
    found += [f"{silo}: {reason}" for silo, reason in hits.limited_silos.items()]
    for name, counts in (hits.facets or {}).items():
        found.append(f"{name}: {', '.join(f'{value} ({count:,})' for value, count in counts.items()) or 'no values'}.")
    if not hits:
        silent = hits.missing_silos and not hits.answered
        found.append("No silo answered." if silent else "No silo returned an item.")
    elif not hits.comparable:
        reason = DIFFERENT_MODELS if len(hits.model_digests) > 1 else ONLY_SOME_SCORED
        found.append(RANKS_ONLY if hits.some_ranks_only else reason)
    return list(map(visible, found))


def _about_words(hits: Hits) -> str:
    """Return a sentence on the words of the query that do not carry weight."""
    named = hits.unknown_words[:MOST_NAMED]
    more = len(hits.unknown_words) - len(named)
    words = ", ".join(named) + (f" and {more:,} more words" if more else "")
    are = "is" if len(hits.unknown_words) == 1 else "are"
    rest = "only items with all words of the text were found" if hits.order == "words" else "searched with the rest"
    return f"{words} {are} unknown to this model{f'; {rest}' if hits else ''}."


def as_text(hits: Hits) -> str:
    """Return an aligned table of the hits, followed by the notes."""
    rows = (
        [_headings(hits), *((str(number), *_row(hit, hits)) for number, hit in enumerate(hits, 1))] if len(hits) else []
    )
    return "\n".join([*opening(hits), *_aligned(rows, hits, first=1, cells=TABLE_CELLS), *notes(hits)])


def _headings(hits: Hits) -> tuple[str, ...]:
    near = "distance" if hits.scores is None else "score"
    return (
        "#",
        *(() if hits.comparable else ("rank",)),
        near,
        *(() if hits.strengths is None else ("sure",)),
        *WEIGHTS,
    )


def _row(hit: Hit, hits: Hits, rank: str = "") -> tuple[str, ...]:
    ranks = () if hit.rank is None else (f"{rank}{hit.rank}",)
    bits = "" if hit.distance_bits is None else f"{hit.distance_bits} bits"
    near = bits if hit.score is None else f"{hit.score:.3f}"
    sure = () if hits.strengths is None else (sureness(hit),)
    cells = (*ranks, near, *sure, hit.silo, hit.id, hit.caption, ", ".join(hit.labels))
    return tuple(map(visible, cells))


def sureness(hit: Hit) -> str:
    """Return how sure a hit is, such as ``strong 93 %``; empty if it is not known, and ``none`` if it is not close."""
    if hit.strength is None or hit.probability is None or hit.strength == "none":
        return hit.strength or ""
    return f"{hit.strength} {100 * hit.probability:.0f} %"


def _aligned(rows: Sequence[tuple[str, ...]], hits: Hits, *, first: int, cells: int) -> list[str]:
    """Return the rows as lines. The columns of `WEIGHTS` come last and may be cut."""
    numeric = first + (1 if hits.comparable else 2) + (hits.strengths is not None)
    weights = {numeric + place: weight for place, weight in enumerate(WEIGHTS.values())}
    return aligned(rows, numeric=numeric, weights=weights, cells=cells) if rows else []


def as_html(hits: Hits) -> str:
    """Return the hits as an HTML table with previews, followed by the notes."""
    with_previews = any(hit.preview_url for hit in hits)
    number_heading, *headings = _headings(hits)
    rows = [_html_row([number_heading, *(["preview"] if with_previews else []), *headings], "th")]
    for number, hit in enumerate(hits, 1):
        cells = [escape(cell) for cell in _row(hit, hits)]
        rows.append(_html_row([str(number), *([_image(hit)] if with_previews else []), *cells], "td"))
    table = f"<table>{''.join(rows)}</table>" if len(hits) else ""
    above, below = ("".join(f"<p>{escape(line)}</p>" for line in lines) for lines in (opening(hits), notes(hits)))
    return above + table + below


def _html_row(cells: list[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"


def _image(hit: Hit) -> str:
    if hit.preview_url is None:
        return ""
    return f'<img src="{escape(hit.preview_url)}" alt="{escape(visible(hit.caption or hit.id))}" height="{PREVIEW_PIXELS}">'


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
    """Return the widths of columns that together take at most ``cells`` cells, as far as columns with a weight may be cut.

    Each column needs its natural width. Of two columns that are cut, one with twice the weight stays twice as wide.
    """
    widths = list(natural)
    while sum(widths) + GAP * (len(widths) - 1) > cells:
        open_ = [column for column in weights if widths[column] > LEAST_CELLS]
        if not open_:
            break
        widths[max(open_, key=lambda column: widths[column] / weights[column])] -= 1
    return widths


def aligned(rows: Sequence[Sequence[str]], *, numeric: int, weights: Mapping[int, float], cells: int) -> list[str]:
    """Return rows of cells as aligned lines, of which the first ``numeric`` columns are right-aligned.

    Columns without any text are left out, and those with a weight may be cut, see `fitted_widths`.
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
