"""Color pictures in an array of four axes in any order, read in blocks."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from silohash.base.cache import private_cache
from silohash.base.errors import AmbiguousForm, UserError, WrongShape
from silohash.base.files import digest_json, read_json, write_json
from silohash.base.stamps import Stamp
from silohash.data.pictures.deep import ceiling, window

if TYPE_CHECKING:
    from silohash.data.formats.matlab import Hdf5Array

CHANNELS = 3
PICTURE_AXES = 4
ORDERS = {"N3HW": (0, 1), "NHW3": (0, 3), "HW3N": (3, 2), "3HWN": (3, 0)}
"""Known orders of the axes, with the axis of the items and the axis of the channels."""

BLOCK_BYTES = 32 << 20
PIECE_BYTES = 512 << 20
KEPT_BYTES = 128 << 20
RUN_ROWS = 16
DIGEST_VERSION = 2


@dataclass(frozen=True)
class PictureAxes:
    """The order of a stored array's axes, such as ``N3HW``, that of the items, and those of height, width and channels."""

    order: str
    row: int
    pixels: tuple[int, int, int]


def find_picture_axes(shape: tuple[int, ...], rows: int | None, *, swapped: bool, where: str) -> PictureAxes:
    """Find the axes of items, channels, height and width in a shape as stored; exactly one order must fit.

    With ``swapped``, the first of the two remaining axes is the width.

    Raises:
        UserError: If no order or more than one fits. The error names the array by ``where``.

    Example:
        >>> find_picture_axes((20015, 3, 224, 224), 20015, swapped=True, where="IAll")
        PictureAxes(order='N3WH', row=0, pixels=(3, 2, 1))
    """
    fitting = _fitting_orders(shape, rows)
    sizes = " x ".join(f"{size:,}" for size in shape)
    if not fitting:
        items = "items" if rows is None else f"{rows:,} items"
        raise WrongShape(
            f"{where} is {sizes}. Color pictures need four axes: {items} first or last, 3 channels, height and width."
        )
    if len(fitting) > 1:
        raise AmbiguousForm(
            f"{where} is {sizes}, which can be read as {' or as '.join(order for order, _, _ in fitting)}. "
            "Remove one item, so that only the channels have the size 3."
        )
    order, row, channel = fitting[0]
    first, second = (axis for axis in range(PICTURE_AXES) if axis not in (row, channel))
    if swapped:
        return PictureAxes(order.replace("HW", "WH"), row, (second, first, channel))
    return PictureAxes(order, row, (first, second, channel))


def _fitting_orders(shape: tuple[int, ...], rows: int | None) -> list[tuple[str, int, int]]:
    """Return the orders that a shape can have, each with the axis of the items and the axis of the channels."""
    if len(shape) != PICTURE_AXES:
        return []
    orders = [(order, row, channel) for order, (row, channel) in ORDERS.items() if shape[channel] == CHANNELS]
    return [(order, row, channel) for order, row, channel in orders if rows in (None, shape[row])]


