"""The contract of a federated method: twelve hooks around one loop, with defaults that are FedAvg.

The loop (``runtime/rounds.py`` and ``runtime/silo.py``) calls them in this order::

    server = method.init_server(model, info)
    every round:
        every silo:  broadcast -> [init_silo] -> begin_round -> per batch: adapt_outputs, regularizer, auxiliary_step
                     -> [silo_statistics -> merge_statistics] -> silo_update
        server = method.aggregate(server, updates)
    what a silo deploys: method.personalize

A method fills the hooks in which it differs. It never loops over silos, epochs or batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from silohash.exchange.message import Message
from silohash.federated.averaging import Aggregation
from silohash.local.base import LocalMethod, MethodParams, Part, SiloData, SiloState, outputs_of
from silohash.models.parameters import fixed_buffers, frozen_copy, install, params_of, to_array
from silohash.models.towers import group_of
from silohash.types import MODALITIES, Arrays, Modality, Outputs, PairBatch, Phase, Terms

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class FederationInfo:
    """What the server knows before the first round."""

    silos: int
    classes: int
    bits: int
    total_rounds: int


@dataclass(frozen=True)
class ServerState:
    """Everything of the server that survives a round.

    Attributes:
        params: the global parameters.
        extras: what a method sends down beside them (prototypes, a memory).
        private: what it keeps to itself (momentum, a bank of models).
    """

    params: Arrays
    extras: Arrays = field(default_factory=dict)
    private: Arrays = field(default_factory=dict)


class ServerStep(Protocol):
    """A step of the server's own (`silohash.federated.server_optimizers`)."""

    def step(self, before: ServerState, after: ServerState) -> ServerState:
        """Returns the state to go on with, given what was and what was averaged."""
        ...


@dataclass
class SiloContext:
    """All that a hook on a silo's side may see or write during one round.

    Attributes:
        silo: the silo's number, from 0.
        round: the round, from 0.
        epochs: local epochs asked for.
        model: the network, to be trained in place.
        local: the local method.
        data: the silo's own pairs.
        state: what the silo keeps.
        payload: the broadcast.
        auxiliary: networks of the method's own (a discriminator), trained by `auxiliary_step`'s terms, always with Adam.
        step_norm: by how many learning rates so many steps of the run's optimiser move a parameter under a constant unit
            gradient and a proximal term of some weight.
        steps_taken: optimiser steps of this round, a step name.
        means: the last epoch's mean ``loss``.
        initial: the common initial parameters, which every silo makes for itself from the run's seed.
        validation_score: the validation score, 0 to 1, of the model on the silo's held-back queries; NaN without any.
        whole: for a member of a composition, the context of the whole.
        name_space: what stands before the names of all that is kept; empty but for such a member.
    """

    silo: int
    round: int
    total_rounds: int
    epochs: int
    model: nn.Module
    local: LocalMethod
    data: SiloData
    state: SiloState
    payload: Message
    generator: torch.Generator
    step_norm: Callable[[int, float], float] = lambda steps, weight: float(steps)
    auxiliary: dict[str, nn.Module] = field(default_factory=dict)
    steps_taken: dict[str, int] = field(default_factory=dict)
    means: dict[str, float] = field(default_factory=dict)
    initial: Arrays = field(default_factory=dict)
    validation_score: Callable[[], float] = lambda: float("nan")
    whole: SiloContext | None = None
    name_space: str = ""

    @property
    def mean_loss(self) -> float:
        """The mean loss of the last epoch; NaN before there is one."""
        return self.means.get("loss", float("nan"))

    @mean_loss.setter
    def mean_loss(self, value: float) -> None:
        """Sets it, for the members of a composition too."""
        self.means["loss"] = value

    def member(self, name: str) -> SiloContext:
        """Returns the context in which a member of a composition sees this round, the same one all through it.

        What the member keeps, and what it is sent beside the parameters, stands under its name; auxiliary networks are its
        own. All else is shared.
        """
        if name not in self._members:
            payload = replace(self.payload, extras=entries_under(name, self.payload.extras))
            self._members[name] = replace(
                self, payload=payload, auxiliary={}, whole=self, name_space=f"{self.name_space}{name}/"
            )
        return self._members[name]

    @cached_property
    def _members(self) -> dict[str, SiloContext]:
        return {}

    @cached_property
    def global_model(self) -> nn.Module:
        """A frozen copy of the model with the broadcast parameters."""
        return self.whole.global_model if self.whole else frozen_copy(self.model, self.payload.params)

    @cached_property
    def previous_model(self) -> nn.Module | None:
        """A frozen copy of the silo's own model after its last round, or None before it has one."""
        kept = self.kept("model")
        return frozen_copy(self.model, kept) if kept else None

    def frozen_outputs(self, key: str, model: Callable[[], nn.Module], part: Part = "logit") -> dict[Modality, Tensor]:
        """Returns what a frozen model says of all own items, ``(n, H)`` or ``(n, K)`` a modality; computed once a round.

        Args:
            key: the model's name within the round.
            model: gives the model, when it is asked for the first time; it must not change within the round.
            part: ``feature``, ``logit`` or ``code``.
        """
        if (key, part) not in self._frozen:
            self._frozen[key, part] = outputs_of(model(), self.data, part=part)
        return self._frozen[key, part]

    @cached_property
    def _frozen(self) -> dict[tuple[str, Part], dict[Modality, Tensor]]:
        return {}

    def kept(self, prefix: str) -> Arrays:
        """Returns what the silo keeps under a prefix, as arrays."""
        return {n: to_array(t) for n, t in entries_under(f"{self.name_space}{prefix}", self.state.kept).items()}

    def forget(self, prefix: str) -> None:
        """Drops what the silo keeps under a prefix."""
        start = f"{self.name_space}{prefix}/"
        self.state.kept = {n: t for n, t in self.state.kept.items() if not n.startswith(start)}

    def keep(self, prefix: str, tensors: Mapping[str, Tensor]) -> None:
        """Keeps copies of tensors under a prefix."""
        start = f"{self.name_space}{prefix}/"
        self.state.kept.update({start + name: tensor.detach().clone() for name, tensor in tensors.items()})


