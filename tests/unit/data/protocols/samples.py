"""Small contents of files, and splits of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from silohash.data.benchmarks.dataset import benchmarks
from silohash.data.protocols.apply import Split, apply
from silohash.data.protocols.contents import Contents


def raw_of(count: int, classes: int = 24, **changes: object) -> Contents:
    """Returns items of one label each, with two words that all share and one of their own."""
    labels = np.zeros((count, classes), np.uint8)
    labels[np.arange(count), np.arange(count) % classes] = 1
    values = {
        "ids": np.array([f"item-{number}" for number in range(count)]),
        "image": np.arange(2 * count, dtype=np.float32).reshape(count, 2),
        "text": np.array([f"sea sun word{number}" for number in range(count)]),
        "labels": labels,
        "label_names": tuple(f"class {column}" for column in range(classes)),
    }
    return Contents(**(values | changes))


def split_of(raw: Contents, dataset: str, name: str, seed: int = 0, **changes: object) -> Split:
    choice = benchmarks()[dataset].protocol(name)
    return apply(raw, replace(choice, protocol=replace(choice.protocol, **changes)), seed)
