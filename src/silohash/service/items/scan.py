"""Read the items folder of a silo: which items it holds at the moment, and a stamp of each that changes with its content.

The folder holds either a metadata file, as ``silohash index`` reads it, with one item per row; or no metadata file, in which
case each picture file is an item whose id is its path within the folder. Items that programs put there are in the subfolder
``put`` and take precedence over items with the same id.

The file of an item that a program put, a JSON document, is the last one that is written. It names the item's picture, whose
file name contains a digest of its content. An item is therefore replaced as a whole or not at all. What has been written
survives a power failure.

A file that changed less than a second ago may still be written, so it is left for a later look.
"""

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from silohash.base.attempts import attempted
from silohash.base.errors import UserError
from silohash.base.files import (
    PART,
    digest_bytes,
    digest_json,
    explaining_disk_errors,
    read_json,
    write_bytes,
    write_text,
)
from silohash.base.sqlite_files import Signature, signature
from silohash.data.formats.file_names import find_names
from silohash.data.formats.folder import (
    LABELS,
    SPLIT_OF,
    allowed_labels,
    problems_of_values,
    row_ids,
    with_one_spelling,
)
from silohash.data.formats.metadata import FILES, UNUSABLE, MetadataRow, read_metadata
from silohash.data.formats.sidecars import names_beside, read_beside
from silohash.data.links import Boundary
from silohash.data.pictures.formats import NAMES, SUFFIXES

SETTLED_SECONDS = 1.0
"""Time without a change after which a file counts as complete."""

UNFINISHED = frozenset({".part", ".partial", ".tmp", ".crdownload"})
"""Ends of the names of files that other programs are still writing, in lowercase."""

PUT = "put"
"""Name of the subfolder of the items folder."""

SHORT_DIGITS = 12
REMEDY = "Remove it, and put the item again."

_PICTURE = re.compile(rf"[0-9a-f]{{32}}-[0-9a-f]{{{SHORT_DIGITS}}}(\.\w+)?")
"""Name of a picture file: the digest of the item's id, and the beginning of that of its content."""


class Record(BaseModel):
    """The content of an item's file, with the name of the picture file beside it, if there is one.

    The file of a deleted item hides an item of another origin with the same id.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    text: str = ""
    labels: tuple[str, ...] = ()
    picture: str = ""
    deleted: bool = False


class Records:
    """Read and write the files of items that programs put into a silo."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / PUT

    def read(self, name: str) -> Record | None:
        """Return the record of an item, or None if there is none. A damaged file is a `UserError`."""
        path = self._path(name)
        return read_json(path, Record, remedy=REMEDY) if path.exists() else None

    def write(self, record: Record, picture: bytes = b"", suffix: str = "") -> Record:
        """Write the record of an item, and return it with the name of its picture file.

        That name replaces the one in the given record. It ends with a suffix such as ``.png``.
        """
        path = self._path(record.id)
        former = self._picture_of(record.id)
        name = f"{path.stem}-{digest_bytes(picture)[:SHORT_DIGITS]}{suffix}" if picture else ""
        # The picture comes first: whenever the process ends, the record names a picture that is there.
        if picture:
            write_bytes(self.folder / name, picture)
        written = record.model_copy(update={"picture": name})
        write_text(path, written.model_dump_json(indent=1) + "\n")
        self._make_durable()
        if former and former != name:
            (self.folder / former).unlink(missing_ok=True)
        return written

    def remove(self, name: str) -> None:
        """Remove the record of an item and its picture, if there is one."""
        picture = self._picture_of(name)
        self._path(name).unlink(missing_ok=True)
        self._make_durable()
        if picture:
            (self.folder / picture).unlink(missing_ok=True)

    def paths(self) -> Iterator[Path]:
        """Yield the files of all records."""
        if self.folder.is_dir():
            yield from (path for path in sorted(self.folder.glob("*.json")) if not PART.fullmatch(path.name))

    def remove_leftovers(self) -> None:
        """Remove pictures that no record names, as after a process was killed between its two writes.

        Pictures of damaged records and files that were not written here are kept.
        """
        if not self.folder.is_dir():
            return
        for path in self.folder.iterdir():
            if _PICTURE.fullmatch(path.name) and not self._is_used(path.name):
                path.unlink(missing_ok=True)

    def _is_used(self, picture: str) -> bool:
        """Return whether the record to which a picture belongs names it, or cannot be read."""
        path = self.folder / f"{picture.rpartition('-')[0]}.json"
        return attempted(
            lambda: path.exists() and read_json(path, Record).picture == picture, UserError, otherwise=True
        )

    def _path(self, name: str) -> Path:
        """Return the file of an item. Its name is a digest, because ids may contain any character."""
        return self.folder / f"{digest_bytes(name.encode())}.json"

    def _picture_of(self, name: str) -> str:
        record = attempted(lambda: self.read(name), UserError, otherwise=None)  # a damaged file is replaced
        return "" if record is None else record.picture

    def _make_durable(self) -> None:
        if self.folder.is_dir():
            # A file that is on the disk can still lose its name in a power failure if its folder is not.
            with explaining_disk_errors(self.folder):
                handle = os.open(self.folder, os.O_RDONLY)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)