class FederatedMethod:
    """The twelve hooks; as they stand here they are FedAvg.

    Class attributes say what a method needs and gives:

    Attributes:
        needs_labels: whether silos need labels for the method's own terms.
        min_modalities: modalities that the model must have.
        uniform_broadcast: whether every silo gets the same message.
        uplink: ``sum`` if the server needs only sums over silos, ``records`` if it must see each silo's message.
        shares_parameters: whether parameters travel.
        personalized: whether each silo deploys a model of its own.
        codes_comparable: whether codes of different silos may be ranked together.
        class_head: whether towers need a classifier over their outputs.
        encode_extras: names of the extras that encoding needs.
        server_optimizer: the server's own step by what was averaged; None takes it as it is.
        pooled: whether all silos' data are trained on as one (no federation: the upper bound).
        averages: whether silos train on from the average of their parameters; where not, neither robust rules nor steps of
            the server's own do anything.
        adds: hooks that are filled and yet leave parameters, weights and phases as FedAvg makes them, each with the
            values of the method's parameters under which that holds: in those, methods can be composed.
        aggregation: how updates are averaged; a robust rule may take its place (`silohash.federated.robust`).
    """

    Params: ClassVar[type[MethodParams]] = MethodParams
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"recommended": {}, "paper": {}}
    needs_labels: ClassVar[bool] = False
    min_modalities: ClassVar[int] = 1
    uniform_broadcast: ClassVar[bool] = True
    uplink: ClassVar[Literal["sum", "records"]] = "sum"
    shares_parameters: ClassVar[bool] = True
    personalized: ClassVar[bool] = False
    codes_comparable: ClassVar[bool] = True
    class_head: ClassVar[bool] = False
    encode_extras: ClassVar[tuple[str, ...]] = ()
    pooled: ClassVar[bool] = False
    averages: ClassVar[bool] = True
    adds: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def __init__(self, params: Any) -> None:  # noqa: ANN401  the class's own Params
        self.params = params
        self.aggregation = Aggregation()
        self.server_optimizer: ServerStep | None = None

    @property
    def adapts_training(self) -> bool:
        """Whether the local method learns on adapted outputs, rather than on the towers' own."""
        return True

    @property
    def auxiliary_learning_rate(self) -> float | None:
        """The learning rate of the auxiliary networks; None for that of the model."""
        return None

    def check_steps(self, *, optimizer: str, learning_rate: float, momentum: float) -> list[str]:
        """Looks at the run's optimiser before anything is trained; returns what the method takes only roughly under it.

        Args:
            optimizer: ``adam``, ``adamw`` or ``sgd``.
            learning_rate: of the first round, the largest.
            momentum: of ``sgd``.

        Raises:
            UserError: if the method's formulas do not hold for it.
        """
        return []

    def shared_parameters(self, model: nn.Module) -> list[str]:
        """Hook 1, both sides: names of the parameters and buffers that silos send."""
        fixed = fixed_buffers(model)
        return [name for name in model.state_dict() if name not in fixed]

    def init_server(self, model: nn.Module, info: FederationInfo) -> ServerState:
        """Hook 2, server: the state before the first round."""
        return ServerState(params=params_of(model))

    def broadcast(self, server: ServerState, silo: int, *, round: int) -> Message:  # noqa: A002  the field's word
        """Hook 3, server: what a silo is sent."""
        return Message(kind="broadcast", sender="server", round=round, params=server.params, extras=server.extras)

    def init_silo(self, context: SiloContext) -> None:
        """Hook 4, silo, before its first round (and as long as it keeps nothing): what it will keep."""

    def begin_round(self, context: SiloContext) -> Sequence[Phase]:
        """Hook 5, silo: installs parameters; returns the phases that the round trains."""
        install(context.model, context.payload.params)
        return [Phase(name="train", model=context.model, epochs=context.epochs)]

    def adapt_outputs(self, outputs: Outputs, extras: Mapping[str, Tensor]) -> Outputs:
        """Hook 6, silo, pure: changes the towers' outputs; encoding uses it too.

        Args:
            outputs: the outputs of the towers.
            extras: what the server sent beside the parameters, on the model's device.
        """
        return outputs

    def auxiliary_step(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Hook 7, silo: the loss of the auxiliary networks on a batch; empty for no step."""
        return {}

    def regularizer(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Hook 8, silo: terms added to the local method's."""
        return {}

    def silo_statistics(self, context: SiloContext) -> Arrays:
        """Hook 9, silo, after training: additive statistics for an optional first exchange; empty for none.

        A silo that gives some waits: the server adds them up over silos, and `silo_update` is called with what
        `merge_statistics` made of the sums among ``context.payload.extras``. The trained model, ``mean_loss``,
        ``steps_taken`` and what the silo keeps are as training left them; working tensors and auxiliary networks are gone.
        """
        return {}

    def merge_statistics(self, server: ServerState, sums: Arrays) -> Arrays:
        """Hook 9, server: what is made of the summed statistics and sent back as extras.

        `aggregate` finds them among the server's extras, where they stay unless it takes them out.
        """
        return {}

    def silo_update(self, context: SiloContext) -> Message:
        """Hook 10, silo: what goes to the server."""
        shared = set(self.shared_parameters(context.model))
        params = {name: array for name, array in params_of(context.model).items() if name in shared}
        weights = {group: self.weight(context, group) for group in sorted({group_of(name) for name in params})}
        return Message(
            kind="update", sender=context.data.name, round=context.round, params=params, weights=weights,
            counts={"items": len(context.data)},
        )  # fmt: skip

    def weight(self, context: SiloContext, group: str) -> float:
        """Returns a silo's weight for a parameter group: its items that have the group's modality."""
        for modality in MODALITIES:
            if group == modality:
                return float(context.data.count(modality))
        return float(len(context.data))

    def origin(self, server: ServerState) -> Arrays:
        """Returns what the parameters in updates are measured from: a silo's move is its difference to that."""
        return server.params

    def aggregate(self, server: ServerState, updates: Sequence[Message]) -> ServerState:
        """Hook 11, server: the next state; parameters of which no silo had data stay as they were."""
        return replace(server, params={**server.params, **self.aggregation.average(server.params, updates)})

    def personalize(self, context: SiloContext) -> None:
        """Hook 12, silo: makes ``context.model`` the model that the silo deploys."""
        install(context.model, context.payload.params)


class Adapted(nn.Module):
    """A model whose outputs pass through a federated method's `adapt_outputs`: what training and encoding both run."""

    def __init__(self, model: nn.Module, method: FederatedMethod, extras: Arrays) -> None:
        super().__init__()
        self.model = model
        self.method = method
        device = next(model.parameters()).device
        self.extras = {name: torch.from_numpy(np.array(array)).to(device) for name, array in extras.items()}

    @property
    def modalities(self) -> tuple[Modality, ...]:
        """The modalities of the model."""
        return self.model.modalities  # type: ignore[return-value]

    def forward(self, batch: PairBatch, modalities: Sequence[Modality] | None = None) -> Outputs:
        """Runs the model and adapts what it says."""
        outputs: Outputs = self.model(batch, modalities)
        if self.training and not self.method.adapts_training:
            return outputs
        return self.method.adapt_outputs(outputs, self.extras)


def entries_under(name: str, values: Mapping[str, _Value]) -> dict[str, _Value]:
    """Returns what stands under ``name/``, by the rest of its name.

    Example:
        >>> entries_under("moon", {"moon/mask": 1, "moon-2/mask": 2})
        {'mask': 1}
    """
    start = f"{name}/"
    return {key.removeprefix(start): value for key, value in values.items() if key.startswith(start)}


def received_extra(context: SiloContext, name: str) -> Tensor:
    """Returns what the server sent beside the parameters under a name, as a tensor on the silo's device."""
    return torch.from_numpy(np.array(context.payload.extras[name])).to(context.data.has_image.device)
