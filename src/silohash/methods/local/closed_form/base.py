"""What local methods without gradient steps share: their view of a silo's pairs, and training from sums.

The sums of several silos add up to those of the pooled items, so a server can compute the model of the pooled items without
seeing an item (`FromSums`). Each exchange consists of a message from the server, the sums that the silos compute with it,
and the server's next step.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from silohash.base.types import MODALITIES, Arrays, Modality, ReadArrays
from silohash.methods.local.base import ClosedForm, OwnParams, SiloData, outputs_of
from silohash.models.parameters import install, params_of, to_array
from silohash.models.towers import HashNet

Matrix = npt.NDArray[np.float64]

BLOCK_ROWS = 4096
"""Number of rows that are converted to float64 at a time."""

ROUNDING = 1e-12
"""Share of the mean square of a dimension up to which its variance is a rounding error."""


@dataclass(frozen=True)
class Views:
    """The pairs of a silo as the methods see them.

    Attributes:
        vectors: ``(n, D)`` per modality of the model. Rows without the modality are zero.
        held: ``(n,)`` per modality, which rows have it.
        labels: ``(n, C)``, 0 or 1; ``C`` is 0 without labels.
    """

    vectors: Mapping[Modality, npt.NDArray[np.floating[Any]]]
    held: Mapping[Modality, npt.NDArray[np.bool_]]
    labels: npt.NDArray[np.floating[Any]]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: slice | npt.NDArray[np.int64]) -> Views:
        """Return some of the pairs, with vectors and labels in float64."""
        return Views(
            vectors={modality: values[rows].astype(np.float64) for modality, values in self.vectors.items()},
            held={modality: held[rows] for modality, held in self.held.items()},
            labels=self.labels[rows].astype(np.float64),
        )

    def blocks(self) -> Iterator[Views]:
        """Yield the pairs in blocks of rows, in float64. At least one block is yielded, which may be empty."""
        for start in range(0, max(1, len(self)), BLOCK_ROWS):
            yield self.take(slice(start, start + BLOCK_ROWS))


def views_of(model: nn.Module, data: SiloData) -> Views:
    """Return the inputs of the hash layers of a `HashNet`, and the labels, for a silo's pairs, which may be none."""
    assert isinstance(model, HashNet)  # noqa: S101  built by the method
    features = outputs_of(model, data, part="feature") if len(data) else {}
    widths = {m: model.get_parameter(f"{m}.hash.weight").shape[1] for m in model.modalities}
    labels = np.zeros((len(data), 0), np.float32) if data.labels is None else to_array(data.labels)
    return Views(
        vectors={m: to_array(features[m]) if m in features else np.zeros((len(data), widths[m])) for m in widths},
        held={m: to_array(data.has(m)) for m in widths},
        labels=labels,
    )


def no_views(params: ReadArrays, classes: int) -> Views:
    """Return the views of a silo without pairs."""
    widths = {m: params[f"{m}.hash.weight"].shape[1] for m in MODALITIES if f"{m}.hash.weight" in params}
    return Views(
        vectors={modality: np.zeros((0, width)) for modality, width in widths.items()},
        held=dict.fromkeys(widths, np.zeros(0, np.bool_)),
        labels=np.zeros((0, classes)),
    )


@dataclass(frozen=True)
class Solution:
    """What the server has computed after some exchanges. All arrays except the parameters are float64.

    Attributes:
        params: Parameters of the network: the initial ones until the last exchange, then the solution.
        sent: Arrays that silos receive for the next exchange.
        private: Arrays that stay on the server.
    """

    params: ReadArrays
    sent: ReadArrays = field(default_factory=dict)
    private: ReadArrays = field(default_factory=dict)


class FromSums(ClosedForm[OwnParams]):
    """A method that needs the items of silos only through sums.

    Up to the rounding of the totals, the result is the same for every partition of the items.
    """

    def fit(self, model: nn.Module, data: SiloData) -> dict[str, float]:
        """Run all exchanges with the silo alone."""
        fit_from_sums(self, model, data)
        return {}

    @abstractmethod
    def exchanges(self, bits: int) -> int:
        """Return the number of exchanges for a code length, at least 1."""

    def begin(self, params: ReadArrays) -> Solution:
        """Return the state before the first exchange, given the initial parameters; by default those alone."""
        return Solution(params)

    @abstractmethod
    def sums(self, views: Views, received: ReadArrays, exchange: int) -> Arrays:
        """Return a silo's sums, with the same names and shapes for every silo, also for one without pairs.

        ``received`` is what the server sent (``Solution.sent``). Exchanges are numbered from 0.
        """

    @abstractmethod
    def solve(self, solution: Solution, sums: ReadArrays, exchange: int) -> Solution:
        """Return the next state of the server, given the totals of the sums over the silos."""


