"""Small folders of pictures with a metadata file, as a user writes them."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image

from silohash.data.archive import Archive


def draw(folder: Path, *names: str) -> None:
    """Write a picture of 6 x 4 pixels for each name; its red channel is the position of the name."""
    for shade, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (6, 4), (shade, 0, 0)).save(folder / name)


def write_csv(folder: Path, rows: Sequence[Mapping[str, str]], encoding: str = "utf-8") -> None:
    """Write ``metadata.csv`` with the columns of the first row."""
    with (folder / "metadata.csv").open("w", encoding=encoding, newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def pictures(folder: Path, count: int, **more: str) -> list[dict[str, str]]:
    """Draw pictures, and return their rows for `write_csv`."""
    names = [f"pictures/{number}.png" for number in range(count)]
    draw(folder, *names)
    return [{"file_name": name, "text": f"picture {number}"} | more for number, name in enumerate(names)]


def reasons(archive: Archive) -> dict[int, str]:
    """Return why rows were left out, by the number of their line."""
    found = {}
    for sentence in archive.card.skipped:
        assert sentence.startswith("metadata.")
        assert sentence.endswith("; left out")
        place, _, reason = sentence.partition(": ")
        found[int(place.rsplit(" ", 1)[1])] = reason.removesuffix("; left out")
    return found
