"""The contract of a federated method: nine hooks around one loop, whose defaults are FedAvg, and one value of traits.

The loop (``training/rounds.py`` and ``training/silo.py``) calls the hooks in this order::

    server = method.init_server(model, info)
    every round:
        every silo:  broadcast -> begin_round -> per batch: terms
                     -> [statistics -> merge_statistics] -> weight, update
        server = method.aggregate(server, updates)
    deployment of a silo: method.personalize

The ninth hook, `FederatedMethod.template`, describes what silos send beside parameters and means. What other code must know
about a method is in its ``traits`` (`silohash.methods.traits.Traits`). The few methods that change the outputs of the towers
or train other networks have an `Adapter`. A method never loops over silos, epochs or batches itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from silohash.base.types import MODALITIES, Arrays, Modality, Outputs, PairBatch, Phase, Terms
from silohash.methods.federated.averaging import Aggregation
from silohash.methods.local.base import (
    LocalMethod,
    OwnParams,
    ServerSolved,
    SiloData,
    SiloState,
    WithParams,
    class_group,
    outputs_of,
)
from silohash.methods.message import Message
from silohash.methods.traits import Traits
from silohash.models.parameters import fixed_buffers, frozen_copy, install, params_of, shared_arrays, to_array
from silohash.models.towers import Part, group_of, hash_layers

if TYPE_CHECKING:
    from silohash.methods.federated.server_optimizers import ServerOptimizer

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class FederationInfo:
    """What the server knows before the first round.

    Attributes:
        classes: Number of classes; 0 without labels.
        seed: Seed of the run, for constants that server and silos derive without data, such as the codes of classes.
        exclusive: Whether every training item of all silos has at most one label.
    """

    silos: int
    classes: int
    bits: int
    total_rounds: int
    seed: int = 0
    exclusive: bool = True


@dataclass(frozen=True)
class ServerState:
    """All server state that persists between rounds.

    Attributes:
        params: Global parameters.
        extras: Arrays sent to the silos beside the parameters, such as prototypes or a class memory.
        private: Arrays that stay on the server, such as momentum or a bank of models. If ``final`` among them is true, this
            state is deployed even if an earlier round has a higher validation score. Each silo ranks its validation queries
            against its own items, so the score cannot show how well the codes separate classes that different silos hold.
    """

    params: Arrays
    extras: Arrays = field(default_factory=dict)
    private: Arrays = field(default_factory=dict)

    @property
    def final(self) -> bool:
        """Whether this state is deployed whatever the validation scores."""
        return bool(self.private.get("final", False))


@dataclass
class SiloContext:
    """Everything that a silo-side hook may read or write during one round.

    Attributes:
        silo: Index of the silo, from 0.
        round: Index of the round, from 0.
        model: Network, trained in place.
        step_norm: Function of a number of steps and the weight of a proximal term. It returns how far the run's
            optimizer moves a parameter under a constant gradient of 1, in units of the learning rate.
        auxiliary: Networks of the federated method (such as a discriminator), trained with Adam by the terms of
            `Adapter.auxiliary_step`. They may be created on any device. The training moves them to that of the items.
        steps_taken: Number of optimizer steps of this round, by step name.
        means: Mean values of the last epoch; ``loss`` is the mean loss.
        initial: Initial parameters, which every silo derives from the seed of the run.
        validation_score: Function that returns the model's validation score on the silo's held-back queries, between 0
            and 1. NaN if the silo holds none back.
        whole: For a member of a composition, the context of the composition.
        lead: For a member of a composition, the composition, which decides what silos share and their weights.
        name_space: Prefix of the names of all kept tensors. Empty except for a member of a composition.
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
    lead: FederatedMethod | None = None
    name_space: str = ""
    _members: dict[str, SiloContext] = field(default_factory=dict, init=False)
    _frozen: dict[tuple[str, Part], dict[Modality, Tensor]] = field(default_factory=dict, init=False)

    @property
    def mean_loss(self) -> float:
        """Mean loss of the last epoch; NaN before the first."""
        return self.means.get("loss", float("nan"))

    def member(self, name: str, lead: FederatedMethod | None = None) -> SiloContext:
        """Return the context in which a member of a composition sees this round; always the same object within a round.

        The member's state and the extras it receives are those under its name, and its auxiliary networks are its own.
        Everything else is shared.
        """
        if name not in self._members:
            payload = replace(self.payload, extras=entries_under(name, self.payload.extras))
            self._members[name] = replace(
                self, payload=payload, auxiliary={}, whole=self, lead=lead, name_space=f"{self.name_space}{name}/"
            )
        return self._members[name]

    @cached_property
    def global_model(self) -> nn.Module:
        """A frozen copy of the model with the broadcast parameters."""
        return self.whole.global_model if self.whole else frozen_copy(self.model, self.payload.params)

    @cached_property
    def previous_model(self) -> nn.Module | None:
        """A frozen copy of the silo's model after its last round, or None before its first."""
        kept = self.kept("model")
        return frozen_copy(self.model, kept) if kept else None

    def frozen_outputs(self, key: str, model: Callable[[], nn.Module], part: Part = "logit") -> dict[Modality, Tensor]:
        """Return a frozen model's outputs for all items of the silo, ``(n, H)`` or ``(n, K)`` per modality.

        They are computed once per round. The key identifies the model, which must not change within the round.
        """
        if (key, part) not in self._frozen:
            self._frozen[key, part] = outputs_of(model(), self.data, part=part)
        return self._frozen[key, part]

    def kept_tensors(self, prefix: str) -> dict[str, Tensor]:
        """Return the kept tensors under a prefix, on the device where they are."""
        return entries_under(f"{self.name_space}{prefix}", self.state.kept)

    def kept(self, prefix: str) -> Arrays:
        """Return the kept tensors under a prefix as arrays."""
        return {name: to_array(tensor) for name, tensor in self.kept_tensors(prefix).items()}

    def forget(self, prefix: str) -> None:
        """Delete the kept tensors under a prefix."""
        start = f"{self.name_space}{prefix}/"
        self.state.kept = {n: t for n, t in self.state.kept.items() if not n.startswith(start)}

    def keep(self, prefix: str, tensors: Mapping[str, Tensor]) -> None:
        """Store copies of tensors under a prefix."""
        start = f"{self.name_space}{prefix}/"
        self.state.kept.update({start + name: tensor.detach().clone() for name, tensor in tensors.items()})


