"""Which member of a composition decides what only one can: the parameters, weights and phases.

A method fills a hook either to decide it or to add something of its own to what FedAvg does there (`FederatedMethod.adds`).
Members that add stand side by side; of those that decide the same, there can be one.

Differs from the paper: no paper; see `silohash.federated.compose`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, TypeAlias

from silohash.federated.base import FederatedMethod
from silohash.types import UserError

Members: TypeAlias = Mapping[str, FederatedMethod]
"""The members by their labels, under which all that is theirs stands."""

PARTS: Sequence[tuple[str, tuple[str, ...]]] = (
    ("how much a silo weighs", ("weight",)),
    ("which parameters travel", ("shared_parameters", "broadcast")),
    ("how a silo's round begins and its phases", ("begin_round",)),
    ("which parameters a silo sends", ("silo_update",)),
    ("how the server averages", ("aggregate",)),
    ("which model a silo deploys", ("personalize",)),
)
"""What one member at most decides, and by which hooks."""


def overrides(method: FederatedMethod, hook: str) -> bool:
    """Tells whether a method has a hook of its own; with a parameter ``weighting`` it weighs, wherever it does so."""
    own = getattr(type(method), hook) is not getattr(FederatedMethod, hook)
    return own or (hook == "weight" and hasattr(method.params, "weighting"))


def decides(method: FederatedMethod, hook: str) -> bool:
    """Tells whether a method fills a hook and does more there than add to what FedAvg does."""
    if not overrides(method, hook):
        return False
    under = method.adds.get(hook)
    return under is None or any(getattr(method.params, name) != value for name, value in under.items())


def deciders(members: Members) -> dict[str, str]:
    """Returns which member decides a hook, hook -> label; hooks that none decides stay FedAvg's.

    Raises:
        UserError: if two members decide the same.
    """
    found: dict[str, str] = {}
    for part, hooks in PARTS:
        those = [label for label, method in members.items() if any(decides(method, hook) for hook in hooks)]
        if len(those) > 1:
            ways = [
                f'set {name} = {json.dumps(value)} in "{label}"'
                for label in those[:2]
                for name, value in members[label].adds.get(hooks[0], {}).items()
            ]
            raise conflict_error(those[0], those[1], part, hooks, ", or ".join(["Leave one of them out", *ways]))
        found |= {hook: label for hook in hooks for label in those}
    return found


def conflict_error(first: str, second: str, part: str, hooks: Sequence[str], remedy: str) -> UserError:
    """Returns why two members cannot be composed, and what to do."""
    return UserError(
        f'federated.methods: "{first}" and "{second}" both decide {part} ({", ".join(hooks)}), and only one can. {remedy}.'
    )


def check_members(members: Members) -> None:
    """Looks for members that cannot be composed at all, and for pairs that one training loop cannot serve.

    A method that looks at the run's steps (`check_steps`) knows no pull to the global model but its own.

    Raises:
        UserError: if there are any.
    """
    for label, method in members.items():
        if method.pooled:
            raise UserError(f'federated.methods: "{label}" pools all data, which cannot be composed. Leave it out.')
        if hasattr(method, "members"):
            raise UserError(f'federated.methods: "{label}" is a composition itself. Name its members instead.')
    pulling = [label for label, method in members.items() if getattr(method.params, "proximal_weight", 0)]
    for label, other in product(members, pulling):
        if label != other and overrides(members[label], "check_steps"):
            remedy = f'Set it in "{label}", which counts its own alone, and leave "{other}" out'
            raise conflict_error(label, other, "how strongly steps are pulled back", ("proximal_weight",), remedy)
    for hook, trait, part in (
        ("auxiliary_step", "auxiliary_learning_rate", "the learning rate of networks of their own"),
        ("adapt_outputs", "adapts_training", "whether the local method learns on adapted outputs"),
    ):
        those = [(label, getattr(method, trait)) for label, method in members.items() if overrides(method, hook)]
        for label, value in those:
            if value != those[0][1]:
                raise conflict_error(
                    those[0][0], label, part, (hook, trait), "Give both the same, or leave one of them out"
                )


def combined_traits(members: Members) -> dict[str, Any]:
    """Returns the traits of the whole: what any member needs, and what all of them give."""
    methods = members.values()
    return {
        "needs_labels": any(method.needs_labels for method in methods),
        "min_modalities": max(method.min_modalities for method in methods),
        "uniform_broadcast": all(method.uniform_broadcast for method in methods),
        "uplink": "records" if any(method.uplink == "records" for method in methods) else "sum",
        "averages": all(method.averages for method in methods),
        "shares_parameters": all(method.shares_parameters for method in methods),
        "personalized": any(method.personalized for method in methods),
        "codes_comparable": all(method.codes_comparable for method in methods),
        "class_head": any(method.class_head for method in methods),
        "encode_extras": tuple(f"{label}/{name}" for label, method in members.items() for name in method.encode_extras),
    }
