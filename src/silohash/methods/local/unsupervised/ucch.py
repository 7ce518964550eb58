"""UCCH: each code points to the binary code of its own item in a memory, and away from those of other items, without labels.

The memory holds a moving average of the codes of every item of the silo, and its signs are the keys of a contrast, so that
codes become binary without a relaxation. A ranking loss brings the two codes of an item closer to each other than to the
codes of all other items. It averages, because the nearest ones are often similar to the item.

============  ========================  ================================================================
paper         code                      meaning
============  ========================  ================================================================
h^x, h^y      `unit_codes`              relaxed codes of images and texts, scaled to length 1, ``(B, K)``
v             ``buffers["memory"]``     memory, unit rows, ``(n, K)``
k+            ``positive``              key of the item itself, ``sgn(v_i) / sqrt(K)``
k-            ``negatives``             keys of other items
tau           ``temperature``           divides the inner products of codes and keys
delta         ``momentum``              part of the memory that an update keeps
M             ``similarity``            inner products ``h^x h^yT`` of a batch, ``(B, B)``
m             ``margin``                difference from which on a pair is different
zeta          ``shift``                 reduces the similarity of different pairs
kappa         ``ranking_temperature``   sharpness of the maximum over the other items
beta          ``contrast_weight``       weight of the contrast; that of the ranking loss is the rest
============  ========================  ================================================================

L_c is `memory_contrast`, L_r is `ranking_loss` of M and of its transpose, and the update of the memory is `moved_memory`.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import MODALITIES, MethodCard, Modality, Outputs, PairBatch, Step, Terms
from silohash.methods.local.base import LocalMethod, MethodParams, SiloData, SiloState, outputs_of, signs
from silohash.methods.local.stored_outputs import drawn_rows
from silohash.models.towers import Adapted, HashNet

CARD = MethodCard(
    key="ucch",
    title="Unsupervised Contrastive Cross-Modal Hashing",
    authors="Peng Hu, Hongyuan Zhu, Jie Lin, Dezhong Peng, Yin-Ping Zhao, Xi Peng",
    venue="IEEE Transactions on Pattern Analysis and Machine Intelligence",
    year=2023,
    link="https://doi.org/10.1109/TPAMI.2022.3177356",
    summary="Contrast codes with a memory of binary codes, and rank an item's own partner first, without labels.",
    keeps=("a code for each of its items, within a round",),
    differs_from_paper=(
        "The networks are those of the run. The authors use one hidden layer of 8,192 units for texts and two for images.",
        "The memory starts each round with the codes of the received model. In the first epoch of the authors' code, the"
        " codes of the batch are the keys.",
        "The negatives are drawn once per epoch for all items, instead of for each item of a batch. A silo with fewer items"
        " than negatives uses all its other items. An item is never its own negative.",
        "An item's place in the memory is the mean over the modalities that it has. Items without both modalities, and"
        " models of one modality, do not take part in the ranking loss.",
        "The weight of the contrast is selected per data set. The presets recommended and paper have the authors' values for"
        " MIRFlickr-25K, and authors_code has the defaults of their code.",
        "The optimizer is that of the run. The authors use Adam with learning rate 0.0001, batches of 256, and gradients"
        " clipped to length 1.",
    ),
)


class UCCHParams(MethodParams):
    """Parameters of UCCH."""

    without_effect: ClassVar = {
        **MethodParams.switched_off("temperature", "negatives", "momentum", contrast_weight=(0,)),
        **MethodParams.switched_off("margin", "shift", "ranking_temperature", contrast_weight=(1,)),
    }

    contrast_weight: float = Field(default=0.7, ge=0, le=1)
    """Weight of the contrast with the memory (beta in the paper), from 0 to 1. That of the ranking loss is the rest."""
    temperature: float = Field(default=0.9, gt=0)
    """Temperature of the contrast (tau in the paper), positive. Lower values emphasize the closest other items."""
    negatives: int = Field(default=4096, ge=1)
    """Largest number of other items that each code is contrasted with, at least 1. They are drawn again each epoch."""
    momentum: float = Field(default=0.4, ge=0, lt=1)
    """Part of an item's place in the memory that an update keeps (delta in the paper), from 0 to below 1. At 0 it is the
    item's latest code."""
    margin: float = Field(default=0.2, ge=0)
    """Margin of the ranking loss (m in the paper), at least 0. Pairs whose similarity lies further below that of the item's
    own pair count as different."""
    shift: float = Field(default=0.1, ge=0)
    """Value that is subtracted from the similarity of different pairs (zeta in the paper), at least 0. Higher values reduce
    their influence."""
    ranking_temperature: float = Field(default=1.0, gt=0)
    """Temperature of the ranking loss (kappa in the paper), positive. Lower values emphasize the closest wrong partners."""


def unit_codes(codes: Mapping[Modality, Tensor]) -> dict[Modality, Tensor]:
    """Return relaxed codes ``(B, K)`` per modality, scaled to length 1."""
    return {modality: F.normalize(values, dim=1) for modality, values in codes.items()}


def fused(codes: Mapping[Modality, Tensor], has: Mapping[Modality, Tensor]) -> Tensor:
    """Return the mean of each item's codes ``(n, K)`` over the modalities that it has, ``(n, K)``; zero without any."""
    held = torch.stack([has[modality] for modality in codes]).sum(0).clamp(min=1).unsqueeze(1)
    return torch.stack([values * has[m].unsqueeze(1) for m, values in codes.items()]).sum(0) / held


