"""silohash's own folder of an archive: arrays, lists and packed pictures beside a ``manifest.json``.

A folder holds ``ids.txt`` (an id a line), ``split.txt`` (the splits of each item, joined with ``|``), ``present.npy``
(``(N, 2)`` bool: has a picture, has a text), and, where the archive has them, ``label.npy``, ``image.npy`` and
``text.npy`` (given features), ``image/images-NNN.npz`` (picture files end to end), ``text.jsonl`` (a string a line),
``captions.jsonl``, ``columns.jsonl`` and ``preview/images-NNN.npz``. The manifest tells the number of items, the kind,
shape and type of each column, the archive's card, and the size and digest of every file.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from silohash.data.archive import Archive, ArchiveCard, Column, Pictures, is_features
from silohash.data.pictures.decoding import GreyPictures
from silohash.data.pictures.packing import PackedPictures, PictureFiles
from silohash.files import digest_file, folder_beside, read_json, write_bytes, write_json, write_text
from silohash.types import Rows, UserError

MANIFEST = "manifest.json"
FORMAT = "silohash-archive"
VERSION = 1
SHARD_BYTES = 1 << 26
CHECKED_BYTES = 1 << 24
"""Files up to this size are compared with their digest whenever the folder is opened."""


def is_own(path: Path) -> bool:
    """Tells whether a folder is one that `write_own` wrote."""
    manifest = path / MANIFEST
    if not manifest.is_file():
        return False
    try:
        about = read_json(manifest)
    except UserError:
        return not any(path.glob("metadata.*"))
    return isinstance(about, dict) and about.get("format") == FORMAT


def write_own(folder: Path, archive: Archive) -> None:
    """Writes an archive into a folder of its own, whole or not at all; pictures are copied one at a time.

    Picture files are copied as they are; pictures without a file (in memory, in an array of pixels) are stored as PNG,
    which loses nothing.

    Args:
        folder: the new folder; an earlier one that this function wrote is replaced.
        archive: what is written.

    Raises:
        UserError: if there is another folder of that name, an id or a split's name cannot stand in a line, or the disk
            is full.
    """
    if folder.exists() and not is_own(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is there already, and silohash did not write it. Choose a new folder.")
    with folder_beside(folder) as new:
        about = {
            "format": FORMAT,
            "version": VERSION,
            "items": len(archive),
            "image": _write_column(new, "image", archive.image, archive.has_image),
            "text": _write_column(new, "text", archive.text, archive.has_text),
            "captions": _write_column(new, "captions", archive.captions, archive.has_text),
            "preview": _write_column(new, "preview", archive.preview, _shown(archive)),
            "label_names": None if archive.labels is None else list(archive.label_names),
            "splits": list(archive.splits),
            "columns": [[name, column.dtype.str] for name, column in archive.columns.items()],
            "ids": archive.ids.dtype.str,
            "card": _card(archive.card),
            "query_in_database": archive.query_in_database,
        }
        _write_lists(new, archive)
        if archive.labels is not None:
            _write_array(new / "label.npy", archive.labels)
        _write_array(new / "present.npy", np.stack([archive.has_image, archive.has_text], axis=1))
        write_json(new / MANIFEST, {**about, "files": _files(new)})


def read_own(path: Path, *, check: bool = False) -> Archive:
    """Opens a folder that `write_own` wrote: the same archive, its large arrays and pictures mapped, not read.

    Args:
        path: the folder.
        check: whether every file is compared with its digest, and not only the small ones; large files are else
            compared by their size.

    Raises:
        UserError: if a file is missing, was changed or is damaged, or a newer silohash wrote the folder.
    """
    about = _manifest(path)
    _check_files(path, about["files"], whole=check)
    try:
        return _archive(path, about)
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path / MANIFEST} is damaged: it lacks {error}. Write the folder again.") from error


def _card(card: ArchiveCard) -> dict[str, Any]:
    return {
        "name": card.name,
        "source": card.source,
        "licence": card.licence,
        "protocol": card.protocol,
        "digest": card.digest,
        "skipped": list(card.skipped),
        "notes": dict(card.notes),
    }


def _shown(archive: Archive) -> npt.NDArray[np.bool_]:
    """Returns which items have a picture to look at beside given features."""
    if isinstance(archive.preview, PictureFiles):
        return np.array([bool(name) for name in archive.preview.names], np.bool_)
    return np.ones(len(archive), np.bool_)


def _write_column(
    folder: Path, name: str, column: Column | None, there: npt.NDArray[np.bool_]
) -> dict[str, Any] | None:
    """Writes pictures, features or strings, and returns what the manifest tells of them."""
    if column is None:
        return None
    if isinstance(column, GreyPictures):
        _write_array(folder / f"{name}.npy", column.pixels)
        return {"kind": "grey", **_told(column.pixels), "digest": column.digest()}
    if not isinstance(column, np.ndarray):
        _write_pictures(folder / name, column, there)
        return {"kind": "pictures", "digest": column.digest()}
    if is_features(column):
        _write_array(folder / f"{name}.npy", column)
        return {"kind": "features", **_told(column)}
    _write_lines(folder / f"{name}.jsonl", column.tolist())
    return {"kind": "strings", **_told(column)}


def _told(array: np.ndarray) -> dict[str, Any]:
    return {"shape": list(array.shape), "dtype": array.dtype.str}


def _write_array(path: Path, array: np.ndarray) -> None:
    """Writes an array into a folder that is not yet in its place, without a second copy in memory."""
    np.save(path, array, allow_pickle=False)


def _write_lines(path: Path, values: Sequence[Any]) -> None:
    write_bytes(path, "".join(f"{json.dumps(value)}\n" for value in values).encode())


def _write_pictures(folder: Path, pictures: Pictures, there: npt.NDArray[np.bool_]) -> None:
    folder.mkdir()
    contents: list[bytes] = []
    shard = size = 0
    for row, present in enumerate(there.tolist()):
        contents.append(_content(pictures, row) if present else b"")
        size += len(contents[-1])
        if size >= SHARD_BYTES:
            _write_shard(folder, shard, contents)
            contents, shard, size = [], shard + 1, 0
    if contents or not shard:
        _write_shard(folder, shard, contents)


def _write_shard(folder: Path, shard: int, contents: Sequence[bytes]) -> None:
    offsets = np.cumsum([0, *map(len, contents)], dtype=np.int64)
    data = np.frombuffer(b"".join(contents), np.uint8)
    np.savez(folder / f"images-{shard:05d}.npz", data=data, offsets=offsets)


def _content(pictures: Pictures, row: int) -> bytes:
    """Returns a picture's own file, or a PNG file of its pixels."""
    if isinstance(pictures, PackedPictures | PictureFiles):
        return pictures.content(row)
    stream = io.BytesIO()
    pictures.picture(row).save(stream, format="PNG")
    return stream.getvalue()


