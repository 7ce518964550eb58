"""JSON files of hundreds of MiB, read element by element: memory holds one element and about 1 MiB of text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from silohash.data.benchmarks.layouts.reading import RESTORE, unreadable
from silohash.types import UserError

CHUNK = 1 << 20
LONGEST_VALUE = 1 << 26
SPACE = re.compile(r"\s*")
AFTER_VALUE = re.compile(r"[\s,:\]}]")
"""A character that proves that the value before it is complete; the buffer may end within a number."""


def members(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the members of a JSON object: each element of a list with the list's key, any other value with its key.

    ``{"images": [{...}, {...}], "info": {...}}`` yields ``("images", {...})`` twice and ``("info", {...})``.

    Raises:
        UserError: if the file is missing, damaged, or not a JSON object.
    """
    try:
        with path.open(encoding="utf-8-sig") as stream:
            buffer = _Buffer(stream)
            for key in buffer.sequence("{", "}"):
                buffer.take(":")
                if buffer.peek() == "[":
                    yield from ((str(key), element) for element in buffer.sequence("[", "]"))
                else:
                    yield str(key), buffer.value()
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged or not a JSON object ({error}). {RESTORE}") from error


class _Buffer:
    """The part of a JSON text that is being decoded."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._text = ""
        self._at = 0
        self._ended = False
        self._decoder = json.JSONDecoder()

    def sequence(self, start: str, end: str) -> Iterator[Any]:
        """Yield the values between two brackets. After a key, the caller takes the rest of the member."""
        self.take(start)
        if self.peek() == end:
            self.take(end)
            return
        while True:
            yield self.value()
            if self.take(f",{end}") == end:
                return

    def peek(self) -> str:
        """Return the next character that is not white space, or an empty string at the end."""
        while True:
            space = SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._read_more()

    def take(self, allowed: str) -> str:
        """Move past the next character, which must be one of those allowed."""
        found = self.peek()
        if not found or found not in allowed:
            seen = f'"{found}"' if found else "the end of the file"
            raise ValueError(f"found {seen} instead of {' or '.join(allowed)}")
        self._at += 1
        return found

    def value(self) -> Any:  # noqa: ANN401  any JSON value
        """Decode the next value, reading more text until it is complete."""
        self.peek()
        while True:
            last = self._ended or len(self._text) - self._at > LONGEST_VALUE
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError:
                if last:
                    raise
            else:
                if last or AFTER_VALUE.match(self._text, end):
                    self._at = end
                    return value
            self._read_more()

    def _read_more(self) -> None:
        chunk = self._stream.read(max(CHUNK, len(self._text) - self._at))
        self._ended = not chunk
        self._text = self._text[self._at :] + chunk
        self._at = 0
