"""Check the updates of silos, so that broken ones are rejected before they are aggregated."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from silohash.exchange.message import SECTIONS, Message
from silohash.federated.base import ServerState
from silohash.federated.shared_means import SharedMean, objection
from silohash.types import ReadArrays


def refusal(update: Message, kept: ReadArrays, server: ServerState, means: Sequence[SharedMean] = ()) -> str | None:
    """Return why an update is rejected, or None if it can be used.

    All numbers must be finite, every parameter must be one of the global model and have its shape, no weight may be
    negative, and all means must be possible.

    Args:
        update: Message of a silo.
        kept: Arrays that the silo stores for its next round.
        server: State of the server.
        means: Means that the federated method declares.
    """
    return (
        _not_finite(update)
        or _misfit(update, server)
        or infinite_array("its stored ", kept)
        or objection(update, means, server.extras)
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
    """Return whether all values of a floating-point array are finite.

    Their sum is finite only if all values are. It takes less time than a test of each value, and no memory. A sum that is
    not finite may have overflowed.
    """
    total = np.einsum("i->", array.ravel(order="K"))
    return bool(np.isfinite(total) or np.isfinite(array).all())


def _misfit(update: Message, server: ServerState) -> str | None:
    """Return which parameter or weight does not fit the global model, or None."""
    for name, array in update.params.items():
        if name not in server.params:
            return f"{name} is not a parameter of the global model"
        if array.shape != server.params[name].shape:
            return f"{name} has shape {array.shape}, but {server.params[name].shape} in the global model"
    if any(not math.isfinite(weight) or weight < 0 for weight in update.weights.values()):
        return f"its weights are {dict(update.weights)}"
    return None
