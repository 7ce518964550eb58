"""The contract of a federated method: twelve hooks around one loop, whose defaults are FedAvg.

The loop (``training/rounds.py`` and ``training/silo.py``) calls them in this order::

    server = method.init_server(model, info)
    every round:
        every silo:  broadcast -> [init_silo] -> begin_round -> per batch: adapt_outputs, regularizer, auxiliary_step
                     -> [silo_statistics -> merge_statistics] -> silo_update
        server = method.aggregate(server, updates)
    deployment of a silo: method.personalize

A method overrides the hooks in which it differs. It never loops over silos, epochs or batches itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from silohash.base.types import MODALITIES, Arrays, Modality, Outputs, PairBatch, Phase, Terms
from silohash.methods.federated.averaging import Aggregation
from silohash.methods.federated.shared_means import SharedMean
from silohash.methods.local.base import (
    LocalMethod,
    MethodParams,
    ServerSolved,
    SiloData,
    SiloState,
    class_group,
    outputs_of,
)
from silohash.methods.message import Message
from silohash.models.parameters import fixed_buffers, frozen_copy, install, params_of, shared_arrays, to_array
from silohash.models.towers import Part, group_of

_Value = TypeVar("_Value")

WeightsKnown: TypeAlias = Literal["before training", "after statistics", "with update"]


@dataclass(frozen=True)
class FederationInfo:
    """What the server knows before the first round.

    Attributes:
        silos: Number of silos.
        classes: Number of classes; 0 without labels.
        bits: Code length in bits.
        total_rounds: Number of rounds.
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
        private: Arrays that stay on the server, such as momentum or a bank of models.
    """

    params: Arrays
    extras: Arrays = field(default_factory=dict)
    private: Arrays = field(default_factory=dict)


class ServerStep(Protocol):
    """A server-side optimizer (`silohash.methods.federated.server_optimizers`)."""

    def step(self, before: ServerState, after: ServerState, buffers: Set[str] = frozenset()) -> ServerState:
        """Return the next state, given the previous state and the averaged one. Buffers remain as averaged."""
        ...


@dataclass
class SiloContext:
    """Everything that a silo-side hook may read or write during one round.

    Attributes:
        silo: Index of the silo, from 0.
        round: Index of the round, from 0.
        total_rounds: Number of rounds.
        epochs: Number of local epochs.
        model: Network, trained in place.
        local: Local method.
        data: Training pairs of the silo.
        state: State that the silo keeps.
        payload: Broadcast message of this round.
        generator: Random generator of this silo and round.
        step_norm: Function of a number of steps and the weight of a proximal term. It returns how far the run's
            optimizer moves a parameter under a constant gradient of 1, in units of the learning rate.
        auxiliary: Networks of the federated method (such as a discriminator), trained with Adam by the terms of
            `auxiliary_step`. They may be created on any device. The training moves them to that of the items.
        steps_taken: Number of optimizer steps of this round, by step name.
        means: Mean values of the last epoch; ``loss`` is the mean loss.
        initial: Initial parameters, which every silo derives from the seed of the run.
        validation_score: Function that returns the model's validation score on the silo's held-back queries, between 0
            and 1. NaN if the silo holds none back.
        whole: For a member of a composition, the context of the composition.
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
    name_space: str = ""

    @property
    def mean_loss(self) -> float:
        """Mean loss of the last epoch; NaN before the first."""
        return self.means.get("loss", float("nan"))

    @mean_loss.setter
    def mean_loss(self, value: float) -> None:
        """Set the mean loss, also for the members of a composition."""
        self.means["loss"] = value

    def member(self, name: str) -> SiloContext:
        """Return the context in which a member of a composition sees this round; always the same object within a round.

        The member's state and the extras it receives are those under its name, and its auxiliary networks are its own.
        Everything else is shared.
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
        """A frozen copy of the silo's model after its last round, or None before its first."""
        kept = self.kept("model")
        return frozen_copy(self.model, kept) if kept else None

    def frozen_outputs(self, key: str, model: Callable[[], nn.Module], part: Part = "logit") -> dict[Modality, Tensor]:
        """Return a frozen model's outputs for all items of the silo, computed once per round.

        Args:
            key: Identifies the model within the round.
            model: Function that returns the model, called at most once. The model must not change within the round.
            part: ``feature``, ``logit`` or ``code``.

        Returns:
            ``(n, H)`` or ``(n, K)`` per modality.
        """
        if (key, part) not in self._frozen:
            self._frozen[key, part] = outputs_of(model(), self.data, part=part)
        return self._frozen[key, part]

    @cached_property
    def _frozen(self) -> dict[tuple[str, Part], dict[Modality, Tensor]]:
        return {}

    def kept(self, prefix: str) -> Arrays:
        """Return the kept tensors under a prefix as arrays."""
        return {n: to_array(t) for n, t in entries_under(f"{self.name_space}{prefix}", self.state.kept).items()}

    def forget(self, prefix: str) -> None:
        """Delete the kept tensors under a prefix."""
        start = f"{self.name_space}{prefix}/"
        self.state.kept = {n: t for n, t in self.state.kept.items() if not n.startswith(start)}

    def keep(self, prefix: str, tensors: Mapping[str, Tensor]) -> None:
        """Store copies of tensors under a prefix."""
        start = f"{self.name_space}{prefix}/"
        self.state.kept.update({start + name: tensor.detach().clone() for name, tensor in tensors.items()})


