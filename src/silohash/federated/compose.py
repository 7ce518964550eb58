"""Several federated methods as one.

What a method adds to FedAvg is its own: terms, class statistics, networks, what the server or a silo keeps. The members'
additions stand side by side, each under its member's name, so that none sees another's, not even another's of its own kind.
What only one can decide, one member decides.

==========================  ====================================================================
part                        what becomes of the members' own
==========================  ====================================================================
terms of the loss           add up, as ``moon/contrast``
extras, sums, records       stand side by side, as ``fedproc/prototypes/fused``
what server and silos keep  likewise
outputs                     are adapted in order, each member on what the one before left
parameters                  are averaged once; every other member is given that average
statistics                  one exchange for all; members without any make their updates before
==========================  ====================================================================

Differs from the paper: no paper. A member that needs adapted outputs for itself (FedCAFE's frozen model, FedALA's mixing)
takes its own adaptation alone. Beside a member that shares no parameters, members that look at the global model find the
silo's own as it was when the round began.
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

from silohash.exchange.message import Message
from silohash.federated import FEDERATED_METHODS
from silohash.federated.averaging import Aggregation
from silohash.federated.base import FederatedMethod, FederationInfo, ServerState, SiloContext, entries_under
from silohash.federated.composition_rules import check_members, combined_traits, deciders, overrides
from silohash.local.base import MethodParams
from silohash.models.parameters import params_of
from silohash.types import Arrays, MethodCard, Outputs, PairBatch, Phase, Terms

CARD = MethodCard(
    key="compose",
    title="Several federated methods as one",
    authors="",
    venue="composition",
    year=2026,
    link="",
    summary="Adds up what several methods add to federated averaging; what only one can decide, one decides.",
    supervised=False,
    sends=("parameters", "number of items", "what each member sends"),
    keeps=("what each member keeps",),
    differs_from_paper=("a member that needs adapted outputs for itself takes its own adaptation alone",),
)

SECTIONS = ("extras", "sums", "records")
"""Of a message: what members fill under their names."""

WAITING = "waiting"
"""Prefix of what a silo keeps of updates that members have made while it waits for the others' merged statistics."""

_Value = TypeVar("_Value")


class MemberConfig(MethodParams):
    """One of the methods; its own parameters stand beside these."""

    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)

    name: str
    """The federated method (`silohash list federated`)."""
    preset: str = "recommended"
    """`recommended`; `paper` for the paper's values; `authors_code` where its authors' public code does something else."""


class ComposeParams(MethodParams):
    """Parameters of a composition."""

    methods: tuple[MemberConfig, ...] = Field(
        default=({"name": "fedprox"}, {"name": "moon"}), min_length=1, validate_default=True
    )
    """The members, in the order in which they adapt outputs: name, preset and own parameters of each."""


def label_members(methods: Iterable[MemberConfig]) -> dict[str, MemberConfig]:
    """Returns the members by their labels, under which theirs stands: ``moon``, and ``moon-2`` for a second one."""
    members: dict[str, MemberConfig] = {}
    for method in methods:
        label, count = method.name, 1
        while label in members:
            count += 1
            label = f"{method.name}-{count}"
        members[label] = method
    return members


def build_member(config: MemberConfig) -> FederatedMethod:
    """Returns a member with its parameters."""
    kind = FEDERATED_METHODS.resolve(config.name)
    method: FederatedMethod = kind(kind.Params(**{**kind.presets[config.preset], **(config.model_extra or {})}))
    return method


def prefixed(parts: Mapping[str, Mapping[str, _Value]]) -> dict[str, _Value]:
    """Returns all members' named values, each under its member's label.

    Example:
        >>> prefixed({"moon": {"contrast": 1}, "fedproc": {"contrast": 2}})
        {'moon/contrast': 1, 'fedproc/contrast': 2}
    """
    return {f"{label}/{name}": value for label, part in parts.items() for name, value in part.items()}


def message_of_member(message: Message, label: str) -> Message:
    """Returns a message as a member sees it."""
    extras, sums, records = (entries_under(label, getattr(message, section)) for section in SECTIONS)
    return replace(message, extras=extras, sums=sums, records=records)


def sections_of(message: Message, label: str) -> Arrays:
    """Returns what a member's message holds beside parameters, as ``section/label/name``."""
    return prefixed({f"{section}/{label}": getattr(message, section) for section in SECTIONS})


def server_of(server: ServerState, label: str) -> ServerState:
    """Returns the server's state as a member sees it."""
    extras, private = entries_under(label, server.extras), entries_under(label, server.private)
    return replace(server, extras=extras, private=private)


