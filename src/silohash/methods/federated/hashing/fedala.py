"""Adaptive local aggregation: a silo learns, per weight, how much of the global hash layer to take over.

The server averages as in FedAvg. At the start of a round every silo mixes the last layers of the global model with its
own, by weights learned on its local loss.

=========  ================================  ==========================================
paper      code                              meaning
=========  ================================  ==========================================
W          ``kept("mix")``                   share of the global weight, in [0, 1]
eta        ``mixing_rate``                   learning rate of W
s          ``mixing_share``                  share of the items on which W is learned
p          ``layers``, `top_layers`          number of mixed layers
=========  ================================  ==========================================

The gradient step on W is `updated_mix`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import pstdev
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import MethodCard, Phase
from silohash.methods.federated.base import FederatedMethod, SiloContext
from silohash.methods.local.base import MethodParams
from silohash.methods.traits import Traits
from silohash.models.parameters import install
from silohash.models.towers import Adapted, group_of, hash_layers, layers_of

CARD = MethodCard(
    key="fedala",
    title="FedALA: Adaptive Local Aggregation for Personalized Federated Learning",
    authors="Jianqing Zhang, Yang Hua, Hao Wang, Tao Song, Zhengui Xue, Ruhui Ma, Haibing Guan",
    venue="AAAI",
    year=2023,
    link="https://arxiv.org/abs/2212.01197",
    summary="Learn in each silo how much of each weight of the global hash layer to adopt.",
    sends=("parameters", "number of items"),
    keeps=("its model", "the mixing weights"),
    differs_from_paper=(
        "The mixed layers are the last ones of each tower, by default the hash layer alone.",
        "The mixing weights are learned on the local method's loss, without regularizers.",
        "When mixing is learned for the first time, it ends after at most ten passes.",
    ),
)

STEADY_LOSSES, STEADY_DEVIATION = 10, 0.1
"""First learning ends when the standard deviation of this many most recent losses is below this value."""

FIRST_PASSES = 10
"""Maximum number of passes when the mixing is learned for the first time."""


class FedALAParams(MethodParams):
    """Parameters of FedALA."""

    without_effect: ClassVar = MethodParams.switched_off("mixing_share", "mixing_batch", mixing_rate=(0,))

    mixing_rate: float = Field(default=1.0, ge=0)
    """Learning rate of the mixing weights (eta in the paper), at least 0. At 0 they stay at 1, and the method is
    FedAvg."""
    mixing_share: float = Field(default=0.8, gt=0, le=1)
    """Share of the silo's items on which the mixing weights are learned (s in the paper), above 0 and at most 1."""
    mixing_batch: int = Field(default=128, ge=2)
    """Batch size for learning the mixing weights, at least 2."""
    layers: int = Field(default=1, ge=0)
    """Number of each tower's last layers that are mixed (p in the paper): 1 for the hash layer, 0 for all layers."""


def updated_mix(mix: Tensor, gradient: Tensor, common: Tensor, own: Tensor, rate: float) -> Tensor:
    """Return the mixing weights of one parameter after one gradient step, clipped to [0, 1].

    All tensors have the shape of the parameter: the weights W, the gradient of the loss by the mixed parameter, and the
    global and the silo's own parameter.

    Source: FedALA, update of W.
    """
    return (mix - rate * gradient * (common - own)).clamp(0.0, 1.0)


def top_layers(names: Iterable[str], layers: int) -> list[str]:
    """Return the names of the parameters of each tower's last layers; of all layers if their number is 0.

    The names are in the order of a tower's layers, but the hash layer counts as the last.
    """
    ordered = sorted(layers_of(list(names)).values(), key=lambda tensors: bool(hash_layers(tensors)))
    towers: dict[str, list[list[str]]] = {}
    for tensors in ordered:
        towers.setdefault(group_of(tensors[0]), []).append(tensors)
    return [name for tower in towers.values() for tensors in tower[-layers:] for name in tensors]