@dataclass(frozen=True)
class FolderItem:
    """Describe one item of the folder.

    Attributes:
        picture: Its picture file, relative to the folder; empty without one.
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
    """Read an items folder. The metadata file is read again only if it has changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records = Records(folder)
        self._rows: _Rows | None = None
        self._known: dict[str, tuple[Signature, FolderItem]] = {}
        self._texts: dict[str, tuple[Signature, str]] = {}
        self.names: frozenset[str] = frozenset()
        """Ids of the items that programs did not put there, as of the last scan."""

    def scan(self, now: float | None = None) -> Scan:
        """Return the content of the folder, as of some seconds since the epoch; None for the present time."""
        scan = Scan()
        now = time.time() if now is None else now
        metadata = [self.folder / name for name in FILES if (self.folder / name).is_file()]
        for item, hint in self._found_rows(scan, metadata[0], now) if metadata else self._found_pictures(scan):
            self._add(scan, item, hint, now)
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

    def _found_rows(self, scan: Scan, metadata: Path, now: float) -> Iterator[tuple[FolderItem, str]]:
        """Yield the rows of the metadata as items without stamps, each with a hint for the case that its picture is missing.

        Queries are held out, as by ``silohash index``.
        """
        self._read_rows(scan, metadata, now)
        if self._rows is None:
            return
        boundary, allowed = Boundary(self.folder), self._rows.allowed
        pictures = find_names(self.folder, (row.values.get("file_name", "") for _, row in self._rows.rows))
        for name, row in self._rows.rows:
            values, picture = row.values, pictures[row.values.get("file_name", "")]
            if SPLIT_OF.get(values.get("split", "").lower()) == "query":
                continue
            problem = _problem_of_row(row, picture.name, allowed, boundary)
            if not problem and name in scan.items:
                problem = f'the id "{name}" occurs in an earlier row'
            if problem:
                scan.problems[f"row {row.number}"] = problem
            else:
                yield FolderItem(name, picture.name, values.get("text", ""), row.labels), picture.hint

    def _read_rows(self, scan: Scan, metadata: Path, now: float) -> None:
        """Read the metadata if it has changed, but not while it or the list of labels is being written."""
        stats = {path: path.stat() for path in (metadata, self.folder / LABELS) if path.is_file()}
        if not all(_is_settled(stat, now) for stat in stats.values()):
            scan.unsettled, scan.complete = True, False
            return
        files = [(path, stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()]
        if self._rows is not None and self._rows.files == files:
            return
        try:
            _, rows = read_metadata(self.folder)
            allowed = allowed_labels(self.folder)
            named = zip(row_ids(rows), with_one_spelling(rows, allowed), strict=True)
            self._rows = _Rows(files, list(named), allowed)
        except UserError as error:
            scan.problems[metadata.name] = str(error)
            scan.complete = False

    def _found_pictures(self, scan: Scan) -> Iterator[tuple[FolderItem, str]]:
        boundary = Boundary(self.folder)

        def unreadable(error: OSError) -> None:
            """Note that a part of the folder could not be read."""
            scan.problems[str(error.filename)] = f"it cannot be read ({error.strerror})"
            scan.complete = False

        names = list(_file_names(self.folder, unreadable))
        pictures = [name for name in names if Path(name).suffix.lower() in SUFFIXES]
        texts = set(chain.from_iterable(map(names_beside, pictures))).intersection(names)
        self._texts = {name: known for name, known in self._texts.items() if name in texts}
        for name in names:
            if Path(name).suffix.lower() not in SUFFIXES:
                if name not in texts:
                    scan.problems[name] = f"its name does not end like that of a {NAMES} file"
            elif boundary.contains(name):
                beside = (text for text in names_beside(name) if text in texts and boundary.contains(text))
                yield from self._with_text(scan, name, next(beside, ""))
            else:
                scan.problems[name] = "it is a link that leads out of the folder"

    def _with_text(self, scan: Scan, name: str, beside: str) -> Iterator[tuple[FolderItem, str]]:
        """Yield a picture with the text beside it, if any, which is read again only if its file has changed."""
        text = ""
        try:
            if beside:
                current = signature(self.folder / beside)
                before, text = self._texts.get(beside, (None, ""))
                if before != current:
                    text = read_beside(self.folder / beside)
                    self._texts[beside] = current, text
        except OSError as error:  # it may be there, so an earlier version of the item is kept
            scan.problems[name] = f"the text beside it cannot be read ({error.strerror})"
            scan.waiting.add(name)
            return
        if UNUSABLE.search(text):
            scan.problems[name] = "the text beside it is not UTF-8"
        else:
            yield FolderItem(name, name, text), ""

    def _add(self, scan: Scan, item: FolderItem, hint: str, now: float) -> None:
        """Add an item, or note why it has to wait or cannot be used."""
        name, picture = item.id, item.picture
        signature: tuple[int, ...] = ()
        if picture:
            try:
                stat = (self.folder / picture).stat()
            except (FileNotFoundError, NotADirectoryError, ValueError):
                scan.problems[name] = f'the picture "{picture}" is missing{hint}'
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
        if not picture and not item.text:
            scan.problems[name] = "there is neither a picture nor a text"
            return
        scan.items[name] = replace(item, stamp=digest_json([picture, item.text, item.labels, signature]))

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


def _problem_of_row(row: MetadataRow, picture: str, allowed: tuple[str, ...] | None, boundary: Boundary) -> str:
    path, problem = Path(os.path.normpath(picture)), row.problem
    if picture and (path.is_absolute() or os.pardir in path.parts):
        problem = problem or f'the picture "{picture}" lies outside the folder'
    elif picture and not boundary.contains(picture):
        problem = problem or f'the picture "{picture}" is a link that leads out of the folder'
    return problem or next(problems_of_values(row, allowed, needs_split=False), "")


def _file_names(folder: Path, unreadable: Callable[[OSError], None]) -> Iterator[str]:
    """Yield the names of all files that may be pictures, relative to the folder. Temporary ones are left out."""
    for place, folders, files in os.walk(folder, onerror=unreadable):
        inside = Path(place).relative_to(folder)
        folders[:] = sorted(name for name in folders if not name.startswith(".") and (inside / name).as_posix() != PUT)
        for name in sorted(files):
            if not name.startswith(".") and name != LABELS and Path(name).suffix.lower() not in UNFINISHED:
                yield (inside / name).as_posix()
