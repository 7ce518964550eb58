"""Read the items folder of a silo: which items it holds at the moment, and a stamp of each that changes with its content.

The folder holds either a metadata file, as ``silohash index`` reads it, with one item per row; or no metadata file, in which
case each picture file is an item whose id is its path within the folder. Items that programs put there are in a subfolder
(see `records`) and take precedence over items with the same id.

A file that changed less than a second ago may still be written, so it is left for a later look.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple

from silohash.base.errors import UserError
from silohash.base.files import digest_json, read_json
from silohash.base.sqlite_files import Signature, signature
from silohash.data.formats.file_names import FoundName, find_names
from silohash.data.formats.folder import (
    LABELS,
    SPLIT_OF,
    allowed_labels,
    problems_of_values,
    row_ids,
    with_one_spelling,
)
from silohash.data.formats.metadata import FILES, MetadataRow, read_metadata
from silohash.data.links import Boundary
from silohash.data.pictures.formats import NAMES, SUFFIXES
from silohash.service.items.records import PUT, Record, Records

SETTLED_SECONDS = 1.0
"""Time without a change after which a file counts as complete."""

UNFINISHED = frozenset({".part", ".partial", ".tmp", ".crdownload"})
"""Ends of the names of files that other programs are still writing, in lowercase."""


@dataclass(frozen=True)
class FolderItem:
    """Describe one item of the folder.

    Attributes:
        id: Id of the item.
        picture: Its picture file, relative to the folder; empty without one.
        text: Its text.
        labels: Its labels.
        stamp: A text that changes whenever the item does.
        put: Whether a program put it there.
        deleted: Whether it is to be removed from the index, see `Record`.
    """

    id: str
    picture: str = ""
    text: str = ""
    labels: tuple[str, ...] = ()
    stamp: str = ""
    put: bool = False
    deleted: bool = False


@dataclass
class Scan:
    """Hold the content of the folder.

    Attributes:
        items: The items by id. Those whose files are still being written are missing.
        waiting: Ids of items whose files may still be written, or cannot be read now. They are neither added nor removed.
        problems: Maps what cannot be used (an id, or a row of the metadata) to the reason.
        complete: Whether the whole folder could be read. Otherwise no item is removed because it is missing here.
        unsettled: Whether another look is needed soon.
    """

    items: dict[str, FolderItem] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    problems: dict[str, str] = field(default_factory=dict)
    complete: bool = True
    unsettled: bool = False


class _Rows(NamedTuple):
    """The rows of the metadata with their ids, the labels that they may have (None for any), and the state of both files."""

    files: object
    rows: list[tuple[str, MetadataRow]]
    allowed: tuple[str, ...] | None


class FolderScanner:
    """Read an items folder. The metadata file is read again only if it has changed.

    Attributes:
        folder: The folder.
        records: The items that programs put there.
        names: Ids of the other items, as of the last scan.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records = Records(folder)
        self._rows: _Rows | None = None
        self._known: dict[str, tuple[Signature, FolderItem]] = {}
        self.names: frozenset[str] = frozenset()

    def scan(self, now: float | None = None) -> Scan:
        """Return the content of the folder, as of some seconds since the epoch; None for the present time."""
        scan = Scan()
        now = time.time() if now is None else now
        metadata = [self.folder / name for name in FILES if (self.folder / name).is_file()]
        if metadata:
            self._add_rows(scan, metadata[0], now)
        else:
            self._add_pictures(scan, now)
        self.names = frozenset(scan.items) | scan.waiting
        before, self._known = self._known, {}
        for path in self.records.paths():
            self._add_record(scan, path, before)
        return scan

    def of_record(self, record: Record) -> FolderItem:
        """Return the item of a record."""
        stamp = digest_json(record.model_dump(mode="json"))
        picture = f"{PUT}/{record.picture}" if record.picture else ""
        return FolderItem(record.id, picture, record.text, record.labels, stamp, put=True, deleted=record.deleted)

    def _add_rows(self, scan: Scan, metadata: Path, now: float) -> None:
        """Add the rows of the metadata. While it or the list of labels is being written, the rows read before are used."""
        stats = {path: path.stat() for path in (metadata, self.folder / LABELS) if path.is_file()}
        if all(_is_settled(stat, now) for stat in stats.values()):
            files = [(path, stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()]
            if self._rows is None or self._rows.files != files:
                self._read_rows(scan, metadata, files)
        else:
            scan.unsettled, scan.complete = True, False
        boundary = Boundary(self.folder)
        if self._rows is not None:
            found = find_names(self.folder, (row.values.get("file_name", "") for _, row in self._rows.rows))
            for name, row in self._rows.rows:
                picture = found[row.values.get("file_name", "")]
                self._add_row(scan, name, row, picture, self._rows.allowed, boundary, now)

    def _read_rows(self, scan: Scan, metadata: Path, files: object) -> None:
        try:
            _, rows = read_metadata(self.folder)
            allowed = allowed_labels(self.folder)
            named = zip(row_ids(rows), with_one_spelling(rows, allowed), strict=True)
            self._rows = _Rows(files, list(named), allowed)
        except UserError as error:
            scan.problems[metadata.name] = str(error)
            scan.complete = False

    def _add_row(
        self,
        scan: Scan,
        name: str,
        row: MetadataRow,
        picture: FoundName,
        allowed: tuple[str, ...] | None,
        boundary: Boundary,
        now: float,
    ) -> None:
        """Add one row of the metadata. Queries are held out, as by ``silohash index``."""
        values, where = row.values, f"row {row.number}"
        if SPLIT_OF.get(values.get("split", "").lower()) == "query":
            return
        problem = row.problem or _problem_of_picture(picture.name, boundary)
        problem = problem or next(problems_of_values(row, allowed, needs_split=False), "")
        if not problem and name in scan.items:
            problem = f'the id "{name}" occurs in an earlier row'
        if problem:
            scan.problems[where] = problem
            return
        self._add(scan, name, picture, values.get("text", ""), row.labels, now)

    def _add_pictures(self, scan: Scan, now: float) -> None:
        boundary = Boundary(self.folder)

        def unreadable(error: OSError) -> None:
            """Note that a part of the folder could not be read."""
            scan.problems[str(error.filename)] = f"it cannot be read ({error.strerror})"
            scan.complete = False

        for name in _file_names(self.folder, unreadable):
            if Path(name).suffix.lower() not in SUFFIXES:
                scan.problems[name] = f"its name does not end like that of a {NAMES} file"
            elif boundary.contains(name):
                self._add(scan, name, FoundName(name), "", (), now)
            else:
                scan.problems[name] = "it is a link that leads out of the folder"

    def _add(self, scan: Scan, name: str, found: FoundName, text: str, labels: tuple[str, ...], now: float) -> None:
        """Add an item, or note why it has to wait or cannot be used."""
        picture = found.name
        signature: tuple[int, ...] = ()
        if picture:
            try:
                stat = (self.folder / picture).stat()
            except (FileNotFoundError, NotADirectoryError, ValueError):
                scan.problems[name] = f'the picture "{picture}" is missing{found.hint}'
                return
            except OSError as error:  # it may be there, so an earlier version is kept
                scan.problems[name] = f'the picture "{picture}" cannot be read ({error.strerror})'
                scan.waiting.add(name)
                return
            if not S_ISREG(stat.st_mode):
                scan.problems[name] = f'the picture "{picture}" is not a file'
                return
            if not _is_settled(stat, now):
                scan.waiting.add(name)
                scan.unsettled = True
                return
            signature = (stat.st_size, stat.st_mtime_ns)
        if not picture and not text:
            scan.problems[name] = "there is neither a picture nor a text"
            return
        stamp = digest_json([picture, text, labels, signature])
        scan.items[name] = FolderItem(name, picture, text, labels, stamp)

    def _add_record(self, scan: Scan, path: Path, before: Mapping[str, tuple[Signature, FolderItem]]) -> None:
        """Add the item of a record, which is read only if its file is not as it was ``before``."""
        try:
            current = signature(path)
            known = before.get(path.name)
            item = known[1] if known is not None and known[0] == current else self.of_record(read_json(path, Record))
        except (UserError, OSError) as error:
            if path.exists():  # otherwise it was removed during the scan
                scan.problems[f"{PUT}/{path.name}"] = str(error)
                scan.complete = False
            return
        self._known[path.name] = (current, item)
        scan.items[item.id] = item
        scan.waiting.discard(item.id)


def _is_settled(stat: os.stat_result, now: float) -> bool:
    """Return whether a file has not changed for a second. Its change time is set by the system, also for copied files."""
    # abs: the clock may have been set back since, and a file must not wait until it has caught up.
    return abs(now - stat.st_ctime) >= SETTLED_SECONDS


def _problem_of_picture(name: str, boundary: Boundary) -> str:
    if not name:
        return ""
    path = Path(os.path.normpath(name))
    if path.is_absolute() or os.pardir in path.parts:
        return f'the picture "{name}" lies outside the folder'
    return "" if boundary.contains(name) else f'the picture "{name}" is a link that leads out of the folder'


def _file_names(folder: Path, unreadable: Callable[[OSError], None]) -> Iterator[str]:
    """Yield the names of all files that may be pictures, relative to the folder. Temporary ones are left out."""
    for place, folders, files in os.walk(folder, onerror=unreadable):
        inside = Path(place).relative_to(folder)
        folders[:] = sorted(name for name in folders if not name.startswith(".") and (inside / name).as_posix() != PUT)
        for name in sorted(files):
            if not name.startswith(".") and name != LABELS and Path(name).suffix.lower() not in UNFINISHED:
                yield (inside / name).as_posix()
