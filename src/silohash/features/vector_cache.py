"""A cache of vectors on disk, so that a network encodes each item once, even if a run is interrupted.

Each network has a folder, which is named after the digest of everything that affects its vectors. The folder holds blocks of
vectors with the digests of the items. Each block is written atomically, is named after the digest of its content, and never
changes, so several processes may add blocks. A damaged block is removed, and its items are encoded again. If the folder
cannot be written (for example because the disk is full), the work continues without it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from silohash.base.errors import UserError
from silohash.base.files import digest_arrays, read_arrays, write_arrays
from silohash.base.types import Notify
from silohash.features.cache import notify_on_standard_error

BLOCK_ITEMS = 512
"""Number of items per block, which is also the largest number of items lost when a run is interrupted."""

SUFFIX = ".safetensors"

Vectors = npt.NDArray[np.float32]


class NetworkVectors:
    """The vectors of one network by the digests of the items' content.

    New vectors are kept in memory until a block is full, or `flush` is called.

    Args:
        folder: Folder of the blocks. It is named after everything that affects the vectors.
        width: Length of a vector.
        half: Whether to store vectors in 16 bits.
        notify: Called with a line when a block is damaged, and when the folder cannot be used.
    """

    def __init__(
        self, folder: Path, width: int, *, half: bool = False, notify: Notify = notify_on_standard_error
    ) -> None:
        self.folder = folder
        self.width = width
        self.kept_as: np.dtype[np.floating] = np.dtype(np.float16 if half else np.float32)
        self.notify = notify
        self._places: dict[str, tuple[Path, int]] = {}
        self._pending: dict[str, npt.NDArray[np.floating]] = {}
        self._unwritten: dict[str, npt.NDArray[np.floating]] = {}
        self._writable = True
        self._lock = threading.RLock()
        self._seen: set[Path] = set()

    def missing(self, digests: Sequence[str]) -> list[int]:
        """Return the first position of each distinct item without a vector, in order."""
        with self._lock:
            self._read_new_blocks()
            first: dict[str, int] = {}
            for position, digest in enumerate(digests):
                if digest not in self._places and digest not in self._pending and digest not in self._unwritten:
                    first.setdefault(digest, position)
            return list(first.values())

    def add(self, digests: Sequence[str], vectors: Vectors) -> None:
        """Add vectors, ``(n, width)``, and write all full blocks."""
        kept = self.rounded(vectors)
        with self._lock:
            self._pending.update(zip(digests, kept, strict=True))
            while len(self._pending) >= BLOCK_ITEMS:
                self._write(BLOCK_ITEMS)

    def rounded(self, vectors: Vectors) -> npt.NDArray[np.floating]:
        """Return vectors in the type in which they are stored. Values out of range are clipped."""
        largest = np.finfo(self.kept_as).max
        return np.clip(vectors, -largest, largest).astype(self.kept_as)

    def flush(self) -> None:
        """Write the remaining vectors, which do not fill a block."""
        with self._lock:
            if self._pending:
                self._write(len(self._pending))

    def take(self, digests: Sequence[str]) -> Vectors:
        """Return the vectors of some items, ``(n, width)`` float32.

        Raises:
            KeyError: If an item has no vector. Call `missing` first.
        """
        found = np.empty((len(digests), self.width), np.float32)
        by_block: dict[Path, list[tuple[int, int]]] = {}
        with self._lock:
            for position, digest in enumerate(digests):
                if digest in self._places:
                    block, row = self._places[digest]
                    by_block.setdefault(block, []).append((position, row))
                else:
                    found[position] = self._pending[digest] if digest in self._pending else self._unwritten[digest]
        for block, places in by_block.items():
            positions, rows = np.array(places).T
            found[positions] = read_arrays(block)[0]["vectors"][rows]
        return found

    def _write(self, count: int) -> None:
        digests = list(self._pending)[:count]
        vectors = np.stack([self._pending.pop(digest) for digest in digests])
        if self._writable:
            digest_bytes = np.array([list(bytes.fromhex(digest)) for digest in digests], np.uint8)
            arrays = {"digests": digest_bytes, "vectors": vectors}
            path = self.folder / f"{digest_arrays(arrays)}{SUFFIX}"
            try:
                write_arrays(path, arrays, private=True)
            except (OSError, UserError) as error:
                self._writable = False
                self.notify(f"Continuing without a cache of vectors: {error}")
            else:
                self._register(path, digests)
                return
        self._unwritten.update(zip(digests, vectors, strict=True))

    def _register(self, block: Path, digests: Sequence[str]) -> None:
        self._seen.add(block)
        self._places.update({digest: (block, row) for row, digest in enumerate(digests)})

    def _read_new_blocks(self) -> None:
        """Read the blocks that this process has not seen yet: all of them at first, later those of other processes."""
        for block in sorted(self.folder.glob(f"*{SUFFIX}")):
            if block in self._seen:
                continue
            self._seen.add(block)
            digests = self._digests_of_intact(block)
            if digests is not None:
                self._register(block, digests)

    def _digests_of_intact(self, block: Path) -> list[str] | None:
        try:
            arrays, _ = read_arrays(block)
            if digest_arrays(arrays) == block.stem and arrays["vectors"].shape[1:] == (self.width,):
                return [bytes(row).hex() for row in arrays["digests"]]
        except (OSError, UserError, KeyError):
            pass
        self.notify(f"The vectors in {block} are damaged, and their items will be encoded again.")
        with suppress(OSError):
            block.unlink()
        return None
