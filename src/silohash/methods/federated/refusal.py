"""Check the updates of silos, so that broken ones are rejected before they are aggregated.

A silo may send anything. What a method expects is known from the server's state, the means that the method declares, and its
template, so a message is compared with these and never with other messages: no silo can decide what is right.
"""

from __future__ import annotations

import numpy as np

from silohash.base.types import ReadArrays
from silohash.methods.federated.averaging import LARGEST_WEIGHT
from silohash.methods.federated.base import FederatedMethod, ServerState
from silohash.methods.federated.server_values import with_template
from silohash.methods.federated.shared_means import NOT_OF_METHOD, declared_values, objection
from silohash.methods.message import SECTIONS, Message
from silohash.models.towers import group_of

STATISTICS = "statistics"
"""Kind of the message that a silo sends before its update, if the method exchanges statistics."""

LARGEST_COUNT = 1 << 53
"""Largest number of items, which all types of numbers hold exactly."""


def refusal(update: Message, kept: ReadArrays, server: ServerState, federated: FederatedMethod) -> str | None:
    """Return why an update is rejected, or None if it can be used.

    All numbers must be finite, every parameter must be one of the global model and have its shape and type, no weight may be
    negative, all means must be possible, and all other values must be those of the method's template.

    Args:
        update: Message of a silo.
        kept: Arrays that the silo stores for its next round.
        server: State of the server.
        federated: Federated method.
    """
    return (
        _not_finite(update)
        or _misfit(update, server)
        or _miscounted(update, server)
        or infinite_array("its stored ", kept)
        or objection(update, federated.traits.means, server.extras)
        or _unlike_template(update, server, federated)
    )


def _not_finite(update: Message) -> str | None:
    """Return which array of a message holds values that are not finite, or None."""
    found = (infinite_array(f"{section}/", getattr(update, section)) for section in SECTIONS)
    return next((name for name in found if name is not None), None)


def infinite_array(prefix: str, arrays: ReadArrays) -> str | None:
    """Return which of the arrays holds values that are not finite, or None."""
    for name, array in arrays.items():
        if np.issubdtype(array.dtype, np.floating) and not _is_finite(array):
            return f"{prefix}{name} holds NaN or infinite values"
    return None


def _is_finite(array: np.ndarray) -> bool:
    """Return whether all values of a floating-point array are finite."""
    # a finite sum needs no memory for a test of each value, which is made only if the sum may have overflowed
    total = np.einsum("i->", array.ravel(order="K"))
    return bool(np.isfinite(total) or np.isfinite(array).all())


def _misfit(update: Message, server: ServerState) -> str | None:
    """Return which parameter does not fit the global model, or None."""
    for name, array in update.params.items():
        if name not in server.params:
            return f"{name} is not a parameter of the global model"
        wanted = server.params[name]
        if array.shape != wanted.shape:
            return f"{name} has shape {array.shape}, but {wanted.shape} in the global model"
        if array.dtype != wanted.dtype:
            return f"{name} has type {array.dtype}, but {wanted.dtype} in the global model"
    return None


def _miscounted(update: Message, server: ServerState) -> str | None:
    """Return which count or weight is impossible, or None."""
    for name, count in update.counts.items():
        if not 0 <= count <= LARGEST_COUNT:
            return f"its count of {name} is not between 0 and 2^53"
    if any(not 0 <= weight <= LARGEST_WEIGHT for weight in update.weights.values()):
        return f"its weights are {dict(update.weights)}"
    there, sent = _trained_groups(server.params), _trained_groups(update.params)
    for group, weight in update.weights.items():
        if weight > 0 and group in there - sent:
            return f"it has a weight for the parameters of {group}, and does not send them"
    return None


def _trained_groups(params: ReadArrays) -> set[str]:
    """Return the groups of the floating-point parameters."""
    return {group_of(name) for name, array in params.items() if np.issubdtype(array.dtype, np.floating)}


def _unlike_template(update: Message, server: ServerState, federated: FederatedMethod) -> str | None:
    """Return which value beside parameters and means is missing or unexpected; None if there is none."""
    kind = STATISTICS if update.kind == STATISTICS else "update"
    template = federated.template(server, kind=kind, round=update.round)
    if kind == "update":
        template = with_template(template, federated, server)
    elif not update.sums and not update.encrypted:
        return "its statistics are empty"
    declared, needed = declared_values(update, federated.traits.means), update.counts.get("items", 0) > 0
    sums = {name: array for name, array in update.sums.items() if name not in declared.sums}
    records = {name: array for name, array in update.records.items() if name not in declared.records}
    return _difference(sums, template.sums, needed=needed) or _difference(records, template.records, needed=needed)


def _difference(given: ReadArrays, wanted: ReadArrays, *, needed: bool) -> str | None:
    """Return which value is missing or differs from the template, or is not in it; None if there is none."""
    for name, array in given.items():
        if name not in wanted:
            return NOT_OF_METHOD.format(name)
        if (array.shape, array.dtype) != (wanted[name].shape, wanted[name].dtype):
            expected = f"{wanted[name].dtype} {wanted[name].shape}"
            return f"{name} is {array.dtype} {array.shape} instead of {expected}"
    parts = {_beginning(name) for name in given}
    for name in wanted:
        if name not in given and (_beginning(name) in parts or (needed and not given)):
            return f"{name} is missing"
    return None


def _beginning(name: str) -> str:
    """Return a name without its last part."""
    return name.rpartition("/")[0]
