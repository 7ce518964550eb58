"""The content of an archive in a small file, so that a run notices when its archive has changed, and says what.

The file holds a digest of everything that a run uses (ids, labels, splits, texts, features, pictures), the ids, and a
checksum per item and column. The digests decide whether the archive has changed. The checksums only name the items that
have changed.
"""

import hashlib
import zlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.base.files import TRAIN_AGAIN, digest_arrays, digest_json, read_arrays, write_arrays
from silohash.base.forms import check_version, of_value, reading
from silohash.base.visible import visible
from silohash.data.archive import Archive, Pictures
from silohash.data.pictures.reading import GrayPictures, PackedPictures, PictureFiles

VERSION = 1
MOST_ID_BYTES = 1 << 31
NAMED = 3
"""Number of changed items that a message names per kind of change."""

CALLED = {"text": "text", "image": "picture", "labels": "labels", "captions": "caption", "preview": "preview"}
"""What messages call the columns that are compared item by item."""

NOT_PER_ITEM = {
    "ids": "the order of the items",
    "splits": "the splits",
    "present": "which items have pictures and texts",
    "label names": "the names of the labels",
}
"""What messages call the parts that are compared as a whole."""

Checksums: TypeAlias = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Fingerprint:
    """The content of an archive, without the archive.

    Attributes:
        name: Name of the archive.
        digests: Digest of each part. Two archives have equal content if these are equal.
        ids: Ids of the items, in the order of the rows.
        items: For each of `CALLED`, ``(N,)`` checksums of the items, or nothing if they cannot be computed per item.
    """

    name: str
    digests: Mapping[str, str]
    ids: Sequence[str]
    items: Mapping[str, Checksums]


@dataclass(frozen=True)
class _About:
    """The JSON value beside the arrays of the file."""

    version: int
    name: str
    digests: dict[str, str]


def digests_of(archive: Archive) -> dict[str, str]:
    """Return a digest of each part of an archive that a run uses."""
    columns = {name: getattr(archive, name) for name in CALLED}
    return {
        "ids": digest_json(archive.ids.tolist()),
        "splits": digest_arrays({name: rows.astype("<i8") for name, rows in archive.splits.items()}),
        "present": digest_arrays({"image": archive.has_image, "text": archive.has_text}),
        "label names": digest_json(archive.label_names),
        **{name: _digest(column) for name, column in columns.items() if column is not None},
    }


def write_fingerprint(path: Path, archive: Archive) -> None:
    """Write the fingerprint of an archive."""
    text = "\0".join(archive.ids.tolist()).encode("utf-8", "surrogatepass")
    arrays: dict[str, npt.NDArray[Any]] = {"ids": np.frombuffer(zlib.compress(text), np.uint8)}
    for name in CALLED:
        checksums = checksums_of(archive, name)
        if checksums is not None:
            arrays[f"items/{name}"] = checksums
    write_arrays(path, arrays, {"version": VERSION, "name": archive.card.name, "digests": digests_of(archive)})


def read_fingerprint(path: Path) -> Fingerprint:
    """Read the file that `write_fingerprint` wrote.

    Raises:
        UserError: If it is missing or damaged, or has another version.
    """
    arrays, about = read_arrays(path)
    with reading(path, remedy=TRAIN_AGAIN):
        stated = of_value(about, _About)
        check_version(path, stated.version, VERSION)
        text = zlib.decompressobj().decompress(arrays["ids"].tobytes(), MOST_ID_BYTES)
        ids = text.decode("utf-8", "surrogatepass").split("\0")
        items = {name: arrays[f"items/{name}"] for name in CALLED if f"items/{name}" in arrays}
        if any(checksums.shape != (len(ids),) for checksums in items.values()):
            raise ValueError("the number of checksums differs from the number of ids")
    return Fingerprint(stated.name, stated.digests, ids, items)


