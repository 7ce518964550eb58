"""How the commands speak: answers to standard output, talk to standard error, progress only in a terminal."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA = 1
PLAIN_WIDTH = 160
"""Columns of a table that no terminal shows."""


def print_status(text: str) -> None:
    """Says a line on standard error."""
    typer.echo(text, err=True)


def print_result(text: str) -> None:
    """Prints a line on standard output."""
    typer.echo(text)


def print_json(content: dict[str, Any]) -> None:
    """Prints one JSON document on standard output; a figure that there is not (NaN) is null."""
    typer.echo(json.dumps({"schema": SCHEMA, **_finite(content)}, ensure_ascii=False, indent=1, default=str))


def _finite(value: Any) -> Any:  # noqa: ANN401  any JSON value
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def console(*, err: bool = True) -> Console:
    """Returns rich's console on standard error (or output)."""
    from rich.console import Console

    plain = Console(stderr=err, highlight=False)
    return plain if plain.is_terminal else Console(stderr=err, highlight=False, width=PLAIN_WIDTH)


@contextmanager
def spinner(what: str) -> Iterator[None]:
    """Shows a spinner while something takes its time; a plain line where there is no terminal."""
    on = console()
    if not on.is_terminal:
        print_status(f"{what} …")
        yield
        return
    with on.status(what):
        yield
