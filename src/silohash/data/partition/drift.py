"""How far silos' label distributions lie from one another.

A silo's distribution is the share that each label has of all labels given to its items: an item with two labels counts
for both.

=====================  ===================================================  ==========================
figure                 of two distributions p and q                         runs from 0 (equal) to
=====================  ===================================================  ==========================
total variation        half the sum of ``|p - q|``                          1 (no label in common)
Hellinger              root of half the sum of ``(root p - root q)^2``      1
Jensen-Shannon         mean divergence, in bits, of p and q from their mid  1
=====================  ===================================================  ==========================

Source: J. Lin, "Divergence measures based on the Shannon entropy", IEEE Transactions on Information Theory, 1991 (its
sections II and IV name all three); M. O. Hill, "Diversity and evenness", Ecology, 1973 (the effective number, order 1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from silohash.data.archive import Archive
from silohash.data.partition.base import Partition
from silohash.types import UserError

Shares = npt.NDArray[np.float64]


def label_shares(counts: npt.ArrayLike) -> Shares:
    """Returns each row's distribution over labels.

    Args:
        counts: ``(..., C)``, how often each label occurs.

    Returns:
        ``(..., C)`` float64, each row summing to 1; NaN where a row has no label at all.
    """
    given = np.asarray(counts, np.float64)
    totals = given.sum(axis=-1, keepdims=True)
    return np.asarray(np.divide(given, totals, out=np.full_like(given, np.nan), where=totals > 0))


def total_variation(first: Shares, second: Shares) -> Shares:
    """Returns half the sum of the absolute differences, ``(..., C)`` and ``(..., C)`` to ``(...)``."""
    return np.asarray(0.5 * np.abs(first - second).sum(axis=-1))


def hellinger(first: Shares, second: Shares) -> Shares:
    """Returns the Hellinger distance, ``(..., C)`` and ``(..., C)`` to ``(...)``."""
    return np.asarray(np.sqrt(0.5 * ((np.sqrt(first) - np.sqrt(second)) ** 2).sum(axis=-1)))


def jensen_shannon(first: Shares, second: Shares) -> Shares:
    """Returns the Jensen-Shannon divergence in bits, ``(..., C)`` and ``(..., C)`` to ``(...)``."""
    middle = 0.5 * (first + second)
    return np.maximum(0.0, entropy_bits(middle) - 0.5 * (entropy_bits(first) + entropy_bits(second)))


def entropy_bits(shares: Shares) -> Shares:
    """Returns the entropy of distributions in bits, ``(..., C)`` to ``(...)``."""
    logarithms = np.log2(shares, out=np.zeros_like(shares), where=shares > 0)
    return np.asarray(-(shares * logarithms).sum(axis=-1)) + 0.0


def effective_labels(shares: Shares) -> Shares:
    """Returns how many equally frequent labels would be as diverse, ``(..., C)`` to ``(...)``; 1 for a single label."""
    return np.asarray(np.exp2(entropy_bits(shares)))


DISTANCES: Mapping[str, Callable[[Shares, Shares], Shares]] = {
    "total variation": total_variation,
    "Hellinger": hellinger,
    "Jensen-Shannon": jensen_shannon,
}


@dataclass(frozen=True, eq=False)
class Drift:
    """The silos of a partition against each other and against all of them together.

    Attributes:
        silos: S names.
        counts: ``(S, C)``, how often each silo holds each label.
        pool: ``(C,)``, how often all silos together do; an item that several hold counts once.
        sizes: ``(S,)``, items a silo.
    """

    silos: tuple[str, ...]
    counts: npt.NDArray[np.int64]
    pool: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]

    @cached_property
    def shares(self) -> Shares:
        """Each silo's distribution, ``(S, C)``; NaN for a silo without labels."""
        return label_shares(self.counts)

    @cached_property
    def effective_labels(self) -> Shares:
        """How many labels each silo has in effect, ``(S,)``."""
        return effective_labels(self.shares)

    def from_pool(self, distance: str) -> Shares:
        """Returns each silo's distance from the pool, ``(S,)``; NaN for a silo without labels."""
        return DISTANCES[distance](self.shares, label_shares(self.pool))

    def between(self, distance: str) -> Shares:
        """Returns the distance of every two silos, ``(S, S)``."""
        return DISTANCES[distance](self.shares[:, None], self.shares[None])

    def over_pairs(self, distance: str) -> tuple[float, float]:
        """Returns mean and maximum of the distance over pairs of silos that have labels; NaN if there is no pair."""
        upper = self.between(distance)[np.triu_indices(len(self.silos), k=1)]
        upper = upper[np.isfinite(upper)]
        return (float(upper.mean()), float(upper.max())) if len(upper) else (float("nan"), float("nan"))

    def to_json(self) -> dict[str, Any]:
        """Returns all figures as a JSON value."""
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
        """How many labels all silos together have in effect."""
        return float(effective_labels(label_shares(self.pool)))

    def describe(self) -> str:
        """Returns the figures as a plain table: a line a silo, then mean and maximum over pairs of silos."""
        head = ["silo", "items", "labels in effect", *(f"{name} from all" for name in DISTANCES)]
        lines = [
            [silo, f"{size:,}", _figure(labels, digits=1), *(_figure(value) for value in values)]
            for silo, size, labels, values in zip(
                self.silos,
                self.sizes.tolist(),
                self.effective_labels.tolist(),
                np.stack([self.from_pool(name) for name in DISTANCES], axis=1).tolist(),
                strict=True,
            )
        ]
        widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
        rows = [
            "  ".join(
                [
                    line[0].ljust(widths[0]),
                    *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)),
                ]
            )
            for line in [head, *lines]
        ]
        pairs = "; ".join(
            f"{name} {_figure(mean)} (at most {_figure(most)})"
            for name, (mean, most) in ((name, self.over_pairs(name)) for name in DISTANCES)
        )
        return "\n".join(
            [
                *rows,
                f"between silos, mean of pairs: {pairs}",
                f"labels in effect of all: {self.effective_labels_of_all:.1f}",
            ]
        )


def drift_of(partition: Partition, archive: Archive) -> Drift:
    """Returns how far a partition's silos lie from one another.

    Raises:
        UserError: if the archive has no labels.
    """
    if archive.labels is None:
        raise UserError(
            f'Archive "{archive.card.name}" has no labels, so nothing says how far its silos lie from one another. '
            'Leave out --plot, or add a column "labels" to its metadata.'
        )
    held = np.unique(np.concatenate([silo.rows for silo in partition.silos]))
    return Drift(
        silos=tuple(silo.name for silo in partition.silos),
        counts=partition.label_table(archive),
        pool=(archive.labels[held] > 0).sum(axis=0, dtype=np.int64),
        sizes=np.array([len(silo.rows) for silo in partition.silos], np.int64),
    )


def _figure(value: float, *, digits: int = 3) -> str:
    return f"{value:.{digits}f}" if np.isfinite(value) else "-"
