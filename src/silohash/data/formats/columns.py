"""Check the names of a table's columns: which are not used, and which are probably misspelled."""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from silohash.base.files import read_toml
from silohash.base.forms import REINSTALL

KNOWN = ("file_name", "text", "labels", "id", "split")
"""The columns that have a meaning. All others are kept, and can be partitioned by."""

SLIPS: Mapping[str, Sequence[str]] = read_toml(
    Path(__file__).with_name("columns.toml"), remedy=REINSTALL, missing=REINSTALL
)
"""Names that other tools use for the known columns, in lowercase and without ``_``, ``-``, ``.`` and spaces."""

WITHOUT_A_NAME = " (without a name)"
PANDAS_UNNAMED = re.compile(r"Unnamed: \d+(_level_\d+)?|__index_level_\d+__")
"""The names that pandas gives to columns without one."""

CLOSEST = 0.8
"""Similarity from which on an unknown name is taken for a misspelled known one."""


def intended_column(name: str) -> str:
    """Return the known column that an unknown name probably means, or an empty string.

    Example:
        >>> intended_column("Filename"), intended_column("captions"), intended_column("lables"), intended_column("year")
        ('file_name', 'text', 'labels', '')
    """
    plain = _plain(name)
    for known, slips in SLIPS.items():
        if plain == _plain(known) or plain in slips:
            return known
    near = difflib.get_close_matches(plain, map(_plain, KNOWN), n=1, cutoff=CLOSEST)
    return next((known for known in KNOWN if near == [_plain(known)]), "")


def likely_slips(columns: Iterable[str]) -> dict[str, str]:
    """Return the unknown columns that are probably misspelled, each with the known column that it means.

    A column is not reported if the table has the known column as well.
    """
    given = list(columns)
    intended = {name: intended_column(name) for name in given if name not in KNOWN}
    return {name: known for name, known in intended.items() if known and known not in given}


def named(header: Iterable[str]) -> list[str]:
    """Return the names of the columns of a table, with a name for each column that does not have one.

    Example:
        >>> named(["", "text"])
        ['column 1 (without a name)', 'text']
    """
    return [name or f"column {place}{WITHOUT_A_NAME}" for place, name in enumerate(header, 1)]


def describe_slips(columns: Iterable[str]) -> list[str]:
    """Return one sentence per column that is probably misspelled, and one on the columns without a name."""
    names = list(columns)
    unnamed = [name for name in names if not name or name.endswith(WITHOUT_A_NAME) or PANDAS_UNNAMED.fullmatch(name)]
    listed = ", ".join(f'"{name}"' for name in unnamed)
    return [
        *(f'The column "{name}" is not used (did you mean "{known}"?).' for name, known in likely_slips(names).items()),
        *([f"A column does not have a name ({listed}). Name it, or remove it."] if unnamed else []),
    ]


def unused_columns(columns: Iterable[str], used: Collection[object] = ()) -> str:
    """Return a sentence that names the further columns of a table that the partition does not use, or an empty string."""
    names = [name for name in columns if name not in used]
    if not names:
        return ""
    listed = ", ".join(f'"{name}"' for name in names)
    return f'Columns that are not used: {listed}. A partition can use one of them: kind = "column" in [partition].'


def _plain(name: str) -> str:
    return re.sub(r"[\s_.-]+", "", name).casefold()
