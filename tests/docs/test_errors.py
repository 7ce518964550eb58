"""The reference of errors lists each class of `silohash.base.errors` with its key, its meaning and what mends it."""

from __future__ import annotations

from pathlib import Path

from silohash.base import errors
from silohash.base.errors import UserError

PAGE = Path(__file__).parents[2] / "docs/reference/errors.md"


def test_the_reference_lists_all_errors() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    expected = []
    for kind in UserError.__subclasses__():
        if kind.__module__ == errors.__name__:
            meaning, remedy = (kind.__doc__ or "").split("\n")[0].split(". ")
            expected.append(f"| `{kind.key}` | {meaning} | {remedy.removesuffix('.')} |")
    assert sorted(rows) == sorted(expected)
