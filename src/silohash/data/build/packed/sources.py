"""Read the files of official sources, and find in them the texts and pictures of which the facts hold digests."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from silohash.base.errors import MissingFile, UnreadablePicture
from silohash.base.files import read_json
from silohash.base.forms import reading
from silohash.data.pictures.reading import decode

Row: TypeAlias = dict[str, Any]

DIGEST_LENGTH = 10
"""That any of 600,000 texts has the digest of one of 12,000 others by chance has a probability below 1 %."""

LOOK, LOOK_PIXELS = (5, 8), 64
"""Width and height to which `distance` reduces a picture, and the shortest side at which it decodes one."""

DOWNLOAD_AGAIN = "Download it again."
COCO_PARTS = ("train2017", "val2017", "train2014", "val2014")


def digest_of(text: str) -> str:
    """Return a digest of a text's letters and digits. Case, spaces and punctuation, which copies change, do not count.

    Example:
        >>> digest_of('A sign  reading "Stop".') == digest_of("a sign reading ''stop''")
        True
    """
    plain = "".join(filter(str.isalnum, text.lower()))
    return hashlib.sha256(plain.encode()).hexdigest()[:DIGEST_LENGTH]


def look_of(picture: Image.Image) -> str:
    """Return 32 bits that say which gray cells are darker than their right neighbor. Copies in other sizes differ in few."""
    gray = np.asarray(picture.convert("L").resize(LOOK), np.int16)
    return np.packbits(np.diff(gray, axis=1) > 0).tobytes().hex()


def distance(path: Path, look: str) -> int:
    """Return the number of bits in which the look of a picture's file differs from another look."""
    return (int(look_of(read_picture(path, LOOK_PIXELS)), 16) ^ int(look, 16)).bit_count()


def read_picture(path: Path, least_pixels: int) -> Image.Image:
    """Decode a picture's file, at a smaller size if its shortest side keeps so many pixels.

    Raises:
        UserError: If it is damaged.
    """
    try:
        return decode(path.read_bytes(), at_least_pixels=least_pixels)
    except ValueError as error:
        raise UnreadablePicture(f"{path} cannot be read ({error}). {DOWNLOAD_AGAIN}") from error


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
        """Replace the digests in a column of the facts by texts of the same key. Rows without one are noted as lacking."""
        known: dict[tuple[str, str], list[str]] = {}
        for name, text in texts:
            known.setdefault((name, digest_of(text)), []).append(text)
        for row in rows:
            found = known.get((row[key], row[column])) or []
            self.lacking.extend([] if found else [f"{row[key]} ({column} missing or different)"])
            row[column] = found.pop(0) if found else ""

    def files(self, paths: Iterable[Path]) -> list[Path]:
        """Return the paths. Those without a file are noted as lacking."""
        found = list(paths)
        self.lacking.extend(f"{path.relative_to(self.folder)} (no such file)" for path in found if not path.is_file())
        return found

    def coco(self, kind: str) -> dict[str, Mapping[str, Any]]:
        """Return the content of COCO's files of a kind, ``captions`` or ``instances``, of 2017 or else 2014, by the part."""
        paths = {part: self.folder / f"annotations/{kind}_{part}.json" for part in COCO_PARTS}
        year = self.find(*(path.relative_to(self.folder).as_posix() for path in paths.values())).stem[-4:]
        there = {part: path for part, path in paths.items() if part.endswith(year) and path.is_file()}
        return {part: read_json(path, dict[str, Any], remedy=DOWNLOAD_AGAIN) for part, path in there.items()}


def read_table(path: Path) -> list[Row]:
    """Read the rows of a CSV file. What follows an unquoted comma in the last column belongs to that column."""
    with reading(path, remedy=DOWNLOAD_AGAIN), path.open(encoding="utf-8-sig", newline="") as stream:
        table = csv.reader(stream)
        names = next(table)
        last = len(names) - 1
        return [dict(zip(names, [*line[:last], ",".join(line[last:])], strict=True)) for line in table if line]
