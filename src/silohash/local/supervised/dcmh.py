"""Deep Cross-Modal Hashing. Qing-Yuan Jiang and Wu-Jun Li, CVPR 2017.

Two networks learn codes of which the inner products follow the labels: a pair of items that share a label should agree in
most bits, any other pair should not. Each network is compared with the *remembered* outputs of the other modality over all
of the silo's items, so that a step sees ``B x N`` pairs although it runs only ``B`` items.

=========  =======================  ==================================================
paper      code                     meaning
=========  =======================  ==================================================
F, G       ``buffers["image"]``,    remembered outputs, ``(N, K)``, of the image and the
           ``buffers["text"]``      text network
B          ``buffers["code"]``      ``sign(F + G)``, ``(N, K)``, the codes that both aim at
S          `similarity`             1 where two items share a label
Theta      ``0.5 * F @ G.T``        half inner products
gamma      ``quantization_weight``  pulls outputs towards the codes
eta        ``balance_weight``       makes every bit half +1, half -1
=========  =======================  ==================================================

Equation (1) of the paper is `pair_likelihood` + `quantization` + `balance`.

Differs from the paper: image and text steps alternate batch by batch, not epoch by epoch; remembered outputs start from the
networks' own outputs at the start of every round (they would be stale after an aggregation), not from noise; batches are a
pass over the data, not draws with replacement. Preset ``paper`` keeps the paper's sums and weights (and, on data with many
dissimilar pairs, its collapse). Preset ``recommended`` takes means a pair and a bit, so that one set of weights serves silos
of every size, balances similar against dissimilar pairs, and grades similarity by the share of common labels. A further
term of ours, off unless ``pair_weight`` is given, tells an item's own partner from others of the same labels: it finds the
one thing that is asked for sooner, and costs a few points of mAP by labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor, nn

from silohash.local.base import MethodParams, SiloData, SiloState, outputs_of, signs
from silohash.models.towers import HashNet, ModelSpec
from silohash.types import MODALITIES, MethodCard, Modality, Outputs, PairBatch, Step, Terms

CARD = MethodCard(
    key="dcmh",
    title="Deep Cross-Modal Hashing",
    authors="Qing-Yuan Jiang, Wu-Jun Li",
    venue="CVPR",
    year=2017,
    link="https://arxiv.org/abs/1602.02255",
    summary="Two networks whose codes' inner products follow shared labels, against remembered outputs of all items.",
    supervised=True,
    keeps=("outputs of both networks for every own item, within a round",),
    differs_from_paper=(
        "image and text steps alternate batch by batch",
        "remembered outputs are computed anew at the start of every round",
        "preset recommended: means instead of sums, pair classes balanced, similarity graded by common labels",
        "an optional contrastive term of ours for own pairs",
    ),
)


class DCMHParams(MethodParams):
    """Parameters of DCMH."""

    quantization_weight: float = Field(default=0.1, ge=0)
    """gamma: pulls outputs towards the codes."""
    balance_weight: float = Field(default=0.1, ge=0)
    """eta: pulls the mean of every bit towards zero."""
    similarity: Literal["any", "graded"] = "graded"
    """`any`: 1 where two items share a label; `graded`: the cosine of their label vectors."""
    class_balance: bool = True
    """Whether similar and dissimilar pairs weigh the same, however many of each there are."""
    normalization: Literal["mean", "paper"] = "mean"
    """`mean`: means a pair and a bit; `paper`: the paper's sums divided by N and B."""
    pair_weight: float = Field(default=0.0, ge=0)
    """Pulls each item's code to its own partner's and away from the batch's other partners; not in the paper."""
    pair_temperature: float = Field(default=0.2, gt=0)
    """Of the pair term: the lower, the more the nearest wrong partners count."""
    anchors: int = Field(default=1024, ge=1)
    """At most so many remembered items are compared with a batch, drawn anew each epoch."""


