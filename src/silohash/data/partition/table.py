"""Plain text tables for partitions and their drift."""

from __future__ import annotations

from collections.abc import Container, Sequence


def aligned(lines: Sequence[Sequence[str]], *, right: Container[int]) -> list[str]:
    """Return the lines of a table with aligned columns.

    Args:
        lines: cells of each line, the head first.
        right: positions of the columns that are aligned to the right, as those of numbers.
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]

    def padded(line: Sequence[str]) -> str:
        cells = enumerate(zip(line, widths, strict=True))
        return "  ".join(cell.rjust(width) if place in right else cell.ljust(width) for place, (cell, width) in cells)

    return [padded(line).rstrip() for line in lines]