@dataclass(frozen=True)
class MixedLayers:
    """The layers that are mixed: parameters of the model, changed in place, global ones, and the silo's own, by name."""

    parameters: Mapping[str, Tensor]
    common: Mapping[str, Tensor]
    own: Mapping[str, Tensor]

    @torch.no_grad()
    def write(self, mix: Mapping[str, Tensor]) -> None:
        """Set the parameters of the model to the mixture of the silo's own and the global ones."""
        for name, share in mix.items():
            self.parameters[name].copy_(torch.lerp(self.own[name], self.common[name], share))


class FedALA(FederatedMethod[FedALAParams]):
    """Federated averaging with element-wise mixing in the silo."""

    traits = Traits(personalized=True, codes_comparable=False, keeps_model=True)

    def begin_round(self, context: SiloContext) -> Sequence[Phase]:
        """Install the global model, with its last layers mixed with the silo's own."""
        self.personalize(context)
        return [Phase(name="train", model=context.model, epochs=context.epochs)]

    def personalize(self, context: SiloContext) -> None:
        """Install the global parameters, and mix those of the last layers with the silo's own, if it has any.

        The silo deploys the model with which another round would start.
        """
        install(context.model, context.payload.params)
        kept = context.kept("model")
        if not kept or not len(context.data):
            return
        trainable = {name: p for name, p in context.model.named_parameters() if p.requires_grad}
        names = top_layers(trainable, self.params.layers)
        device = context.data.has_image.device
        layers = MixedLayers(
            parameters={name: trainable[name] for name in names},
            common={name: trainable[name].detach().clone() for name in names},
            own={name: torch.from_numpy(kept[name]).to(device) for name in names},
        )
        mix = self._learned_mix(context, layers)
        layers.write(mix)
        context.keep("mix", mix)

    def _learned_mix(self, context: SiloContext, layers: MixedLayers) -> dict[str, Tensor]:
        device = context.data.has_image.device
        before = {name: torch.from_numpy(array).to(device) for name, array in context.kept("mix").items()}
        mix = before or {name: torch.ones_like(own) for name, own in layers.own.items()}
        if not self.params.mixing_rate:
            return mix
        adapted = Adapted(context.model, self.adapter, context.payload.extras)
        context.local.init_state(adapted, context.data, context.state)
        losses: list[float] = []
        for rows in self._batches(context, first=not before, losses=losses):
            mix = self._step(context, adapted, layers, rows, mix, losses)
        return mix

    def _batches(self, context: SiloContext, *, first: bool, losses: list[float]) -> Iterator[Tensor]:
        count = len(context.data)
        taken = max(1, round(self.params.mixing_share * count))
        start = int(torch.randint(count - taken + 1, (), generator=context.generator))
        for _ in range(FIRST_PASSES if first else 1):
            for rows in torch.split(torch.arange(start, start + taken), self.params.mixing_batch):
                yield rows.to(context.data.has_image.device)
            if len(losses) >= STEADY_LOSSES and pstdev(losses[-STEADY_LOSSES:]) < STEADY_DEVIATION:
                return

    def _step(
        self, context: SiloContext, adapted: nn.Module, layers: MixedLayers, rows: Tensor, mix: dict[str, Tensor],
        losses: list[float],
    ) -> dict[str, Tensor]:  # fmt: skip
        """Return the mixing weights after one batch, and append the loss to ``losses``."""
        layers.write(mix)
        batch = context.data.batch(rows)
        total = torch.zeros((), device=rows.device)
        for step in context.local.steps(context.model):
            outputs = adapted(batch, step.modalities)
            for weight, value in context.local.terms(step, outputs, batch, context.state).values():
                total = total + weight * value
        if not total.requires_grad:
            return mix
        losses.append(total.item())
        gradients = torch.autograd.grad(total, [layers.parameters[name] for name in mix], allow_unused=True)
        return {
            name: mix[name]
            if gradient is None
            else updated_mix(mix[name], gradient, layers.common[name], layers.own[name], self.params.mixing_rate)
            for name, gradient in zip(mix, gradients, strict=True)
        }