def _write_lists(folder: Path, archive: Archive) -> None:
    ids = archive.ids.tolist()
    _check_lines("id", ids, "\n\r")
    _check_lines("split", list(archive.splits), "\n\r|")
    write_text(folder / "ids.txt", "".join(f"{name}\n" for name in ids))
    of_item: list[list[str]] = [[] for _ in ids]
    for name, rows in archive.splits.items():
        for row in rows.tolist():
            of_item[row].append(name)
    write_text(folder / "split.txt", "".join(f"{'|'.join(names)}\n" for names in of_item))
    if archive.columns:
        columns = [column.tolist() for column in archive.columns.values()]
        _write_lines(folder / "columns.jsonl", list(zip(*columns, strict=True)))


def _check_lines(what: str, values: Sequence[str], refused: str) -> None:
    for value in values:
        if any(character in value for character in refused):
            raise UserError(f"The {what} {value!r} holds a line break or |, and cannot stand in a list. Rename it.")


def _files(folder: Path) -> dict[str, dict[str, Any]]:
    return {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "digest": digest_file(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _manifest(path: Path) -> dict[str, Any]:
    manifest = path / MANIFEST
    if not manifest.is_file():
        raise UserError(f"{manifest} is missing. Give a folder that silohash data import wrote.")
    about = read_json(manifest)
    if not isinstance(about, dict) or about.get("format") != FORMAT or not isinstance(about.get("files"), dict):
        raise UserError(f"{manifest} was not written by silohash. Give a folder that silohash data import wrote.")
    if about.get("version") != VERSION:
        raise UserError(
            f"{path} is written in version {about.get('version')} of the format, and this silohash reads version "
            f"{VERSION}. Install the silohash that wrote it, or import the data again."
        )
    return about


def _check_files(folder: Path, files: Mapping[str, Any], *, whole: bool) -> None:
    for name, told in files.items():
        path = folder / name
        if not path.is_file():
            raise UserError(f"{path} is missing. Restore it, or import the data again.")
        size = path.stat().st_size
        if size != told["bytes"]:
            raise UserError(
                f"{path} has {size:,} bytes and the manifest says {told['bytes']:,}. Restore it, or import the data "
                "again."
            )
        if (whole or size <= CHECKED_BYTES) and digest_file(path) != told["digest"]:
            raise UserError(f"{path} was changed after it was written. Restore it, or import the data again.")


def _archive(path: Path, about: Mapping[str, Any]) -> Archive:
    count = int(about["items"])
    present = _array(path / "present.npy")
    card = about["card"]
    names = about["label_names"]
    return Archive(
        ids=np.array(_text_lines(path / "ids.txt", count), dtype=about["ids"]),
        image=_column(path, "image", about["image"], count),
        text=_column(path, "text", about["text"], count),
        labels=None if names is None else np.array(_array(path / "label.npy")),
        label_names=tuple(names or ()),
        splits=_splits(path / "split.txt", about["splits"], count),
        card=ArchiveCard(**{**card, "skipped": tuple(card["skipped"])}),
        columns=_columns(path / "columns.jsonl", about["columns"], count),
        has_image=np.array(present[:, 0]),
        has_text=np.array(present[:, 1]),
        captions=_column(path, "captions", about["captions"], count),
        preview=_column(path, "preview", about["preview"], count),
        query_in_database=bool(about.get("query_in_database", False)),
    )


def _array(path: Path) -> np.ndarray:
    try:
        mapped: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise UserError(f"{path} is damaged or of another kind ({error}). Restore the file.") from error
    return mapped


def _column(folder: Path, name: str, told: Mapping[str, Any] | None, count: int) -> Any:  # noqa: ANN401  as told
    if told is None:
        return None
    if told["kind"] == "pictures":
        return PackedPictures(folder / name, told["digest"])
    if told["kind"] == "grey":
        return GreyPictures(_array(folder / f"{name}.npy"), told["digest"])
    if told["kind"] == "features":
        return _array(folder / f"{name}.npy")
    return np.array(_json_lines(folder / f"{name}.jsonl", count), dtype=told["dtype"])


def _text_lines(path: Path, count: int) -> list[str]:
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return _counted(path, lines, count)


def _json_lines(path: Path, count: int) -> list[Any]:
    with path.open(encoding="utf-8", newline="\n") as stream:
        return _counted(path, list(_parsed(path, stream)), count)


def _parsed(path: Path, lines: Iterator[str]) -> Iterator[Any]:
    for number, line in enumerate(lines, start=1):
        try:
            yield json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{path}, line {number} is damaged ({error}). Restore the file.") from error


def _counted(path: Path, lines: list[Any], count: int) -> list[Any]:
    if len(lines) != count:
        raise UserError(f"{path} has {len(lines):,} lines and the manifest says {count:,} items. Restore the folder.")
    return lines


def _splits(path: Path, names: Sequence[str], count: int) -> dict[str, Rows]:
    rows: dict[str, list[int]] = {name: [] for name in names}
    for row, line in enumerate(_text_lines(path, count)):
        for name in filter(None, line.split("|")):
            rows[name].append(row)
    return {name: np.array(of_split, np.int64) for name, of_split in rows.items()}


def _columns(path: Path, told: Sequence[tuple[str, str]], count: int) -> dict[str, npt.NDArray[np.str_]]:
    if not told:
        return {}
    lines = _json_lines(path, count)
    return {name: np.array([line[k] for line in lines], dtype=kind) for k, (name, kind) in enumerate(told)}