@dataclass(frozen=True)
class RunFacts:
    """What a method is told about its run when it is made.

    Attributes:
        aggregation: How updates are averaged, possibly by a robust rule (`silohash.methods.federated.robust`).
        server_optimizer: Server-side optimizer applied to the averaged update. If None, the average is used as it is.
        optimizer: ``adam``, ``adamw`` or ``sgd``.
        learning_rate: Learning rate of the first round, which is the largest.
    """

    local: LocalMethod | None = None
    aggregation: Aggregation = field(default_factory=Aggregation)
    server_optimizer: ServerOptimizer | None = None
    optimizer: str = "sgd"
    learning_rate: float = 0.0
    momentum: float = 0.0


NO_RUN = RunFacts()
"""The facts with which a method is made outside a run."""


class Adapter:
    """The optional part of a method that changes the outputs of the towers or trains networks beside them.

    Attributes:
        adapts_training: Whether the local method is trained on adapted outputs rather than on the plain ones.
        learning_rate: Learning rate of the auxiliary networks. If None, that of the model.
    """

    adapts_training: bool = True
    learning_rate: float | None = None

    def adapt_outputs(self, outputs: Outputs, extras: Mapping[str, Tensor]) -> Outputs:
        """Return the changed outputs of the towers. A pure function of them and the extras, also used for encoding."""
        return outputs

    def auxiliary_step(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Return the loss of the auxiliary networks on a batch. If empty, they take no step."""
        return {}


class FederatedMethod(WithParams[OwnParams]):
    """The nine hooks of a federated method. The defaults implement FedAvg.

    Attributes:
        presets: Parameter values by preset. Every method has ``recommended``; methods from a paper also have ``paper``,
            and ``authors_code`` if the authors' public code differs in a way that matters.
        traits: What other code must know about the method; see `chosen_traits`.
        adapter: Changes the outputs of the towers, or trains networks beside them.
        members: Methods that this one combines, by label.
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"recommended": {}, "paper": {}}
    traits: Traits = Traits()
    adapter: Adapter = Adapter()
    members: Mapping[str, FederatedMethod] = {}

    def __init__(self, params: OwnParams, run: RunFacts = RunFacts()) -> None:
        self.params = params
        self.run = run
        self.traits = self.chosen_traits()

    def chosen_traits(self) -> Traits:
        """Return the traits of the class, completed with those that depend on the parameters and the run."""
        return self.traits

    # Hooks

    def init_server(self, model: nn.Module, info: FederationInfo) -> ServerState:
        """Server: return the state before the first round, with the parameters that silos share.

        A method whose silos share no parameters keeps all of them.

        Raises:
            UserError: If the method cannot train the model.
        """
        params = params_of(model)
        return ServerState({name: params[name] for name in self._sent_names(params) or params})

    def broadcast(self, server: ServerState, silo: int, *, round: int) -> Message:  # noqa: A002  the field's word
        """Server: return the message to a silo. Silos that share no parameters do not receive any either.

        It depends on the arguments only. A silo that sends statistics receives the message again with the merged ones.
        """
        params = {} if self.traits.shares == "none" else server.params
        return Message(kind="broadcast", sender="server", round=round, params=params, extras=server.extras)

    def begin_round(self, context: SiloContext) -> Sequence[Phase]:
        """Silo: install parameters and return the phases to train in this round."""
        install(context.model, context.payload.params)
        return [Phase(name="train", model=context.model, epochs=context.epochs)]

    def terms(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Silo: return terms to add to those of the local method."""
        return {}

    def statistics(self, context: SiloContext) -> Arrays:
        """Silo, after training: return additive statistics for an optional exchange before the update.

        If they are not empty, the server adds them up over the silos and calls `merge_statistics`. Then `update` is called
        with the result among ``context.payload.extras``. The trained model, ``mean_loss``, ``steps_taken`` and the kept
        state are preserved until then; working tensors and auxiliary networks are not.
        """
        return {}

    def merge_statistics(self, server: ServerState, sums: Arrays) -> Arrays:
        """Server: return the extras to send back, given the summed statistics.

        `aggregate` finds them among the server's extras, where they remain unless it removes them.
        """
        return {}

    def weight(self, context: SiloContext, group: str) -> float:
        """Silo: return its weight for a parameter group: its number of items with the group's modality or class.

        It is 1 if there are any and the parameter that the trait ``weighting`` names is ``uniform``. A method that overrides
        this states in the trait ``weights_known`` when a silo knows its weights.
        """
        by_class = enumerate(context.data.class_counts().tolist())
        held: dict[str, float] = {class_group(number): count for number, count in by_class}
        held |= {modality: context.data.count(modality) for modality in MODALITIES}
        items, name = float(held.get(group, len(context.data))), self.traits.weighting
        return float(items > 0) if name and getattr(self.params, name) == "uniform" else items

    def update(self, context: SiloContext) -> Message:
        """Silo: return the message to the server. Its parameters share the model's memory; copy them to change the model.

        A silo keeps its trained model under ``model`` if the trait ``keeps_model`` says so.
        """
        if self.traits.keeps_model:
            context.keep("model", context.model.state_dict())
        # in a composition another member may decide what is shared and the weights
        lead = context.lead or self
        shared = set(lead.shared_parameters(context.model))
        params = {name: array for name, array in shared_arrays(context.model).items() if name in shared}
        return Message(
            kind="update", sender=context.data.name, round=context.round, params=params,
            weights=lead.weights(context, params),
            counts={"items": len(context.data)},
        )  # fmt: skip

    def aggregate(self, server: ServerState, updates: Sequence[Message]) -> ServerState:
        """Server: return the next state. Parameters for which no silo had data stay unchanged."""
        return replace(server, params={**server.params, **self.aggregation.average(server.params, updates)})

    def template(self, server: ServerState, *, kind: str, round: int) -> Message:  # noqa: A002  the field's word
        """Server: return a message with the sums and records that silos send beside the trait ``means``.

        The server rejects a message in which one of them is missing or has another shape or type, and a message with any
        other. A silo may leave out all names with the same beginning, such as ``text/``, if it has no items for them. By
        default there are none. The kind is ``statistics`` or ``update``, after the hook that returns the message.
        """
        return Message(kind=kind, sender="server", round=round)

    def personalize(self, context: SiloContext) -> None:
        """Silo: turn ``context.model`` into the model that the silo deploys."""
        install(context.model, context.payload.params)

    # What follows from the traits and the run

    @property
    def aggregation(self) -> Aggregation:
        """How the server averages updates, with the protection of the means that silos send."""
        return self.run.aggregation.protecting(self.traits.means)

    @property
    def solver(self) -> ServerSolved | None:
        """Local method of the run if the server computes values of its model from sums over silos, else None."""
        return self.run.local if isinstance(self.run.local, ServerSolved) else None

    def averaging(self, aggregation: Aggregation) -> Self:
        """Return the same method with another aggregation."""
        return type(self)(self.params, replace(self.run, aggregation=aggregation))

    def parts(self, name: str) -> Mapping[str, FederatedMethod]:
        """Return the methods that this one combines; itself under the given name if it does not combine any."""
        return self.members or {name: self}

    def shared_parameters(self, model: nn.Module) -> list[str]:
        """Return the names of the parameters and buffers that silos send."""
        fixed = fixed_buffers(model)
        return [name for name in self._sent_names(model.state_dict()) if name not in fixed]

    def _sent_names(self, names: Iterable[str]) -> list[str]:
        every = list(names)
        hashing = hash_layers(every)
        body = [name for name in every if name not in hashing]
        return {"all": every, "hash": hashing, "body": body, "none": []}[self.traits.shares]

    def weights(self, context: SiloContext, names: Iterable[str]) -> dict[str, float]:
        """Return a silo's weight for each parameter group of the given parameters."""
        return {group: self.weight(context, group) for group in sorted({group_of(name) for name in names})}

    def origin(self, server: ServerState) -> Arrays:
        """Return the reference point of the parameters in updates, from which the changes of silos are measured.

        It is zero if silos send changes.
        """
        if not self.traits.sends_changes:
            return server.params
        return {
            name: np.zeros_like(array) if np.issubdtype(array.dtype, np.floating) else array
            for name, array in server.params.items()
        }


def entries_under(name: str, values: Mapping[str, _Value]) -> dict[str, _Value]:
    """Return the entries whose key starts with ``name/``, without that prefix.

    Example:
        >>> entries_under("moon", {"moon/mask": 1, "moon-2/mask": 2})
        {'mask': 1}
    """
    start = f"{name}/"
    return {key.removeprefix(start): value for key, value in values.items() if key.startswith(start)}


def summed_terms(weights: Mapping[str, float], parts: Mapping[str, Sequence[Tensor]]) -> Terms:
    """Return terms, each the sum of its parts (one scalar per modality), without those that have no weight or no part."""
    used = {name: list(found) for name, found in parts.items() if found and weights[name]}
    return {name: (weights[name], torch.stack(found).sum()) for name, found in used.items()}


def sums_alone(context: SiloContext, sums: Arrays, kind: str = "update") -> Message:
    """Return an update, or a message of another kind, that holds sums over the silo's items and no parameters."""
    counts = {"items": len(context.data)}
    return Message(kind=kind, sender=context.data.name, round=context.round, sums=sums, counts=counts)


def received_extra(context: SiloContext, name: str) -> Tensor:
    """Return a received extra as a tensor on the silo's device."""
    return torch.from_numpy(np.array(context.payload.extras[name])).to(context.data.has_image.device)
