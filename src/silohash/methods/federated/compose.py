"""Train with several federated methods at once.

The members' additions to FedAvg (loss terms, class statistics, auxiliary networks, state) are kept side by side, each
under its member's label, so that members never see each other's values. A method overrides a hook either to decide
something or to add to what FedAvg does there (`Traits.adds`). Any number of members may add. What only one member can
decide (`PARTS`) is decided by that member, or by FedAvg if there is none.

==========================  ========================================================================
part                        how the members are combined
==========================  ========================================================================
loss terms                  added up, under names such as ``moon/contrast``
extras, sums, records       kept under the member's label, such as ``fedproc/prototypes/fused``
state of server and silos   kept under the member's label
outputs                     adapted by one member after the other, in order
parameters                  averaged once; all other members receive that average
statistics                  exchanged once; members without any create their updates beforehand
traits                      requirements of any member, guarantees of all of them
==========================  ========================================================================

Members that do not share parameters keep their own model, so beside one of them the global model is the silo's own
model at the start of the round.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count, product
from typing import Any, ClassVar, TypeAlias, TypeVar, cast

import numpy as np
import torch
from pydantic import ConfigDict, Field
from torch import Tensor, nn

from silohash.base.errors import MethodsConflict, UserError
from silohash.base.types import Arrays, MethodCard, Outputs, PairBatch, Phase, Terms
from silohash.methods.federated import DEFAULT_MEMBERS, FEDERATED_METHODS, base
from silohash.methods.federated.averaging import Aggregation
from silohash.methods.local.base import MethodParams
from silohash.methods.message import Message
from silohash.methods.traits import Traits
from silohash.models.parameters import params_of

CARD = MethodCard(
    key="compose",
    title="Composition of federated methods",
    authors="The silohash developers",
    venue="composition",
    year=2026,
    link="",
    summary="Train with several federated methods at once. Terms add up; one member decides each shared part.",
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

PARTS: Sequence[tuple[str, tuple[str, ...]]] = (
    ("the weight of a silo", ("weight",)),
    ("which parameters are shared", ("shares", "broadcast")),
    ("how a silo's round begins and its phases", ("begin_round",)),
    ("which parameters a silo sends", ("update",)),
    ("how the server averages", ("aggregate",)),
    ("which model a silo deploys", ("personalize",)),
)
"""What at most one member may decide, and the hooks and traits that decide it."""

ANY_MEMBER = ("needs_labels", "personalized", "class_head", "separate_steps")
"""Traits that the composition has if any member has them."""

ALL_MEMBERS = ("uniform_broadcast", "averages", "codes_comparable")
"""Traits that the composition has if all members have them."""

DECIDED: Mapping[str, str] = {
    "shares": "shares", "sends_changes": "update", "largest_weight": "weight",
}  # fmt: skip
"""Traits that are those of the member that decides a part."""

Members: TypeAlias = Mapping[str, base.FederatedMethod]
"""Members of a composition by label. Each label is also the prefix for the member's state and messages."""

_Value = TypeVar("_Value")


class MemberConfig(MethodParams):
    """A member: its name and preset, and its own parameters beside them."""

    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)

    name: str
    """Name of the federated method (see `silohash list federated`)."""
    preset: str = "recommended"
    """`recommended`, `paper` (the values of the paper), or `authors_code` (its authors' public code, where that
    differs)."""


class CombiningParams(MethodParams):
    """Parameters of a method that combines others."""

    methods: tuple[MemberConfig, ...] = ()
    """The methods, each with its name, preset and parameters."""

    def members(self) -> Sequence[MemberConfig]:
        """Return the tables of the methods."""
        return self.methods


class ComposeParams(CombiningParams):
    """Parameters of a composition."""

    methods: tuple[MemberConfig, ...] = Field(default=DEFAULT_MEMBERS, min_length=1, validate_default=True)
    """Members in the order in which they adapt outputs, each with its name, preset and parameters. At least one."""


def label_members(methods: Iterable[MemberConfig]) -> dict[str, MemberConfig]:
    """Return the members by label: the method's name, with a number for each repetition (``moon``, ``moon-2``)."""
    members: dict[str, MemberConfig] = {}
    for method in methods:
        labels = chain([method.name], (f"{method.name}-{number}" for number in count(2)))
        members[next(label for label in labels if label not in members)] = method
    return members


def build_member(config: MemberConfig, run: base.RunFacts) -> base.FederatedMethod:
    """Return a member with its parameters."""
    kind = FEDERATED_METHODS.resolve(config.name)
    values = kind.presets[config.preset]
    method: base.FederatedMethod = kind(kind.Params(**{**values, **(config.model_extra or {})}), run)
    return method