def total(parts: Iterator[Arrays]) -> Arrays:
    """Return the sums of named arrays, added in order."""
    sums: Arrays = {}
    for part in parts:
        for name, array in part.items():
            sums[name] = sums[name] + array if name in sums else array
    return sums


def fit_from_sums(method: FromSums, model: nn.Module, data: SiloData) -> Solution:
    """Run all exchanges with a single silo, and install the parameters of the solution."""
    views, solution = views_of(model, data), method.begin(params_of(model))
    for exchange in range(method.exchanges(int(model.bits))):  # type: ignore[arg-type]
        solution = method.solve(solution, method.sums(views, solution.sent, exchange), exchange)
    install(model, solution.params)
    return solution


def scale_sums(block: Views) -> Arrays:
    """Return the sums from which `scales` computes means and factors.

    Per modality, ``MODALITY/count`` ``()``, ``MODALITY/sum`` ``(D,)`` and ``MODALITY/squares`` ``(D,)`` of the rows that
    have it.
    """
    sums: Arrays = {}
    for modality, values in block.vectors.items():
        sums[f"{modality}/count"] = np.asarray(float(block.held[modality].sum()))
        sums[f"{modality}/sum"] = values.sum(axis=0)
        sums[f"{modality}/squares"] = np.einsum("nd,nd->d", values, values)
    return sums


def scales(sums: ReadArrays, *, standardize: bool) -> Arrays:
    """Return the means of the vectors, and the factors by which the centered vectors are multiplied.

    Per modality, they are ``MODALITY/mean`` and ``MODALITY/factor``, ``(D,)`` each, from totals of `scale_sums`. Factors are
    1, or 1 / deviation to standardize. That of a dimension in which all vectors are equal is 0.
    """
    found: Arrays = {}
    for modality in there(sums):
        count = max(float(sums[f"{modality}/count"]), 1.0)
        mean, square = sums[f"{modality}/sum"] / count, sums[f"{modality}/squares"] / count
        variance = square - mean**2
        # The difference of two nearly equal numbers is not exactly 0 where all values are equal.
        varies = variance > ROUNDING * square
        deviation = np.sqrt(np.where(varies, variance, 1.0)) if standardize else np.ones_like(variance)
        found |= {f"{modality}/mean": mean, f"{modality}/factor": np.where(varies, 1.0 / deviation, 0.0)}
    return found


def scaled(block: Views, received: ReadArrays, modality: Modality) -> Matrix:
    """Return vectors as centered and scaled by `scales`, ``(n, D)``. Rows without the modality are zero."""
    values = (block.vectors[modality] - received[f"{modality}/mean"]) * received[f"{modality}/factor"]
    return np.asarray(values * block.held[modality][:, np.newaxis])


def joint_moments(received: ReadArrays, block: Views) -> Arrays:
    """Return ``MODALITIES/moments``, second moments of the stacked vectors of items with exactly these modalities."""
    values = {modality: scaled(block, received, modality) for modality in block.vectors}
    held = sum(mask.astype(np.int64) for mask in block.held.values())
    sums: Arrays = {}
    for modality, rows in values.items():
        alone = rows[block.held[modality] & (held == 1)]
        sums[f"{modality}/moments"] = alone.T @ alone
    if len(values) == len(MODALITIES):
        pairs = np.concatenate([values[modality] for modality in MODALITIES], axis=1)[held == len(MODALITIES)]
        sums["both/moments"] = pairs.T @ pairs
    return sums


def code_length(params: ReadArrays) -> int:
    """Return the code length of a model with these parameters, in bits."""
    return next(len(array) for name, array in params.items() if name.endswith(".hash.bias"))


def there(values: Mapping[str, Any]) -> tuple[Modality, ...]:
    """Return the modalities under which a mapping has entries such as ``image/mean``."""
    return tuple(m for m in MODALITIES if any(name.startswith(f"{m}/") for name in values))


def hash_layer(projection: Matrix, scales: ReadArrays, modality: Modality, params: ReadArrays) -> Arrays:
    """Return the parameters of the hash layer that applies a projection ``(D, K)`` to centered and scaled vectors.

    They have the dtypes of the current ones.
    """
    weight = projection * scales[f"{modality}/factor"][:, np.newaxis]
    named = {f"{modality}.hash.weight": weight.T, f"{modality}.hash.bias": -(scales[f"{modality}/mean"] @ weight)}
    return {name: np.ascontiguousarray(array, params[name].dtype) for name, array in named.items()}