class FederatedMethod:
    """The twelve hooks of a federated method. The defaults implement FedAvg.

    The traits are class attributes:

    Attributes:
        Params: Parameters of the method.
        presets: Parameter values by preset. Every method has ``recommended``; methods from a paper also have ``paper``,
            and ``authors_code`` if the authors' public code differs in a way that matters.
        needs_labels: Whether silos need labels for the method's terms.
        min_modalities: Minimum number of modalities of the model.
        uniform_broadcast: Whether every silo receives the same message.
        uplink: ``sum`` if the server needs only sums over silos, ``records`` if it needs each silo's message.
        shares_parameters: Whether silos send parameters.
        personalized: Whether each silo deploys its own model.
        codes_comparable: Whether codes of different silos may be ranked together.
        class_head: Whether towers need a classifier on their outputs.
        encode_extras: Names of the extras that encoding needs.
        pooled: Whether the data of all silos are pooled (no federation; a reference).
        averages: Whether silos continue training from the average of their parameters. If not, robust rules and
            server-side optimizers have no effect and are rejected.
        adds: Overridden hooks that leave parameters, weights and phases as in FedAvg, each with the parameter values
            for which this holds. With these values the method can be composed with others.
        closed_form: Which local methods without gradient steps can be trained: none, those that each silo fits to its own
            pairs, or those that are solved from sums over silos.
        trains_scores: Whether the method can train local methods that score pairs
            (`silohash.methods.local.base.scores_pairs`).
        means: Sums and records that silos send, of which the server uses the mean only. Impossible values are rejected,
            and robust rules protect them. A method that sends other sums or records describes them in `template`, and
            cannot have a robust rule.
        unprotected: Why no robust rule can protect what the method sends, as a sentence with the remedy; empty if one can.
        aggregation: How updates are averaged; may be replaced by a robust rule (`silohash.methods.federated.robust`).
        server_optimizer: Server-side optimizer applied to the averaged update. If None, the average is used as it is.
        private_units: Units of differential privacy (`silohash.run.config.sections.PrivacyConfig`) for which what silos
            send has a guarantee. For ``record``, the terms of `regularizer` for an item depend on that item's outputs and
            on what the silo received or trained under the same guarantee. For ``silo``, silos send nothing but parameters.
        solver: Local method of the run if the server computes values of its model from sums over silos, else None.
        local: Local method of the run; None until the methods of a config are put together.
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
    closed_form: ClassVar[Literal["none", "silos", "sums"]] = "none"
    trains_scores: ClassVar[bool] = False
    means: ClassVar[tuple[SharedMean, ...]] = ()
    unprotected: ClassVar[str] = ""
    private_units: ClassVar[tuple[Literal["record", "silo"], ...]] = ()

    def __init__(self, params: Any) -> None:  # noqa: ANN401  the class's own Params
        self.params = params
        self.aggregation = Aggregation()
        self.server_optimizer: ServerStep | None = None
        self.solver: ServerSolved | None = None
        self.local: LocalMethod | None = None

    @property
    def weights_known(self) -> WeightsKnown:
        """When a silo can announce its weights: before it trains, once the statistics are merged, or with its update.

        Unless it is with the update, the updates of many silos can be added up as they arrive. By default, weights are
        known before the training if they are those of `FederatedMethod.weight`, which depend on the silo's items only.
        """
        return "before training" if type(self).weight is FederatedMethod.weight else "with update"

    @property
    def adapts_training(self) -> bool:
        """Whether the local method is trained on adapted outputs rather than on the plain outputs of the towers."""
        return True

    @property
    def auxiliary_learning_rate(self) -> float | None:
        """Learning rate of the auxiliary networks. If None, that of the model."""
        return None

    def check_steps(self, *, optimizer: str, learning_rate: float, momentum: float) -> list[str]:
        """Check the optimizer of the run before training.

        Args:
            optimizer: ``adam``, ``adamw`` or ``sgd``.
            learning_rate: Learning rate of the first round, which is the largest.
            momentum: Momentum of ``sgd``.

        Returns:
            Remarks about approximations that the method makes under this optimizer.

        Raises:
            UserError: If the method's formulas do not hold for this optimizer.
        """
        return []

    def check_exchange(self, *, rules: Sequence[str]) -> None:
        """Check before training that the user allows what silos send.

        Args:
            rules: Keys of the config that limit or transform updates, of those that are set: ``federated.robust``,
                ``federated.weight_cap``, ``federated.server`` and ``exchange.encryption``.

        Raises:
            UserError: If silos would reveal more than the user allows, or a rule does not apply to what they send.
        """

    def shared_parameters(self, model: nn.Module) -> list[str]:
        """Hook 1, both sides: return the names of the parameters and buffers that silos send."""
        fixed = fixed_buffers(model)
        return [name for name in model.state_dict() if name not in fixed]

    def init_server(self, model: nn.Module, info: FederationInfo) -> ServerState:
        """Hook 2, server: return the state before the first round."""
        return ServerState(params=params_of(model))

    def broadcast(self, server: ServerState, silo: int, *, round: int) -> Message:  # noqa: A002  the field's word
        """Hook 3, server: return the message to a silo.

        It depends on the arguments only. A silo that sends statistics receives the message again with the merged ones.
        """
        return Message(kind="broadcast", sender="server", round=round, params=server.params, extras=server.extras)

    def init_silo(self, context: SiloContext) -> None:
        """Hook 4, silo, before each round in which the silo keeps nothing: prepare the state to keep."""

    def begin_round(self, context: SiloContext) -> Sequence[Phase]:
        """Hook 5, silo: install parameters and return the phases to train in this round."""
        install(context.model, context.payload.params)
        return [Phase(name="train", model=context.model, epochs=context.epochs)]

    def adapt_outputs(self, outputs: Outputs, extras: Mapping[str, Tensor]) -> Outputs:
        """Hook 6, silo, pure: change the outputs of the towers. Also used for encoding.

        Args:
            outputs: Outputs of the towers.
            extras: Arrays received beside the parameters, as tensors on the model's device.
        """
        return outputs

    def auxiliary_step(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Hook 7, silo: return the loss of the auxiliary networks on a batch. If empty, they take no step."""
        return {}

    def regularizer(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Hook 8, silo: return terms to add to those of the local method."""
        return {}

    def silo_statistics(self, context: SiloContext) -> Arrays:
        """Hook 9, silo, after training: return additive statistics for an optional exchange before the update.

        If they are not empty, the server adds them up over the silos and calls `merge_statistics`. Then `silo_update`
        is called with the result among ``context.payload.extras``. The trained model, ``mean_loss``, ``steps_taken``
        and the kept state are preserved until then; working tensors and auxiliary networks are not.
        """
        return {}

    def merge_statistics(self, server: ServerState, sums: Arrays) -> Arrays:
        """Hook 9, server: return the extras to send back, given the summed statistics.

        `aggregate` finds them among the server's extras, where they remain unless it removes them.
        """
        return {}

    def silo_update(self, context: SiloContext) -> Message:
        """Hook 10, silo: return the message to the server.

        Its parameters share the memory of the model where possible. A method that changes the model afterwards copies
        them first.
        """
        shared = set(self.shared_parameters(context.model))
        params = {name: array for name, array in shared_arrays(context.model).items() if name in shared}
        return Message(
            kind="update", sender=context.data.name, round=context.round, params=params,
            weights=self.weights(context, params),
            counts={"items": len(context.data)},
        )  # fmt: skip

    def weights(self, context: SiloContext, names: Iterable[str]) -> dict[str, float]:
        """Return a silo's weight for each parameter group of the given parameters."""
        return {group: self.weight(context, group) for group in sorted({group_of(name) for name in names})}

    def weight(self, context: SiloContext, group: str) -> float:
        """Return a silo's weight for a parameter group: its number of items with the group's modality or class."""
        for modality in MODALITIES:
            if group == modality:
                return float(context.data.count(modality))
        for number, count in enumerate(context.data.class_counts().tolist()):
            if group == class_group(number):
                return float(count)
        return float(len(context.data))

    def origin(self, server: ServerState) -> Arrays:
        """Return the reference point of the parameters in updates. A silo's change is the difference from it."""
        return server.params

    def aggregate(self, server: ServerState, updates: Sequence[Message]) -> ServerState:
        """Hook 11, server: return the next state. Parameters for which no silo had data stay unchanged."""
        return replace(server, params={**server.params, **self.aggregation.average(server.params, updates)})

    def template(self, server: ServerState, *, kind: str, round: int) -> Message:  # noqa: A002  the field's word
        """Return a message with the sums and records that silos send beside `means`, with their shapes and types.

        The server rejects a message in which one of them is missing or differs, and a message with any other. A silo may
        leave out all names with the same beginning, such as ``text/``, if it has no items for them. By default there are
        none.

        Args:
            server: State of the server before the round.
            kind: ``statistics`` for what `silo_statistics` returns, ``update`` for what `silo_update` returns.
            round: Index of the round, from 0.
        """
        return Message(kind=kind, sender="server", round=round)

    def is_final(self, server: ServerState) -> bool:
        """Return whether this state is deployed even if an earlier round has a higher validation score.

        Each silo ranks its validation queries against its own items. The score therefore cannot show how well the codes
        separate classes that different silos hold. A method whose last step improves this may return True.
        """
        return False

    def personalize(self, context: SiloContext) -> None:
        """Hook 12, silo: turn ``context.model`` into the model that the silo deploys."""
        install(context.model, context.payload.params)


def entries_under(name: str, values: Mapping[str, _Value]) -> dict[str, _Value]:
    """Return the entries whose key starts with ``name/``, without that prefix.

    Example:
        >>> entries_under("moon", {"moon/mask": 1, "moon-2/mask": 2})
        {'mask': 1}
    """
    start = f"{name}/"
    return {key.removeprefix(start): value for key, value in values.items() if key.startswith(start)}


def received_extra(context: SiloContext, name: str) -> Tensor:
    """Return a received extra as a tensor on the silo's device."""
    return torch.from_numpy(np.array(context.payload.extras[name])).to(context.data.has_image.device)
