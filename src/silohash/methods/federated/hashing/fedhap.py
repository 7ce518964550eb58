"""Federated averaging with common binary class prototypes and a discriminator.

The server computes binary prototypes from the silos' class means. Codes are pulled toward the prototypes of their
labels and pushed away from the others, and are trained against a discriminator that separates prototypes from codes.

==========  =================================  ======================================================
paper       code                               meaning
==========  =================================  ======================================================
H^          ``extras["prototypes"]``           binary prototypes, ``(C, K)``
G           ``context.model``                  hash network
D           ``context.auxiliary``              discriminator, `PairJudge`
L_tl^glob   `triplet_loss`                     triplets of an item, a prototype of its class and another
L_quan      `quantization`                     pulls relaxed codes toward their signs
L_d         `FedHAP.terms`               makes codes indistinguishable from prototypes
mu          ``quantization_weight``            weight of L_quan
lambda      ``adversarial_weight``             weight of L_d
==========  =================================  ======================================================

The paper's L_tl^loc is the local method ``triplet``. Equations (2) and (3) are both `triplet_loss`, (5) and (6) are
`signed_prototypes`, (7) is `quantization`, and (8) and (9) are `Judging.auxiliary_step` and the adversarial term of
`FedHAP.terms`; their printed form is `printed_adversarial_loss`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import Arrays, MethodCard, Outputs, PairBatch, Phase, Terms
from silohash.methods.federated import base
from silohash.methods.federated.prototypes import fused_statistics
from silohash.methods.federated.shared_means import SharedMean, class_mean
from silohash.methods.federated.statistics import ReleaseParams, sum_statistics, with_release
from silohash.methods.local.base import labels_of, signs
from silohash.methods.local.losses import straight_through
from silohash.methods.local.supervised.triplet import pairwise_distances, triplet_loss
from silohash.methods.message import Message
from silohash.methods.traits import Traits
from silohash.models.parameters import install, params_of

CARD = MethodCard(
    key="fedhap",
    title="FedHAP: Federated Hashing with Global Prototypes for Cross-silo Retrieval",
    authors="Meilin Yang, Jian Xu, Yang Liu, Wenbo Ding",
    venue="arXiv",
    year=2022,
    link="https://arxiv.org/abs/2207.05525",
    summary="Pull codes toward common binary class prototypes, and train them against a discriminator.",
    supervised=True,
    sends=("parameters", "parameters of the discriminator", "one mean code per class, and which classes exist"),
    differs_from_paper=(
        "The triplet losses are means over the triplets that violate the margin, and the quantization loss is a mean over"
        " items and bits. In the paper they are sums over items.",
        "The discriminator minimizes a cross-entropy, and codes are trained to mislead it. As printed, equation (8) is"
        " unbounded, and (9) trains codes to help the discriminator; the preset paper follows the printed form.",
        "Gradients pass straight through the signs, except in the preset paper.",
        "The discriminator compares codes and prototypes of the same single class, except in the preset paper.",
        "The paper does not state the margin, the width and learning rate of the discriminator, the first prototypes, or"
        " whether outputs pass through a tanh, as they do here. The preset paper starts from a Hadamard matrix.",
        "Only classes with enough items are released, except in the preset paper.",
    ),
)

JUDGE = "discriminator"


class FedHAPParams(ReleaseParams):
    """Parameters of FedHAP."""

    without_effect: ClassVar = {
        **ReleaseParams.switched_off("margin", "distance", triplet_weight=(0,)),
        **ReleaseParams.switched_off(
            "relaxed", "adversary", "judge_width", "judge_learning_rate", adversarial_weight=(0,)
        ),
    }

    triplet_weight: float = Field(default=1.0, ge=0)
    """Weight of the triplets with common prototypes, at least 0. At 0 they are off."""
    margin: float = Field(default=0.5, gt=0)
    """Margin of the triplets, positive: how much closer a code must be to the prototypes of its labels than to
    others."""
    distance: Literal["cosine", "euclidean"] = "cosine"
    """Distance between codes and prototypes: `cosine` or `euclidean`."""
    quantization_weight: float = Field(default=0.05, ge=0)
    """Weight of the quantization loss (mu in the paper), which pulls relaxed codes toward their signs, at least 0.
    It has no effect if the local method is `triplet` and includes this loss itself."""
    adversarial_weight: float = Field(default=0.1, ge=0)
    """Weight of the adversarial loss (lambda in the paper), at least 0. At 0 no discriminator is trained."""
    relaxed: bool = False
    """Let the discriminator judge relaxed codes. If false, it judges signs, with gradients passed straight through."""
    adversary: Literal["opposed", "printed"] = "opposed"
    """`opposed`: the discriminator minimizes a cross-entropy, and codes are trained to mislead it. `printed`: both
    minimize equation (8) of the paper as printed, without gradients through signs."""
    first_prototypes: Literal["none", "hadamard"] = "none"
    """Prototypes in the first round: `none`, or rows of a Hadamard matrix (`hadamard`)."""
    judge_width: int = Field(default=128, ge=2)
    """Hidden width of the discriminator, at least 2."""
    judge_learning_rate: float = Field(default=1e-3, gt=0)
    """Learning rate of the discriminator, positive."""
    weighting: Literal["uniform", "examples"] = "uniform"
    """Weights of silos in the averages of parameters and prototypes: `uniform` (equal), or `examples` (by number of
    items)."""


def quantization(codes: Tensor) -> Tensor:
    """Return the mean squared distance of relaxed codes from their signs, a scalar. Source: FedHAP, equation (7)."""
    return (codes - signs(codes.detach())).square().mean()


def signed_prototypes(sums: np.ndarray, holders: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return binary prototypes, ``(C, K)`` int8 of -1 and 1.

    The sums ``(C, K)`` are those of the class means of all holders ``(C,)``. A class that no silo released keeps its row
    ``(C, K)`` from before, which is zero without a prototype. A bit whose sum is exactly zero keeps its value, at first +1.

    Source: FedHAP, equations (5) and (6).
    """
    held = (holders > 0)[:, None]
    kept = np.where(before == 0, 1, before)
    return np.where(held, np.where(sums == 0, kept, np.sign(sums)), before).astype(np.int8)


