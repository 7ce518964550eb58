"""The bytes of MATLAB files of version 5 to 7, plain or compressed, read in order and a block at a time."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

BLOCK_BYTES = 1 << 16


class Source(Protocol):
    """Bytes that are read in order."""

    def take(self, count: int) -> bytes:
        """Return the next bytes, fewer at the end."""
        ...

    def skip(self, count: int) -> None:
        """Leave out bytes, which exist."""
        ...


@dataclass
class PlainSource:
    """The content of a file."""

    stream: BinaryIO

    def take(self, count: int) -> bytes:
        """Return the next bytes, fewer at the end."""
        return self.stream.read(count)

    def skip(self, count: int) -> None:
        """Leave out bytes, which exist."""
        self.stream.seek(count, 1)


@dataclass
class InflatedSource:
    """The content of a compressed element, of which a block at a time is in memory."""

    stream: BinaryIO
    left: int
    inflater: zlib._Decompress = field(default_factory=zlib.decompressobj)
    waiting: bytes = b""

    def take(self, count: int) -> bytes:
        """Return the next bytes, fewer at the end."""
        parts: list[bytes] = []
        while count:
            part = self._next(min(count, BLOCK_BYTES))
            if not part:
                break
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def skip(self, count: int) -> None:
        """Leave out bytes.

        Raises:
            ValueError: If the data end before.
        """
        while count:
            part = self._next(min(count, BLOCK_BYTES))
            if not part:
                raise ValueError("the compressed data end too early")
            count -= len(part)

    def is_complete(self) -> bool:
        """Return whether the data end here, and their checksum is right."""
        return not self._next(1) and self.inflater.eof

    def _next(self, most: int) -> bytes:
        while not self.inflater.eof:
            if not self.waiting:
                self.waiting = self.stream.read(min(self.left, BLOCK_BYTES))
                self.left -= len(self.waiting)
            ended = not self.waiting
            part = self.inflater.decompress(self.waiting, most)
            self.waiting = self.inflater.unconsumed_tail
            if part or ended:
                return part
        return b""
