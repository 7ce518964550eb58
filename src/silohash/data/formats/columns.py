"""Check the names of a table's columns: which are not used, and which are probably misspelled."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping

KNOWN = ("file_name", "text", "labels", "id", "split")
"""The columns that have a meaning. All others are kept, and can be partitioned by."""

SLIPS: Mapping[str, tuple[str, ...]] = {
    "file_name": (
        "file", "files", "filepath", "filenames", "path", "paths", "image", "images", "imagefile", "imagename",
        "imagepath", "img", "imgpath", "photo", "photos", "picture", "pictures", "picturefile",
    ),
    "text": (
        "alt", "alttext", "caption", "captions", "content", "description", "descriptions", "prompt", "sentence",
        "sentences", "texts", "title", "titles",
    ),
    "labels": (
        "categories", "category", "class", "classes", "classname", "classnames", "keyword", "keywords", "label",
        "labelname", "tag", "tags", "topic", "topics",
    ),
    "id": ("identifier", "identifiers", "ids", "imageid", "itemid", "uid", "uuid"),
    "split": ("splits", "subset"),
}  # fmt: skip
"""Names that other tools use for the known columns, in lowercase and without ``_``, ``-``, ``.`` and spaces."""

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


def describe_slips(columns: Iterable[str]) -> list[str]:
    """Return one sentence per column that is probably misspelled."""
    return [
        f'The column "{name}" is not used (did you mean "{known}"?).' for name, known in likely_slips(columns).items()
    ]


def unused_columns(columns: Iterable[str], used: Collection[object] = ()) -> str:
    """Return a sentence that names the columns of a table that are not used, or an empty string.

    Args:
        columns: the names of the columns that have no meaning by themselves.
        used: the names of those that the partition uses.
    """
    names = [name for name in columns if name not in used]
    if not names:
        return ""
    listed = ", ".join(f'"{name}"' for name in names)
    return f'Columns that are not used: {listed}. A partition can use one of them: kind = "column" in [partition].'


def _plain(name: str) -> str:
    return re.sub(r"[\s_.-]+", "", name).casefold()
