"""FedALA: Adaptive Local Aggregation for Personalized Federated Learning. Jianqing Zhang et al., AAAI 2023.

The server averages as ever, but a silo does not overwrite its own last layer with the global one: it learns, weight by
weight, how much of the global layer to take, by its own loss.

=========  ================================  ==========================================
paper      code                              meaning
=========  ================================  ==========================================
W          ``kept("mix")``                   share of the global weight, in [0, 1]
eta        ``mixing_rate``                   learning rate of W
s          ``mixing_share``                  share of the own items that W learns on
p          ``layers``, `top_layers`          how many layers are mixed, not overwritten
=========  ================================  ==========================================

The update of W (the paper's equation for its gradient step) is `updated_mix`.

Differs from the paper: the mixed layers are each tower's last ones, the hash layer alone unless more are asked for; the loss
is the local method's, without regularisers; the first learning of W ends after ten passes at the latest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import pstdev
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from silohash.exchange.message import Message
from silohash.federated.base import Adapted, FederatedMethod, SiloContext
from silohash.federated.methods.plfedcmh import layers_of
from silohash.local.base import MethodParams
from silohash.models.parameters import install
from silohash.models.towers import group_of, hash_layers
from silohash.types import MethodCard, Phase

CARD = MethodCard(
    key="fedala",
    title="FedALA: Adaptive Local Aggregation for Personalized Federated Learning",
    authors="Jianqing Zhang, Yang Hua, Hao Wang, Tao Song, Zhengui Xue, Ruhui Ma, Haibing Guan",
    venue="AAAI",
    year=2023,
    link="https://arxiv.org/abs/2212.01197",
    summary="Each silo learns, weight by weight, how much of the global hash layer to take.",
    supervised=False,
    sends=("parameters", "number of items"),
    keeps=("its own model", "the mixing weights"),
    differs_from_paper=("the hash layers are mixed", "at most ten passes when mixing is first learnt"),
)

STEADY_LOSSES, STEADY_DEVIATION = 10, 0.1
FIRST_PASSES = 10


class FedALAParams(MethodParams):
    """Parameters of FedALA."""

    mixing_rate: float = Field(default=1.0, ge=0)
    """eta: 0 keeps W at 1, which is federated averaging."""
    mixing_share: float = Field(default=0.8, gt=0, le=1)
    """s: share of the own items on which the mixing is learnt."""
    mixing_batch: int = Field(default=128, ge=2)
    """Items a step of the mixing."""
    layers: int = Field(default=1, ge=0)
    """p: how many of each tower's last layers are mixed; 1 for the hash layer, 0 for all."""


def updated_mix(mix: Tensor, gradient: Tensor, common: Tensor, own: Tensor, rate: float) -> Tensor:
    """Returns the mixing weights after one gradient step, held within [0, 1]; all of one layer's shape.

    Args:
        mix: W before.
        gradient: of the loss by the mixed parameters.
        common: the global parameters.
        own: the silo's own.
        rate: eta.

    Source: FedALA, the update of W.
    """
    return (mix - rate * gradient * (common - own)).clamp(0.0, 1.0)


def top_layers(names: Iterable[str], layers: int) -> list[str]:
    """Returns the names of the parameters of each tower's last layers.

    Args:
        names: of parameters, a tower's in the order of its layers; the hash layer counts as the last.
        layers: how many layers a tower; 0 for all.
    """
    ordered = sorted(layers_of(list(names)).values(), key=lambda tensors: bool(hash_layers(tensors)))
    towers: dict[str, list[list[str]]] = {}
    for tensors in ordered:
        towers.setdefault(group_of(tensors[0]), []).append(tensors)
    return [name for tower in towers.values() for tensors in tower[-layers:] for name in tensors]