def hadamard_prototypes(classes: int, bits: int) -> np.ndarray:
    """Return prototypes with large mutual distances, ``(C, K)`` int8 of -1 and 1.

    These are the rows of a Hadamard matrix whose size is the next power of two, cut to K columns, followed by their
    negatives. If K is a power of two, all distances are at least K / 2. Classes beyond twice the size of the matrix get
    rows of zeros, that is, no prototype.
    """
    from scipy.linalg import hadamard

    rows = hadamard(1 << (bits - 1).bit_length(), dtype=np.int8)[:, :bits]
    rows = np.concatenate([rows, -rows])[:classes]
    return np.concatenate([rows, np.zeros((classes - len(rows), bits), np.int8)])


def printed_adversarial_loss(made: Tensor, real: Tensor) -> Tensor:
    """Return the adversarial loss as printed, a scalar: ``-(mean(1 - log D(h)) + mean(log D(h^)))``.

    Both terms decrease as the discriminator classifies correctly. The first has no lower bound. The arguments are the logits
    of the silo's codes ``(n,)`` and of the prototypes ``(C,)``.

    Source: FedHAP, equation (8).
    """
    return -((1.0 - F.logsigmoid(made)).mean() + F.logsigmoid(real).mean())


def prototypes_of(context: base.SiloContext) -> tuple[Tensor, Tensor]:
    """Return the received prototypes ``(C, K)`` float and a mask of the existing ones ``(C,)`` bool."""
    return base.received_extra(context, "prototypes").float(), base.received_extra(context, "mask")


def printed_loss(context: base.SiloContext, codes: Tensor, labels: Tensor) -> Tensor:
    """Return equation (8), with all labels of the codes and all prototypes, a scalar."""
    prototypes, mask = prototypes_of(context)
    judge, classes = context.auxiliary[JUDGE], torch.eye(len(mask), device=mask.device)
    return printed_adversarial_loss(judge(codes, labels), judge(prototypes[mask], classes[mask]))


