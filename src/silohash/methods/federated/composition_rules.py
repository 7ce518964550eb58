"""Rules for composing federated methods: which member decides what, and which members cannot be combined.

A method overrides a hook either to decide something or to add to what FedAvg does there (`FederatedMethod.adds`). Any
number of members may add. Only one member may decide each part listed in `PARTS`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, TypeAlias

from silohash.base.types import UserError
from silohash.methods.federated.base import FederatedMethod

Members: TypeAlias = Mapping[str, FederatedMethod]
"""Members of a composition by label. Each label is also the prefix for the member's state and messages."""

PARTS: Sequence[tuple[str, tuple[str, ...]]] = (
    ("the weight of a silo", ("weight",)),
    ("which parameters are shared", ("shared_parameters", "broadcast")),
    ("how a silo's round begins and its phases", ("begin_round",)),
    ("which parameters a silo sends", ("silo_update",)),
    ("how the server averages", ("aggregate",)),
    ("which model a silo deploys", ("personalize",)),
)
"""What at most one member may decide, and the hooks that decide it."""

ANY_MEMBER = ("needs_labels", "personalized", "class_head")
"""Traits that the composition has if any member has them."""

ALL_MEMBERS = ("uniform_broadcast", "averages", "shares_parameters", "codes_comparable")
"""Traits that the composition has if all members have them."""


def overrides(method: FederatedMethod, hook: str) -> bool:
    """Return whether a method overrides a hook.

    A method with a parameter ``weighting`` always counts as overriding ``weight``.
    """
    overridden = getattr(type(method), hook) is not getattr(FederatedMethod, hook)
    return overridden or (hook == "weight" and hasattr(method.params, "weighting"))


def decides(method: FederatedMethod, hook: str) -> bool:
    """Return whether a method decides a hook rather than adding to what FedAvg does there."""
    if not overrides(method, hook):
        return False
    required = method.adds.get(hook)
    return required is None or any(getattr(method.params, name) != value for name, value in required.items())


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
                for name, value in members[label].adds.get(hooks[0], {}).items()
            ]
            raise conflict_error(labels[0], labels[1], part, hooks, ", or ".join(["Leave one of them out", *remedies]))
        found |= {hook: label for hook in hooks for label in labels}
    return found


def conflict_error(first: str, second: str, part: str, hooks: Sequence[str], remedy: str) -> UserError:
    """Return the error for two members that cannot be combined, with the remedy."""
    names = ", ".join(hooks)
    return UserError(
        f'federated.methods: "{first}" and "{second}" both decide {part} ({names}), but only one method can. {remedy}.'
    )


def check_members(members: Members) -> None:
    """Check that the members can be composed and that one training loop can serve all of them.

    Raises:
        UserError: If a member cannot be composed, or two members contradict each other.
    """
    for label, method in members.items():
        if method.pooled:
            raise UserError(f'federated.methods: "{label}" pools all data, which cannot be composed. Leave it out.')
        if hasattr(method, "members"):
            raise UserError(f'federated.methods: "{label}" is a composition itself. List its members instead.')
    _check_proximal_terms(members)
    _check_agreement(members, "auxiliary_step", "auxiliary_learning_rate", "the learning rate of auxiliary networks")
    _check_agreement(
        members, "adapt_outputs", "adapts_training", "whether the local method is trained on adapted outputs"
    )


def _check_proximal_terms(members: Members) -> None:
    """Reject a proximal term beside a method that checks the steps, because it accounts only for its own."""
    proximal = [label for label, method in members.items() if getattr(method.params, "proximal_weight", 0)]
    for label, other in product(members, proximal):
        if label != other and overrides(members[label], "check_steps"):
            remedy = f'Set proximal_weight in "{label}", which accounts only for its own, and leave "{other}" out'
            raise conflict_error(label, other, "the proximal term", ("proximal_weight",), remedy)


def _check_agreement(members: Members, hook: str, trait: str, part: str) -> None:
    """Reject two members that override a hook with different values of a trait."""
    values = {label: getattr(method, trait) for label, method in members.items() if overrides(method, hook)}
    for label, value in values.items():
        first = next(iter(values))
        if value != values[first]:
            raise conflict_error(
                first, label, part, (hook, trait), "Give both the same value, or leave one of them out"
            )


def combined_traits(members: Members) -> dict[str, Any]:
    """Return the traits of the composition: requirements of any member, and guarantees of all of them."""
    methods = members.values()
    return {
        **{trait: any(getattr(method, trait) for method in methods) for trait in ANY_MEMBER},
        **{trait: all(getattr(method, trait) for method in methods) for trait in ALL_MEMBERS},
        **_protection(members),
        "min_modalities": max(method.min_modalities for method in methods),
        "uplink": "records" if any(method.uplink == "records" for method in methods) else "sum",
        "encode_extras": tuple(f"{label}/{name}" for label, method in members.items() for name in method.encode_extras),
    }


def _protection(members: Members) -> dict[str, Any]:
    """Return what robust rules protect, and why they cannot protect the rest, for all members."""
    return {
        "means": tuple(mean.under(label) for label, method in members.items() for mean in method.means),
        "unprotected": next((method.unprotected for method in members.values() if method.unprotected), ""),
    }
