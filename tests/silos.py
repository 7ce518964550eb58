"""Made-up silos with stores of codes, for tests of the search."""

from __future__ import annotations

import json
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from silohash.index.base import IndexManifest
from silohash.index.codes import pack
from silohash.index.store import Store
from silohash.search.hits import Query
from silohash.search.node import SiloNode
from silohash.search.policy import Policy

MODEL = "3f2a"


class AnswerAfterRead:
    """A silo that does not answer before the hub has read the answer of another one.

    Attributes:
        seen: The name and the answer of each silo that the hub has read.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[str, bytes]] = []
        self._read = threading.Event()

    def read(self, silo: str, answer: bytes) -> None:
        """Note an answer."""
        self.seen.append((silo, answer))
        self._read.set()

    def __call__(self, content: bytes, most_bytes: int, arrived: float) -> bytes:
        """Answer with the request."""
        assert self._read.wait(60)
        return content


def made_up_codes(count: int, bits: int, seed: int, *, centers: int = 4, flipped: float = 0.1) -> np.ndarray:
    """Returns ``(count, W)`` words in few clusters, so that distances tie."""
    generator = np.random.default_rng(seed)
    middle = np.random.default_rng(0).choice([-1, 1], (centers, bits))
    signs = middle[generator.integers(centers, size=count)]
    return pack(np.where(generator.random((count, bits)) < flipped, -signs, signs))


def made_up_store(
    path: Path, words: np.ndarray, bits: int, *, ids: list[str] | None = None, model: str = MODEL
) -> Store:
    """Returns a new store of image codes; items are called "0", "1", … unless named."""
    store = Store.create(path, IndexManifest(model_digest=model, bits=bits, modality="image"))
    names = ids or [str(row) for row in range(len(words))]
    if names:
        store.add(names, words, [json.dumps({"caption": f"item {name}", "owner": "secret"}) for name in names])
    return store


def made_up_node(
    folder: Path, name: str, words: np.ndarray, bits: int, policy: Policy | None = None, **store: Any
) -> SiloNode:
    """Returns a silo with an image index; its store is closed when the node goes."""
    opened = made_up_store(folder / f"{name}.index", words, bits, **store)
    node = SiloNode(name, {"image": opened}, policy)
    weakref.finalize(node, opened.close)
    return node


def query_of(words: np.ndarray, bits: int, **asked: Any) -> Query:
    """Returns a query for pictures with the first of some codes."""
    return Query(words=words[0], bits=bits, model_digest=MODEL, target="image", **asked)


def distances_to(words: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Returns Hamming distances the plain way, ``(n,)``."""
    return np.bitwise_count(words ^ query).sum(axis=1).astype(int)