def overrides(method: base.FederatedMethod, part: str) -> bool:
    """Return whether a method differs from FedAvg in a hook, in what it shares, or in how it adapts outputs.

    A method that weights silos by a parameter always overrides ``weight``, and one without an average ``aggregate``.
    """
    stated = {
        "shares": method.traits.shares != "all",
        "weight": bool(method.traits.weighting),
        "aggregate": not method.traits.averages,
        "reveals": bool(method.traits.reveals),
    }
    owner, default = (
        (type(method.adapter), base.Adapter) if hasattr(base.Adapter, part) else (type(method), base.FederatedMethod)
    )
    return stated.get(part, False) or getattr(owner, part, None) is not getattr(default, part, None)


def decides(method: base.FederatedMethod, hook: str) -> bool:
    """Return whether a method decides a hook rather than adding to what FedAvg does there."""
    if not overrides(method, hook):
        return False
    required = method.traits.adds.get(hook)
    return required is None or any(getattr(method.params, name) != value for name, value in required.items())


def adds(method: base.FederatedMethod, hook: str) -> bool:
    """Return whether a method does something in a hook, if only keeping its model in ``update``."""
    return overrides(method, hook) or (hook == "update" and method.traits.keeps_model)


def deciders(members: Members) -> dict[str, str]:
    """Return the label of the member that decides each hook.

    Hooks that no member decides are not listed and remain those of FedAvg.

    Raises:
        UserError: If two members decide the same part.
    """
    found: dict[str, str] = {}
    for part, hooks in PARTS:
        labels = [label for label, method in members.items() if any(decides(method, hook) for hook in hooks)]
        if len(labels) > 1:
            remedies = [
                f'set {name} = {json.dumps(value)} in "{label}"'
                for label in labels[:2]
                for name, value in members[label].traits.adds.get(hooks[0], {}).items()
            ]
            raise conflict_error(labels[0], labels[1], part, hooks, ", or ".join(["Leave one of them out", *remedies]))
        found |= {hook: label for hook in hooks for label in labels}
    return found


def conflict_error(first: str, second: str, part: str, hooks: Sequence[str], remedy: str) -> UserError:
    """Return the error for two members that cannot be combined, with the remedy."""
    names = ", ".join(hooks)
    return MethodsConflict(
        f'federated.methods: "{first}" and "{second}" both decide {part} ({names}), but only one method can. {remedy}.'
    )


def check_members(members: Members) -> None:
    """Check that the members can be composed and that one training loop can serve all of them.

    Raises:
        UserError: If a member cannot be composed, or two members contradict each other.
    """
    for label, method in members.items():
        if method.traits.pooled:
            raise MethodsConflict(
                f'federated.methods: "{label}" pools all data, which cannot be composed. Leave it out.'
            )
        if method.members:
            raise MethodsConflict(f'federated.methods: "{label}" is a composition itself. List its members instead.')
    for label, other in product(members, members):
        if label != other and members[label].traits.normalizes and members[other].traits.proximal_weight:
            remedy = f'Set proximal_weight in "{label}", which accounts only for its own, and leave "{other}" out'
            raise conflict_error(label, other, "the proximal term", ("proximal_weight",), remedy)
    separate = {label: m.traits.separate_steps for label, m in members.items() if overrides(m, "terms")}
    _check_agreement(separate, "whether terms have steps of their own", ("terms", "separate_steps"))
    rates = {m: a.learning_rate for m, a in _adapters(members, "auxiliary_step").items()}
    _check_agreement(rates, "the learning rate of auxiliary networks", ("auxiliary_step", "learning_rate"))
    adapted = {m: a.adapts_training for m, a in _adapters(members, "adapt_outputs").items()}
    part = "whether the local method is trained on adapted outputs"
    _check_agreement(adapted, part, ("adapt_outputs", "adapts_training"))


def _adapters(members: Members, hook: str) -> dict[str, base.Adapter]:
    return {label: method.adapter for label, method in members.items() if overrides(method, hook)}


def _check_agreement(values: Mapping[str, object], part: str, names: Sequence[str]) -> None:
    for label, value in values.items():
        first = next(iter(values))
        if value != values[first]:
            raise conflict_error(first, label, part, names, "Give both the same value, or leave one of them out")


def combined_traits(members: Members, leaders: Mapping[str, str]) -> Traits:
    """Return the traits of the composition: requirements of any member, guarantees of all, and those of deciding members."""
    every = [method.traits for method in members.values()]
    early = all(traits.weights_known == "before training" for traits in every)
    values: dict[str, Any] = {
        **{name: any(getattr(traits, name) for traits in every) for name in ANY_MEMBER},
        **{name: all(getattr(traits, name) for traits in every) for name in ALL_MEMBERS},
        **{name: getattr(members[leaders[hook]].traits, name) for name, hook in DECIDED.items() if hook in leaders},
        "min_modalities": max(traits.min_modalities for traits in every),
        "uplink": max((traits.uplink for traits in every), key=("sum", "records").index),
        "weights_known": "before training" if early else "with update",
    }
    return replace(_traits_of_messages(members), **values)


