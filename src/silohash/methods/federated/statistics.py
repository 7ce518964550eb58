"""Class statistics: additive sums and counts per class, the rules for releasing them, and the means derived from them.

Used by FedProto, FedProc, FedHAP, FedCAFE, PLFedCMH and PEPFCH. A silo releases a class's row only if enough of its items
have the class, limits the contribution of each item, and sends zeros otherwise. A sum over silos therefore does not reveal
which silo holds which class. The papers release every class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor

from silohash.base.errors import ConflictingOptions, RevealsItems
from silohash.base.types import MODALITIES, Arrays, Modality, ReadArrays
from silohash.methods.local.base import MethodParams
from silohash.methods.message import Message
from silohash.methods.traits import Release, Traits

ENCRYPTION = "exchange.encryption"
"""Key of the config with which the server cannot read what silos send."""


class ReleaseParams(MethodParams):
    """Rules for releasing class statistics."""

    min_count: int = Field(default=5, ge=1)
    """Minimum number of items a silo must have in a class before it shares that class's statistics. At 1 every class
    is shared."""
    max_labels: int = Field(default=3, ge=1)
    """Maximum total weight of one item in the statistics, at least 1. An item with more labels splits this weight
    among them."""


def with_release(traits: Traits, params: ReleaseParams, *, used: bool = True, by_class: bool = True) -> Traits:
    """Return traits with those of a method that releases class statistics; see `Release` for ``used`` and ``by_class``."""
    exact = {
        "min_count": f"federated.min_count = {params.min_count} releases a class by its exact number of items, which "
        "exchange.privacy does not hide. Set federated.min_count = 1: the noisy count then decides."
    }
    release = Release(params.min_count, params.max_labels, used=used, by_class=by_class)
    return replace(traits, release=release, not_private=exact if params.min_count > 1 else {})


@dataclass(frozen=True)
class ClassStatistics:
    """Sums ``(C, p)`` and counts ``(C,)`` per class. Rows of classes that were not released are zero."""

    sums: Tensor
    counts: Tensor

    def means(self) -> Tensor:
        """Return the mean per class, ``(C, p)``; zero for classes without items."""
        return self.sums / self.counts.clamp(min=1e-12).unsqueeze(1)

    def with_equal_counts(self) -> ClassStatistics:
        """Return the class means with a count of 1, so that silos have equal weight when statistics are added up."""
        return ClassStatistics(sums=self.means(), counts=self.present().to(self.counts.dtype))

    @staticmethod
    def none(like: np.ndarray, labels: Tensor) -> ClassStatistics:
        """Return statistics of no class, with sums of the shape of an array ``(C, p)`` and the labels' type and device."""
        return ClassStatistics(sums=labels.new_zeros(like.shape), counts=labels.new_zeros(len(like)))

    def present(self) -> Tensor:
        """Return a mask of the released classes, ``(C,)`` bool."""
        return self.counts > 0


def released(labels: Tensor, release: ReleaseParams) -> Tensor:
    """Return a mask of the classes of which a silo with the given labels ``(n, C)`` has enough items, ``(C,)`` bool."""
    return labels.sum(0) >= release.min_count


def class_statistics(values: Tensor, labels: Tensor, release: ReleaseParams) -> ClassStatistics:
    """Return a silo's sums and counts per class, subject to the release rules.

    The values ``(n, p)`` are bounded by the caller (unit vectors, or relaxed codes in [-1, 1]). An item counts toward each
    of its multi-hot labels ``(n, C)``.
    """
    own = labels.sum(1, keepdim=True)
    shares = labels * (release.max_labels / own.clamp(min=release.max_labels))
    kept = released(labels, release).to(values.dtype)
    return ClassStatistics(sums=(shares.T @ values) * kept.unsqueeze(1), counts=shares.sum(0) * kept)


def class_shares(labels: Tensor, mask: Tensor) -> Tensor:
    """Normalize each item's multi-hot labels ``(B, C)`` within the classes of a mask ``(C,)`` to sum to 1, if it has any."""
    return F.normalize(labels * mask.to(labels.dtype), p=1.0, dim=1)


def merged_prototypes(sums: np.ndarray, counts: np.ndarray, before: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return prototypes ``(C, p)`` float32, the mean per class over all silos, and a mask of the existing ones ``(C,)``.

    A class that no silo released keeps its previous row, which is zero if it has no prototype. Sums ``(C, p)`` and counts
    ``(C,)`` are those of all silos.
    """
    held = counts > 0
    means = sums / np.maximum(counts, 1e-12)[:, None]
    merged = np.where(held[:, None], means, before).astype(np.float32)
    return merged, held | before.any(axis=1)


class RevealParams(MethodParams):
    """Parameters of methods whose sums reveal the items of a silo (`Traits.reveals`)."""

    reveal_items: bool = False
    """Allow each silo to send its second moments although the server can read them. They reveal the silo's items: the
    vectors of a small silo can be computed from them, and the texts from vectors that count words."""


def sum_statistics(updates: Sequence[Message]) -> Arrays:
    """Add up the additive statistics of all updates. Under secure aggregation the server sees only these sums."""
    total: Arrays = {}
    for update in updates:
        add_sums(total, update.sums)
    return total


def add_sums(total: Arrays, sums: ReadArrays) -> None:
    """Add named sums to a total, in place."""
    for name, array in sums.items():
        total[name] = total[name] + array if name in total else array


def mean_over_modalities(values: Mapping[Modality, Tensor], has: Mapping[Modality, Tensor]) -> Tensor:
    """Average each item's values ``(n, p)`` over the modalities it has ``(n,)``; zero for items without any modality."""
    order = [modality for modality in MODALITIES if modality in values]
    held = torch.stack([has[modality] for modality in order]).to(values[order[0]].dtype).unsqueeze(2)
    stacked = torch.stack([values[modality] for modality in order])
    return (stacked * held).sum(0) / held.sum(0).clamp(min=1.0)


def check_revealing_sums(method: str, sent: str, *, allowed: bool, rules: Sequence[str]) -> None:
    """Check that the user allows what the sums of a method reveal, and that no rule is expected to apply to them.

    What each silo sends is given in words that end with "reveal". Rules are keys of the config that limit or transform it.
    With `ENCRYPTION`, the server does not see the sums of single silos.

    Raises:
        UserError: If the user does not allow it, or there is a key that would not apply to the sums.
    """
    if not allowed and ENCRYPTION not in rules:
        raise RevealsItems(
            f"{method}: each silo sends {sent} its items to a server that sees them one silo at a time. Set reveal_items = "
            f'true if the server may learn the items, or {ENCRYPTION} = "ckks", with which it cannot read them.'
        )
    limits = [rule for rule in rules if rule != ENCRYPTION]
    if limits:
        raise ConflictingOptions(
            f"{method}: {limits[0]} does not apply to the sums that silos send, and they decide the codes. Remove "
            f"{limits[0]}."
        )
