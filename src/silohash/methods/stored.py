"""Arrays that are on disk until they are used.

A server with many silos cannot hold all of their updates in memory. It keeps the first ones there, and writes those that
exceed a limit to a temporary file, from which each array is read whenever it is used.
"""

import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np

from silohash.base.files import explaining_disk_errors
from silohash.base.types import ReadArrays
from silohash.methods.message import SECTIONS, Message


@dataclass(frozen=True)
class _Place:
    """Where an array is in the file, and its form."""

    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]


class StoredArrays(Mapping[str, np.ndarray]):
    """Named arrays in a file. Each access reads the array, so that a caller should use it once and let it go."""

    def __init__(self, file: IO[bytes], places: Mapping[str, _Place]) -> None:
        self._file = file
        self._places = places

    def __getitem__(self, name: str) -> np.ndarray:
        place = self._places[name]
        return self.part(name, 0, math.prod(place.shape)).reshape(place.shape)

    def part(self, name: str, start: int, stop: int) -> np.ndarray:
        """Read the values from position ``start`` to before ``stop`` of a flattened array."""
        array = np.empty(stop - start, self._places[name].dtype)
        self.read_into(name, array, start)
        return array

    def read_into(self, name: str, array: np.ndarray, start: int = 0) -> None:
        """Fill an array, whose memory is contiguous, with the values from position ``start`` of a flattened stored array."""
        place = self._places[name]
        view, done = array.reshape(-1).view(np.uint8).data, 0
        while done < array.nbytes:
            position = place.offset + start * place.dtype.itemsize + done
            count = os.preadv(self._file.fileno(), [view[done:]], position)
            if not count:
                raise EOFError(f"The temporary file ends within {name}.")
            done += count

    def __contains__(self, name: object) -> bool:
        """Return whether there is an array of that name, without reading it."""
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def part_of(arrays: ReadArrays, name: str, start: int, stop: int) -> np.ndarray:
    """Return the values from position ``start`` to before ``stop`` of a flattened array, without reading others."""
    if isinstance(arrays, StoredArrays):
        return arrays.part(name, start, stop)
    return arrays[name].reshape(-1)[start:stop]


def copy_into(arrays: ReadArrays, name: str, array: np.ndarray) -> None:
    """Copy an array into another one of the same shape and type."""
    if isinstance(arrays, StoredArrays) and array.flags.c_contiguous:
        arrays.read_into(name, array)
    else:
        array[...] = arrays[name]


class Spool:
    """Keep arrays in memory up to a limit, and write further ones to a temporary file, which is removed at the end.

    The folder of the file is by default that of the system. Memory and file are used again after `clear`: writing to the
    same place in a file takes half the time.
    """

    def __init__(self, held_bytes: int, folder: Path | None = None) -> None:
        self.held_bytes = self.left_bytes = held_bytes
        self.folder = folder
        self._file: IO[bytes] | None = None
        self._end = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def clear(self) -> None:
        """Forget all arrays, which must not be used any more."""
        self.left_bytes, self._end = self.held_bytes, 0

    def store(self, arrays: ReadArrays) -> ReadArrays:
        """Return arrays that do not change: in memory if they do not exceed the limit, otherwise on disk.

        Those that share memory, such as with a model, are copied.
        """
        if isinstance(arrays, StoredArrays):
            return arrays
        size = sum(array.nbytes for array in arrays.values())
        if size <= self.left_bytes:
            self.left_bytes -= size
            return {name: array if array.flags.owndata else array.copy() for name, array in arrays.items()}
        return self._written(arrays)

    def store_message(self, message: Message) -> Message:
        """Return the message with its arrays stored."""
        stored: dict[str, Any] = {section: self.store(getattr(message, section)) for section in SECTIONS}
        return replace(message, **stored)

    def _written(self, arrays: ReadArrays) -> StoredArrays:
        folder = Path(tempfile.gettempdir()) if self.folder is None else self.folder
        places = {}
        with explaining_disk_errors(folder):
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115  closed by __exit__
            self._file.seek(self._end)
            for name, array in arrays.items():
                places[name] = _Place(self._end, array.shape, array.dtype)
                view = np.asarray(array, order="C").reshape(-1).view(np.uint8).data
                while view:
                    written = self._file.write(view)
                    view = view[written:]
                    self._end += written
        return StoredArrays(self._file, places)
