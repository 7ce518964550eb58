"""Distances between the label distributions of silos.

A silo's distribution is the share of each label among all labels of its items. An item with two labels counts for both.

=====================  ===================================================  ==========================
distance               of two distributions p and q                         maximum (0 if equal)
=====================  ===================================================  ==========================
total variation        half the sum of ``|p - q|``                          1 (no label in common)
Hellinger              root of half the sum of ``(root p - root q)^2``      1
Jensen-Shannon         mean divergence, in bits, of p and q from their mid  1
=====================  ===================================================  ==========================

Source: J. Lin, "Divergence measures based on the Shannon entropy", IEEE Transactions on Information Theory, 1991 (its
sections II and IV name all three); M. O. Hill, "Diversity and evenness", Ecology, 1973 (the effective number, order 1).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from silohash.data.archive import Archive
from silohash.data.partitions.base import Partition, aligned

Shares = npt.NDArray[np.float64]


def label_shares(counts: npt.ArrayLike) -> Shares:
    """Return the distribution over labels of each row of counts, ``(..., C)`` to ``(..., C)`` float64.

    Each row sums to 1; a row without labels is NaN.
    """
    given = np.asarray(counts, np.float64)
    totals = given.sum(axis=-1, keepdims=True)
    return np.asarray(np.divide(given, totals, out=np.full_like(given, np.nan), where=totals > 0))


def total_variation(first: Shares, second: Shares) -> Shares:
    """Return half the sum of the absolute differences, ``(..., C)`` and ``(..., C)`` to ``(...)``."""
    return np.asarray(0.5 * np.abs(first - second).sum(axis=-1))


def hellinger(first: Shares, second: Shares) -> Shares:
    """Return the Hellinger distance, ``(..., C)`` and ``(..., C)`` to ``(...)``."""
    return np.asarray(np.sqrt(0.5 * ((np.sqrt(first) - np.sqrt(second)) ** 2).sum(axis=-1)))


def jensen_shannon(first: Shares, second: Shares) -> Shares:
    """Return the Jensen-Shannon divergence in bits, ``(..., C)`` and ``(..., C)`` to ``(...)``."""
    middle = 0.5 * (first + second)
    # Rounding can take the divergence of equal distributions below 0.
    return np.maximum(0.0, entropy_bits(middle) - 0.5 * (entropy_bits(first) + entropy_bits(second)))


def entropy_bits(shares: Shares) -> Shares:
    """Return the entropy of distributions in bits, ``(..., C)`` to ``(...)``."""
    logarithms = np.log2(shares, out=np.zeros_like(shares), where=shares > 0)
    # Adding 0.0 turns -0.0 into 0.0.
    return np.asarray(-(shares * logarithms).sum(axis=-1)) + 0.0


def effective_labels(shares: Shares) -> Shares:
    """Return the number of equally frequent labels with the same entropy, ``(..., C)`` to ``(...)``."""
    return np.asarray(np.exp2(entropy_bits(shares)))


DISTANCES: Mapping[str, Callable[[Shares, Shares], Shares]] = {
    "total variation": total_variation,
    "Hellinger": hellinger,
    "Jensen-Shannon": jensen_shannon,
}


@dataclass(frozen=True, eq=False)
class Drift:
    """Label counts of a partition's S silos and of all silos together.

    Attributes:
        counts: ``(S, C)`` items per silo and label.
        pool: ``(C,)`` items per label in all silos; an item in several silos counts once.
        sizes: ``(S,)`` items per silo.
    """

    silos: tuple[str, ...]
    counts: npt.NDArray[np.int64]
    pool: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]

    @cached_property
    def shares(self) -> Shares:
        """Distribution of each silo, ``(S, C)``; NaN for a silo without labels."""
        return label_shares(self.counts)

    @cached_property
    def effective_labels(self) -> Shares:
        """Effective number of labels of each silo, ``(S,)``."""
        return effective_labels(self.shares)

    def from_pool(self, distance: str) -> Shares:
        """Return each silo's distance from the pool, ``(S,)``; NaN for a silo without labels."""
        return DISTANCES[distance](self.shares, label_shares(self.pool))

    def over_pairs(self, distance: str) -> tuple[float, float]:
        """Return the mean and maximum distance over pairs of silos that have labels; NaN if there are none."""
        first, second = np.triu_indices(len(self.silos), k=1)
        found = DISTANCES[distance](self.shares[first], self.shares[second])
        found = found[np.isfinite(found)]
        return (float(found.mean()), float(found.max())) if len(found) else (float("nan"), float("nan"))

    def to_json(self) -> dict[str, Any]:
        """Return all figures as a JSON value."""
        pairs = {name: dict(zip(("mean", "max"), self.over_pairs(name), strict=True)) for name in DISTANCES}
        per_silo = {
            silo: {
                "items": int(self.sizes[place]),
                "effective_labels": float(self.effective_labels[place]),
                "from_pool": {name: float(self.from_pool(name)[place]) for name in DISTANCES},
            }
            for place, silo in enumerate(self.silos)
        }
        return {"between_silos": pairs, "silos": per_silo, "effective_labels_of_all": self.effective_labels_of_all}

    @property
    def effective_labels_of_all(self) -> float:
        """Effective number of labels of all silos together."""
        return float(effective_labels(label_shares(self.pool)))

    def describe(self) -> str:
        """Return the figures as a plain table: one line per silo, then mean and maximum over pairs of silos."""
        head = ["silo", "items", "labels in effect", *(f"{name} from all" for name in DISTANCES)]
        lines = [
            [silo, f"{figures['items']:,}", _figure(figures["effective_labels"], digits=1)]
            + [_figure(distance) for distance in figures["from_pool"].values()]
            for silo, figures in self.to_json()["silos"].items()
        ]
        pairs = ("{} {} (at most {})".format(name, *map(_figure, self.over_pairs(name))) for name in DISTANCES)
        table = "\n".join(aligned([head, *lines], right=range(1, len(head))))
        last = f"labels in effect of all: {self.effective_labels_of_all:.1f}"
        return f"{table}\nbetween silos, mean of pairs: {'; '.join(pairs)}\n{last}"


def drift_of(partition: Partition, archive: Archive) -> Drift:
    """Return the label counts from which the distances between a partition's silos follow.

    Raises:
        UserError: If the archive has no labels.
    """
    labels = archive.required_labels(
        "from which the distances between silos are computed. "
        'Leave out --plot, or add a column "labels" to its metadata.'
    )
    held = np.unique(np.concatenate([silo.rows for silo in partition.silos]))
    return Drift(
        silos=tuple(silo.name for silo in partition.silos),
        counts=partition.label_table(archive),
        pool=(labels[held] > 0).sum(axis=0, dtype=np.int64),
        sizes=np.array([len(silo.rows) for silo in partition.silos], np.int64),
    )


def _figure(value: float, *, digits: int = 3) -> str:
    return f"{value:.{digits}f}" if np.isfinite(value) else "-"