class MatPictures:
    """Color pictures in one array, of which a few blocks are kept in memory; safe for several threads.

    A block holds the rows of one stored chunk (up to `PIECE_BYTES`), so that a compressed chunk is decompressed once for all
    of them. In a contiguous array it is one row, or `BLOCK_BYTES` if the items are along the last axis. The size and time of
    the file ``path`` identify the cached digest; it is None for an array in memory.
    """

    def __init__(
        self, stored: np.ndarray | Hdf5Array, axes: PictureAxes, *, path: Path | None = None, name: str = ""
    ) -> None:
        self.axes = axes
        self._stored = stored
        self._path = path
        self._name = name
        self._blocks: OrderedDict[int, npt.NDArray[np.uint8]] = OrderedDict()
        self._lock = threading.Lock()
        self._block_rows = self._choose_block_rows()
        self._scale: float | None = None
        """Factor to values from 0 to 255, found when values other than uint8 are first read."""

    def __len__(self) -> int:
        return int(self._stored.shape[self.axes.row])

    @property
    def size(self) -> tuple[int, int]:
        """Return the pictures' height and width in pixels."""
        height, width, _ = self.axes.pixels
        return int(self._stored.shape[height]), int(self._stored.shape[width])

    def _row_bytes(self) -> int:
        height, width = self.size
        return max(1, height * width * CHANNELS * self._stored.dtype.itemsize)

    def _choose_block_rows(self) -> int:
        chunks = None if isinstance(self._stored, np.ndarray) else self._stored.chunks
        if chunks is not None:
            return int(min(chunks[self.axes.row], max(1, PIECE_BYTES // self._row_bytes())))
        return 1 if self.axes.row == 0 else max(1, BLOCK_BYTES // self._row_bytes())

    def read(self, start: int, stop: int) -> npt.NDArray[np.uint8]:
        """Read consecutive pictures, ``(stop - start, height, width, 3)`` uint8, without the cached blocks."""
        part = np.transpose(self._rows(start, stop), (self.axes.row, *self.axes.pixels))
        if part.dtype == np.uint8:
            return np.ascontiguousarray(part)
        if self._scale is None:
            first = self._rows(0, 1)
            unit = part.dtype.kind == "f" and np.nanmax(first, initial=0) <= 1
            whole = part.dtype.kind in "iu"
            most = ceiling(window(first, color=True)[1], fractions=False) if whole else 1 if unit else 255
            self._scale = 255 / most
        scaled = np.rint(np.nan_to_num(part.astype(np.float32)) * self._scale)
        return np.ascontiguousarray(np.clip(scaled, 0, 255).astype(np.uint8))

    def _rows(self, start: int, stop: int) -> np.ndarray:
        key = [slice(None)] * PICTURE_AXES
        key[self.axes.row] = slice(start, stop)
        return self._stored[tuple(key)]

    def pixels(self, row: int) -> npt.NDArray[np.uint8]:
        """Return one picture's pixels, ``(height, width, 3)``."""
        if not 0 <= row < len(self):
            raise IndexError(f"picture {row} of {len(self)}")
        number, position = divmod(row, self._block_rows)
        with self._lock:
            if number not in self._blocks:
                start = number * self._block_rows
                block = self.read(start, min(start + self._block_rows, len(self)))
                while self._blocks and (len(self._blocks) + 1) * block.nbytes > KEPT_BYTES:
                    self._blocks.popitem(last=False)
                self._blocks[number] = block
            self._blocks.move_to_end(number)
            found: npt.NDArray[np.uint8] = self._blocks[number][position]
            return found

    def picture(self, row: int) -> Image.Image:
        """Return one picture (mode ``RGB``)."""
        return Image.fromarray(self.pixels(row))

    def sample(self, most: int) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]]:
        """Yield rows ``(n,)`` and pixels ``(n, height, width, 3)`` uint8 from all over the file, none cached.

        They are at most ``most`` pictures in total, in runs of neighbors, each at most once.
        """
        run = max(1, min(RUN_ROWS, most, len(self)))
        seen = 0
        for start in np.unique(np.linspace(0, len(self) - run, max(1, most // run)).astype(np.int64)).tolist():
            first, seen = max(start, seen), start + run
            yield np.arange(first, seen), self.read(first, seen)

    def blocks(self) -> Iterator[npt.NDArray[np.uint8]]:
        """Yield all pictures in order, ``(n, height, width, 3)`` uint8 each, without caching them."""
        rows = max(self._block_rows, BLOCK_BYTES // self._row_bytes())
        rows -= rows % self._block_rows
        for start in range(0, len(self), rows):
            yield self.read(start, min(start + rows, len(self)))

    def digest(self) -> str:
        """Return a digest of all pixels that does not depend on the order of axes.

        The first call reads the whole file. The digest is cached until the file's size or time changes.
        """
        if self._path is None:
            return self._read_digest()
        stat = self._path.stat()
        stamp = (stat.st_size, stat.st_mtime_ns)
        named = [DIGEST_VERSION, str(self._path.resolve()), self._name, self.axes.order]
        kept_in = private_cache("matfiles") / f"{digest_json(named)}.json"
        with contextlib.suppress(UserError, OSError):
            kept = read_json(kept_in, Stamp)
            if kept[:2] == stamp:
                return kept.digest
        digest = self._read_digest()
        with contextlib.suppress(UserError, OSError):
            write_json(kept_in, [*stamp, digest], private=True)
        return digest

    def _read_digest(self) -> str:
        hasher = hashlib.blake2b(digest_size=16)
        hasher.update(f"{len(self)}|{self.size}|".encode())
        for block in self.blocks():
            hasher.update(block.reshape(-1).data)
        return hasher.hexdigest()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_blocks": OrderedDict(), "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()
