"""Train with several federated methods at once.

The members' additions to FedAvg (loss terms, class statistics, auxiliary networks, state) are kept side by side, each
under its member's label, so that members never see each other's values. A part that only one member can decide
(`silohash.methods.federated.composition_rules`) is decided by that member, or by FedAvg if there is none.

==========================  ========================================================================
part                        how the members are combined
==========================  ========================================================================
loss terms                  added up, under names such as ``moon/contrast``
extras, sums, records       kept under the member's label, such as ``fedproc/prototypes/fused``
state of server and silos   kept under the member's label
outputs                     adapted by one member after the other, in order
parameters                  averaged once; all other members receive that average
statistics                  exchanged once; members without any create their updates beforehand
==========================  ========================================================================

Members that do not share parameters keep their own model, so beside one of them the global model is the silo's own
model at the start of the round.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from pydantic import ConfigDict, Field
from torch import Tensor, nn

from silohash.base.types import Arrays, MethodCard, Outputs, PairBatch, Phase, Terms
from silohash.methods.federated import DEFAULT_MEMBERS, FEDERATED_METHODS
from silohash.methods.federated.averaging import Aggregation
from silohash.methods.federated.base import (
    FederatedMethod,
    FederationInfo,
    ServerState,
    SiloContext,
    WeightsKnown,
    entries_under,
)
from silohash.methods.federated.composition_rules import check_members, combined_traits, deciders, overrides
from silohash.methods.local.base import MethodParams
from silohash.methods.message import Message
from silohash.models.parameters import params_of

CARD = MethodCard(
    key="compose",
    title="Composition of federated methods",
    authors="The silohash developers",
    venue="composition",
    year=2026,
    link="",
    summary="Train with several federated methods at once. Terms add up; one member decides each shared part.",
    supervised=False,
    sends=("parameters", "number of items", "what each member sends"),
    keeps=("what each member keeps",),
    differs_from_paper=(
        "A member that adapts outputs itself (FedCAFE's frozen model, FedALA's mixing) uses only its own adaptation.",
    ),
)

SECTIONS = ("extras", "sums", "records")
"""The sections of a message that members fill under their labels."""

WAITING = "waiting"
"""Prefix of the updates that members create before the exchange of statistics, and that the silo keeps until it is
complete."""

_Value = TypeVar("_Value")


class MemberConfig(MethodParams):
    """One member: its name and preset, and its own parameters beside them."""

    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)

    name: str
    """Name of the federated method (see `silohash list federated`)."""
    preset: str = "recommended"
    """`recommended`, `paper` (the values of the paper), or `authors_code` (its authors' public code, where that
    differs)."""


class ComposeParams(MethodParams):
    """Parameters of a composition."""

    methods: tuple[MemberConfig, ...] = Field(default=DEFAULT_MEMBERS, min_length=1, validate_default=True)
    """Members in the order in which they adapt outputs, each with its name, preset and parameters. At least one."""


def label_members(methods: Iterable[MemberConfig]) -> dict[str, MemberConfig]:
    """Return the members by label: the method's name, with a number for each repetition (``moon``, ``moon-2``)."""
    members: dict[str, MemberConfig] = {}
    for method in methods:
        label, count = method.name, 1
        while label in members:
            count += 1
            label = f"{method.name}-{count}"
        members[label] = method
    return members


def build_member(config: MemberConfig) -> FederatedMethod:
    """Return a member with its parameters."""
    kind = FEDERATED_METHODS.resolve(config.name)
    values = kind.presets[config.preset]
    method: FederatedMethod = kind(kind.Params(**{**values, **(config.model_extra or {})}))
    return method


def prefixed(parts: Mapping[str, Mapping[str, _Value]]) -> dict[str, _Value]:
    """Return all members' named values, each under its member's label.

    Example:
        >>> prefixed({"moon": {"contrast": 1}, "fedproc": {"contrast": 2}})
        {'moon/contrast': 1, 'fedproc/contrast': 2}
    """
    return {f"{label}/{name}": value for label, part in parts.items() for name, value in part.items()}


def message_of_member(message: Message, label: str) -> Message:
    """Return a message as a member sees it, without the other members' sections."""
    extras, sums, records = (entries_under(label, getattr(message, section)) for section in SECTIONS)
    return replace(message, extras=extras, sums=sums, records=records)


def sections_of(message: Message, label: str) -> Arrays:
    """Return the sections of a member's message as ``section/label/name``."""
    return prefixed({f"{section}/{label}": getattr(message, section) for section in SECTIONS})


