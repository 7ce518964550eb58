"""Output of the commands: results on standard output, status on standard error, progress bars in a terminal only."""

from __future__ import annotations

import io
import json
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer

from silohash.base.visible import visible_json, visible_lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

SCHEMA = 1
PLAIN_WIDTH = 160
"""Width of messages, in characters, where there is no terminal."""

MOST_CELLS = 10_000
"""Upper limit on the width of a table where there is no terminal."""


def prepare_output() -> None:
    """Print a question mark for each character that the encoding of an output does not have, and nothing to a closed one."""
    sys.stdout = sys.stdout or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  open until the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not _is_unicode(stream):
            stream.reconfigure(errors="replace")


def _is_unicode(stream: TextIO) -> bool:
    """Return whether the encoding of an output has all characters."""
    return (stream.encoding or "utf").lower().startswith("utf")


def print_status(*texts: str) -> None:
    """Print lines on standard error, with invisible characters replaced by their code points."""
    for text in texts:
        typer.echo(visible_lines(text), err=True)


def print_result(*texts: str) -> None:
    """Print lines on standard output, with invisible characters replaced by their code points."""
    for text in texts:
        typer.echo(visible_lines(text))


def print_json(content: dict[str, Any]) -> None:
    """Print one JSON document on standard output.

    NaN and infinity become null. Invisible characters are escaped, as are all but ASCII if the output cannot hold them.
    """
    ascii_only = not _is_unicode(sys.stdout)
    document = json.dumps({"schema": SCHEMA, **_finite(content)}, ensure_ascii=ascii_only, indent=1, default=str)
    typer.echo(visible_json(document))


def _finite(value: Any) -> Any:  # noqa: ANN401  any JSON value
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def console(*, err: bool = True) -> Console:
    """Return a rich console on standard error, or on standard output. It prints markup such as ``[red]`` as text."""
    from rich.console import Console

    screen = Console(stderr=err, highlight=False, markup=False, emoji=False)
    if not screen.is_terminal:
        screen.width = PLAIN_WIDTH
    return screen


def print_table(table: Table) -> None:
    """Print a table on standard output. Figures, which are in right-aligned columns, are never broken across lines.

    In a terminal, names are wrapped so that the table fits. If the figures alone are too wide, each row is printed as a
    list of its cells. Without a terminal, the table is printed as plain text at its natural width.
    """
    table.box = None
    table.title_justify = "left"
    table.pad_edge = False
    table.padding = (0, 2, 0, 0)
    for column in table.columns:
        column.no_wrap = column.justify == "right"
        column.overflow = "fold"
    screen = console(err=False)
    if not screen.is_terminal:
        lines = _plain_lines(table)
    elif _least_width(table) <= screen.width:
        screen.print(table)
        return
    else:
        lines = record_lines(table, screen.width)
    for line in lines:
        print_result(line)


def _least_width(table: Table) -> int:
    """Return the width that a table needs if names are wrapped at their words and figures are not wrapped."""
    from rich.cells import cell_len

    widths = []
    for column in table.columns:
        texts = [str(column.header), *map(str, column.cells)]
        parts = [part for text in texts for part in (text.splitlines() if column.no_wrap else text.split())]
        widths.append(max(map(cell_len, parts), default=0))
    return sum(widths) + 2 * (len(widths) - 1)


def _plain_lines(table: Table) -> list[str]:
    """Return the lines of a table at its natural width, without color."""
    from rich.console import Console
    from rich.measure import Measurement

    screen = Console(width=MOST_CELLS, highlight=False, markup=False, emoji=False, color_system=None)
    screen.width = max(1, Measurement.get(screen, screen.options, table).maximum)
    with screen.capture() as captured:
        screen.print(table)
    return [line.rstrip() for line in captured.get().splitlines()]


def record_lines(table: Table, width: int) -> list[str]:
    """Return each row of a table as its headings and cells, in lines of at most ``width`` characters where possible."""
    headings = [" ".join(str(column.header).split()) for column in table.columns]
    lines = [str(table.title)] if table.title else []
    for row in zip(*(map(str, column.cells) for column in table.columns), strict=True):
        line = ""
        for item in (f"{heading}: {cell}" for heading, cell in zip(headings, row, strict=True)):
            if line and len(line) + 2 + len(item) > width:
                lines.append(f"{line},")
                line = f"  {item}"
            else:
                line = f"{line}, {item}" if line else item
        lines.append(line)
    return [*lines, *([str(table.caption)] if table.caption else [])]


@contextmanager
def spinner(activity: str) -> Iterator[None]:
    """Show a spinner during a long operation, or a plain line where there is no terminal."""
    screen = console()
    if not screen.is_terminal:
        print_status(f"{activity} …")
        yield
        return
    with screen.status(activity):
        yield