class PairJudge(nn.Module):
    """Two layers that map a code and a class, ``(B, K)`` and ``(B, C)``, to a logit ``(B,)``, positive for genuine codes."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, 1))

    def forward(self, codes: Tensor, classes: Tensor) -> Tensor:
        """Return one logit per code, ``(B,)``, for codes ``(B, K)`` of one-hot classes ``(B, C)``."""
        judged: Tensor = self.layers(torch.cat([codes, classes.to(codes.dtype)], dim=1))
        return judged.squeeze(1)


class Judging(base.Adapter):
    """The training of the discriminator."""

    def __init__(self, params: FedHAPParams) -> None:
        self.printed = params.adversary == "printed"
        self.learning_rate = params.judge_learning_rate

    def auxiliary_step(self, context: base.SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Return the discriminator's cross-entropy loss: prototypes against codes of the same classes."""
        if JUDGE not in context.auxiliary:
            return {}
        losses: list[Tensor] = []
        for modality, logit in outputs.logit.items():
            held = batch.has(modality)
            codes, labels = signs(logit[held].detach()), labels_of(batch)[held]
            if not self.printed:
                losses += self._judgment(context, codes, labels)
            elif len(labels):
                losses.append(printed_loss(context, codes, labels))
        return {"judge": (1.0 if self.printed else 0.5, torch.stack(losses).mean())} if losses else {}

    def _judgment(self, context: base.SiloContext, codes: Tensor, labels: Tensor) -> list[Tensor]:
        """Return the discriminator's loss on codes, a scalar; empty if no code has a class with a prototype."""
        prototypes, mask = prototypes_of(context)
        chosen = sampled_classes(labels, mask, context.generator)
        known = chosen >= 0
        if not known.any():
            return []
        judge, classes = context.auxiliary[JUDGE], F.one_hot(chosen[known], len(mask))
        real, made = judge(prototypes[chosen[known]], classes), judge(codes[known], classes)
        return [F.softplus(-real).mean() + F.softplus(made).mean()]


