"""Small made-up archives for tests."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from silohash.data.archive import Archive, ArchiveCard
from silohash.data.partitions.base import Partition, read_partition

NOUNS = ("parrot", "harbour", "violin", "glacier", "kitchen", "tram", "orchard", "desert")


@dataclass(frozen=True)
class DrawnPictures:
    """Pictures held as arrays, ``(h, w)`` or ``(h, w, 3)`` uint8; None where an item has none."""

    drawn: Sequence[np.ndarray | None]

    def __len__(self) -> int:
        return len(self.drawn)

    def picture(self, row: int) -> Image.Image:
        pixels = self.drawn[row]
        if pixels is None:
            raise OSError("no picture here")
        return Image.fromarray(pixels)

    def digest(self) -> str:
        hasher = hashlib.blake2b(digest_size=16)
        for pixels in self.drawn:
            hasher.update(b"none" if pixels is None else str(pixels.shape).encode() + pixels.tobytes())
        return hasher.hexdigest()


def drawn_pictures(count: int, *, side: int = 20, seed: int = 0, color: bool = True) -> DrawnPictures:
    """Returns pictures of noise."""
    generator = np.random.default_rng(seed)
    shape = (count, side, side + 4, 3) if color else (count, side, side + 4)
    return DrawnPictures(list(generator.integers(0, 256, shape, dtype=np.uint8)))


def made_up_labels(count: int, classes: int, seed: int) -> np.ndarray:
    """Returns ``(count, classes)`` multi-hot labels of unequal frequency; about one row in ten has none."""
    generator = np.random.default_rng(seed)
    frequency = 0.5 / np.arange(1, classes + 1)
    labels = generator.random((count, classes)) < frequency
    labels[np.arange(count), generator.integers(0, classes, count)] = True
    labels[generator.random(count) < 0.1] = False
    return labels.astype(np.uint8)


def made_up_splits(count: int) -> Mapping[str, np.ndarray]:
    """Returns splits: the first tenth asks, the rest is database, the last half of which is trained on."""
    tenth = max(1, count // 10)
    return {
        "query": np.arange(tenth),
        "database": np.arange(tenth, count),
        "train": np.arange(tenth + (count - tenth) // 2, count),
    }


def made_up_archive(
    count: int = 400,
    *,
    classes: int = 6,
    seed: int = 0,
    image: str | None = "features",
    text: str | None = "strings",
    labeled: bool = True,
) -> Archive:
    """Returns an archive with a column ``place`` of five values of unequal size.

    Args:
        image: ``"features"``, ``"pictures"`` or None.
        text: ``"strings"``, ``"features"`` or None.
    """
    generator = np.random.default_rng(seed)
    labels = made_up_labels(count, classes, seed)
    features = labels @ generator.normal(size=(classes, 12)) + 0.3 * generator.normal(size=(count, 12))
    words = [
        " ".join([NOUNS[c % len(NOUNS)] for c in np.flatnonzero(row)] + [f"item {i}"]) for i, row in enumerate(labels)
    ]
    places = np.array(["north", "south", "east/west", "center", "sea"])
    return Archive(
        ids=np.array([f"item-{number}" for number in range(count)]),
        image={
            "features": features.astype(np.float32),
            "pictures": drawn_pictures(count, seed=seed),
            None: None,
        }[image],
        text={"strings": np.array(words), "features": features[:, :7].astype(np.float32), None: None}[text],
        labels=labels if labeled else None,
        label_names=tuple(f"label {c}" for c in range(classes)) if labeled else (),
        splits=made_up_splits(count),
        card=ArchiveCard("made-up", "drawn at random", "none"),
        columns={"place": places[generator.choice(5, count, p=[0.4, 0.3, 0.15, 0.1, 0.05])]},
    )


def silo_of(partition: Partition, count: int) -> np.ndarray:
    """Returns the silo of each of ``count`` items, ``(count,)``; -1 for an item that no silo holds."""
    found = np.full(count, -1)
    for number, silo in enumerate(partition.silos):
        found[silo.rows] = number
    return found


def stored_partition(value: object) -> Partition:
    """Returns the partition that is read from a file with a JSON value."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "partition.json"
        path.write_text(json.dumps(value), encoding="utf-8")
        return read_partition(path)
