"""Class statistics: what silos add up about each class, what may leave a silo, and what is made of the sums.

FedProto, FedProc, FedHAP, FedCAFE and PLFedCMH share it. A silo releases a class's row only if enough of its own items have
the class, bounds what one item can contribute, and sends zeros for the rest, so that a sum over silos does not tell who
holds what.

Differs from the papers: they release every class, however few of a silo's items have it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor

from silohash.exchange.message import Message
from silohash.local.base import MethodParams
from silohash.types import MODALITIES, Arrays, Modality


class ReleaseParams(MethodParams):
    """What may leave a silo about its classes."""

    min_count: int = Field(default=5, ge=1)
    """A class is released only if at least so many of the silo's own items have it."""
    max_labels: int = Field(default=3, ge=1)
    """An item counts as at most so many, shared among its labels."""


@dataclass(frozen=True)
class ClassStatistics:
    """Sums and counts a class; rows of classes that were not released are zero.

    Attributes:
        sums: ``(C, p)``.
        counts: ``(C,)``.
    """

    sums: Tensor
    counts: Tensor

    def means(self) -> Tensor:
        """Returns the mean a class, ``(C, p)``; zero where there is none."""
        return self.sums / self.counts.clamp(min=1e-12).unsqueeze(1)

    def with_equal_counts(self) -> ClassStatistics:
        """Returns the means as sums and 1 as the count of each class there is: added up, silos weigh alike."""
        return ClassStatistics(sums=self.means(), counts=self.present().to(self.counts.dtype))

    def present(self) -> Tensor:
        """Returns which classes were released, ``(C,)`` bool."""
        return self.counts > 0


def class_statistics(values: Tensor, labels: Tensor, release: ReleaseParams) -> ClassStatistics:
    """Returns a silo's sums and counts a class, under the rules of release.

    Args:
        values: ``(n, p)``, one row an item, bounded by the caller (unit length, or relaxed codes in [-1, 1]).
        labels: ``(n, C)`` multi-hot; an item with several labels counts for each of them.
        release: the rules.
    """
    own = labels.sum(1, keepdim=True)
    shares = labels * (release.max_labels / own.clamp(min=release.max_labels))
    kept = (labels.sum(0) >= release.min_count).to(values.dtype)
    return ClassStatistics(sums=(shares.T @ values) * kept.unsqueeze(1), counts=shares.sum(0) * kept)


def class_shares(labels: Tensor, mask: Tensor) -> Tensor:
    """Returns each item's labels among the masked classes, adding up to 1, ``(B, C)``; zero rows where it has none."""
    return F.normalize(labels * mask.to(labels.dtype), p=1.0, dim=1)


def merged_prototypes(sums: np.ndarray, counts: np.ndarray, before: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mean a class over all silos; a class that nobody released keeps what it had.

    Args:
        sums: ``(C, p)`` over silos.
        counts: ``(C,)`` over silos.
        before: ``(C, p)``, the prototypes so far; zero rows where there are none.

    Returns:
        Prototypes ``(C, p)`` float32 and which of them there are ``(C,)`` bool.
    """
    held = counts > 0
    means = sums / np.maximum(counts, 1e-12)[:, None]
    merged = np.where(held[:, None], means, before).astype(np.float32)
    return merged, held | before.any(axis=1)


def sum_statistics(updates: Sequence[Message]) -> Arrays:
    """Returns the updates' additive statistics, added up: all that a server sees under secure aggregation."""
    total: Arrays = {}
    for update in updates:
        for name, array in update.sums.items():
            total[name] = total[name] + array if name in total else array
    return total


def mean_over_modalities(values: Mapping[Modality, Tensor], has: Mapping[Modality, Tensor]) -> Tensor:
    """Returns the mean over the modalities that an item has, ``(n, p)``; zero where it has none."""
    order = [modality for modality in MODALITIES if modality in values]
    held = torch.stack([has[modality] for modality in order]).to(values[order[0]].dtype).unsqueeze(2)
    stacked = torch.stack([values[modality] for modality in order])
    return (stacked * held).sum(0) / held.sum(0).clamp(min=1.0)