def _traits_of_messages(members: Members) -> Traits:
    """Return the traits about what the members send and receive under their labels."""
    every = [method.traits for method in members.values()]
    return Traits(
        means=tuple(mean.under(label) for label, method in members.items() for mean in method.traits.means),
        unprotected=next(filter(None, (traits.unprotected for traits in every)), ""),
        encode_extras=tuple(f"{label}/{n}" for label, method in members.items() for n in method.traits.encode_extras),
        remarks=tuple(remark for traits in every for remark in traits.remarks),
    )


def prefixed(parts: Mapping[str, Mapping[str, _Value]]) -> dict[str, _Value]:
    """Return all members' named values, each under its member's label.

    Example:
        >>> prefixed({"moon": {"contrast": 1}, "fedproc": {"contrast": 2}})
        {'moon/contrast': 1, 'fedproc/contrast': 2}
    """
    return {f"{label}/{name}": value for label, part in parts.items() for name, value in part.items()}


def sections_of(message: Message, label: str) -> Arrays:
    """Return the sections of a member's message as ``section/label/name``."""
    return prefixed({f"{section}/{label}": getattr(message, section) for section in SECTIONS})


def seen_by(label: str, message: Message) -> Message:
    """Return a message as a member sees it, without the other members' sections."""
    own: dict[str, Any] = {section: base.entries_under(label, getattr(message, section)) for section in SECTIONS}
    return replace(message, **own)


def server_of(server: base.ServerState, label: str) -> base.ServerState:
    """Return the server state as a member sees it, without the other members' state."""
    return base.ServerState(
        server.params, base.entries_under(label, server.extras), base.entries_under(label, server.private)
    )


def joined(params: Arrays, states: Mapping[str, base.ServerState], private: Arrays) -> base.ServerState:
    """Return the server state of all members, with common parameters and further private arrays."""
    own = prefixed({label: state.private for label, state in states.items()})
    return base.ServerState(params, prefixed({label: s.extras for label, s in states.items()}), {**private, **own})


