"""The folder of a silo's picture files on this machine, stored beside the silo's index, so that hits can show paths."""

from __future__ import annotations

import os.path
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath

from silohash.base.files import read_json, write_json

SOURCE = "source.json"
INDEX_AGAIN = "Index the silo again: silohash index RUN"


@dataclass(frozen=True)
class PictureSource:
    """The folder that the file names of a silo's items are relative to.

    Attributes:
        folder: Absolute path of the folder when the items were indexed.
        within: The folder relative to the run's ``data.path``, which may be moved with the run; None if it is elsewhere.
    """

    folder: Path
    within: str | None = None

    @classmethod
    def of(cls, folder: Path, data_path: Path | None) -> PictureSource:
        """Return the source for a folder of picture files; ``data_path`` is None if they are not of the run's archive."""
        absolute = folder.resolve()
        if data_path is None or not absolute.is_relative_to(data_path.resolve()):
            return cls(absolute)
        return cls(absolute, absolute.relative_to(data_path.resolve()).as_posix())

    def write(self, index_folder: Path) -> None:
        """Write the source into the folder of a silo's index."""
        write_json(index_folder / SOURCE, {"folder": str(self.folder), "within": self.within})

    @classmethod
    def read(cls, index_folder: Path) -> PictureSource | None:
        """Return the source of a silo's index, or None if it was indexed without picture files.

        Raises:
            UserError: If the file is damaged.
        """
        path = index_folder / SOURCE
        return read_json(path, PictureSource, remedy=INDEX_AGAIN) if path.exists() else None

    def folders(self, data_path: Path | None) -> Iterator[Path]:
        """Yield the folders in which the picture files may lie: that of the run's current ``data.path`` comes first."""
        if data_path is not None and self.within is not None:
            yield data_path.resolve() / self.within
        yield self.folder


def find_file(folders: tuple[Path, ...], name: object) -> Path | None:
    """Return the path of a picture file that exists in one of some folders on this machine, or None.

    ``name`` is relative to the folders, as a silo released it. A name that leads out of the folders is ignored.
    """
    if not isinstance(name, str) or not name or "\0" in name:
        return None
    relative = PurePath(name)
    if relative.is_absolute() or ".." in relative.parts:
        return None
    candidates = (folder / relative for folder in folders)
    # Unlike `Path.is_file`, this does not raise an error for a name that is too long.
    return next((path for path in candidates if os.path.isfile(path)), None)  # noqa: PTH113