class Compose(FederatedMethod):
    """Several methods, each under a label of its own."""

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
        )  # class attributes elsewhere; here they follow from the members
        self._bind()

    def _bind(self) -> None:
        """Lets members ask the whole for what another member decides and they would answer as FedAvg."""
        shares, sends, weighs = (self.deciders.get(hook) for hook in ("shared_parameters", "silo_update", "weight"))
        for label, method in self.members.items():
            if shares not in {None, label}:
                vars(method)["shared_parameters"] = self.shared_parameters
        if sends is not None and weighs not in {None, sends}:
            vars(self.members[sends])["weight"] = self.weight

    def _decided(self, hook: str, context: SiloContext) -> Any:  # noqa: ANN401  what the hook returns
        """Returns what the member that decides a hook of the silo's makes there; what FedAvg makes if none does."""
        label = self.deciders.get(hook)
        if label is None:
            return getattr(super(), hook)(context)
        return getattr(self.members[label], hook)(context.member(label))

    @property
    def adapts_training(self) -> bool:
        """As all members have it that adapt outputs."""
        return all(method.adapts_training for method in self.members.values() if overrides(method, "adapt_outputs"))

    @property
    def auxiliary_learning_rate(self) -> float | None:
        """As all members have it that train networks of their own."""
        rates = (m.auxiliary_learning_rate for m in self.members.values() if overrides(m, "auxiliary_step"))
        return next(rates, None)

    def check_steps(self, *, optimizer: str, learning_rate: float, momentum: float) -> list[str]:
        """Returns what any member takes roughly."""
        members = self.members.values()
        return [
            remark
            for method in members
            for remark in method.check_steps(optimizer=optimizer, learning_rate=learning_rate, momentum=momentum)
        ]

    def shared_parameters(self, model: nn.Module) -> list[str]:
        """Returns what the member shares that decides it."""
        label = self.deciders.get("shared_parameters")
        return super().shared_parameters(model) if label is None else self.members[label].shared_parameters(model)

    def init_server(self, model: nn.Module, info: FederationInfo) -> ServerState:
        """Starts every member; parameters are those of the member that decides which travel."""
        states = {label: method.init_server(model, info) for label, method in self.members.items()}
        label = self.deciders.get("shared_parameters")
        return ServerState(
            params=params_of(model) if label is None else states[label].params,
            extras=prefixed({label: state.extras for label, state in states.items()}),
            private=prefixed({label: state.private for label, state in states.items()}),
        )

    def broadcast(self, server: ServerState, silo: int, *, round: int) -> Message:  # noqa: A002  the field's word
        """Sends all members' extras beside the parameters."""
        sent = {
            label: method.broadcast(server_of(server, label), silo, round=round)
            for label, method in self.members.items()
        }
        label = self.deciders.get("broadcast")
        message = super().broadcast(server, silo, round=round) if label is None else sent[label]
        return replace(message, extras=prefixed({label: own.extras for label, own in sent.items()}))

    def begin_round(self, context: SiloContext) -> Sequence[Phase]:
        """Lets every member prepare, the one that decides the phases last: it installs the parameters."""
        for label, method in self.members.items():
            if not entries_under(label, context.state.kept):
                method.init_silo(context.member(label))
        for label in self.adding["begin_round"]:
            self.members[label].begin_round(context.member(label))
        phases: Sequence[Phase] = self._decided("begin_round", context)
        context.auxiliary |= prefixed({label: context.member(label).auxiliary for label in self.members})
        return phases

    def adapt_outputs(self, outputs: Outputs, extras: Mapping[str, Tensor]) -> Outputs:
        """Adapts member by member."""
        for label, method in self.members.items():
            outputs = method.adapt_outputs(outputs, entries_under(label, extras))
        return outputs

    def auxiliary_step(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Returns the losses of all members' networks."""
        members = self.members.items()
        return prefixed({label: m.auxiliary_step(context.member(label), batch, outputs) for label, m in members})

    def regularizer(self, context: SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Returns all members' terms."""
        members = self.members.items()
        return prefixed({label: m.regularizer(context.member(label), batch, outputs) for label, m in members})

    def silo_statistics(self, context: SiloContext) -> Arrays:
        """Returns all members' statistics; if there are any, members that give none make their updates now.

        After the exchange they would find the networks gone that they have trained.
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
        """Returns what each member makes of its sums."""
        given = {label: entries_under(label, sums) for label in self.members}
        return prefixed(
            {
                label: self.members[label].merge_statistics(server_of(server, label), own)
                for label, own in given.items()
                if own
            }
        )

    def weight(self, context: SiloContext, group: str) -> float:
        """Returns the weight that the member gives that decides it; asked by the whole or by a member."""
        whole, label = context.whole or context, self.deciders.get("weight")
        return super().weight(whole, group) if label is None else self.members[label].weight(whole.member(label), group)

    def silo_update(self, context: SiloContext) -> Message:
        """Sends what all members add beside the parameters."""
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
        """Returns what the updates are measured from that the member sends which decides them."""
        label = self.deciders.get("silo_update")
        return super().origin(server) if label is None else self.members[label].origin(server_of(server, label))

    def aggregate(self, server: ServerState, updates: Sequence[Message]) -> ServerState:
        """Averages once, as the member does that decides it; the others do their own part with that average."""

        def after(label: str, aggregation: Aggregation) -> ServerState:
            """Returns the server's state as a member leaves it that averages so."""
            method = copy.copy(self.members[label])
            method.aggregation = aggregation
            return method.aggregate(server_of(server, label), [message_of_member(update, label) for update in updates])

        one = self.deciders.get("aggregate")
        decided = super().aggregate(server, updates) if one is None else after(one, self.aggregation)
        averaged = Aggregation(average=lambda current, updates: decided.params)
        states = {label: decided if label == one else after(label, averaged) for label in self.members}
        of_nobody = {n: a for n, a in server.private.items() if n.partition("/")[0] not in self.members}
        return ServerState(
            params=decided.params,
            extras=prefixed({label: state.extras for label, state in states.items()}),
            private={**of_nobody, **prefixed({label: state.private for label, state in states.items()})},
        )

    def personalize(self, context: SiloContext) -> None:
        """Makes the model that the member deploys that decides it."""
        self._decided("personalize", context)