class FedHAP(base.FederatedMethod[FedHAPParams]):
    """Federated averaging toward common binary prototypes."""

    presets: ClassVar = {
        "recommended": {},
        "paper": {"min_count": 1, "max_labels": 1000, "adversary": "printed", "first_prototypes": "hadamard"},
    }
    traits = Traits(
        needs_labels=True, weighting="weighting",
        means=(
            class_mean("prototype_sum", "prototype_holders", like="prototypes"),
            SharedMean(JUDGE, "judges", like=JUDGE, most=1.0, quorum=True),
        ),
        adds={"weight": {"weighting": "examples"}, "begin_round": {}, "update": {}, "aggregate": {}},
    )  # fmt: skip

    def __init__(self, params: FedHAPParams, run: base.RunFacts = base.NO_RUN) -> None:
        super().__init__(params, run)
        self.adapter = Judging(params)

    def chosen_traits(self) -> Traits:
        """State how class sums are released, and their limits."""
        used = self.params.triplet_weight > 0 or self.params.adversarial_weight > 0
        traits = with_release(self.traits, self.params, used=used)
        # under equal weights every silo that holds a class counts once, so no count above 1 is possible
        if self.params.weighting == "uniform":
            codes, judges = traits.means
            traits = replace(traits, means=(replace(codes, most=1.0), judges))
        return traits

    def init_server(self, model: nn.Module, info: base.FederationInfo) -> base.ServerState:
        """Start with the first prototypes and an untrained discriminator."""
        prototypes = np.zeros((info.classes, info.bits), np.int8)
        if self.params.first_prototypes == "hadamard":
            prototypes = hadamard_prototypes(info.classes, info.bits)
        extras: Arrays = {"prototypes": prototypes, "mask": np.asarray(prototypes.any(axis=1))}
        if self.params.adversarial_weight:
            judge = PairJudge(info.bits + info.classes, self.params.judge_width)
            extras |= {f"{JUDGE}/{name}": array for name, array in params_of(judge).items()}
        return replace(super().init_server(model, info), extras=extras)

    def begin_round(self, context: base.SiloContext) -> Sequence[Phase]:
        """Install the global model and, if there are prototypes, the discriminator."""
        extras = context.payload.extras
        if self.params.adversarial_weight and extras["mask"].any() and len(context.data):
            classes, bits = extras["prototypes"].shape
            judge = PairJudge(bits + classes, self.params.judge_width)
            install(judge, base.entries_under(JUDGE, extras))
            context.auxiliary[JUDGE] = judge
        return super().begin_round(context)

    def terms(self, context: base.SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Return the triplet, quantization and adversarial terms, summed over the step's modalities."""
        prototypes, mask = prototypes_of(context)
        parts: dict[str, list[Tensor]] = {"prototype": [], "sign": [], "adversarial": []}
        for modality, logit in outputs.logit.items():
            held = batch.has(modality)
            if not held.any():
                continue
            codes, labels = torch.tanh(logit[held]), labels_of(batch)[held]
            if not context.local.traits.quantizes:
                parts["sign"].append(quantization(codes))
            if not mask.any():
                continue
            distances = pairwise_distances(codes, prototypes, self.params.distance)
            own, other = (labels > 0) & mask, (labels == 0) & mask
            parts["prototype"].append(triplet_loss(distances, own, other, self.params.margin))
            if JUDGE in context.auxiliary:
                parts["adversarial"] += self._adversarial(context, codes, labels)
        weights = {
            "prototype": self.params.triplet_weight,
            "sign": self.params.quantization_weight,
            "adversarial": self.params.adversarial_weight,
        }
        return base.summed_terms(weights, parts)

    def _adversarial(self, context: base.SiloContext, codes: Tensor, labels: Tensor) -> list[Tensor]:
        """Return the adversarial term of relaxed codes; empty if no code has a class with a prototype."""
        if self.params.adversary == "printed":
            return [printed_loss(context, codes if self.params.relaxed else signs(codes), labels)]
        _, mask = prototypes_of(context)
        chosen = sampled_classes(labels, mask, context.generator)
        known = chosen >= 0
        if not known.any():
            return []
        seen = codes if self.params.relaxed else straight_through(codes)
        judged = context.auxiliary[JUDGE](seen[known], F.one_hot(chosen[known], len(mask)))
        return [F.softplus(-judged).mean()]

    def update(self, context: base.SiloContext) -> Message:
        """Send class means of codes (sums under ``examples``) and the discriminator, all additive."""
        update = super().update(context)
        if context.data.labels is None or not len(context.data):
            return update
        statistics = fused_statistics(context, self.params, context.payload.extras["prototypes"])
        uniform = self.params.weighting == "uniform"
        rows = statistics.means() if uniform else statistics.sums
        holders = statistics.present().float() if uniform else statistics.counts
        sums = {"prototype_sum": rows.cpu().numpy(), "prototype_holders": holders.cpu().numpy()}
        if JUDGE in context.auxiliary:
            sums |= {f"{JUDGE}/{n}": array for n, array in params_of(context.auxiliary[JUDGE]).items()}
            sums["judges"] = np.asarray(1.0, np.float32)
        return replace(update, sums=sums)

    def aggregate(self, server: base.ServerState, updates: Sequence[Message]) -> base.ServerState:
        """Average parameters and discriminators, and compute binary prototypes. Source: algorithm 1, equation (6)."""
        after = super().aggregate(server, updates)
        total = sum_statistics(updates)
        if "prototype_sum" not in total:
            return after
        prototypes = signed_prototypes(total["prototype_sum"], total["prototype_holders"], server.extras["prototypes"])
        extras: Arrays = {**after.extras, "prototypes": prototypes, "mask": np.asarray(prototypes.any(axis=1))}
        if total.get("judges", 0.0) > 0:
            judges = {n: a / total["judges"] for n, a in total.items() if n.startswith(f"{JUDGE}/")}
            extras |= {name: array.astype(server.extras[name].dtype) for name, array in judges.items()}
        return replace(after, extras=extras)


def sampled_classes(labels: Tensor, mask: Tensor, generator: torch.Generator) -> Tensor:
    """Draw one of each item's multi-hot labels ``(B, C)`` in the mask ``(C,)``, ``(B,)`` int64; -1 for items without any."""
    known = labels * mask.to(labels.dtype)
    there = known.sum(1) > 0
    chosen = torch.full((len(labels),), -1, dtype=torch.int64, device=labels.device)
    if there.any():
        drawn = torch.multinomial(known[there].cpu(), 1, generator=generator).squeeze(1)
        chosen[there] = drawn.to(labels.device)
    return chosen
