"""FedHAP: Federated Hashing with Global Prototypes for Cross-silo Retrieval. Meilin Yang et al., 2022.

The server turns the silos' class means into binary prototypes. Every silo's codes are drawn to the prototypes of their
labels, and away from those of others; a discriminator that tells prototypes from codes is trained against them.

==========  =================================  ===================================================
paper       code                               meaning
==========  =================================  ===================================================
H^          ``extras["prototypes"]``           binary prototypes, ``(C, K)``
G           ``context.model``                  the hash network
D           ``context.auxiliary``              the discriminator, `PairJudge`
L_tl^glob   `triplet_loss`               triplets of an item, its classes' and others' prototypes
L_quan      `quantization`                     pulls relaxed codes to their signs
L_adv       `FedHAP.regularizer`               codes should pass for prototypes
mu          ``quantization_weight``            weight of L_quan
lambda      ``adversarial_weight``             weight of L_adv
==========  =================================  ===================================================

The paper's L_tl^loc is the local method ``triplet``, of which `triplet_loss` is equations (2) and (3) alike. Equations
(5) and (6) are `signed_prototypes`, (7) is `quantization`, (8) and (9) are `FedHAP.auxiliary_step` and the adversarial term.

Differs from the paper: sums over items are means. As printed, equation (8) is unbounded below and (9) makes the codes help
the discriminator; here it learns by cross-entropy, and codes are trained to fool it. Signs have no gradient, so it passes
straight through them. Both sides of a comparison name the same, single class. Class means leave a silo under the rules of
release. Margin and the discriminator's width and learning rate are ours: the paper states none. Preset ``reference`` takes
(8) and (9) as printed (`printed_adversarial_loss`): codes go with all their labels, prototypes with one each, and signs pass
no gradient, so that only the discriminator learns of it. It has prototypes from the first round on; the paper
does not say which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor, nn

from silohash.exchange.message import Message
from silohash.federated.base import FederatedMethod, FederationInfo, ServerState, SiloContext, received_extra
from silohash.federated.statistics import ReleaseParams, class_statistics, mean_over_modalities, sum_statistics
from silohash.local.base import LocalMethod, MethodParams, outputs_of, signs
from silohash.local.supervised.triplet import Triplet, pairwise_distances, triplet_loss
from silohash.models.discriminator import PairJudge
from silohash.models.parameters import install, params_of
from silohash.types import Arrays, MethodCard, Outputs, PairBatch, Phase, Terms

CARD = MethodCard(
    key="fedhap",
    title="FedHAP: Federated Hashing with Global Prototypes for Cross-silo Retrieval",
    authors="Meilin Yang, Jian Xu, Yang Liu, Wenbo Ding",
    venue="arXiv",
    year=2022,
    link="https://arxiv.org/abs/2207.05525",
    summary="Codes are drawn to common binary prototypes of their classes; a discriminator is trained against them.",
    supervised=True,
    sends=("parameters", "parameters of the discriminator", "a mean code a class, and which classes there are"),
    differs_from_paper=(
        "the discriminator learns by cross-entropy and codes are trained to fool it",
        "gradients pass straight through the signs",
        "margin and the discriminator's size are ours: the paper states none",
    ),
)

JUDGE = "discriminator"


class FedHAPParams(ReleaseParams):
    """Parameters of FedHAP."""

    triplet_weight: float = Field(default=1.0, ge=0)
    """Weight of the triplets with global prototypes."""
    margin: float = Field(default=0.5, gt=0)
    """By how much an item must be nearer to its own prototypes."""
    distance: Literal["cosine", "euclidean"] = "cosine"
    """Between codes and prototypes."""
    quantization_weight: float = Field(default=0.05, ge=0)
    """mu: pulls relaxed codes to their signs; without effect where the local method is `triplet` and does so itself."""
    adversarial_weight: float = Field(default=0.1, ge=0)
    """lambda: 0 trains no discriminator."""
    relaxed: bool = False
    """Whether the discriminator judges relaxed codes, rather than signs with gradients passed through."""
    adversary: Literal["opposed", "printed"] = "opposed"
    """`opposed`: the discriminator learns by cross-entropy, codes learn to fool it; `printed`: both lower equation (8) as it
    stands, and no gradient passes through signs."""
    first_prototypes: Literal["none", "hadamard"] = "none"
    """Prototypes before silos have made any: none, or rows of a Hadamard matrix."""
    judge_width: int = Field(default=128, ge=2)
    """Width of the discriminator."""
    judge_learning_rate: float = Field(default=1e-3, gt=0)
    """Of the discriminator."""
    weighting: Literal["uniform", "examples"] = "uniform"
    """Of silos, in parameters and prototypes."""


def quantization(codes: Tensor) -> Tensor:
    """Returns the mean squared distance of relaxed codes to their signs, a scalar. Source: FedHAP, equation (7)."""
    return (codes - signs(codes.detach())).square().mean()


def quantizes(local: LocalMethod) -> bool:
    """Tells whether a local loss has equation (7) in itself, so that the objective has it once, as the paper's."""
    return isinstance(local, Triplet) and local.params.quantization_weight > 0


