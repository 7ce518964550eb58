"""Digests of files, remembered with size and modification time, so that an unchanged file is not read again.

The digests are of contents, so a copied or moved folder has the same digests although its files have other times. A file
whose size or time has changed is read again, and only that file.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

from silohash.base.attempts import attempted
from silohash.base.cache import private_cache
from silohash.base.errors import UserError
from silohash.base.files import digest_file, digest_json, read_json, write_json

FILES_VERSION = 1
PICTURE_RULE = 2
"""Version of the rule by which picture files become pixels, see `silohash.data.pictures`. Pictures of more than 8 bits and
pictures with a color profile depend on it, and so does everything that is kept of pictures."""

PICTURES = "pictures"
FILES = "files"
SETTLED_NANOSECONDS = 2_000_000_000
"""A file that changed less than this before it was read may change again without a new time, and is not remembered."""


class Stamp(NamedTuple):
    """What is remembered of a file: its size in bytes, the time of its last modification in nanoseconds, and its digest.

    If it is a picture file, it may have a problem, because of which it cannot be used, or a note on what was assumed to
    decode it. The digest is empty if it could not be read.
    """

    size: int
    time: int
    digest: str
    problem: str = ""
    note: str = ""


Table: TypeAlias = dict[str, Stamp]
"""What is remembered of the files of a folder, by their names."""


def table_path(kind: str, folder: Path) -> Path:
    """Return the file that remembers the picture files (`PICTURES`) or other files (`FILES`) of a folder."""
    version = PICTURE_RULE if kind == PICTURES else FILES_VERSION
    return private_cache(kind) / f"{digest_json([version, str(folder.resolve())])}.json"


def read_table(kind: str, folder: Path) -> Table:
    """Return what is remembered of the files of a folder; nothing if that is missing or damaged."""
    return attempted(lambda: read_json(table_path(kind, folder), Table), UserError, otherwise=Table())


def file_digests(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """Return the digest of each file of a folder. A file is read unless its size and time are as they were last time."""
    before = read_table(FILES, folder)
    digests: dict[str, str] = {}
    fresh: Table = {}
    for name in dict.fromkeys(names):
        stat = (folder / name).stat()
        known = before.get(name)
        if known is not None and (known.size, known.time) == (stat.st_size, stat.st_mtime_ns):
            digests[name] = known.digest
            continue
        started = time.time_ns()
        digests[name] = digest_file(folder / name)
        if started - stat.st_mtime_ns > SETTLED_NANOSECONDS:
            fresh[name] = Stamp(stat.st_size, stat.st_mtime_ns, digests[name])
    if fresh:
        _write_table(folder, {**before, **fresh})
    return digests


def remember(folder: Path, digests: Mapping[str, str]) -> None:
    """Remember the digests of files that this process has just written, so that no reader needs to."""
    stats = {name: (folder / name).stat() for name in digests}
    fresh = {name: Stamp(stat.st_size, stat.st_mtime_ns, digests[name]) for name, stat in stats.items()}
    _write_table(folder, {**read_table(FILES, folder), **fresh})


def _write_table(folder: Path, table: Table) -> None:
    """Write what is remembered of the files of a folder. Without a writable cache nothing is remembered."""
    with suppress(UserError, OSError):
        write_json(table_path(FILES, folder), {name: [*stamp[:3]] for name, stamp in table.items()}, private=True)


def forget(folder: Path) -> dict[Path, Stamp]:
    """Forget the digests of all files below a folder, so that they are read again, and return them by path."""
    forgotten: dict[Path, Stamp] = {}
    for place, kind, table in _tables(folder):
        forgotten |= {place / name: stamp for name, stamp in table.items()}
        with suppress(OSError):
            table_path(kind, place).unlink(missing_ok=True)
    return forgotten


def silently_changed(folder: Path, before: dict[Path, Stamp]) -> list[Path]:
    """Return the files whose content differs from what `forget` returned, although size and time are the same."""
    now = {place / name: stamp for place, _, table in _tables(folder) for name, stamp in table.items()}
    return sorted(
        path
        for path, old in before.items()
        if path in now and now[path][:2] == old[:2] and now[path].digest != old.digest
    )


def _tables(folder: Path) -> Iterable[tuple[Path, str, Table]]:
    folders = [folder, *(path for path in sorted(folder.rglob("*")) if path.is_dir())]
    for place in folders:
        for kind in (PICTURES, FILES):
            table = read_table(kind, place)
            if table:
                yield place, kind, table
