"""Write files atomically (to a temporary file that is then renamed), and read them with a check of their form.

`read_json`, `read_toml`, `read_text`, `read_npy` and `read_arrays` are the only readers of our own files. Each ends in a
`UserError` that names the file if it is missing or not readable, or its content is damaged or does not have the expected
form (`silohash.base.forms`).
"""

import errno
import hashlib
import io
import json
import math
import os
import re
import shutil
import socket
import stat
import threading
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

import numpy as np
from safetensors.numpy import save as _save_safetensors

from silohash.base.errors import AlreadyExists, DiskFull, ForeignFiles, InvalidFile, ReadableByOthers, UnwritableFile
from silohash.base.forms import AGAIN, INTERRUPTED, detail, of_json, reading
from silohash.base.types import Arrays

T = TypeVar("T")

TRAIN_AGAIN = "Restore it, or run the training again."
MEASURE_AGAIN = 'Remove it and run "silohash evaluate" on the run again.'
NPY_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
MARKED_BYTES = 1 << 16
WRITTEN = ".written.json"
"""Name of the file that lists a folder's generated files (see `note_written`)."""
PART = re.compile(r"\.(?P<name>.+?)\.(?P<process>\d+)\.(?:(?P<writer>[0-9a-f]+-[0-9a-f]+)\.)?\d+\.(?:part|old)")
"""Name of an unfinished file or folder: its final name, the process that writes it, and what identifies that process."""
HOST = hashlib.blake2b(socket.gethostname().encode(), digest_size=3).hexdigest()
WRITER = f"{HOST}-{time.time_ns() >> 20:x}"
"""This machine and the start of this process. A process number alone may be used again, or on another machine."""
NOT_WRITABLE = {errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG}


@contextmanager
def explaining_disk_errors(path: Path) -> Iterator[None]:
    """Turn the error of a full or read-only disk into one that says what to do.

    Raises:
        UserError: Instead of the operating system's error.
    """
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise DiskFull(
                f"The disk is full: {path} could not be written, and no partial file was left behind. "
                "Free some space and run the command again."
            ) from error
        if error.errno in NOT_WRITABLE or _takes_no_files(error, path):
            raise UnwritableFile(f"{path} may not be written ({error.strerror}). Choose another folder.") from error
        raise


def _takes_no_files(error: OSError, path: Path) -> bool:
    """Tell whether a parent folder of ``path`` or a file next to it could not be created, as in /proc."""
    if error.errno != errno.ENOENT or not isinstance(error.filename, str | os.PathLike):
        return False
    refused = Path(error.filename)
    return refused in path.parents or (refused != path and refused.parent == path.parent)


def _beside(path: Path) -> Path:
    """Return a path in the same folder that no other process or thread writes to, and clean the folder on its first use."""
    key = (os.getpid(), path.parent.absolute())
    if key not in _cleaned:
        _cleaned.add(key)
        remove_leftovers(path.parent)
    return path.with_name(f".{path.name}.{os.getpid()}.{WRITER}.{threading.get_ident()}.part")


_cleaned: set[tuple[int, Path]] = set()
"""The processes and the folders from which they have removed leftovers."""


def remove_leftovers(folder: Path, *, alone: bool = False) -> None:
    """Remove the unfinished files and folders that killed processes left in a folder, not in its subfolders.

    A folder that was being replaced by `folder_beside` when its process was killed is put in place first, with its new
    content. Parts of another machine are removed only if this process is ``alone``, because it holds the folder's lock.
    """
    found = [(path, match) for path in sorted(folder.glob(".*")) if (match := PART.fullmatch(path.name))]
    gone = [
        (path, path.with_name(match["name"]))
        for path, match in found
        if _writer_is_gone(int(match["process"]), match["writer"], alone=alone)
    ]
    for path, target in gone:
        if path.suffix == ".old" and not os.path.lexists(target):
            whole = path.with_suffix(".part")
            with suppress(OSError):
                (whole if whole.exists() else path).replace(target)
    for path, _ in gone:
        _remove(path)


