"""Small stores, for the tests of an index."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from silohash.index.base import Index, IndexManifest
from silohash.index.codes import pack
from silohash.index.store import Store

MANIFEST = IndexManifest("digest-of-the-model", 64, "image")


def words(count: int, seed: int = 0, bits: int = 64) -> npt.NDArray[np.uint64]:
    """Return random hash codes."""
    return pack(np.random.default_rng(seed).normal(size=(count, bits)))


def magnitudes(count: int, seed: int = 0, bits: int = 64) -> npt.NDArray[np.uint8]:
    """Return random magnitudes of outputs."""
    return np.random.default_rng(seed).integers(0, 256, (count, bits)).astype(np.uint8)


def names(count: int, prefix: str = "item") -> list[str]:
    """Return the ids of items."""
    return [f"{prefix}-{number}" for number in range(count)]


def filled(path: Path, count: int = 50, silo: str = "", *, outputs: bool = False) -> Path:
    """Write a store of items with captions and previews, and return its path."""
    with Store.create(path, replace(MANIFEST, silo=silo), magnitudes=outputs) as store:
        captions = [json.dumps({"caption": name}) for name in names(count)]
        store.add(
            names(count), words(count), captions, [b"\xff\xd8\xff"] * count, magnitudes(count) if outputs else None
        )
    return path


def mistakes(index: Index) -> list[tuple[Callable[[], object], str]]:
    """Return calls that every exact index of two codes of 64 bits refuses, each with a part of the message."""
    codes = words(2)
    return [
        (lambda: index.search(codes, 0), "k = 0"),
        (lambda: index.search(words(1, bits=32), 1), "64 bits"),
        (lambda: index.search_radius(codes, -1), "-1"),
        (lambda: index.add(np.array([1]), codes), "one key per code"),
        (lambda: index.add(np.array([1, 1]), codes), "key 1 is given twice"),
        (lambda: index.search(codes, 1, allowed=np.ones(3, bool)), "one bool per item"),
    ]
