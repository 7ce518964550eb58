"""Write files atomically (to a temporary file that is then renamed), and explain damaged files when reading."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save as _save_safetensors

from silohash.types import Arrays, UserError

BLOCK_BYTES = 1 << 20
WRITTEN = ".written.json"
"""Name of the file that lists a folder's generated files (see `note_written`)."""
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
            raise UserError(
                f"The disk is full: {path} could not be written, and no partial file was left behind. "
                "Free some space and run the command again."
            ) from error
        if error.errno in NOT_WRITABLE or _takes_no_files(error, path):
            raise UserError(f"{path} may not be written ({error.strerror}). Choose another folder.") from error
        raise


def _takes_no_files(error: OSError, path: Path) -> bool:
    """Tell whether a parent folder of ``path`` or a file next to it could not be created, as in /proc."""
    if error.errno != errno.ENOENT or not isinstance(error.filename, str | os.PathLike):
        return False
    refused = Path(error.filename)
    return refused in path.parents or (refused != path and refused.parent == path.parent)


def _beside(path: Path) -> Path:
    """Return a path in the same folder that no other process or thread writes to."""
    return path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.part")


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically: it either exists with its whole content, or is not changed.

    Raises:
        UserError: If the disk is full or the file may not be written.
    """
    beside = _beside(path)
    with explaining_disk_errors(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with beside.open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            beside.replace(path)
        finally:
            _remove(beside)


def write_text(path: Path, content: str) -> None:
    """Write a text file atomically."""
    write_bytes(path, content.encode("utf-8"))


def write_json(path: Path, content: Any) -> None:  # noqa: ANN401  any JSON value
    """Write a JSON file atomically."""
    write_text(path, json.dumps(content, indent=1, sort_keys=True) + "\n")


def read_json(path: Path) -> Any:  # noqa: ANN401  any JSON value
    """Read a JSON file.

    Raises:
        UserError: If the file is missing, damaged or not readable.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing. Was the run interrupted before it was written?") from error
    except OSError as error:
        raise UserError(f"{path} could not be read ({error.strerror or error}).") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is damaged ({error}). Remove it and run the command again.") from error


def note_written(folder: Path, written: Iterable[Path]) -> None:
    """Record which files of a folder were generated, and remove generated files of earlier calls that are obsolete.

    Files that were never recorded are left alone.

    Raises:
        UserError: If the folder may not be written, or if the earlier record is damaged.
    """
    note, names = folder / WRITTEN, sorted(path.name for path in written)
    if not note.exists() and not names:
        return
    with explaining_disk_errors(folder):
        for name in set(read_json(note) if note.exists() else ()) - set(names):
            (folder / Path(name).name).unlink(missing_ok=True)
    write_json(note, names)


def write_arrays(path: Path, arrays: Arrays, about: Mapping[str, Any] | None = None) -> None:
    """Write named arrays and a JSON value that describes them to one safetensors file, atomically."""
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    write_bytes(path, _save_safetensors(contiguous, metadata={"about": json.dumps(about or {}, sort_keys=True)}))


def read_arrays(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Return the arrays and the JSON value that `write_arrays` wrote.

    Raises:
        UserError: If the file is missing, truncated or of another kind.
    """
    from safetensors import safe_open

    try:
        with safe_open(path, framework="numpy") as stream:
            arrays = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118  not a mapping
            about = json.loads((stream.metadata() or {}).get("about", "{}"))
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing. Was the run interrupted before it was written?") from error
    except OSError as error:
        raise UserError(f"{path} could not be read ({error.strerror or error}).") from error
    except (SafetensorError, ValueError) as error:
        raise UserError(f"{path} is damaged or truncated ({error}). Restore it, or run the training again.") from error
    return arrays, about


@contextmanager
def folder_beside(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that replaces ``path`` if the block succeeds, and is removed if it fails."""
    beside = _beside(path)
    aside = beside.with_suffix(".old")
    with explaining_disk_errors(path):
        try:
            beside.mkdir(parents=True)
            yield beside
            if path.exists():
                path.replace(aside)
            try:
                beside.replace(path)
            except BaseException:
                if aside.exists():
                    aside.replace(path)
                raise
            _remove(aside)
        finally:
            _remove(beside)


def _remove(path: Path) -> None:
    """Remove a file or a folder if it exists. Errors are ignored, because this cleans up after other errors."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def digest_bytes(content: bytes) -> str:
    """Return a BLAKE2 digest of 32 hexadecimal digits."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def digest_file(path: Path) -> str:
    """Return the BLAKE2 digest of a file's content."""
    hasher = hashlib.blake2b(digest_size=16)
    with path.open("rb") as stream:
        while block := stream.read(BLOCK_BYTES):
            hasher.update(block)
    return hasher.hexdigest()


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
