"""Output of the commands: results on standard output, status on standard error, progress bars in a terminal only."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from silohash.visible import visible_json, visible_lines

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA = 1
PLAIN_WIDTH = 160
"""Width of a table, in characters, where there is no terminal."""


def print_status(text: str) -> None:
    """Print a line on standard error, with invisible characters replaced by their code points."""
    typer.echo(visible_lines(text), err=True)


def print_result(text: str) -> None:
    """Print a line on standard output, with invisible characters replaced by their code points."""
    typer.echo(visible_lines(text))


def print_json(content: dict[str, Any]) -> None:
    """Print one JSON document on standard output. NaN and infinity become null, and invisible characters are escaped."""
    document = json.dumps({"schema": SCHEMA, **_finite(content)}, ensure_ascii=False, indent=1, default=str)
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

    plain = Console(stderr=err, highlight=False, markup=False, emoji=False)
    if plain.is_terminal:
        return plain
    return Console(stderr=err, highlight=False, markup=False, emoji=False, width=PLAIN_WIDTH)


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