def changes(before: Fingerprint, archive: Archive) -> list[str]:
    """Return what has changed since the fingerprint was written, one phrase per kind of change; nothing if equal."""
    changed = dict(before.digests.items() ^ digests_of(archive).items())
    if not changed:
        return []
    old = {name: row for row, name in enumerate(before.ids)}
    new = {str(name): row for row, name in enumerate(archive.ids)}
    phrases = [*_listed(_without(new, old), "{} new"), *_listed(_without(old, new), "{} missing")]
    # With other items, these have changed in any case.
    phrases = phrases or [words for part, words in NOT_PER_ITEM.items() if part in changed]
    rows = np.array([[old[name], row] for name, row in new.items() if name in old], np.int64).reshape(-1, 2)
    for column in CALLED:
        if column in changed:
            phrases += _changed_items(before, archive, column, rows)
    return phrases or ["its content"]


def _without(names: Iterable[str], known: Container[str]) -> list[str]:
    return [name for name in names if name not in known]


def _changed_items(before: Fingerprint, archive: Archive, column: str, rows: npt.NDArray[np.int64]) -> Iterator[str]:
    """Yield a phrase that names the items whose value in a column has changed."""
    now = checksums_of(archive, column)
    known = before.items.get(column)
    if known is None or now is None:
        yield f"the {CALLED[column]}{'' if column == 'labels' else 's'}"
        return
    differs = known[rows[:, 0]] != now[rows[:, 1]]
    found = [_named(archive, column, int(row)) for row in rows[differs, 1]]
    yield from _listed(found, f"{{}} with {'other' if column == 'labels' else 'another'} {CALLED[column]}")


def _listed(names: Sequence[str], form: str) -> Iterator[str]:
    """Yield a phrase with the number of items and the first of their names, if there are any."""
    if names:
        count = f"{len(names):,} item{'s' if len(names) > 1 else ''}"
        more = ", …" if len(names) > NAMED else ""
        yield f"{form.format(count)} ({', '.join(map(visible, names[:NAMED]))}{more})"


def _named(archive: Archive, column: str, row: int) -> str:
    """Return an item's id, with its file if a picture in a file has changed."""
    pictures = getattr(archive, column)
    name = str(archive.ids[row])
    file = pictures.files[row] if isinstance(pictures, PictureFiles) else ""
    return f"{name}: {pictures.folder / file}" if file and file != name else name


def _digest(column: Pictures | npt.NDArray[Any]) -> str:
    if not isinstance(column, np.ndarray):
        return column.digest()
    return digest_json(column.tolist()) if column.dtype.kind == "U" else digest_arrays({"values": column})


def checksums_of(archive: Archive, name: str) -> Checksums | None:
    """Return ``(N,)`` checksums of a column, or None if it does not exist or its items cannot be read one by one."""
    column = getattr(archive, name)
    contents = None if column is None else _labels(archive) if name == "labels" else _contents(column)
    if contents is None:
        return None
    digests = (hashlib.blake2b(content, digest_size=4).digest() for content in contents)
    return np.fromiter((int.from_bytes(digest, "little") for digest in digests), np.uint32, len(archive))


def _labels(archive: Archive) -> Iterator[bytes]:
    """Return the names of each item's labels, so that a new label changes only the items that have it."""
    return ("\0".join(archive.labels_of(row)).encode("utf-8", "surrogatepass") for row in range(len(archive)))


def _contents(column: Pictures | npt.NDArray[Any]) -> Iterator[bytes] | None:
    """Return the content of each item, or its digest, as bytes."""
    if isinstance(column, GrayPictures):
        return map(np.ndarray.tobytes, column.pixels)
    if isinstance(column, PictureFiles):
        return (column.content_digest(row).encode() if name else b"" for row, name in enumerate(column.names))
    if isinstance(column, PackedPictures):
        return map(column.content, range(len(column)))
    if not isinstance(column, np.ndarray):
        return None
    if column.dtype.kind == "U":
        return (text.encode("utf-8", "surrogatepass") for text in column.tolist())
    return map(np.ndarray.tobytes, column)