def _writer_is_gone(process: int, writer: str | None, *, alone: bool) -> bool:
    """Return whether the process that wrote a part has ended."""
    if writer is not None and not writer.startswith(f"{HOST}-"):
        return alone
    if process == os.getpid():
        return writer != WRITER
    if os.name != "posix":
        return alone
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def open_private(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file as `open` does, but if it is created, only its owner may read it."""
    return os.open(path, flags, 0o600)


def write_bytes(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write a file atomically: it either exists with its whole content, or is not changed.

    Nobody but its owner may read a private file, not even while it is written. If its folder does not exist, nobody else may
    enter that either. A full disk and a file that may not be written end in a `UserError`.
    """
    beside = _beside(path)
    with explaining_disk_errors(path):
        try:
            path.parent.mkdir(mode=0o700 if private else 0o777, parents=True, exist_ok=True)
            with open(beside, "wb", opener=open_private if private else None) as stream:
                stream.write(content)
                stream.flush()
                # Otherwise the new name can reach the disk before the content, and a power failure leaves an empty file.
                os.fsync(stream.fileno())
            beside.replace(path)
        finally:
            _remove(beside)


def write_secret(path: Path, content: bytes) -> None:
    """Write a new file that only its owner can read, such as a key. If its folder does not exist, it is private, too.

    Raises:
        UserError: If the file exists or may not be written.
    """
    with explaining_disk_errors(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(content)


def check_private(path: Path) -> None:
    """Check that only its owner can read or change a file with a secret, or enter a folder, by the rules of PostgreSQL.

    The group may read a file that belongs to the administrator of the machine, such as a secret of a container, and enter
    any folder, to make copies.

    Raises:
        UserError: If others can do more.
    """
    state, folder = path.stat(), path.is_dir()
    given = os.name == "posix" and state.st_uid == 0 and os.geteuid() != 0
    allowed = stat.S_IRWXU | (stat.S_IRGRP if given else 0) | (stat.S_IRGRP | stat.S_IXGRP if folder else 0)
    if os.name == "posix" and stat.S_IMODE(state.st_mode) & ~allowed:
        raise ReadableByOthers(
            f"{path} must be private, but others have access to it (mode {stat.filemode(state.st_mode)}). "
            f"Run: chmod {700 if folder else 600} {path}"
        )


def make_private(folder: Path) -> None:
    """Let nobody but their owner enter a folder and its subfolders, and read or change their files."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o700 if path.is_dir() else 0o600)


def write_text(path: Path, content: str) -> None:
    """Write a text file atomically."""
    write_bytes(path, content.encode("utf-8"))


def write_json(path: Path, content: Any, *, private: bool = False) -> None:  # noqa: ANN401  any JSON value
    """Write a JSON file atomically. See `write_bytes`."""
    write_bytes(path, f"{json.dumps(content, indent=1, sort_keys=True)}\n".encode(), private=private)


def read_bytes(path: Path) -> bytes:
    """Return the content of a file that a user names. A pipe or a device, which may never end, is not read.

    Raises:
        OSError: If it is not a regular file, or cannot be read.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return path.read_bytes()


def read_json(path: Path, form: type[T], *, remedy: str = AGAIN, missing: str = INTERRUPTED) -> T:
    """Read a JSON file of a form: a dataclass, a pydantic model, or a type such as ``dict[str, str]``.

    The error tells the ``remedy`` if the file is damaged, and ends in ``missing`` if it does not exist.
    """
    with reading(path, remedy=remedy, missing=missing):
        return of_json(path.read_bytes(), form)


def read_text(path: Path, *, remedy: str = AGAIN, missing: str = INTERRUPTED) -> str:
    """Read a UTF-8 text file, without a byte order mark."""
    with reading(path, remedy=remedy, missing=missing):
        return path.read_bytes().decode("utf-8-sig")


def read_toml(path: Path, *, remedy: str = AGAIN, missing: str = INTERRUPTED) -> dict[str, Any]:
    """Read a TOML file. A byte order mark at its beginning is ignored.

    Raises:
        UserError: If the file is missing or not readable, or is not TOML.
    """
    with reading(path, remedy=remedy, missing=missing):
        content = path.read_bytes()
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InvalidFile(f"{path} is not valid TOML: {detail(error)}. {remedy}") from error


def read_npy(path: Path, *, mapped: bool = False, remedy: str = AGAIN, missing: str = INTERRUPTED) -> np.ndarray:
    """Read an array of numbers or strings from an ``.npy`` file, or map it into memory.

    The length that the header states is compared with the length of the file before anything is allocated.
    """
    with reading(path, remedy=remedy, missing=missing):
        with path.open("rb") as stream:
            _check_npy(stream, path.stat().st_size)
        array: np.ndarray = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
        return array


def npy_in(content: bytes) -> np.ndarray:
    """Return the array of numbers or strings in the content of an ``.npy`` file, checked as `read_npy` checks a file.

    Raises:
        ValueError: If the content is not that of such a file; other errors of `silohash.base.forms.MALFORMED` are possible.
    """
    stream = io.BytesIO(content)
    _check_npy(stream, len(content))
    stream.seek(0)
    array: np.ndarray = np.load(stream, allow_pickle=False)
    return array


def _check_npy(stream: BinaryIO, size_bytes: int) -> None:
    """Check that the header of an ``.npy`` file states an array of numbers that fits into the file."""
    version = np.lib.format.read_magic(stream)
    if version not in NPY_HEADERS:
        raise ValueError(f"version {version} of the format is not supported")
    shape, _, dtype = NPY_HEADERS[version](stream)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are not read because they can run code")
    stated = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or stated > size_bytes - stream.tell():
        raise ValueError(
            f"its header states an array of shape {shape} and type {dtype}, for which the file is too short"
        )


def note_written(folder: Path, written: Iterable[Path]) -> None:
    """Record which files of a folder were generated, and remove generated files of earlier calls that are obsolete.

    Files that were never recorded are left alone.
    """
    note, names = folder / WRITTEN, sorted(path.name for path in written)
    if not note.exists() and not names:
        return
    with explaining_disk_errors(folder):
        for name in set(read_json(note, list[str]) if note.exists() else ()) - set(names):
            (folder / Path(name).name).unlink(missing_ok=True)
    write_json(note, names)


def write_arrays(path: Path, arrays: Arrays, about: Mapping[str, Any] | None = None, *, private: bool = False) -> None:
    """Write named arrays and a JSON value that describes them to one safetensors file. See `write_bytes`."""
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    content = _save_safetensors(contiguous, metadata={"about": json.dumps(about or {}, sort_keys=True)})
    write_bytes(path, content, private=private)


def read_arrays(path: Path, *, remedy: str = TRAIN_AGAIN, missing: str = INTERRUPTED) -> tuple[Arrays, dict[str, Any]]:
    """Return the arrays and the JSON object that `write_arrays` wrote."""
    from safetensors import safe_open

    with reading(path, remedy=remedy, missing=missing):
        with safe_open(path, framework="numpy") as stream:
            arrays = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118  not a mapping
            about = of_json((stream.metadata() or {}).get("about", "{}"), dict[str, Any])
        return arrays, about


@contextmanager
def folder_beside(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Yield a temporary folder that replaces ``path`` if the block succeeds, and is removed if it fails.

    Ctrl-C at any moment leaves the former folder or the new one, and nothing beside it. Only its owner may enter a private
    folder.
    """
    beside = _beside(path)
    aside = beside.with_suffix(".old")
    with explaining_disk_errors(path):
        try:
            beside.mkdir(mode=0o700 if private else 0o777, parents=True)
            yield beside
            if path.exists():
                path.replace(aside)
            beside.replace(path)
            _remove(aside)
        finally:
            if not os.path.lexists(path) and aside.exists():
                aside.replace(path)
            _remove(aside)
            _remove(beside)


def _remove(path: Path) -> None:
    """Remove a file or a folder if it exists. Errors are ignored, because this cleans up after other errors."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


class _Closing(Protocol):
    def close(self) -> object: ...


ClosingT = TypeVar("ClosingT", bound=_Closing)


@contextmanager
def closed_on_error(opened: ClosingT) -> Iterator[ClosingT]:
    """Close what was opened if the block fails. Otherwise it stays open."""
    try:
        yield opened
    except BaseException:
        opened.close()
        raise


def digest_bytes(content: bytes) -> str:
    """Return a BLAKE2 digest of 32 hexadecimal digits."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def digest_file(path: Path) -> str:
    """Return the BLAKE2 digest of a file's content."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def digest_arrays(arrays: Mapping[str, np.ndarray]) -> str:
    """Return a digest of named arrays, which covers their names, types, shapes and values."""
    hasher = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        array = np.asarray(arrays[name], order="C")
        hasher.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
        hasher.update(array.reshape(-1).view(np.uint8).data if array.size else b"")
    return hasher.hexdigest()


def digest_json(value: Any) -> str:  # noqa: ANN401  any JSON value
    """Return a digest of a JSON value."""
    return digest_bytes(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


def size_in_words(count: int) -> str:
    """Return a number of bytes in words.

    Example:
        >>> size_in_words(512), size_in_words(17_770_240)
        ('512 B', '17.8 MB')
    """
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count} B"


def check_replaceable(path: Path, *marks: bytes) -> None:
    """Check that a file may be written: it does not exist, or an earlier call of silohash wrote it.

    A file that silohash writes there has at least one of the ``marks`` in its first or last 64 KiB.

    Raises:
        UserError: If the file exists and is not recognized.
    """
    if not path.is_file() or not path.stat().st_size:
        return
    with reading(path), path.open("rb") as stream:
        content = stream.read(MARKED_BYTES)
        stream.seek(max(0, path.stat().st_size - MARKED_BYTES))
        content += stream.read(MARKED_BYTES)
    if not any(mark in content for mark in marks):
        raise ForeignFiles(f"{path} already exists and was not written by silohash. Choose another file with --out.")


def check_new_folder(folder: Path) -> None:
    """Check that a folder can be made without replacing anything, because what it gets cannot be made again.

    Raises:
        UserError: If there is a file of its name, or a folder that is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise AlreadyExists(f"{folder} exists already. Choose a new folder, so that no key is lost.")


def check_own_folder(folder: Path, *marks: str) -> None:
    """Check that files may be written to a folder: it is missing or empty, or an earlier call of silohash wrote to it.

    A folder that silohash wrote has files of at least one of the names ``marks``.

    Raises:
        UserError: If the folder holds other files.
    """
    with explaining_disk_errors(folder):
        names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    foreign = sorted(name for name in names if not name.startswith("."))
    if foreign and names.isdisjoint(marks):
        raise ForeignFiles(
            f"{folder} already holds files that silohash did not write, such as {foreign[0]}. "
            "Choose a new or an empty folder with --out."
        )
