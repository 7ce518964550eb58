"""Check which picture files of a folder can be decoded. Each usable file is decoded once, and the verdict is cached."""

import contextlib
import os
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from silohash.base.errors import UserError
from silohash.base.files import digest_bytes, read_bytes, write_json
from silohash.base.names import listed
from silohash.base.stamps import PICTURES, Stamp, read_table, table_path
from silohash.data.links import Boundary
from silohash.data.pictures.formats import TIFF, format_of
from silohash.data.pictures.reading import decode

DECODED_PIXELS = 64
NO_FILE = Stamp(0, -1, "")


def check_pictures(folder: Path, names: Sequence[str], *, follow_links: bool = True) -> dict[str, Stamp]:
    """Decode picture files in parallel, except those that were usable and have the size and time of the last check.

    A file that was not usable is read again, because the disk may have failed for a while, or the file may have been
    incomplete. A name that leads out of the folder gets a problem, and so does a link that does, unless ``follow_links``.
    """
    before = read_table(PICTURES, folder)
    boundary = None if follow_links else Boundary(folder)
    found = {name: _stamp(folder, name, boundary) for name in dict.fromkeys(names)}
    for name, stamp in found.items():
        known = before.get(name)
        if known is not None and known[:2] == stamp[:2] and not known.problem:
            found[name] = known
    fresh = [name for name, stamp in found.items() if not stamp.digest and not stamp.problem]
    if fresh:
        with warnings.catch_warnings(), ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            warnings.simplefilter("ignore")
            found |= zip(fresh, pool.map(lambda name: _decoded(folder / name, found[name]), fresh), strict=True)
        with contextlib.suppress(UserError, OSError):
            table = {name: [*stamp] for name, stamp in found.items() if stamp[:2] != NO_FILE[:2]}
            write_json(table_path(PICTURES, folder), table, private=True)
    return found


def describe_assumptions(found: Mapping[str, Stamp]) -> str:
    """Return a sentence that names the pictures of which something was assumed; empty if there are none."""
    names = [name for name, stamp in found.items() if stamp.note]
    count = f"{len(names):,} pictures declare" if len(names) > 1 else "1 picture declares"
    return f"{count} no value range, so percentiles set black and white: {listed(names)}." if names else ""


def _stamp(folder: Path, name: str, boundary: Boundary | None) -> Stamp:
    if Path(name).is_absolute() or os.pardir in Path(os.path.normpath(name)).parts:
        return NO_FILE._replace(problem=f'the picture "{name}" lies outside the folder')
    try:
        stat = (folder / name).stat()
    except (OSError, ValueError):
        return NO_FILE._replace(problem=f'the picture "{name}" is missing')
    if not (folder / name).is_file():
        return NO_FILE._replace(problem=f'the picture "{name}" is not a file')
    if boundary is not None and not boundary.contains(name):
        problem = f'the picture "{name}" is a link that leads out of the folder, and follow_links is not set'
        return NO_FILE._replace(problem=problem)
    return Stamp(stat.st_size, stat.st_mtime_ns, "")


def _decoded(path: Path, stamp: Stamp) -> Stamp:
    notes: list[str] = []
    try:
        content = read_bytes(path)
        # A reduced page of a TIFF file would not show that the first one is damaged.
        reduced = format_of(content) is not TIFF
        decode(content, at_least_pixels=DECODED_PIXELS if reduced else 0, notes=notes)
    except OSError as error:
        return stamp._replace(problem=f'the picture "{path.name}" cannot be read ({error.strerror})')
    except ValueError as error:
        return stamp._replace(problem=f'the picture "{path.name}" cannot be decoded ({error})')
    return stamp._replace(digest=digest_bytes(content), note=" ".join(notes))