class MemberAdapters(base.Adapter):
    """The adapters of all members: outputs pass through one after the other, and all networks are trained."""

    def __init__(self, members: Members) -> None:
        self.members = members
        self.adapts_training = all(a.adapts_training for a in _adapters(members, "adapt_outputs").values())
        self.learning_rate = next((a.learning_rate for a in _adapters(members, "auxiliary_step").values()), None)

    def adapt_outputs(self, outputs: Outputs, extras: Mapping[str, Tensor]) -> Outputs:
        """Adapt the outputs by one member after the other."""
        for label, method in self.members.items():
            outputs = method.adapter.adapt_outputs(outputs, base.entries_under(label, extras))
        return outputs

    def auxiliary_step(self, context: base.SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Return the losses of all members' auxiliary networks."""
        adapters = {label: method.adapter for label, method in self.members.items()}
        return prefixed({n: a.auxiliary_step(context.member(n), batch, outputs) for n, a in adapters.items()})


class Compose(base.FederatedMethod[ComposeParams]):
    """Several federated methods, each under its own label."""

    presets: ClassVar = {"recommended": {}}

    def __init__(self, params: ComposeParams, run: base.RunFacts = base.NO_RUN) -> None:
        super().__init__(params, run)
        self.members = {label: build_member(config, run) for label, config in label_members(params.methods).items()}
        check_members(self.members)
        self.deciders = deciders(self.members)
        self.adding = {
            hook: [n for n, method in self.members.items() if adds(method, hook) and self.deciders.get(hook) != n]
            for hook in ("begin_round", "update")
        }
        self.traits = combined_traits(self.members, self.deciders)
        self.adapter = MemberAdapters(self.members)

    def _decider(self, hook: str) -> base.FederatedMethod:
        """Return the member that decides a hook, or else the defaults of this method, which are FedAvg."""
        return self.members[self.deciders[hook]] if hook in self.deciders else cast(base.FederatedMethod, super())

    def _context(self, hook: str, context: base.SiloContext) -> base.SiloContext:
        return context.member(self.deciders[hook], self) if hook in self.deciders else context

    def init_server(self, model: nn.Module, info: base.FederationInfo) -> base.ServerState:
        """Start with the state of all members, and with the parameters of the one that decides what is shared."""
        states = {label: method.init_server(model, info) for label, method in self.members.items()}
        decider = self.deciders.get("broadcast")
        return joined(params_of(model) if decider is None else states[decider].params, states, {})

    def broadcast(self, server: base.ServerState, silo: int, *, round: int) -> Message:  # noqa: A002  the field's word
        """Send the extras of all members beside the parameters."""
        members = self.members.items()
        sent = {label: m.broadcast(server_of(server, label), silo, round=round) for label, m in members}
        label = self.deciders.get("broadcast")
        message = super().broadcast(server, silo, round=round) if label is None else sent[label]
        return replace(message, extras=prefixed({label: own.extras for label, own in sent.items()}))

    def begin_round(self, context: base.SiloContext) -> Sequence[Phase]:
        """Prepare every member, and return the phases of the one that decides them."""
        # the member that decides the phases also installs the parameters, which others must not overwrite
        for label in self.adding["begin_round"]:
            self.members[label].begin_round(context.member(label, self))
        phases = self._decider("begin_round").begin_round(self._context("begin_round", context))
        context.auxiliary |= prefixed({label: context.member(label, self).auxiliary for label in self.members})
        return phases

    def terms(self, context: base.SiloContext, batch: PairBatch, outputs: Outputs) -> Terms:
        """Return the terms of all members."""
        members = self.members.items()
        return prefixed({label: m.terms(context.member(label, self), batch, outputs) for label, m in members})

    def statistics(self, context: base.SiloContext) -> Arrays:
        """Return the statistics of all members. If there are any, those without create their updates now."""
        given = {label: method.statistics(context.member(label, self)) for label, method in self.members.items()}
        early: Arrays = {}
        # auxiliary networks, which some updates hold, do not survive the exchange of statistics
        for label in self.adding["update"] if any(given.values()) else ():
            if not given[label]:
                message = self.members[label].update(context.member(label, self))
                early |= {f"made/{label}": np.asarray(True), **sections_of(message, label)}
        context.keep(WAITING, {name: torch.from_numpy(np.array(array)) for name, array in early.items()})
        return prefixed(given)

    def merge_statistics(self, server: base.ServerState, sums: Arrays) -> Arrays:
        """Return the results of all members that have statistics."""
        given = {label: base.entries_under(label, sums) for label in self.members}
        found = {n: self.members[n].merge_statistics(server_of(server, n), own) for n, own in given.items() if own}
        return prefixed(found)

    def weight(self, context: base.SiloContext, group: str) -> float:
        """Return the weight given by the member that decides it. Called for the composition and for its members."""
        return self._decider("weight").weight(self._context("weight", context.whole or context), group)

    def update(self, context: base.SiloContext) -> Message:
        """Send the sections of all members beside the parameters."""
        added = context.kept(WAITING)
        context.forget(WAITING)
        for label in self.adding["update"]:
            if f"made/{label}" not in added:
                added |= sections_of(self.members[label].update(context.member(label, self)), label)
        update = self._decider("update").update(self._context("update", context))
        if "update" in self.deciders:
            added |= sections_of(update, self.deciders["update"])
        extras, sums, records = (base.entries_under(section, added) for section in SECTIONS)
        return replace(update, extras=extras, sums=sums, records=records)

    def aggregate(self, server: base.ServerState, updates: Sequence[Message]) -> base.ServerState:
        """Average once, by the member that decides it, and let the other members continue with that average."""

        def _after(label: str, method: base.FederatedMethod) -> base.ServerState:
            return method.aggregate(server_of(server, label), [seen_by(label, update) for update in updates])

        decider = self.deciders.get("aggregate")
        decided = super().aggregate(server, updates) if decider is None else _after(decider, self.members[decider])
        # the other members only add to the average, so they are given it in place of a second one
        averaged = Aggregation(average=lambda current, updates: decided.params)
        states = {
            label: decided if label == decider else _after(label, method.averaging(averaged))
            for label, method in self.members.items()
        }
        private = {n: a for n, a in server.private.items() if n != "final" and n.partition("/")[0] not in self.members}
        if decided.final and decider:
            private["final"] = np.asarray(True)
        return joined(decided.params, states, private)

    def template(self, server: base.ServerState, *, kind: str, round: int) -> Message:  # noqa: A002  the field's word
        """Return the sums and records of all members."""
        members = self.members.items()
        sent = {label: m.template(server_of(server, label), kind=kind, round=round) for label, m in members}
        sums, records = (prefixed({n: getattr(one, part) for n, one in sent.items()}) for part in ("sums", "records"))
        return replace(super().template(server, kind=kind, round=round), sums=sums, records=records)

    def personalize(self, context: base.SiloContext) -> None:
        """Build the model that a silo deploys, by the member that decides it."""
        self._decider("personalize").personalize(self._context("personalize", context))