def server_of(server: ServerState, label: str) -> ServerState:
    """Return the server state as a member sees it, without the other members' state."""
    extras, private = entries_under(label, server.extras), entries_under(label, server.private)
    return replace(server, extras=extras, private=private)


class Compose(FederatedMethod):
    """Several federated methods, each under its own label."""

    Params: ClassVar[type[MethodParams]] = ComposeParams
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"recommended": {}}

    def __init__(self, params: ComposeParams) -> None:
        super().__init__(params)
        self.members = {label: build_member(config) for label, config in label_members(params.methods).items()}
        check_members(self.members)
        self.deciders = deciders(self.members)
        self.adding = {
            hook: [
                label for label, m in self.members.items() if overrides(m, hook) and self.deciders.get(hook) != label
            ]
            for hook in ("begin_round", "silo_update")
        }
        vars(self).update(
            combined_traits(self.members)
        )  # class attributes of other methods; here they depend on the members
        self._bind()

    def _bind(self) -> None:
        """Redirect members to the composition for hooks that another member decides."""
        shares, sends, weighs = (self.deciders.get(hook) for hook in ("shared_parameters", "silo_update", "weight"))
        for label, method in self.members.items():
            if shares not in {None, label}:
                vars(method)["shared_parameters"] = self.shared_parameters
        if sends is not None and weighs not in {None, sends}:
            vars(self.members[sends])["weight"] = self.weight

    def _decided(self, hook: str, context: SiloContext) -> Any:  # noqa: ANN401  what the hook returns
        """Return the result of a silo hook from the member that decides it, or from FedAvg if there is none."""
        label = self.deciders.get(hook)
        if label is None:
            return getattr(super(), hook)(context)
        return getattr(self.members[label], hook)(context.member(label))

    @property
    def weights_known(self) -> WeightsKnown:
        """When a silo can announce its weights: before it trains if this holds for all members."""
        early = all(method.weights_known == "before training" for method in self.members.values())
        return "before training" if early else "with update"

    @property
    def adapts_training(self) -> bool:
        """Whether the local method learns on adapted outputs; the same for all members that adapt outputs."""
        return all(method.adapts_training for method in self.members.values() if overrides(method, "adapt_outputs"))

    @property
    def auxiliary_learning_rate(self) -> float | None:
        """Learning rate of the auxiliary networks; the same for all members that have some."""
        rates = (m.auxiliary_learning_rate for m in self.members.values() if overrides(m, "auxiliary_step"))
        return next(rates, None)

    def check_steps(self, *, optimizer: str, learning_rate: float, momentum: float) -> list[str]:
        """Check the optimizer for all members and return their remarks."""
        members = self.members.values()
        return [
            remark
            for method in members
            for remark in method.check_steps(optimizer=optimizer, learning_rate=learning_rate, momentum=momentum)
        ]

    def shared_parameters(self, model: nn.Module) -> list[str]:
        """Return the parameters shared by the member that decides it."""
        label = self.deciders.get("shared_parameters")
        return super().shared_parameters(model) if label is None else self.members[label].shared_parameters(model)

    def init_server(self, model: nn.Module, info: FederationInfo) -> ServerState:
        """Initialize every member. The parameters are those of the member that decides which are shared."""
        states = {label: method.init_server(model, info) for label, method in self.members.items()}
        label = self.deciders.get("shared_parameters")
        return ServerState(
            params=params_of(model) if label is None else states[label].params,
            extras=prefixed({label: state.extras for label, state in states.items()}),
            private=prefixed({label: state.private for label, state in states.items()}),
        )

    def broadcast(self, server: ServerState, silo: int, *, round: int) -> Message:  # noqa: A002  the field's word
        """Send the extras of all members beside the parameters."""
        sent = {
            label: method.broadcast(server_of(server, label), silo, round=round)
            for label, method in self.members.items()
        }
        label = self.deciders.get("broadcast")
        message = super().broadcast(server, silo, round=round) if label is None else sent[label]
        return replace(message, extras=prefixed({label: own.extras for label, own in sent.items()}))

    def begin_round(self, context: SiloContext) -> Sequence[Phase]:
        """Prepare every member. The member that decides the phases comes last, because it installs the parameters."""
        for label, method in self.members.items():
            if not entries_under(label, context.state.kept):
                method.init_silo(context.member(label))
        for label in self.adding["begin_round"]:
            self.members[label].begin_round(context.member(label))
        phases: Sequence[Phase] = self._decided("begin_round", context)
        context.auxiliary |= prefixed({label: context.member(label).auxiliary for label in self.members})
        return phases

    def adapt_outputs(self, outputs: Outputs, extras: Mapping[str, Tensor]) -> Outputs:
        """Adapt the outputs by one member after the other."""
        for label, method in self.members.items():
            outputs = method.adapt_outputs(outputs, entries_under(label, extras))
        return outputs

    def auxiliary_step(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Return the losses of all members' auxiliary networks."""
        members = self.members.items()
        return prefixed({label: m.auxiliary_step(context.member(label), batch, outputs) for label, m in members})

    def regularizer(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Return the terms of all members."""
        members = self.members.items()
        return prefixed({label: m.regularizer(context.member(label), batch, outputs) for label, m in members})

    def silo_statistics(self, context: SiloContext) -> Arrays:
        """Return the statistics of all members.

        If there are any, members without statistics create their updates now, because their auxiliary networks do not
        survive the exchange.
        """
        given = {label: method.silo_statistics(context.member(label)) for label, method in self.members.items()}
        early: Arrays = {}
        for label in self.adding["silo_update"] if any(given.values()) else ():
            if not given[label]:
                message = self.members[label].silo_update(context.member(label))
                early |= {f"made/{label}": np.asarray(True), **sections_of(message, label)}
        context.keep(WAITING, {name: torch.from_numpy(np.array(array)) for name, array in early.items()})
        return prefixed(given)

    def merge_statistics(self, server: ServerState, sums: Arrays) -> Arrays:
        """Return the results of all members that have statistics."""
        given = {label: entries_under(label, sums) for label in self.members}
        return prefixed(
            {
                label: self.members[label].merge_statistics(server_of(server, label), own)
                for label, own in given.items()
                if own
            }
        )

    def weight(self, context: SiloContext, group: str) -> float:
        """Return the weight given by the member that decides it. Called for the composition and for its members."""
        whole, label = context.whole or context, self.deciders.get("weight")
        return super().weight(whole, group) if label is None else self.members[label].weight(whole.member(label), group)

    def silo_update(self, context: SiloContext) -> Message:
        """Send the sections of all members beside the parameters."""
        added = context.kept(WAITING)
        context.forget(WAITING)
        for label in self.adding["silo_update"]:
            if f"made/{label}" not in added:
                added |= sections_of(self.members[label].silo_update(context.member(label)), label)
        update: Message = self._decided("silo_update", context)
        if "silo_update" in self.deciders:
            added |= sections_of(update, self.deciders["silo_update"])
        extras, sums, records = (entries_under(section, added) for section in SECTIONS)
        return replace(update, extras=extras, sums=sums, records=records)

    def origin(self, server: ServerState) -> Arrays:
        """Return the reference point of the updates, as defined by the member that decides what silos send."""
        label = self.deciders.get("silo_update")
        return super().origin(server) if label is None else self.members[label].origin(server_of(server, label))

    def aggregate(self, server: ServerState, updates: Sequence[Message]) -> ServerState:
        """Average once, by the member that decides it, and let the other members continue with that average."""

        def after(label: str, aggregation: Aggregation) -> ServerState:
            """Return the server state after a member's aggregation with the given rule."""
            method = copy.copy(self.members[label])
            method.aggregation = aggregation
            return method.aggregate(server_of(server, label), [message_of_member(update, label) for update in updates])

        decider = self.deciders.get("aggregate")
        decided = super().aggregate(server, updates) if decider is None else after(decider, self.aggregation)
        averaged = Aggregation(average=lambda current, updates: decided.params)
        states = {label: decided if label == decider else after(label, averaged) for label in self.members}
        shared = {n: a for n, a in server.private.items() if n.partition("/")[0] not in self.members}
        return ServerState(
            params=decided.params,
            extras=prefixed({label: state.extras for label, state in states.items()}),
            private={**shared, **prefixed({label: state.private for label, state in states.items()})},
        )

    def template(self, server: ServerState, *, kind: str, round: int) -> Message:  # noqa: A002  the field's word
        """Return the sums and records of all members."""
        members = self.members.items()
        sent = {label: m.template(server_of(server, label), kind=kind, round=round) for label, m in members}
        sums, records = (prefixed({n: getattr(one, part) for n, one in sent.items()}) for part in ("sums", "records"))
        return replace(super().template(server, kind=kind, round=round), sums=sums, records=records)

    def is_final(self, server: ServerState) -> bool:
        """Return whether this state is final for the member that decides how the server averages."""
        label = self.deciders.get("aggregate")
        return label is not None and self.members[label].is_final(server_of(server, label))

    def personalize(self, context: SiloContext) -> None:
        """Build the model that a silo deploys, by the member that decides it."""
        self._decided("personalize", context)
