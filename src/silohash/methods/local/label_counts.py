"""Numbers of items per label over all silos, which every silo knows before the first round."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from silohash.base.types import Arrays


@dataclass(frozen=True)
class FederationLabels:
    """Constants that every silo receives before the first round: sums of what each silo counts in its labels.

    Attributes:
        items: Number of training items of all silos.
        counts: ``(C,)`` float32, number of training items per label.
        exclusive: Whether every training item has at most one label.
        seed: Seed of the run, for constants that every silo derives without data, such as the codes of classes.
    """

    items: int
    counts: Tensor
    exclusive: bool
    seed: int


def label_sums(labels: Iterable[np.ndarray]) -> Arrays:
    """Return the sums over silos of what each counts in the labels ``(n, C)`` of its training items.

    They are ``label_counts`` ``(C,)`` int64, the number of items per label, and ``label_items`` ``(2,)`` int64, the number
    of items and of those with several labels. There is at least one silo; ``n`` may be 0.
    """
    silos = [values.astype(np.int64) for values in labels]
    items = [(len(values), np.count_nonzero(values.sum(1) > 1)) for values in silos]
    return {
        "label_counts": np.sum([values.sum(0) for values in silos], axis=0),
        "label_items": np.sum(np.asarray(items, np.int64), axis=0),
    }


def federation_labels(sums: Arrays, seed: int, device: torch.device) -> FederationLabels | None:
    """Return the constants that silos derive from the sums of `label_sums`, or None without labels."""
    if "label_counts" not in sums:
        return None
    items, several = (int(count) for count in sums["label_items"])
    counts = torch.from_numpy(sums["label_counts"].astype(np.float32)).to(device)
    return FederationLabels(items=items, counts=counts, exclusive=several == 0, seed=seed)