class FedALA(FederatedMethod):
    """Federated averaging with element-wise mixing at the silo."""

    Params: ClassVar[type[MethodParams]] = FedALAParams
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"recommended": {}, "paper": {}}
    adds: ClassVar[Mapping[str, Mapping[str, Any]]] = {"silo_update": {}}
    personalized: ClassVar[bool] = True
    codes_comparable: ClassVar[bool] = False

    def begin_round(self, context: SiloContext) -> Sequence[Phase]:
        """Installs the global model, mixed in its last layers with the silo's own."""
        self._install_mixture(context)
        return [Phase(name="train", model=context.model, epochs=context.epochs)]

    def silo_update(self, context: SiloContext) -> Message:
        """Keeps the trained model."""
        context.keep("model", context.model.state_dict())
        return super().silo_update(context)

    def personalize(self, context: SiloContext) -> None:
        """Mixes once more: what the silo deploys is the model that a further round would start from."""
        self._install_mixture(context)

    def _install_mixture(self, context: SiloContext) -> None:
        install(context.model, context.payload.params)
        own = {name: torch.from_numpy(array) for name, array in context.kept("model").items()}
        if not own or not len(context.data):
            return
        moving = {name: p for name, p in context.model.named_parameters() if p.requires_grad}
        names = top_layers(moving, self.params.layers)
        device = context.data.has_image.device
        common = {name: moving[name].detach().clone() for name in names}
        own = {name: own[name].to(device) for name in names}
        before = {name: torch.from_numpy(array).to(device) for name, array in context.kept("mix").items()}
        mix = before or {name: torch.ones_like(own[name]) for name in names}
        losses: list[float] = []
        adapted = Adapted(context.model, self, context.payload.extras)
        if self.params.mixing_rate:
            context.local.init_state(adapted, context.data, context.state)
            for rows in self._batches(context, first=not before, losses=losses):
                mix = self._step(context, adapted, rows, mix, common, own, losses)
        _write(moving, {name: torch.lerp(own[name], common[name], mix[name]) for name in names})
        context.keep("mix", mix)

    def _batches(self, context: SiloContext, *, first: bool, losses: list[float]) -> Iterator[Tensor]:
        """Yields rows of one pass; of further passes, when the mixing is first learnt, until the losses are steady."""
        count = len(context.data)
        taken = max(1, round(self.params.mixing_share * count))
        start = int(torch.randint(count - taken + 1, (), generator=context.generator))
        for _ in range(FIRST_PASSES if first else 1):
            for rows in torch.split(torch.arange(start, start + taken), self.params.mixing_batch):
                yield rows.to(context.data.has_image.device)
            if len(losses) >= STEADY_LOSSES and pstdev(losses[-STEADY_LOSSES:]) < STEADY_DEVIATION:
                return

    def _step(
        self,
        context: SiloContext,
        adapted: nn.Module,
        rows: Tensor,
        mix: dict[str, Tensor],
        common: dict[str, Tensor],
        own: dict[str, Tensor],
        losses: list[float],
    ) -> dict[str, Tensor]:
        """Returns the mixing weights after one batch; the loss is added to ``losses``."""
        moving = dict(context.model.named_parameters())
        _write(moving, {name: torch.lerp(own[name], common[name], mix[name]) for name in mix})
        batch = context.data.batch(rows)
        total = torch.zeros((), device=rows.device)
        for step in context.local.steps(context.model):
            outputs = adapted(batch, step.modalities)
            for weight, value in context.local.terms(step, outputs, batch, context.state).values():
                total = total + weight * value
        if not total.requires_grad:
            return mix
        losses.append(total.item())
        gradients = torch.autograd.grad(total, [moving[name] for name in mix], allow_unused=True)
        return {
            name: mix[name]
            if gradient is None
            else updated_mix(mix[name], gradient, common[name], own[name], self.params.mixing_rate)
            for name, gradient in zip(mix, gradients, strict=True)
        }


@torch.no_grad()
def _write(moving: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    for name, value in values.items():
        moving[name].copy_(value)
