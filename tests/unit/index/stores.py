"""Small stores, for the tests of an index."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt

from silohash.index.base import IndexManifest
from silohash.index.codes import pack
from silohash.index.store import Store

MANIFEST = IndexManifest("digest-of-the-model", 64, "image")


def words(count: int, seed: int = 0, bits: int = 64) -> npt.NDArray[np.uint64]:
    """Return random hash codes."""
    return pack(np.random.default_rng(seed).normal(size=(count, bits)))


def names(count: int, prefix: str = "item") -> list[str]:
    """Return the ids of items."""
    return [f"{prefix}-{number}" for number in range(count)]


def filled(path: Path, count: int = 50) -> Path:
    """Write a store of items with captions and previews, and return its path."""
    with Store.create(path, MANIFEST) as store:
        captions = [json.dumps({"caption": name}) for name in names(count)]
        store.add(names(count), words(count), captions, [b"\xff\xd8\xff"] * count)
    return path