def signed_prototypes(sums: np.ndarray, holders: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Returns binary prototypes, ``(C, K)`` int8 of -1 and 1.

    A class that no silo released keeps its row; a bit whose sum is exactly zero keeps what it was, +1 at first.

    Args:
        sums: ``(C, K)``, silos' class means added up.
        holders: ``(C,)``, how many silos (or items) stand behind each row.
        before: ``(C, K)`` int8, zero rows where there was no prototype.

    Source: FedHAP, equations (5) and (6).
    """
    held = (holders > 0)[:, None]
    kept = np.where(before == 0, 1, before)
    return np.where(held, np.where(sums == 0, kept, np.sign(sums)), before).astype(np.int8)


def hadamard_prototypes(classes: int, bits: int) -> np.ndarray:
    """Returns prototypes far apart, ``(C, K)`` int8 of -1 and 1: at least half of the bits, where K is a power of two.

    Rows of a Hadamard matrix of the next power of two, cut to K columns, then their opposites. Classes beyond twice the
    matrix's rows have rows of zeros: no prototype.
    """
    from scipy.linalg import hadamard

    rows = hadamard(1 << (bits - 1).bit_length(), dtype=np.int8)[:, :bits]
    rows = np.concatenate([rows, -rows])[:classes]
    return np.concatenate([rows, np.zeros((classes - len(rows), bits), np.int8)])


def printed_adversarial_loss(made: Tensor, real: Tensor) -> Tensor:
    """Returns the adversarial loss as the paper prints it, a scalar: ``-(mean(1 - log D(h)) + mean(log D(h^)))``.

    Both terms fall as the discriminator takes codes for what they are; the first has no lower bound.

    Args:
        made: ``(n,)`` logits of the silo's codes.
        real: ``(C,)`` logits of the prototypes.

    Source: FedHAP, equation (8).
    """
    return -((1.0 - F.logsigmoid(made)).mean() + F.logsigmoid(real).mean())


def straight_through(codes: Tensor) -> Tensor:
    """Returns the signs of relaxed codes, through which gradients pass as if they were the codes."""
    return codes + (signs(codes) - codes).detach()


class FedHAP(FederatedMethod):
    """Federated averaging towards common binary prototypes."""

    Params: ClassVar[type[MethodParams]] = FedHAPParams
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "recommended": {},
        "paper": {"min_count": 1, "max_labels": 1000, "adversary": "printed", "first_prototypes": "hadamard"},
    }
    adds: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "weight": {"weighting": "examples"},
        "begin_round": {},
        "silo_update": {},
        "aggregate": {},
    }
    needs_labels: ClassVar[bool] = True

    @property
    def auxiliary_learning_rate(self) -> float | None:
        """The discriminator's own."""
        return float(self.params.judge_learning_rate)

    def init_server(self, model: nn.Module, info: FederationInfo) -> ServerState:
        """Starts without prototypes or with given ones, and with a discriminator that knows nothing."""
        prototypes = np.zeros((info.classes, info.bits), np.int8)
        if self.params.first_prototypes == "hadamard":
            prototypes = hadamard_prototypes(info.classes, info.bits)
        extras: Arrays = {"prototypes": prototypes, "mask": np.asarray(prototypes.any(axis=1))}
        if self.params.adversarial_weight:
            judge = PairJudge(info.bits + info.classes, self.params.judge_width)
            extras |= {f"{JUDGE}/{name}": array for name, array in params_of(judge).items()}
        return replace(super().init_server(model, info), extras=extras)

    def begin_round(self, context: SiloContext) -> Sequence[Phase]:
        """Installs the global model and, where there are prototypes, the discriminator."""
        extras = context.payload.extras
        if self.params.adversarial_weight and extras["mask"].any() and len(context.data):
            classes, bits = extras["prototypes"].shape
            judge = PairJudge(bits + classes, self.params.judge_width)
            start = f"{JUDGE}/"
            install(judge, {n.removeprefix(start): a for n, a in extras.items() if n.startswith(start)})
            context.auxiliary[JUDGE] = judge.to(context.data.has_image.device)
        return super().begin_round(context)

    def regularizer(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Returns prototype triplets, quantisation and the adversarial term, summed over the step's modalities."""
        prototypes, mask = self._prototypes(context)
        parts: dict[str, list[Tensor]] = {"prototype": [], "sign": [], "adversarial": []}
        for modality, logit in outputs.logit.items():
            held = batch.has(modality)
            if not held.any():
                continue
            assert batch.labels is not None  # noqa: S101  needs_labels is checked when the run is put together
            codes, labels = torch.tanh(logit[held]), batch.labels[held]
            if not quantizes(context.local):
                parts["sign"].append(quantization(codes))
            if not mask.any():
                continue
            distances = pairwise_distances(codes, prototypes, self.params.distance)
            own, other = (labels > 0) & mask, (labels == 0) & mask
            parts["prototype"].append(triplet_loss(distances, own, other, self.params.margin))
            if JUDGE in context.auxiliary:
                parts["adversarial"] += self._deceit(context, codes, labels)
        weights = {
            "prototype": self.params.triplet_weight,
            "sign": self.params.quantization_weight,
            "adversarial": self.params.adversarial_weight,
        }
        return {
            name: (weights[name], torch.stack(found).sum()) for name, found in parts.items() if found and weights[name]
        }

    def _deceit(self, context: SiloContext, codes: Tensor, labels: Tensor) -> list[Tensor]:
        """Returns the adversarial term of relaxed codes, a scalar; none where no code is of a class with a prototype."""
        if self.params.adversary == "printed":
            return [self._printed(context, codes if self.params.relaxed else signs(codes), labels)]
        _, mask = self._prototypes(context)
        chosen = sampled_classes(labels, mask, context.generator)
        known = chosen >= 0
        if not known.any():
            return []
        seen = codes if self.params.relaxed else straight_through(codes)
        judged = context.auxiliary[JUDGE](seen[known], F.one_hot(chosen[known], len(mask)))
        return [F.softplus(-judged).mean()]

    def _printed(self, context: SiloContext, codes: Tensor, labels: Tensor) -> Tensor:
        """Returns equation (8): codes with all their labels against all prototypes."""
        prototypes, mask = self._prototypes(context)
        judge, classes = context.auxiliary[JUDGE], torch.eye(len(mask), device=mask.device)
        return printed_adversarial_loss(judge(codes, labels), judge(prototypes[mask], classes[mask]))

    def auxiliary_step(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Returns the discriminator's loss: by cross-entropy prototypes are real, codes of the same classes are not."""
        if JUDGE not in context.auxiliary:
            return {}
        if self.params.adversary == "printed":
            assert batch.labels is not None  # noqa: S101  needs_labels is checked when the run is put together
            given = [(logit[batch.has(m)].detach(), batch.labels[batch.has(m)]) for m, logit in outputs.logit.items()]
            found = [self._printed(context, signs(logit), labels) for logit, labels in given if len(labels)]
            return {"judge": (1.0, torch.stack(found).mean())} if found else {}
        prototypes, mask = self._prototypes(context)
        judge, losses = context.auxiliary[JUDGE], []
        for modality, logit in outputs.logit.items():
            assert batch.labels is not None  # noqa: S101  needs_labels is checked when the run is put together
            held = batch.has(modality)
            chosen = sampled_classes(batch.labels[held], mask, context.generator)
            known = chosen >= 0
            if known.any():
                classes = F.one_hot(chosen[known], len(mask))
                real = judge(prototypes[chosen[known]], classes)
                made = judge(signs(logit[held][known].detach()), classes)
                losses.append(F.softplus(-real).mean() + F.softplus(made).mean())
        return {"judge": (0.5, torch.stack(losses).mean())} if losses else {}

    def _prototypes(self, context: SiloContext) -> tuple[Tensor, Tensor]:
        """Returns the prototypes ``(C, K)`` float and which there are ``(C,)`` bool."""
        return received_extra(context, "prototypes").float(), received_extra(context, "mask")

    def weight(self, context: SiloContext, group: str) -> float:
        """Returns 1 for a silo with items of the group, or their number under ``examples``."""
        items = super().weight(context, group)
        return float(items > 0) if self.params.weighting == "uniform" else items

    def silo_update(self, context: SiloContext) -> Message:
        """Sends mean codes a class (or sums, under ``examples``) and the discriminator, all additive."""
        update = super().silo_update(context)
        if context.data.labels is None or not len(context.data):
            return update
        codes = {m: torch.tanh(logit) for m, logit in outputs_of(context.model, context.data, part="logit").items()}
        has = {m: context.data.has(m) for m in codes}
        held = torch.stack(list(has.values())).any(0)
        statistics = class_statistics(mean_over_modalities(codes, has)[held], context.data.labels[held], self.params)
        uniform = self.params.weighting == "uniform"
        rows = statistics.means() if uniform else statistics.sums
        holders = statistics.present().float() if uniform else statistics.counts
        sums = {"prototype_sum": rows.cpu().numpy(), "prototype_holders": holders.cpu().numpy()}
        if JUDGE in context.auxiliary:
            sums |= {f"{JUDGE}/{n}": array for n, array in params_of(context.auxiliary[JUDGE]).items()}
            sums["judges"] = np.asarray(1.0, np.float32)
        return replace(update, sums=sums)

    def aggregate(self, server: ServerState, updates: Sequence[Message]) -> ServerState:
        """Averages parameters and discriminators, and signs the class means. Source: algorithm 1, equation (6)."""
        after = super().aggregate(server, updates)
        total = sum_statistics(updates)
        if "prototype_sum" not in total:
            return after
        prototypes = signed_prototypes(total["prototype_sum"], total["prototype_holders"], server.extras["prototypes"])
        extras: Arrays = {**after.extras, "prototypes": prototypes, "mask": np.asarray(prototypes.any(axis=1))}
        if "judges" in total:
            judges = {n: a / total["judges"] for n, a in total.items() if n.startswith(f"{JUDGE}/")}
            extras |= {name: array.astype(server.extras[name].dtype) for name, array in judges.items()}
        return replace(after, extras=extras)


def sampled_classes(labels: Tensor, mask: Tensor, generator: torch.Generator) -> Tensor:
    """Returns one of each item's labels that has a prototype, drawn evenly, ``(B,)`` int64; -1 where there is none."""
    known = labels * mask.to(labels.dtype)
    there = known.sum(1) > 0
    chosen = torch.full((len(labels),), -1, dtype=torch.int64, device=labels.device)
    if there.any():
        drawn = torch.multinomial(known[there].cpu(), 1, generator=generator).squeeze(1)
        chosen[there] = drawn.to(labels.device)
    return chosen
