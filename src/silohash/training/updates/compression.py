"""Compress the parameters of updates before they leave a silo, and restore them at the server.

A silo compresses the difference between its parameters and those that it received. With error feedback, it keeps what the
compression leaves out, and adds it to its next update, so that over the rounds everything reaches the server.

Sums and records are never compressed, because methods compute from them as if they were exact.

Source: Seide et al., "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed Training of
Speech DNNs", Interspeech 2014 (error feedback); Stich, Cordonnier and Jaggi, "Sparsified SGD with Memory", NeurIPS 2018
(top-k).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt
from torch import nn
from typing_extensions import override

from silohash.base.errors import UnsuitableMethod
from silohash.base.types import Arrays, ReadArrays
from silohash.methods.federated.base import FederatedMethod, ServerState, entries_under
from silohash.methods.message import Message
from silohash.models.towers import hash_layers
from silohash.run.config.sections import CompressionConfig
from silohash.training.engines.port import SiloResult, SiloTask
from silohash.training.updates.chain import CarryOut, DamagedUpdateError, Link

RESIDUAL = "residual"
"""Prefix of the arrays that a silo keeps because the compression left them out."""

TRAINED_ALONE = ("backbone", "hash")
"""Parts of a tower of which the hash layers can be trained alone."""

LARGEST_STEP = 127
"""Largest number of steps of the quantization to 8 bits."""

Parts: TypeAlias = Mapping[str, np.ndarray]
"""What is sent of one parameter, by name."""


class Codec(Protocol):
    """A way of compressing a parameter. With feedback, the silo adds what is left out to its next update."""

    feedback: ClassVar[bool]

    def encode(self, wanted: np.ndarray, reference: np.ndarray) -> Arrays:
        """Return what is sent of a ``wanted`` parameter, given the one that the silo received, of the same form."""
        ...

    def decode(self, parts: Parts, reference: np.ndarray) -> np.ndarray:
        """Return the parameter that the server gets; raise `DamagedUpdateError` if the parts do not fit the reference."""
        ...


@dataclass(frozen=True)
class Half:
    """Differences in half precision, which takes 2 bytes per value."""

    feedback: ClassVar[bool] = False

    def encode(self, wanted: np.ndarray, reference: np.ndarray) -> Arrays:
        """Return the rounded differences. Those above 65,504 become infinite, so that the update is rejected."""
        return {"half": (wanted - reference).astype(np.float16)}

    def decode(self, parts: Parts, reference: np.ndarray) -> np.ndarray:
        """Return the reference plus the differences."""
        return np.asarray(reference + _part(parts, "half", np.float16, reference.shape).astype(reference.dtype))


@dataclass(frozen=True)
class Int8:
    """Differences as multiples of a step, from -127 to 127, with one step size per row. It takes 1 byte per value."""

    feedback: ClassVar[bool] = True

    def encode(self, wanted: np.ndarray, reference: np.ndarray) -> Arrays:
        """Return the numbers of steps, and the float32 step size of each row. The largest value of a row has 127 steps."""
        rows = _rows(wanted - reference)
        sizes = (np.abs(rows).max(axis=1, initial=0.0) / LARGEST_STEP).astype(np.float32)
        divisors = np.where(sizes > 0, sizes, 1.0).astype(rows.dtype)[:, None]
        steps = np.rint(rows / divisors).clip(-LARGEST_STEP, LARGEST_STEP).astype(np.int8)
        return {"steps": steps.reshape(wanted.shape), "sizes": sizes}

    def decode(self, parts: Parts, reference: np.ndarray) -> np.ndarray:
        """Return the reference plus the steps."""
        steps = _rows(_part(parts, "steps", np.int8, reference.shape)).astype(reference.dtype)
        sizes = _part(parts, "sizes", np.float32, (len(steps),)).astype(reference.dtype)
        return np.asarray(reference + (steps * sizes[:, None]).reshape(reference.shape))


@dataclass(frozen=True)
class TopK:
    """A share of the values, rounded up: those that differ most from the reference. The others count as unchanged."""

    share: float
    feedback: ClassVar[bool] = True

    def encode(self, wanted: np.ndarray, reference: np.ndarray) -> Arrays:
        """Return the chosen values and their places, as a bit mask or as positions, whichever is shorter."""
        values, count = wanted.reshape(-1), math.ceil(self.share * wanted.size)
        if count >= values.size:
            return {"values": values}
        chosen = largest(np.abs(values - reference.reshape(-1)), count)
        if values.size <= 8 * 4 * count:
            return {"values": values[chosen], "mask": np.packbits(chosen, bitorder="little")}
        return {"values": values[chosen], "positions": np.flatnonzero(chosen).astype(np.uint32)}

    def decode(self, parts: Parts, reference: np.ndarray) -> np.ndarray:
        """Return the reference with the chosen values in their places."""
        size, found = reference.size, reference.reshape(-1).copy()
        places: np.ndarray | slice = slice(None)
        count = size
        if "mask" in parts:
            bits = _part(parts, "mask", np.uint8, (-(-size // 8),))
            places = np.flatnonzero(np.unpackbits(bits, count=size, bitorder="little"))
            count = len(places)
        elif "positions" in parts:
            places = _part(parts, "positions", np.uint32, (parts["positions"].size,))
            count = len(places)
            if count and (int(places[-1]) >= size or bool((np.diff(places.astype(np.int64)) <= 0).any())):
                raise DamagedUpdateError("positions that do not exist")
        found[places] = _part(parts, "values", reference.dtype, (count,))
        return found.reshape(reference.shape)


def largest(sizes: np.ndarray, count: int) -> npt.NDArray[np.bool_]:
    """Return a mask of the ``count`` largest values, ``(n,)`` each. Of equal values the first are taken; NaN is infinite.

    Example:
        >>> largest(np.array([1.0, 3.0, 2.0, 2.0]), 2).tolist()
        [False, True, True, False]
    """
    sizes = np.where(np.isnan(sizes), np.inf, sizes)
    limit = np.partition(sizes, len(sizes) - count)[len(sizes) - count]
    chosen = sizes > limit
    equal = np.flatnonzero(sizes == limit)
    chosen[equal[: count - int(chosen.sum())]] = True
    return np.asarray(chosen)


@np.errstate(invalid="ignore", over="ignore")  # the server rejects values that are not finite
def compressed(update: Message, reference: ReadArrays, residual: ReadArrays, codec: Codec) -> tuple[Message, Arrays]:
    """Return a silo's update with compressed parameters, and what the compression left out, by parameter.

    Integer parameters are sent as they are. The reference holds the parameters that the silo received, or zeros if its
    update holds differences, and the residual what was left out of its last update. The next residual has no entries for
    parameters of which nothing was left out, and keeps those that this update does not send.
    """
    params: Arrays = {}
    packed: Arrays = {}
    left = {name: array for name, array in residual.items() if name not in update.params}
    for name, array in update.params.items():
        if not np.issubdtype(array.dtype, np.floating):
            params[name] = array
            continue
        wanted = array + residual[name] if name in residual else array
        parts = codec.encode(wanted, reference[name])
        packed |= {f"{name}/{part}": values for part, values in parts.items()}
        if codec.feedback:
            error = wanted - codec.decode(parts, reference[name])
            left |= {name: error} if error.any() else {}
    return replace(update, params=params, compressed=packed), left


@np.errstate(invalid="ignore", over="ignore")
def restored(update: Message, reference: ReadArrays, codec: Codec) -> Message:
    """Return an update as the server uses it; raise `DamagedUpdateError` if a parameter does not fit the reference."""
    found: dict[str, Arrays] = {}
    for name, array in update.compressed.items():
        parameter, _, part = name.rpartition("/")
        found.setdefault(parameter, {})[part] = array
    params = dict(update.params)
    for name, parts in found.items():
        if name not in reference:
            raise DamagedUpdateError(f"{name} is not a parameter of the global model")
        try:
            params[name] = codec.decode(parts, reference[name])
        except DamagedUpdateError as error:
            raise DamagedUpdateError(f"its compressed {name} has {error}") from error
    return replace(update, params=params, compressed={})


def _rows(array: np.ndarray) -> np.ndarray:
    """Return an array as a matrix: one row per entry of its first dimension, or one row if it has fewer than two."""
    return array.reshape(len(array) if array.ndim > 1 else 1, -1)


def _part(parts: Parts, name: str, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> np.ndarray:
    if name not in parts:
        raise DamagedUpdateError(f"no {name}")
    array = parts[name]
    if array.dtype != dtype or array.shape != shape:
        raise DamagedUpdateError(f"{name} of type {array.dtype} and shape {array.shape}")
    return array


def reference(federated: FederatedMethod, received: Message) -> Arrays:
    """Return the parameters from which a silo's update is measured, given the message that the silo received."""
    return federated.origin(ServerState(params=dict(received.params), extras=dict(received.extras)))


