"""Hash centers and average precision: codes are close to the fixed code of their class, and rank the items of a batch well.

Every class has a fixed target code (a hash center), which all silos derive from the seed of the run. The precision term is 1
minus the average precision of the rankings within a batch, from a histogram of distances, so that items at the same distance
share their ranks as in the evaluation. The pair term distinguishes an item from others of its class by the code of its other
modality.

=======  ======================  =================================================================
symbol   code                    meaning
=======  ======================  =================================================================
h        ``outputs.code``        relaxed codes in (-1, 1), (B, K)
P        ``buffers["codes"]``    class codes, (C, K)
w        `label_weights`         weights of an item's labels in its target, (C,)
t        `class_targets`         target distribution over the classes, (B, C)
s        `logit_shift`           shift of the logits by the silo's share of each label, (C,)
pi       `FederationLabels`      share of each label among the items of all silos, (C,)
G        `similarities`          inner products of relaxed codes, divided by K, (B, N)
q        `bin_shares`            soft assignment of distances (1 - G) / 2 to bins, (B, bins, N)
n, r     `average_precision`     number of items and of relevant items per bin, (B, bins)
=======  ======================  =================================================================

Sources: class codes as in Yuan et al., "Central Similarity Quantization for Efficient Image and Video Retrieval", CVPR 2020;
the histogram as in He et al., "Hashing as Tie-Aware Learning to Rank", CVPR 2018; the shift as in Menon et al., "Long-Tail
Learning via Logit Adjustment", ICLR 2021, applied per silo.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import MODALITIES, MethodCard, Modality, Outputs, PairBatch, Step, Terms
from silohash.methods.local.base import LocalMethod, MethodParams, SiloData, SiloState, federation_of
from silohash.methods.local.class_codes import class_codes
from silohash.methods.local.label_counts import FederationLabels
from silohash.methods.local.losses import labeled_codes, similarity, target_entropy
from silohash.methods.traits import Traits
from silohash.models.towers import Adapted, HashNet

CARD = MethodCard(
    key="centerap",
    title="Hash centers and average precision",
    authors="The silohash developers",
    venue="baseline",
    year=2026,
    link="",
    summary="Classify codes by fixed class codes, and maximize the tie-aware average precision of each batch.",
    supervised=True,
    sends=("before the first round: number of items, of items per label, and of items with several labels",),
    differs_from_paper=(),
)

BINS = 17
"""Number of bins of the histogram of distances. The centers of the bins are evenly spaced from 0 to 1."""

SMALLEST_LABEL_WEIGHT = 0.05
"""Smallest weight of a label, which is that of labels that nearly every item has."""

COLLAPSED_BALANCE = 0.98
"""Balance term from which on nearly all items have the same code."""

COLLAPSED_PRECISION = 0.05
"""Precision term above which items with the same code do not all share a label."""


class CenterAPParams(MethodParams):
    """Parameters of hash centers and average precision."""

    class_weight: float = Field(default=1.0, ge=0)
    """Weight of the classification by class codes, at least 0."""
    precision_weight: float = Field(default=2.0, ge=0)
    """Weight of 1 - AP (average precision) of the rankings within a batch, at least 0."""
    pair_weight: float = Field(default=0.1, ge=0)
    """Weight of a contrastive loss between the two codes of an item, at least 0. Higher values rank the very item higher,
    at the cost of other items with its labels. Without effect if the model has one modality."""
    pair_temperature: float = Field(default=0.2, gt=0)
    """Temperature of the contrastive loss, positive. Lower values emphasize the closest wrong partners."""
    quantization_weight: float = Field(default=0.1, ge=0)
    """Weight per modality of the quantization loss, which pulls relaxed codes toward -1 and 1, at least 0."""
    balance_weight: float = Field(default=0.1, ge=0)
    """Weight per modality of the bit-balance loss, which pulls the mean of each bit toward zero, at least 0."""
    class_scale: float = Field(default=8.0, gt=0)
    """Logit of a class for an item that has exactly its code, positive. Higher values make the classification sharper."""
    adjustment: float = Field(default=1.0, ge=0)
    """Factor on the logit adjustment, at least 0. It shifts a silo's logits by the silo's share of each label, so that
    silos with few items of a class do not unlearn it. At 0 logits are not shifted."""
    item_bits: int = Field(default=0, ge=0)
    """Number of bits, at the end of the code, that only the pair term trains, at least 0 and less than the code length.
    They distinguish items, and the other bits distinguish classes, so that a search finds the very item without ranking
    other items of its kind lower. At 0 all terms train all bits."""

    without_effect: ClassVar = {
        **MethodParams.switched_off("item_bits", "pair_temperature", pair_weight=(0.0,)),
        **MethodParams.switched_off("class_scale", "adjustment", class_weight=(0.0,)),
    }


def label_weights(federation: FederationLabels) -> Tensor:
    """Return the weights of labels in the targets, ``(C,)``: max(log 1/pi, 0.05), or 1 if labels are exclusive."""
    if federation.exclusive:
        return torch.ones_like(federation.counts)
    return (federation.items / federation.counts.clamp(min=1)).log().clamp(min=SMALLEST_LABEL_WEIGHT)


def class_targets(labels: Tensor, weights: Tensor) -> Tensor:
    """Return the target distributions t over classes, ``(B, C)``, given the weights w; zero for items without labels."""
    weighted = labels * weights
    return weighted / weighted.sum(1, keepdim=True).clamp(min=1e-12)


def logit_shift(counts: Tensor, items: int, federation: FederationLabels) -> Tensor:
    """Return the shift of the logits of a silo with these numbers of items per label ``(C,)`` and of all items, ``(C,)``.

    If labels are exclusive, it is 0.7 log(pi_silo + 0.02 pi + 1e-4). If items may have several labels, it is 0.5
    log((pi_silo + 0.05 pi) / (1.05 pi)), which is 0 for labels whose share is that of the federation, and for labels that no
    item has.

    Source: Menon et al., the logit-adjusted loss, with the shares of the silo instead of those of the training set.
    """
    share, everywhere = counts / max(items, 1), federation.counts / max(federation.items, 1)
    if federation.exclusive:
        return 0.7 * (share + 0.02 * everywhere + 1e-4).log()
    ratio = (share + 0.05 * everywhere) / (1.05 * everywhere)
    return torch.where(everywhere > 0, 0.5 * ratio.log(), 0.0)


def class_loss(codes: Tensor, targets: Tensor, centers: Tensor, shift: Tensor, scale: float) -> Tensor:
    """Return the mean cross-entropy of softmax(scale / K h P^T + s) against the targets t, over items with a label.

    Codes h are ``(B, K)``, centers P ``(C, K)`` and the shift s ``(C,)``. The loss is 0 if no item has a label.

    Source: Yuan et al. compare codes with class codes bit by bit; here the classes compete in a softmax.
    """
    return target_entropy((scale / codes.shape[1]) * (codes @ centers.T) + shift, targets)


def similarities(codes: Tensor, others: Tensor) -> Tensor:
    """Return G, the inner products of relaxed codes divided by K, ``(B, N)`` in (-1, 1)."""
    return codes @ others.T / codes.shape[1]


def bin_shares(similarity: Tensor, bins: int = BINS) -> Tensor:
    """Return the soft assignment of distances to at least 2 bins, ``(B, bins, N)``: max(0, 1 - |D - c_b| (bins - 1)).

    Each distance D = (1 - G) / 2 is divided between the two bins whose centers c_b are nearest. Its shares add up to 1.

    Source: He et al., the soft histogram.
    """
    position = (1.0 - similarity) * (0.5 * (bins - 1))
    centers = torch.arange(bins, device=similarity.device, dtype=similarity.dtype)
    return F.relu(1.0 - (position.unsqueeze(1) - centers[:, None]).abs())


def average_precision(shares: Tensor, relevant: Tensor) -> Tensor:
    """Return the mean tie-aware AP over the rankings that have a relevant item ``(B, N)``, a scalar; 1 if none has.

    AP = sum_b r_b (R_b - r_b / 2 + 1/2) / (N_b - n_b / 2 + 1/2) / R, where N_b and R_b are cumulative and R is the number of
    relevant items. With the items of a bin in random order, a relevant item of the bin has the expected rank N_b - n_b / 2 +
    1/2, and R_b - r_b / 2 + 1/2 relevant items are expected up to this rank. If each bin holds at most one item, this is the
    ordinary AP. The shares ``(B, bins, N)`` are zero for items that a ranking leaves out.

    Source: He et al., the tie-aware AP, with the ratio of the two expectations in place of the expected ratio.
    """
    counts = shares.sum(2)
    found = torch.einsum("ibj,ij->ib", shares, relevant)
    precision = (found.cumsum(1) - 0.5 * found + 0.5) / (counts.cumsum(1) - 0.5 * counts + 0.5)
    total = found.sum(1)
    values = (found * precision).sum(1) / total.clamp(min=1e-6)
    rankings = (total > 0).sum()
    return torch.where(rankings > 0, values.sum() / rankings.clamp(min=1), 1.0)


def pair_loss(codes: Tensor, partners: Tensor, temperature: float) -> Tensor:
    """Return the cross-entropy of identifying each item's partner by cosine ``(B, B)``, the mean of both directions.

    Source: van den Oord et al., "Representation Learning with Contrastive Predictive Coding", 2018.
    """
    cosines = F.normalize(codes, dim=1) @ F.normalize(partners, dim=1).T / temperature
    partner = torch.arange(len(cosines), device=cosines.device)
    return 0.5 * (F.cross_entropy(cosines, partner) + F.cross_entropy(cosines.T, partner))


class CenterAP(LocalMethod[CenterAPParams]):
    """Hash centers and average precision, for one or two modalities.

    Items of a batch rank those of the other modality. If a batch has one modality only, items rank the other items of it.
    """

    traits = Traits(needs_labels=True, needs_label_counts=True)

    def __init__(self, params: CenterAPParams) -> None:
        self.params = params
        self.traits = replace(self.traits, item_bits=params.item_bits)

    def init_state(self, model: nn.Module, data: SiloData, state: SiloState) -> None:
        """Store the class codes, the weights of the labels and the shift of the logits."""
        assert isinstance(model, HashNet | Adapted)  # noqa: S101  built above
        federation = federation_of(data, CARD.key)
        bits = model.bits - self.params.item_bits
        codes = class_codes(len(federation.counts), bits, exclusive=federation.exclusive, seed=federation.seed)
        shift = logit_shift(data.class_counts(), len(data), federation)
        state.buffers = {
            "codes": torch.tensor(codes, dtype=federation.counts.dtype, device=federation.counts.device),
            "weights": label_weights(federation),
            "shift": self.params.adjustment * shift,
        }

    def terms(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> Terms:
        """Return the class, precision, quantization and balance terms, and the pair term of items with both modalities."""
        params, (codes, labels) = self.params, labeled_codes(outputs, batch)
        if not codes:
            return {}
        bits = state.buffers["codes"].shape[1]
        of_classes = {m: values[:, :bits] for m, values in codes.items()}
        weights, centers, shift = (state.buffers[name] for name in ("weights", "codes", "shift"))
        losses = [
            class_loss(of_classes[m], class_targets(labels[m], weights), centers, shift, self.params.class_scale)
            for m in of_classes
        ]
        terms = {
            "class": (params.class_weight, torch.stack(losses).mean()),
            "precision": (params.precision_weight, 1.0 - batch_precision(of_classes, labels)),
            "quantization": (
                len(codes) * params.quantization_weight, mean_over(codes, lambda c: (c.abs() - 1.0).square().mean()),
            ),
            "balance": (len(codes) * params.balance_weight, mean_over(codes, lambda c: c.mean(0).square().mean())),
        }  # fmt: skip
        both = batch.has_image & batch.has_text
        # A single pair has no wrong partner.
        if params.pair_weight and len(codes) > 1 and both.sum() > 1:
            start = bits if params.item_bits else 0
            image, text = (outputs.code[m][both, start:] for m in MODALITIES)
            loss = pair_loss(image, text, params.pair_temperature)
            terms["pair"] = (params.pair_weight, loss)
        return terms

    def warnings(self, terms: Mapping[str, float]) -> list[str]:
        """Return a warning if nearly all items have the same code although they do not share a label."""
        collapsed = terms.get("balance", 0.0) >= COLLAPSED_BALANCE
        if not collapsed or terms.get("precision", 0.0) <= COLLAPSED_PRECISION:
            return []
        return [
            "The codes have collapsed: nearly all items have the same code. Lower the learning rate, or raise "
            "balance_weight."
        ]


def mean_over(codes: Mapping[Modality, Tensor], measure: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the mean over the modalities of a measure of their codes ``(B, K)``, a scalar."""
    return torch.stack([measure(values) for values in codes.values()]).mean()


def batch_precision(codes: Mapping[Modality, Tensor], labels: Mapping[Modality, Tensor]) -> Tensor:
    """Return the mean AP of the rankings within a batch, a scalar. Items are relevant if they share a label.

    Codes are ``(B, K)`` and labels ``(B, C)`` per modality; the two modalities may have different items.
    """
    if len(codes) == 1:
        ((modality, only),) = codes.items()
        others = 1.0 - torch.eye(len(only), device=only.device)
        relevant = similarity(labels[modality], labels[modality], graded=False) * others
        return average_precision(bin_shares(similarities(only, only)) * others.unsqueeze(1), relevant)
    shares = bin_shares(similarities(codes["image"], codes["text"]))
    relevant = similarity(labels["image"], labels["text"], graded=False)
    forth = average_precision(shares, relevant)
    back = average_precision(shares.transpose(0, 2), relevant.T)
    return 0.5 * (forth + back)
