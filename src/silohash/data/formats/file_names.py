"""Find the picture files that a table names, also where it was written on another system than the files.

A name is the same file if it differs only in the form of accents, invisible characters, surrounding spaces, backslashes for
slashes or steps such as ``./``. Where a name differs in more, such as the case of its letters, the file is not used but
suggested.
"""

from __future__ import annotations

import html
import os
import posixpath
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote_plus

from silohash.base.names import canonical_path, similar
from silohash.base.visible import visible

MOST_FILES = 1 << 20
"""Number of files among which a missing one is looked for."""

MOST_COMPARED = 1 << 17
"""Number of files of a folder up to which names are suggested."""

MOST_ASKED = 1000
"""Number of missing files for which names are suggested."""

MOST_SUGGESTED = 3
CODE_PAGES = ("cp437", "cp1252", "latin-1")
"""Encodings in which names of other encodings are often read by mistake."""

_ESCAPE = re.compile(r"(?:#U|\\u)([0-9a-fA-F]{4})|(?:#L|\\U00)([0-9a-fA-F]{6})")
"""A character as archive programs write those that a file system does not have."""

_FORBIDDEN = re.compile(r'[<>:"|?*]')
"""Characters that Windows does not allow in names, which programs replace by others."""

_COPY = re.compile(r"\s*(?:\(\d+\)|- Copy)(?=\.\w+$|$)")
"""How the names of downloaded or copied files end."""


class FoundName(NamedTuple):
    """The path of a file as the disk has it, or the given name and, as the end of a sentence, names that may be meant."""

    name: str
    hint: str = ""


def find_names(folder: Path, names: Iterable[str]) -> dict[str, FoundName]:
    """Return the file of a folder that each of some names means. An empty name means no file."""
    files = _Files(folder)
    return {name: _found(files, name) if name else FoundName("") for name in dict.fromkeys(names)}


def _found(files: _Files, name: str) -> FoundName:
    plain = posixpath.normpath(name)
    if not plain.startswith(("/", "../")) and plain != ".." and "\0" not in plain:
        if files.exist(name):
            return FoundName(plain if plain == name or files.are_one(plain, name) else name)
        equal = files.by_form.get(canonical_path(name), [])
        if len(equal) == 1:
            return FoundName(equal[0])
        if equal:
            return FoundName(name, _suggested(equal))
    return FoundName(name, _suggested(files.near(name)))


def _suggested(names: list[str]) -> str:
    if not names:
        return ""
    more = f" or {len(names) - MOST_SUGGESTED:,} more" if len(names) > MOST_SUGGESTED else ""
    shown = " or ".join(f'"{visible(name)}"' for name in names[:MOST_SUGGESTED])
    return f" (did you mean {shown}{more}?)"


class _Files:
    """The files of a folder, which are listed once a name is missing."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._compared = 0

    def exist(self, name: str) -> bool:
        """Return whether a path relative to the folder exists."""
        return os.path.exists(f"{self._folder}/{name}")  # noqa: PTH110  called once per picture

    def are_one(self, name: str, other: str) -> bool:
        """Return whether two paths are one file. The second exists; a step out of a linked folder may lead elsewhere."""
        return self.exist(name) and Path(self._folder, name).samefile(Path(self._folder, other))

    @cached_property
    def names(self) -> list[str]:
        """The paths of all files, relative to the folder, in alphabetical order."""
        found: list[str] = []
        for place, folders, files in os.walk(self._folder):
            folders.sort()
            inside = os.path.relpath(place, self._folder)
            found += (name if inside == os.curdir else f"{inside}/{name}" for name in sorted(files))
            if len(found) > MOST_FILES:
                break
        return found

    @cached_property
    def by_form(self) -> dict[str, list[str]]:
        """The paths by the form in which they are compared."""
        return _grouped((canonical_path(name), name) for name in self.names)

    @cached_property
    def _by_similar(self) -> dict[str, list[str]]:
        """The paths by every coarser form of their whole, their last part, and that without its ending."""
        return _grouped((form, name) for name in self.names for form in _coarser(name))

    def near(self, name: str) -> list[str]:
        """Return the files that a name may mean, those that agree with most of it."""
        self._compared += 1
        if len(self.names) > MOST_COMPARED or self._compared > MOST_ASKED:
            return []
        return next((found for form in _coarser(name) if (found := self._by_similar.get(form))), [])


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for form, name in pairs:
        if name not in (names := found.setdefault(form, [])):
            names.append(name)
    return found


def _coarser(name: str) -> Iterator[str]:
    """Yield forms of a path that ignore more and more of it."""
    paths = [canonical_path(reading) for reading in dict.fromkeys(_readings(name))]
    wholes = [similar(path) for path in paths]
    yield from wholes
    yield from (whole.rpartition("/")[2] for whole in wholes)
    yield from (similar(posixpath.splitext(path)[0].rpartition("/")[2]) for path in paths)


def _readings(name: str) -> Iterator[str]:
    """Yield a name as it is, and as it was before programs put it into an address or a page, copied it or misread it."""
    yield name
    yield unquote_plus(name)
    yield html.unescape(name)
    yield _ESCAPE.sub(lambda found: chr(min(int(found[1] or found[2], 16), sys.maxunicode)), name)
    yield _COPY.sub("", _FORBIDDEN.sub("_", name))
    if name.isascii():
        return
    for page in CODE_PAGES:
        with suppress(UnicodeError):
            yield name.encode(page).decode()
        with suppress(UnicodeError):
            yield os.fsencode(name).decode(page)
