"""Outputs of all of a silo's items, with which a step compares its batch, so that it needs ``B`` forward passes only.

They are working tensors of the silo. `store_all` computes them at the start of a phase, and `store_batch` replaces those of
a batch after each step. A batch is compared with a random subset, the anchors. Rows and anchors are positions of items,
``(B,)`` and ``(N,)`` int64.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import MODALITIES, Modality, Outputs, PairBatch, Step
from silohash.methods.local.base import LocalMethod, MethodParams, SiloData, SiloState, labels_of, outputs_of, signs
from silohash.methods.local.losses import mean_similarity, pair_likelihood, pair_weights, similarity
from silohash.methods.traits import Traits


def store_all(model: nn.Module, data: SiloData, state: SiloState) -> None:
    """Store the model's relaxed codes of all items, and which items have them (``has_image``, ``has_text``).

    The codes are the working tensor with the name of the modality, ``(n, K)``. Rows without the modality are zero.
    """
    outputs = outputs_of(model, data)
    state.buffers |= {str(modality): codes for modality, codes in outputs.items()}
    state.buffers |= {f"has_{modality}": data.has(modality) for modality in outputs}


def store_batch(outputs: Outputs, batch: PairBatch, state: SiloState) -> None:
    """Replace the stored outputs of a batch's items."""
    for modality, codes in outputs.code.items():
        state.buffers[modality][batch.row] = codes.detach().float() * batch.has(modality).unsqueeze(1)


def stored_modalities(state: SiloState) -> tuple[Modality, ...]:
    """Return the modalities whose outputs are stored."""
    return tuple(modality for modality in MODALITIES if modality in state.buffers)


def joint_codes(state: SiloState, *others: str) -> Tensor:
    """Return the signs of the sum of the stored outputs of other networks and of the modalities, ``(n, K)``."""
    return signs(torch.stack([state.buffers[name] for name in (*others, *stored_modalities(state))]).sum(0))


def drawn_rows(count: int, most: int, device: torch.device) -> Tensor:
    """Return the positions of at most ``most`` random items in ascending order, ``(min(count, most),)`` int64."""
    rows = torch.arange(count) if count <= most else torch.randperm(count)[:most].sort().values
    return rows.to(device)


def draw_anchors(data: SiloData, state: SiloState, most: int) -> None:
    """Draw at most ``most`` stored items with which batches are compared (`drawn_rows`).

    Their positions are the working tensor ``anchors``, ``(min(n, most),)`` int64.
    """
    state.buffers["anchors"] = drawn_rows(len(data), most, data.has_image.device)


def partner_outputs(state: SiloState, modality: Modality, rows: Tensor) -> Tensor:
    """Return the stored outputs ``(B, K)`` of the other modality than the given one for some items.

    Items without the other modality have those of the same modality.
    """
    other: Modality = "text" if modality == "image" else "image"
    if other not in state.buffers:
        return state.buffers[modality][rows]
    has = state.buffers[f"has_{other}"][rows]
    values = state.buffers[other][rows]
    # If all items have the other modality, `where` would only copy.
    return values if bool(has.all()) else torch.where(has.unsqueeze(1), values, state.buffers[modality][rows])


class StoredPairsParams(MethodParams):
    """Parameters that all methods have which compare a batch with stored outputs by shared labels."""

    similarity: Literal["any", "graded"] = "graded"
    """Similarity of two items: `any` (1 if they share a label, else 0) or `graded` (the cosine of their label
    vectors)."""
    class_balance: bool = True
    """Give similar and dissimilar pairs the same total weight, regardless of how many there are of each."""
    anchors: int = Field(default=1024, ge=1)
    """Number of stored items that each batch is compared with, at least 1. A new random subset is drawn each epoch."""


class StoredPairs(LocalMethod):
    """A base of methods that compare a batch with the stored outputs of other items by shared labels.

    A subclass calls `likelihood` in `terms`, and states in `remedy` what the user can do if the codes collapse.
    """

    params: StoredPairsParams
    traits = Traits(needs_labels=True)
    remedy: ClassVar[str] = ""

    def init_state(self, model: nn.Module, data: SiloData, state: SiloState) -> None:
        """Store the labels, the share of similar pairs, and the outputs of all items."""
        labels = labels_of(data)
        share = mean_similarity(labels, graded=self.graded)
        state.buffers = {"labels": labels, "share": share, **self.label_outputs(model, labels)}
        store_all(model, data, state)
        self.end_epoch(model, data, state)

    def label_outputs(self, model: nn.Module, labels: Tensor) -> dict[str, Tensor]:
        """Return what a network of the labels gives for all items, to be stored as well, by name; by default nothing."""
        return {}

    @property
    def graded(self) -> bool:
        """Whether similarity is the cosine of the label vectors instead of 0 or 1 (`similarity`)."""
        return self.params.similarity == "graded"

    def likelihood(self, codes: Tensor, stored: Tensor, rows: Tensor, anchors: Tensor, state: SiloState) -> Tensor:
        """Return the `pair_likelihood` of a batch's rows and the anchors, ``(B, N)``, weighted if classes are balanced."""
        labels = state.buffers["labels"]
        similar = similarity(labels[rows], labels[anchors], graded=self.graded)
        likelihood = pair_likelihood(codes, stored, similar)
        if not self.params.class_balance:
            return likelihood
        return likelihood * pair_weights(similar, float(state.buffers["share"]))

    def record(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> None:
        """Store the outputs of the batch."""
        store_batch(outputs, batch, state)

    def end_epoch(self, model: nn.Module, data: SiloData, state: SiloState) -> None:
        """Draw the stored items for the next epoch."""
        draw_anchors(data, state, self.params.anchors)

    def warnings(self, terms: Mapping[str, float]) -> list[str]:
        """Return a warning if the codes collapse: outputs near zero give every pair a ``likelihood`` of ln 2.

        There is none if similar and dissimilar pairs have the same total weight.
        """
        if self.params.class_balance or abs(terms.get("likelihood", 0.0) - math.log(2)) > 1e-4:
            return []
        return [
            f"The codes have collapsed: the likelihood per pair is ln 2, as if every output were zero. {self.remedy}"
        ]
