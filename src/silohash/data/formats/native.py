"""The folder format of silohash itself: arrays, lists and packed pictures beside a ``manifest.json``.

A folder holds ``ids.txt`` (one id per line), ``split.txt`` (the splits of each item, joined with ``|``) and
``present.npy`` (``(N, 2)`` bool: has a picture, has a text). Where the archive has them, it also holds ``label.npy``,
``image.npy`` and ``text.npy`` (given features), ``image/images-NNN.npz`` (picture files end to end), ``text.jsonl`` (one
string per line), ``captions.jsonl``, ``columns.jsonl`` and ``preview/images-NNN.npz``. If items share a picture,
``image/names.jsonl`` or ``preview/names.jsonl`` names that of each item. The manifest states the number of items, the kind,
shape and type of each column, the archive's card, and the size and digest of every file.
"""

import io
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from silohash.base import errors
from silohash.base.files import digest_file, folder_beside, read_json, write_bytes, write_json, write_text
from silohash.base.forms import check_version, damaged, detail, reading
from silohash.base.stamps import file_digests
from silohash.data.archive import Archive, ArchiveCard, Column, NamedPictures, Pictures, is_features
from silohash.data.links import check_link
from silohash.data.pairs import shares
from silohash.data.pictures.reading import GrayPictures, PackedPictures, PictureFiles, read_array
from silohash.data.regions import Regions

MANIFEST = "manifest.json"
NAMES = "names.jsonl"
FORMAT = "silohash-archive"
VERSION = 1
SHARD_BYTES = 1 << 26
CHECKED_BYTES = 1 << 24
"""Files up to this size are read and compared with their digest each time the folder is opened, larger ones only if their
size or time has changed since they were last read."""

IMPORT_AGAIN = "Restore it, or import the data again."
GIVE_A_FOLDER = "Give a folder that silohash data import wrote."


@dataclass(frozen=True)
class _Kind:
    """The entries of the manifest that tell whether this silohash can read the others."""

    format: str = ""
    version: int = 0


@dataclass(frozen=True)
class _FileNote:
    bytes: int
    digest: str


@dataclass(frozen=True)
class _ColumnForm:
    kind: Literal["gray", "pictures", "features", "strings"]
    digest: str = ""
    dtype: str = ""
    named: bool = False


@dataclass(frozen=True)
class _Manifest:
    items: int
    image: _ColumnForm | None
    text: _ColumnForm | None
    captions: _ColumnForm | None
    preview: _ColumnForm | None
    label_names: tuple[str, ...] | None
    splits: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    ids: str
    card: ArchiveCard
    files: dict[str, _FileNote]
    query_in_database: bool
    automatic_splits: bool


def is_native(path: Path) -> bool:
    """Return whether `write_native` wrote the folder."""
    manifest = path / MANIFEST
    if not manifest.is_file():
        return False
    try:
        return read_json(manifest, _Kind).format == FORMAT
    except errors.UserError:
        return not any(path.glob("metadata.*"))


