"""Read the files of official sources, and find in them the texts and pictures of which the facts hold digests."""

from __future__ import annotations

import base64
import csv
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from silohash.base.errors import MissingContent, MissingFile
from silohash.base.files import read_json
from silohash.base.forms import reading
from silohash.base.names import listed
from silohash.data.pictures.reading import decode

Row: TypeAlias = dict[str, Any]

DIGEST_BYTES = 5
"""That any of 600,000 texts has the digest of one of 12,000 others by chance has a probability below 1 %."""

LOOK, LOOK_PIXELS = (5, 8), 64
"""Width and height to which `look_of` reduces a picture, and the shortest side at which it decodes one."""

DOWNLOAD_AGAIN = "Download it again."
COCO_PARTS = ("train2017", "val2017", "train2014", "val2014")


def digest_of(text: str) -> str:
    """Return a digest of a text's letters and digits. Case, spaces and punctuation, which copies change, do not count.

    Example:
        >>> digest_of('A sign  reading "Stop".') == digest_of("a sign reading ''stop''")
        True
    """
    plain = "".join(filter(str.isalnum, text.lower()))
    return _short(hashlib.sha256(plain.encode()).digest()[:DIGEST_BYTES])


def look_of(content: bytes) -> str:
    """Return what a picture looks like, as 32 bits. Each tells whether a gray cell is darker than its right neighbor.

    Copies of a picture in other sizes differ in few bits.
    """
    gray = np.asarray(decode(content, at_least_pixels=LOOK_PIXELS).convert("L").resize(LOOK), np.int16)
    return _short(np.packbits(np.diff(gray, axis=1) > 0).tobytes())


def _short(content: bytes) -> str:
    return base64.b64encode(content).decode().rstrip("=")


def distance(left: str, right: str) -> int:
    """Return the number of bits in which the looks of two pictures differ."""
    first, second = (int.from_bytes(base64.b64decode(f"{look}==")) for look in (left, right))
    return (first ^ second).bit_count()


@dataclass(frozen=True)
class Source:
    """The folder of an official source, and a note on each row of the facts that it lacks."""

    folder: Path
    lacking: list[str] = field(default_factory=list)

    def find(self, *names: str) -> Path:
        """Return the first of several files or folders that exists.

        Raises:
            UserError: If there is none; lists what was looked for.
        """
        for name in names:
            if (self.folder / name).exists():
                return self.folder / name
        looked = ", ".join(names)
        raise MissingFile(f"{self.folder} has none of: {looked}. Name the folder of the official files with --from.")

    def fill(self, rows: Iterable[Row], key: str, column: str, texts: Iterable[tuple[str, str]]) -> None:
        """Replace the digests in a column of the facts by texts of the same key. Rows without a text are noted as lacking.

        Texts of one key that have the same digest are taken in their order.
        """
        known: dict[tuple[str, str], list[str]] = {}
        for name, text in texts:
            known.setdefault((name, digest_of(text)), []).append(text)
        for row in rows:
            if found := known.get((row[key], row[column])):
                row[column] = found.pop(0)
            else:
                self.lacking.append(f"{row[key]} ({column} missing or different)")

    def files(self, paths: Iterable[Path]) -> list[Path]:
        """Return the paths. Those without a file are noted as lacking."""
        found = list(paths)
        self.lacking.extend(f"{path.relative_to(self.folder)} (no such file)" for path in found if not path.is_file())
        return found

    def coco(self, kind: str) -> dict[str, Mapping[str, Any]]:
        """Return the content of COCO's files of a kind of annotations, ``captions`` or ``instances``, by the part."""
        paths = {part: f"annotations/{kind}_{part}.json" for part in COCO_PARTS}
        self.find(*paths.values())
        there = {part: path for part, name in paths.items() if (path := self.folder / name).is_file()}
        return {part: read_json(path, dict[str, Any], remedy=DOWNLOAD_AGAIN) for part, path in there.items()}

    def check(self) -> None:
        """Check that nothing is lacking.

        Raises:
            UserError: If something is; names the first rows and their number.
        """
        if self.lacking:
            count, first = f"{len(self.lacking):,}", listed(self.lacking)
            raise MissingContent(f"{self.folder} lacks {count} rows: {first}. Nothing was written. {DOWNLOAD_AGAIN}")


def read_table(path: Path) -> list[Row]:
    """Read the rows of a CSV file. What follows an unquoted comma in the last column belongs to that column."""
    with reading(path, remedy=DOWNLOAD_AGAIN), path.open(encoding="utf-8-sig", newline="") as stream:
        table = csv.reader(stream)
        names = next(table)
        last = len(names) - 1
        return [dict(zip(names, [*line[:last], ",".join(line[last:])], strict=True)) for line in table if line]


def one_line(text: str) -> str:
    """Return a text with single spaces."""
    return " ".join(text.split())