@dataclass(frozen=True)
class Compression(Link):
    """The compression of a run: by a codec, or by training and sending the hash layers only, as they are."""

    codec: Codec | None
    hash_layers_only: bool
    federated: FederatedMethod

    @classmethod
    def of(cls, compression: CompressionConfig, federated: FederatedMethod) -> Self:
        """Return the compression of a config."""
        codecs: dict[str, Codec] = {"half": Half(), "int8": Int8(), "top_k": TopK(compression.share)}
        return cls(codecs.get(compression.kind), compression.kind == "hash_layers", federated)

    @override
    def prepare(self, model: nn.Module) -> None:
        """Freeze the layers that silos do not send, so that they keep their initial values.

        Raises:
            UserError: If the model has layers that are neither hash layers nor in front of them.
        """
        if not self.hash_layers_only:
            return
        others = [name for name in model.state_dict() if name.split(".")[1:2] not in ([part] for part in TRAINED_ALONE)]
        if others or not hash_layers(model.state_dict()):
            raise UnsuitableMethod(
                f'exchange.compression: "hash_layers" would leave {others[0] if others else "all layers"} untrained. Use '
                'the kind "int8", "half" or "top_k", or another local method.'
            )
        sent = set(hash_layers(model.state_dict()))
        for name, parameter in model.named_parameters():
            parameter.requires_grad = parameter.requires_grad and name in sent

    @override
    def do(self, task: SiloTask, carry_out: CarryOut) -> SiloResult:
        """Compress the parameters of an update, and keep what is left out for the next one."""
        residual = entries_under(RESIDUAL, task.kept)
        others = {name: array for name, array in task.kept.items() if not name.startswith(f"{RESIDUAL}/")}
        result = carry_out(replace(task, kept=others))
        if task.kind not in ("train", "finish"):
            return result
        update = result.update
        if self.hash_layers_only:
            sent = hash_layers(update.params)
            return replace(result, update=replace(update, params={name: update.params[name] for name in sent}))
        if self.codec is None:
            return result
        if update.kind == "update":  # statistics are not compressed
            update, residual = compressed(update, reference(self.federated, task.broadcast), residual, self.codec)
        kept = {**result.kept, **{f"{RESIDUAL}/{name}": array for name, array in residual.items()}}
        return replace(result, update=update, kept=kept)

    @override
    def restored(self, update: Message, reference: Callable[[], ReadArrays]) -> Message:
        """Restore the parameters of an update."""
        return update if self.codec is None or not update.compressed else restored(update, reference(), self.codec)
