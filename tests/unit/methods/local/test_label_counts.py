from __future__ import annotations

import numpy as np
import torch

from silohash.methods.local.label_counts import federation_labels, label_sums

CPU = torch.device("cpu")


def test_label_counts_are_summed_over_silos() -> None:
    silos = [
        np.asarray([[1, 0, 1], [1, 0, 0]], np.uint8),
        np.zeros((0, 3), np.uint8),
        np.asarray([[0, 0, 0]], np.uint8),
    ]
    sums = label_sums(silos)
    assert {name: array.tolist() for name, array in sums.items()} == {"label_counts": [2, 0, 1], "label_items": [3, 1]}
    assert {array.dtype for array in sums.values()} == {np.dtype(np.int64)}
    many = label_sums(iter([np.ones((300, 2), np.uint8)] * 2))
    assert (many["label_counts"].tolist(), many["label_items"].tolist()) == ([600, 600], [600, 600])


def test_constants_of_the_federation_follow_from_the_sums() -> None:
    known = federation_labels(label_sums([np.eye(3, dtype=np.uint8), np.zeros((2, 3), np.uint8)]), 9, CPU)
    assert known is not None
    assert (known.items, known.counts.tolist(), known.exclusive, known.seed) == (5, [1.0, 1.0, 1.0], True, 9)
    assert known.counts.dtype == torch.float32
    several = federation_labels(label_sums([np.eye(3, dtype=np.uint8), np.ones((1, 3), np.uint8)]), 9, CPU)
    assert several is not None
    assert not several.exclusive
    assert federation_labels({"labels": np.eye(3)}, 9, CPU) is None