def write_native(folder: Path, archive: Archive) -> None:
    """Write an archive into a new folder, or one that this function wrote earlier, completely or not at all.

    Picture files are copied unchanged, one at a time. Pictures without a file (in memory or in an array of pixels) are
    stored as PNG, which is lossless.

    Raises:
        UserError: If another folder of that name exists, an id or the name of a split cannot be stored as a line, or the
            disk is full.
    """
    if folder.exists() and not is_native(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise errors.ForeignFiles(f"{folder} already exists and was not written by silohash. Choose a new folder.")
    with folder_beside(folder) as new:
        about = {
            "format": FORMAT, "version": VERSION, "items": len(archive),
            "image": _write_column(new, "image", archive.image, archive.has_image),
            "text": _write_column(new, "text", archive.text),
            "captions": _write_column(new, "captions", archive.captions),
            "preview": _write_column(new, "preview", archive.preview),
            "label_names": None if archive.labels is None else archive.label_names, "splits": list(archive.splits),
            "columns": [[name, column.dtype.str] for name, column in archive.columns.items()],
            "ids": archive.ids.dtype.str, "card": asdict(archive.card),
            "query_in_database": archive.query_in_database, "automatic_splits": archive.automatic_splits,
        }  # fmt: skip
        _write_lists(new, archive)
        if archive.labels is not None:
            np.save(new / "label.npy", archive.labels, allow_pickle=False)
        np.save(new / "present.npy", np.stack([archive.has_image, archive.has_text], axis=1), allow_pickle=False)
        files = {
            path.relative_to(new).as_posix(): {"bytes": path.stat().st_size, "digest": digest_file(path)}
            for path in sorted(new.rglob("*"))
            if path.is_file()
        }
        write_json(new / MANIFEST, {**about, "files": files})


def read_native(path: Path, *, check: bool = False, follow_links: bool = False) -> Archive:
    """Open a folder that `write_native` wrote. Large arrays and pictures are mapped into memory, not read.

    A large file is compared with its digest only if its size or time has changed since it was last read on this machine;
    with ``check``, every file is. With ``follow_links``, files may be symbolic links that lead out of the folder.

    Raises:
        UserError: If a file is missing, changed or damaged or leads out of the folder, or a newer silohash wrote the folder.
    """
    manifest = path / MANIFEST
    if not manifest.is_file():
        raise errors.MissingFile(f"{manifest} is missing. {GIVE_A_FOLDER}")
    kind = read_json(manifest, _Kind, remedy=IMPORT_AGAIN)
    if kind.format != FORMAT:
        raise errors.WrongKindOfFile(f"{manifest} was not written by silohash. {GIVE_A_FOLDER}")
    check_version(path, kind.version, VERSION, "Use the silohash that wrote it, or import the data again.")
    about = read_json(manifest, _Manifest, remedy=IMPORT_AGAIN)
    for name in (MANIFEST, *about.files):
        check_link(path, name, follow_links=follow_links)
    _check_files(path, about.files, whole=check)
    with reading(path / MANIFEST, remedy=IMPORT_AGAIN):
        return _archive(path, about)


def _write_column(
    folder: Path, name: str, column: Column | None, present: npt.NDArray[np.bool_] | None = None
) -> dict[str, Any] | None:
    """Write pictures with the names that items share, features or strings; return the column's entry in the manifest."""
    if column is None:
        return None
    if isinstance(column, GrayPictures):
        np.save(folder / f"{name}.npy", column.pixels, allow_pickle=False)
        return {"kind": "gray", **_form(column.pixels), "digest": column.digest()}
    if isinstance(column, Regions):
        raise errors.NotSupported(
            "An archive with regions of pictures cannot be copied. Copy it with its pictures or features."
        )
    if not isinstance(column, np.ndarray):
        named = np.array(column.names) != "" if isinstance(column, PictureFiles) else np.ones(len(column), bool)
        _write_pictures(folder / name, column, named if present is None else present)
        names = column.names if isinstance(column, NamedPictures) else None
        if not names or not shares(names):
            return {"kind": "pictures", "digest": column.digest()}
        _write_lines(folder / name / NAMES, names)
        return {"kind": "pictures", "digest": column.digest(), "named": True}
    if is_features(column):
        np.save(folder / f"{name}.npy", column, allow_pickle=False)
        return {"kind": "features", **_form(column)}
    _write_lines(folder / f"{name}.jsonl", column.tolist())
    return {"kind": "strings", **_form(column)}


def _form(array: np.ndarray) -> dict[str, Any]:
    return {"shape": list(array.shape), "dtype": array.dtype.str}


def _write_lines(path: Path, values: Iterable[object]) -> None:
    write_bytes(path, "".join(f"{json.dumps(value)}\n" for value in values).encode())


def _write_pictures(folder: Path, pictures: Pictures, present: npt.NDArray[np.bool_]) -> None:
    folder.mkdir()
    contents: list[bytes] = []
    shard = size = 0
    for row, has_picture in enumerate(present.tolist()):
        contents.append(_content(pictures, row) if has_picture else b"")
        size += len(contents[-1])
        if size >= SHARD_BYTES or row == len(present) - 1:
            offsets = np.cumsum([0, *map(len, contents)], dtype=np.int64)
            data = np.frombuffer(b"".join(contents), np.uint8)
            np.savez(folder / f"images-{shard:05d}.npz", data=data, offsets=offsets)
            contents, shard, size = [], shard + 1, 0


def _content(pictures: Pictures, row: int) -> bytes:
    """Return the file of a picture, or a PNG file of its pixels."""
    if isinstance(pictures, PackedPictures | PictureFiles):
        return pictures.content(row)
    stream = io.BytesIO()
    pictures.picture(row).save(stream, format="PNG")
    return stream.getvalue()


def _write_lists(folder: Path, archive: Archive) -> None:
    ids = archive.ids.tolist()
    for what, values, refused in (("id", ids, r"[\n\r]"), ("split", archive.splits, r"[\n\r|]")):
        for value in filter(re.compile(refused).search, values):
            raise errors.InvalidName(
                f"The {what} {value!r} contains a line break or |, which separate entries. Rename it."
            )
    write_text(folder / "ids.txt", "".join(f"{name}\n" for name in ids))
    of_item: list[list[str]] = [[] for _ in ids]
    for name, rows in archive.splits.items():
        for row in rows.tolist():
            of_item[row].append(name)
    write_text(folder / "split.txt", "".join(f"{'|'.join(names)}\n" for names in of_item))
    if archive.columns:
        columns = (column.tolist() for column in archive.columns.values())
        _write_lines(folder / "columns.jsonl", zip(*columns, strict=True))


def _check_files(folder: Path, files: Mapping[str, _FileNote], *, whole: bool) -> None:
    for name, noted in files.items():
        path = folder / name
        if not path.is_file():
            raise errors.MissingFile(f"{path} is missing. {IMPORT_AGAIN}")
        size = path.stat().st_size
        if size != noted.bytes:
            raise errors.DamagedFile(
                f"{path} has {size:,} bytes and the manifest states {noted.bytes:,}. {IMPORT_AGAIN}"
            )
        read = whole or size <= CHECKED_BYTES
        if (digest_file(path) if read else file_digests(folder, [name])[name]) != noted.digest:
            raise errors.DamagedFile(f"{path} was changed after it was written. {IMPORT_AGAIN}")


def _archive(path: Path, about: _Manifest) -> Archive:
    count, names = about.items, about.label_names
    has_image, has_text = read_array(path / "present.npy").T
    splits: dict[str, list[int]] = {name: [] for name in about.splits}
    for row, line in enumerate(_lines(path / "split.txt", count)):
        for name in filter(None, line.split("|")):
            splits[name].append(row)
    lines = _parsed_lines(path / "columns.jsonl", count) if about.columns else []
    return Archive(
        ids=np.array(_lines(path / "ids.txt", count), dtype=about.ids),
        image=_column(path, "image", about.image, count), text=_column(path, "text", about.text, count),
        labels=None if names is None else read_array(path / "label.npy"), label_names=tuple(names or ()),
        splits={name: np.array(rows, np.int64) for name, rows in splits.items()}, card=about.card,
        columns={name: np.array([line[k] for line in lines], kind) for k, (name, kind) in enumerate(about.columns)},
        has_image=has_image.copy(), has_text=has_text.copy(),
        captions=_column(path, "captions", about.captions, count),
        preview=_column(path, "preview", about.preview, count), query_in_database=about.query_in_database,
        automatic_splits=about.automatic_splits, folder=path.resolve(),
    )  # fmt: skip


def _column(folder: Path, name: str, form: _ColumnForm | None, count: int) -> Any:  # noqa: ANN401  any column
    if form is None:
        return None
    if form.kind == "pictures":
        names = _parsed_lines(folder / name / NAMES, count) if form.named else None
        return PackedPictures(folder / name, form.digest, names)
    if form.kind == "strings":
        return np.array(_parsed_lines(folder / f"{name}.jsonl", count), dtype=form.dtype)
    array = read_array(folder / f"{name}.npy", mapped=True)
    return GrayPictures(array, form.digest) if form.kind == "gray" else array


def _lines(path: Path, count: int) -> list[str]:
    with reading(path, remedy=IMPORT_AGAIN), path.open(encoding="utf-8", newline="\n") as stream:
        lines = [line.removesuffix("\n") for line in stream]
    if len(lines) == count:
        return lines
    raise errors.DamagedFile(
        f"{path} has {len(lines):,} lines and the manifest states {count:,} items. Restore the folder."
    )


def _parsed_lines(path: Path, count: int) -> list[Any]:
    values: list[Any] = []
    for number, line in enumerate(_lines(path, count), start=1):
        try:
            values.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            raise damaged(f"{path}, line {number}", detail(error), IMPORT_AGAIN) from error
    return values
