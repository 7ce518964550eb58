"""Read a folder without a table: its pictures, each with the text file beside it, such as ``boats.txt`` for ``boats.jpg``.

If pictures lie in subfolders, the column ``folder`` has their names, by which the items can be divided among silos.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from silohash.data.formats.metadata import FILES, UNUSABLE, MetadataRow, read_metadata
from silohash.data.links import Boundary
from silohash.data.pictures.formats import SUFFIXES

TEXT = ".txt"


def read_rows(folder: Path, *, follow_links: bool = False) -> tuple[Path, list[MetadataRow]]:
    """Return a folder's table and its rows or, without one, the folder and a row per picture, if one of them has a text.

    The exceptions are those of `read_metadata`.
    """
    has_table = any((folder / name).is_file() for name in FILES)
    rows = [] if has_table or not folder.is_dir() else list(_picture_rows(folder, follow_links=follow_links))
    if not any(row.values.get("text") or row.problem for row in rows):
        return read_metadata(folder, follow_links=follow_links)
    return folder, rows


def names_beside(name: str) -> tuple[str, str]:
    """Return the names that the text file beside a picture may have: ``boats.txt`` and ``boats.jpg.txt``."""
    return Path(name).with_suffix(TEXT).as_posix(), f"{name}{TEXT}"


def read_beside(path: Path) -> str:
    """Return the text of a file beside a picture, in one line. Bytes that are not UTF-8 are surrogates.

    Raises:
        OSError: If the file cannot be read.
    """
    return " ".join(path.read_bytes().decode("utf-8-sig", "surrogateescape").split())


def _picture_rows(folder: Path, *, follow_links: bool) -> Iterator[MetadataRow]:
    names, boundary = list(_picture_names(folder)), None if follow_links else Boundary(folder)
    has_folders = any("/" in name for name in names)
    for number, name in enumerate(names, start=1):
        place = {"folder": name.rpartition("/")[0]} if has_folders else {}
        try:
            text = _text_beside(folder, name, boundary)
        except OSError as error:
            yield MetadataRow(number, problem=f'the text beside "{name}" cannot be read ({error.strerror})')
            continue
        if UNUSABLE.search(text):
            yield MetadataRow(number, problem=f'the text beside "{name}" is not UTF-8')
        else:
            yield MetadataRow(number, {"file_name": name, "text": text, **place})


def _text_beside(folder: Path, name: str, boundary: Boundary | None) -> str:
    """Return the text of the file beside a picture; empty if there is none, or a link leads out of the boundary to it."""
    for beside in names_beside(name):
        if (folder / beside).is_file() and (boundary is None or boundary.contains(beside)):
            return read_beside(folder / beside)
    return ""


def _picture_names(folder: Path) -> Iterator[str]:
    """Yield the paths of the pictures, relative to the folder, folder by folder. Hidden ones are left out."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if Path(name).suffix.lower() in SUFFIXES and not name.startswith("."):
                yield (Path(place) / name).relative_to(folder).as_posix()
