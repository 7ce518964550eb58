"""Archives of silos on different machines: a pooled archive, divided by a column."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.runs import write_metadata

NAMES = ("place-0", "place-1", "place-2")


def site_archives(pooled: Path, folder: Path, names: Sequence[str] = NAMES) -> list[Path]:
    """Writes one archive per place, with the items of the pooled archive in their order."""
    with (pooled / "metadata.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    archives = []
    for name in names:
        kept = [number for number, row in enumerate(rows) if row["place"] == name]
        own = folder / name
        own.mkdir(parents=True)
        write_metadata(own, [rows[number] for number in kept])
        for given in pooled.glob("*.npy"):
            np.save(own / given.name, np.load(given, allow_pickle=False)[kept])
        archives.append(own)
    return archives