def similarity(labels: Tensor, others: Tensor, *, graded: bool) -> Tensor:
    """Returns how alike items are by their labels.

    Args:
        labels: ``(B, C)`` multi-hot.
        others: ``(N, C)`` multi-hot.
        graded: whether to return the cosine of the label vectors instead of 0 or 1. Items without labels are like none.

    Returns:
        ``(B, N)`` in [0, 1].

    Source: DCMH, section 3.1 (``graded=False``).
    """
    if not graded:
        return ((labels @ others.T) > 0).to(labels.dtype)
    return F.normalize(labels, dim=1) @ F.normalize(others, dim=1).T


def pair_likelihood(codes: Tensor, others: Tensor, similar: Tensor) -> Tensor:
    """Returns the negative log-likelihood of each pair's similarity, ``(B, N)``.

    ``softplus(theta) - s * theta`` with ``theta`` half the inner product; stable for any size of theta. All outputs at zero
    give ln 2 everywhere.

    Args:
        codes: ``(B, K)`` outputs of the network that learns.
        others: ``(N, K)`` remembered outputs of the other modality.
        similar: ``(B, N)`` in [0, 1].

    Source: DCMH, equation (1), first term.
    """
    theta = 0.5 * (codes @ others.T)
    return F.softplus(theta) - similar * theta


def pair_weights(similar: Tensor, share: float) -> Tensor:
    """Returns weights that give similar and dissimilar pairs half of the loss each, ``(B, N)``.

    Args:
        similar: ``(B, N)`` in [0, 1].
        share: share of similar pairs among all of the silo's pairs.
    """
    return similar * (0.5 / share) + (1.0 - similar) * (0.5 / (1.0 - share))


def quantization(codes: Tensor, targets: Tensor) -> Tensor:
    """Returns the squared distance of outputs to the codes they aim at, ``(B, K)``. Source: equation (1), second term."""
    return (targets - codes).square()


def balance(codes: Tensor) -> Tensor:
    """Returns the squared mean of each bit over the batch, ``(K,)``. Source: equation (1), third term, per item."""
    return codes.mean(0).square()


def pair_contrast(codes: Tensor, partners: Tensor, temperature: float) -> Tensor:
    """Returns how poorly each item's own partner stands out among the batch's partners, ``(B,)``.

    The cross-entropy of picking the own partner by cosine. Not in the paper: labels alone make all items of one label alike,
    and whoever asks for one thing wants that thing first.

    Args:
        codes: ``(B, K)`` outputs of the network that learns.
        partners: ``(B, K)`` remembered outputs of the other modality for the same items.
        temperature: by which cosines are divided.
    """
    cosines = F.normalize(codes, dim=1) @ F.normalize(partners, dim=1).T
    own = torch.arange(len(codes), device=codes.device)
    return F.cross_entropy(cosines / temperature, own, reduction="none")