def moved_memory(memory: Tensor, codes: Tensor, momentum: float) -> Tensor:
    """Return the updated places of some items in the memory, ``(B, K)`` of length 1, given their places and latest codes."""
    return F.normalize(momentum * memory + (1.0 - momentum) * codes, dim=1)


def memory_contrast(codes: Tensor, positive: Tensor, negatives: Tensor, excluded: Tensor, temperature: float) -> Tensor:
    """Return the cross-entropy of identifying each item's key among those of other items, ``(B,)``.

    Keys are -1 and 1, which is sqrt(K) times k+ ``(B, K)`` and k- ``(M, K)``. Keys that belong to the item itself are
    excluded, ``(B, M)``.

    Source: UCCH, the loss L_c.
    """
    near = (codes * positive).sum(1, keepdim=True)
    far = (codes @ negatives.T).masked_fill(excluded, -torch.inf)
    logits = torch.cat([near, far], dim=1) / (temperature * math.sqrt(codes.shape[1]))
    return -F.log_softmax(logits, dim=1)[:, 0]


def ranking_loss(similarity: Tensor, *, margin: float, shift: float, temperature: float) -> Tensor:
    """Return the mean over items of m + kappa log sum_j exp(S_ij / kappa) - S_ii, a scalar.

    S is the similarity M ``(B, B)``, from which zeta is subtracted where it lies more than m below that of the own pair.

    Source: UCCH, the loss L_r.
    """
    own = similarity.diagonal()
    close = own.unsqueeze(1) - similarity <= margin
    shifted = torch.where(close, similarity, similarity - shift)
    return (margin + temperature * (shifted / temperature).logsumexp(1) - own).mean()


class UCCH(LocalMethod[UCCHParams]):
    """A contrast with a memory of binary codes and a ranking loss, for one or two modalities."""

    presets: ClassVar = {"recommended": {}, "paper": {}, "authors_code": {"contrast_weight": 0.9, "shift": 1.0}}

    def init_state(self, model: nn.Module, data: SiloData, state: SiloState) -> None:
        """Fill the memory with the model's codes of all items, and draw the negatives of the first epoch."""
        assert isinstance(model, HashNet | Adapted)  # noqa: S101  built above
        codes = unit_codes(outputs_of(model, data))
        memory = data.has_image.new_zeros(len(data), model.bits, dtype=torch.float32)
        state.buffers = {
            "memory": F.normalize(fused(codes, {m: data.has(m) for m in codes}), dim=1) if codes else memory
        }
        self.end_epoch(model, data, state)

    def terms(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> Terms:
        """Return the contrast, summed over the modalities, and the ranking loss, summed over the two directions."""
        codes = unit_codes({m: values for m, values in outputs.code.items() if batch.has(m).any()})
        terms: Terms = {}
        if codes and self.params.contrast_weight:
            contrasts = [self._contrast(codes[m], m, batch, state) for m in codes]
            terms["contrast"] = (self.params.contrast_weight, torch.stack(contrasts).sum())
        both = batch.has_image & batch.has_text
        if len(codes) > 1 and self.params.contrast_weight < 1 and both.any():
            image, text = (codes[m][both] for m in MODALITIES)
            terms["ranking"] = (1.0 - self.params.contrast_weight, self._ranking(image @ text.T))
        return terms

    def _contrast(self, codes: Tensor, modality: Modality, batch: PairBatch, state: SiloState) -> Tensor:
        """Return the mean contrast of one modality's codes with the memory, a scalar."""
        held = batch.rows_with(modality)
        rows, others, memory = batch.row[held], state.buffers["negatives"], state.buffers["memory"]
        positive, negatives, own = signs(memory[rows]), signs(memory[others]), rows.unsqueeze(1) == others
        return memory_contrast(codes[held], positive, negatives, own, self.params.temperature).mean()

    def _ranking(self, similarity: Tensor) -> Tensor:
        """Return the ranking losses of images among texts and of texts among images, summed, a scalar."""
        given = self.params
        loss = partial(ranking_loss, margin=given.margin, shift=given.shift, temperature=given.ranking_temperature)
        # The transpose is made before the first loss: gradients are added in another order otherwise, which changes figures.
        forth, back = (loss(values) for values in (similarity, similarity.T))
        return forth + back

    def record(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> None:
        """Move the memory toward the codes of the batch."""
        codes = unit_codes({m: values.detach() for m, values in outputs.code.items()})
        has = {m: batch.has(m) for m in codes}
        there = torch.stack(list(has.values())).any(0)
        rows, latest = batch.row[there], fused(codes, has)[there]
        memory = state.buffers["memory"]
        memory[rows] = moved_memory(memory[rows], latest, self.params.momentum)

    def end_epoch(self, model: nn.Module, data: SiloData, state: SiloState) -> None:
        """Draw the items whose keys serve as negatives in the next epoch."""
        present = state.buffers["memory"].any(1).nonzero().squeeze(1)
        drawn = drawn_rows(len(present), self.params.negatives, data.has_image.device)
        state.buffers["negatives"] = present[drawn]
