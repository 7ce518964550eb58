"""Items that programs put into a silo: a file per item in the subfolder ``put`` of the items folder.

The file of an item, a JSON document, is the last one that is written. It names the item's picture, whose file name
contains a digest of its content. An item is therefore replaced as a whole or not at all. What has been written survives a
power failure.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from silohash.base.errors import UserError
from silohash.base.files import PART, digest_bytes, explaining_disk_errors, read_json, write_bytes, write_text

PUT = "put"
"""Name of the subfolder of the items folder."""

SHORT_DIGITS = 12
REMEDY = "Remove it, and put the item again."

_PICTURE = re.compile(rf"[0-9a-f]{{32}}-[0-9a-f]{{{SHORT_DIGITS}}}(\.\w+)?")
"""Name of a picture file: the digest of the item's id, and the beginning of that of its content."""


class Record(BaseModel):
    """The content of an item's file.

    Attributes:
        id: Id of the item.
        text: Its text, which may be empty.
        labels: Its labels.
        picture: Name of its picture file in the same folder; empty without one.
        deleted: Whether the item was removed. The file then hides an item of another origin with the same id.
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
        """Return the record of an item, or None if there is none.

        Raises:
            UserError: If its file is damaged.
        """
        path = self._path(name)
        return read_json(path, Record, remedy=REMEDY) if path.exists() else None

    def write(self, record: Record, picture: bytes = b"", suffix: str = "") -> Record:
        """Write the record of an item, and return it with the name of its picture file.

        Args:
            record: The record. Its field ``picture`` is ignored.
            picture: Content of the picture file; empty without a picture.
            suffix: End of the name of the picture file, such as ``.png``.

        Raises:
            UserError: If the disk is full or the folder cannot be written.
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
        try:
            return path.exists() and read_json(path, Record).picture == picture
        except UserError:
            return True

    def _path(self, name: str) -> Path:
        """Return the file of an item. Its name is a digest, because ids may contain any character."""
        return self.folder / f"{digest_bytes(name.encode())}.json"

    def _picture_of(self, name: str) -> str:
        try:
            record = self.read(name)
        except UserError:  # the damaged file is replaced
            return ""
        return "" if record is None else record.picture

    def _make_durable(self) -> None:
        """Wait until the names of the files are on the disk, too."""
        if self.folder.is_dir():
            # A file that is on the disk can still lose its name in a power failure if its folder is not.
            with explaining_disk_errors(self.folder):
                handle = os.open(self.folder, os.O_RDONLY)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)