class DCMH:
    """Deep Cross-Modal Hashing, over one or two modalities.

    With one modality the network is compared with its own remembered outputs.
    """

    Params: ClassVar[type[MethodParams]] = DCMHParams
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "recommended": {},
        "paper": {
            "quantization_weight": 1.0,
            "balance_weight": 1.0,
            "similarity": "any",
            "class_balance": False,
            "normalization": "paper",
            "pair_weight": 0.0,
            "anchors": 1_000_000,
        },
    }
    needs_labels: ClassVar[bool] = True

    def __init__(self, params: DCMHParams) -> None:
        self.params = params

    def build(self, spec: ModelSpec, bits: int) -> nn.Module:
        """Builds two towers without an activation after the hash layer."""
        return HashNet(spec, bits)

    def steps(self, model: nn.Module) -> Sequence[Step]:
        """Returns the image step, then the text step."""
        assert isinstance(model, HashNet)  # noqa: S101  built above
        return [Step(name=m, parameters=(f"{m}.",), modalities=(m,)) for m in model.modalities]

    def init_state(self, model: nn.Module, data: SiloData, state: SiloState) -> None:
        """Remembers both networks' outputs for every item, the labels, and the share of similar pairs."""
        assert data.labels is not None  # noqa: S101  needs_labels is checked when the run is put together
        outputs = outputs_of(model, data)
        state.buffers = {str(modality): codes for modality, codes in outputs.items()}
        state.buffers |= {f"has_{modality}": data.has(modality) for modality in outputs}
        state.buffers["labels"] = data.labels
        state.buffers["share"] = mean_similarity(data.labels, graded=self.params.similarity == "graded")
        self.end_epoch(model, data, state)

    def terms(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> Terms:
        """Returns the likelihood, quantisation and balance terms of one network. Source: equation (1)."""
        (modality,) = step.modalities
        codes, rows = outputs.code[modality], batch.row
        present = batch.has(modality)
        if not bool(present.all()):
            codes, rows = codes[present], rows[present]
        if not len(rows):
            return {}
        anchors = state.buffers["anchors"]
        labels = state.buffers["labels"]
        similar = similarity(labels[rows], labels[anchors], graded=self.params.similarity == "graded")
        likelihood = pair_likelihood(codes, _remembered(state, modality, anchors), similar)
        if self.params.class_balance:
            likelihood = likelihood * pair_weights(similar, float(state.buffers["share"]))
        drift = quantization(codes, state.buffers["code"][rows])
        if self.params.normalization == "mean":
            terms = self._terms(likelihood.mean(), drift.mean(), balance(codes).mean())
            if self.params.pair_weight and len(rows) > 1:
                partners = _remembered(state, modality, rows)
                contrast = pair_contrast(codes, partners, self.params.pair_temperature)
                terms["pair"] = (self.params.pair_weight, contrast.mean())
            return terms
        pairs = len(anchors) * len(rows)
        rest = state.buffers[modality].sum(0) - state.buffers[modality][rows].sum(0)
        return self._terms(likelihood.sum() / pairs, drift.sum() / pairs, (rest + codes.sum(0)).square().sum() / pairs)

    def _terms(self, likelihood: Tensor, drift: Tensor, imbalance: Tensor) -> Terms:
        return {
            "likelihood": (1.0, likelihood),
            "quantization": (self.params.quantization_weight, drift),
            "balance": (self.params.balance_weight, imbalance),
        }

    def record(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> None:
        """Remembers the batch's outputs."""
        (modality,) = step.modalities
        codes = outputs.code[modality].detach().float()
        state.buffers[modality][batch.row] = codes * batch.has(modality).unsqueeze(1)

    def end_epoch(self, model: nn.Module, data: SiloData, state: SiloState) -> None:
        """Sets ``B = sign(F + G)`` and draws the remembered items that the next epoch compares with."""
        remembered = [state.buffers[m] for m in MODALITIES if m in state.buffers]
        state.buffers["code"] = signs(torch.stack(remembered).sum(0))
        count, most = len(data), self.params.anchors
        drawn = torch.arange(count) if count <= most else torch.randperm(count)[:most].sort().values
        state.buffers["anchors"] = drawn.to(remembered[0].device)

    def warnings(self, terms: Mapping[str, float]) -> list[str]:
        """Tells of a collapse: outputs near zero leave every pair's likelihood at ln 2."""
        if self.params.class_balance or abs(terms.get("likelihood", 0.0) - math.log(2)) > 1e-4:
            return []
        return [
            "The codes have collapsed: the likelihood a pair is ln 2, as if every output were zero. Lower the weight of "
            "the balance term, raise the learning rate, or use the preset recommended."
        ]


def _remembered(state: SiloState, modality: Modality, rows: Tensor) -> Tensor:
    """Returns the other modality's remembered outputs, and the own ones for items without the other, ``(n, K)``."""
    other: Modality = "text" if modality == "image" else "image"
    if other not in state.buffers:
        return state.buffers[modality][rows]
    has = state.buffers[f"has_{other}"][rows]
    values = state.buffers[other][rows]
    return values if bool(has.all()) else torch.where(has.unsqueeze(1), values, state.buffers[modality][rows])


def mean_similarity(labels: Tensor, *, graded: bool, most: int = 2048) -> Tensor:
    """Returns the mean similarity over pairs of (at most ``most``, evenly spaced) items, within [0.05, 0.95]."""
    sample = labels[:: max(1, len(labels) // most)]
    return similarity(sample, sample, graded=graded).mean().clamp(0.05, 0.95)
