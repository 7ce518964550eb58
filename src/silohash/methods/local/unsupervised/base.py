"""What methods that learn from the similarity of inputs share.

The similarity of two items is a weighted mean of the cosines of their inputs over the modalities that both have. In the
loss, an item that lacks a modality has the code of its other one in its place.
"""

import math
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from torch import Tensor, nn

from silohash.base.errors import UnsuitableMethod
from silohash.base.types import MODALITIES, Modality, Outputs, PairBatch, Step, Terms
from silohash.methods.local.base import COLUMNS, LocalMethod, SiloData, SiloState, rows_of
from silohash.models.specs import ModelSpec
from silohash.models.towers import HashNet

MOST_CACHED_BYTES = 2 << 30
"""Total size of the values that a `SiloCache` holds."""


@dataclass(frozen=True)
class Inputs:
    """The inputs of some items, scaled to length 1.

    Attributes:
        unit: ``(n, D)`` per modality. Rows without the modality are zero.
        has: ``(n,)`` bool per modality, or None if every item has all modalities of ``unit``.
    """

    unit: Mapping[Modality, Tensor]
    has: Mapping[Modality, Tensor] | None


def inputs_of(batch: PairBatch) -> Inputs:
    """Return the inputs of a batch, as vectors of length 1. Modalities that no item has are left out."""
    held = {modality: batch.has(modality) for modality in MODALITIES if batch.values(modality) is not None}
    held = {modality: has for modality, has in held.items() if bool(has.any())}
    complete = all(bool(has.all()) for has in held.values())
    unit: dict[Modality, Tensor] = {}
    for modality, has in held.items():
        values = batch.values(modality)
        assert values is not None  # noqa: S101  selected above
        unit[modality] = F.normalize(values.flatten(1), dim=1)
        if not complete:
            unit[modality] = unit[modality] * has.unsqueeze(1)
    return Inputs(unit, None if complete else held)


class Part(NamedTuple):
    """A matrix ``(n, m)`` in a weighted mean. Where it is not defined (1 or 0; None for everywhere 1), it is zero."""

    weight: float
    values: Tensor
    defined: Tensor | None


class Similarity(NamedTuple):
    """The similarity of items, ``(n, m)``, and which pairs can be compared, as 1 and 0; None if all can. Others are zero."""

    values: Tensor
    known: Tensor | None


def weighted_mean(parts: Sequence[Part]) -> Similarity:
    """Return the weighted mean of matrices, for each pair over those that are defined for it.

    Either all are defined everywhere, or each states where it is.
    """
    if all(part.defined is None for part in parts):
        total = sum(part.weight for part in parts)
        return Similarity(reduce(torch.add, [part.weight / total * part.values for part in parts]), None)
    weights = torch.stack([part.weight * part.defined for part in parts if part.defined is not None]).sum(0)
    values = torch.stack([part.weight * part.values for part in parts]).sum(0)
    known = (weights > 0).to(values.dtype)
    # Pairs without a common modality have the weight 0, and 0 / 0 would be NaN.
    return Similarity(values / torch.where(weights > 0, weights, 1.0), known)


def defined_for(rows: Inputs, others: Inputs, modality: Modality) -> Tensor | None:
    """Return the pairs of items that both have a modality, ``(n, m)`` of 0 and 1; None if all items have it."""
    if rows.has is None and others.has is None:
        return None
    one, other = (
        inputs.unit[modality].new_ones(len(inputs.unit[modality]))
        if inputs.has is None
        else inputs.has[modality].to(inputs.unit[modality].dtype)
        for inputs in (rows, others)
    )
    return torch.outer(one, other)


def products_of_rows(values: Tensor, block: int = 512) -> Tensor:
    """Return the products of every two rows, ``(n, n)``. Those of two blocks of rows are computed once."""
    if len(values) <= block:
        return values @ values.T
    products = values.new_empty(len(values), len(values))
    for start in range(0, len(values), block):
        rows, others = slice(start, start + block), slice(start, None)
        torch.mm(values[rows], values[others].T, out=products[rows, others])
        products[others, rows] = products[rows, others].T
    return products


def affinity(rows: Inputs, others: Inputs, text_weight: float) -> Similarity:
    """Return the weighted mean of the cosines of the inputs over the modalities that both items have, ``(n, m)``.

    Texts have the weight ``text_weight``, and images the rest.
    """
    weights: Mapping[Modality, float] = {"image": 1.0 - text_weight, "text": text_weight}
    shared = [modality for modality in rows.unit if modality in others.unit]
    if not shared:
        count, width = (len(next(iter(inputs.unit.values()))) for inputs in (rows, others))
        nothing = next(iter(rows.unit.values())).new_zeros(count, width)
        return Similarity(nothing, nothing)
    cosines = {m: products_of_rows(rows.unit[m]) if rows is others else rows.unit[m] @ others.unit[m].T for m in shared}
    return weighted_mean([Part(weights[m], values, defined_for(rows, others, m)) for m, values in cosines.items()])


class CodePair(NamedTuple):
    """The relaxed codes ``(B, K)`` of a batch's items. A lacking image or text has the code of the other one."""

    image: Tensor
    text: Tensor


def with_inputs(batch: PairBatch, codes: Mapping[Modality, Tensor]) -> tuple[PairBatch, dict[Modality, Tensor]]:
    """Return the batch and the codes ``(B, K)`` without the items that have none of the codes' modalities.

    Modalities that no item has are left out. The codes are empty if there are none.
    """
    if codes and all(bool(batch.has(modality).all()) for modality in codes):
        return batch, dict(codes)
    held: dict[Modality, Tensor] = {m: code for m, code in codes.items() if bool(batch.has(m).any())}
    if not held:
        return batch, {}
    there = torch.stack([batch.has(modality) for modality in held]).any(0)
    if bool(there.all()):
        return batch, held
    rows = there.nonzero().squeeze(1)
    return rows_of(batch, COLUMNS, rows), {modality: code[rows] for modality, code in held.items()}


def code_pair(codes: Mapping[Modality, Tensor], batch: PairBatch) -> CodePair:
    """Return the two codes ``(B, K)`` of each item. An item without a modality has the code of its other one twice.

    There is at least one modality, and each item has one of them.
    """
    if len(codes) == 1:
        [code] = codes.values()
        return CodePair(code, code)
    if bool(batch.has_image.all()) and bool(batch.has_text.all()):
        return CodePair(codes["image"], codes["text"])
    return CodePair(
        image=torch.where(batch.has_image.unsqueeze(1), codes["image"], codes["text"]),
        text=torch.where(batch.has_text.unsqueeze(1), codes["text"], codes["image"]),
    )


def refuse_networks(spec: ModelSpec, name: str) -> None:
    """Check that the inputs are vectors or pixels that can be compared with each other.

    Raises:
        UserError: If a tower is a published network, whose inputs are pixels or word pieces.
    """
    for modality, tower in spec.towers.items():
        if tower.kind == "network":
            raise UnsuitableMethod(
                f'local.name "{name}" compares the inputs of the towers, but model.{modality} names a published network, '
                f"whose inputs do not show what an item is about. Remove model.{modality}, and set features.{modality} to "
                "the vectors of a network."
            )


class SiloCache:
    """Values that follow from the inputs of a silo, kept in this process as long as the silo's data are in memory."""

    def __init__(self, most_bytes: int = MOST_CACHED_BYTES) -> None:
        self.most_bytes = most_bytes
        self._made: dict[tuple[int, ...], tuple[list[weakref.ref[Tensor]], Tensor]] = {}

    def get(self, data: SiloData, make: Callable[[], Tensor]) -> Tensor:
        """Return the value of a silo, whose data must not change; ``make`` computes it if it is not kept."""
        parts = [part for part in (data.image, data.text, data.has_image, data.has_text) if part is not None]
        key = tuple(map(id, parts))
        if key in self._made:
            references, value = self._made[key]
            # The id of a tensor that is gone can be that of a new one.
            if all(reference() is part for reference, part in zip(references, parts, strict=True)):
                return value
            del self._made[key]
        value = make()
        if value.nbytes + sum(kept.nbytes for _, kept in self._made.values()) <= self.most_bytes:
            self._made[key] = ([weakref.ref(part) for part in parts], value)
            weakref.finalize(data.has_image, self._made.pop, key, None)
        return value


def cosine_matrices(pair: CodePair) -> tuple[Tensor, Tensor, Tensor]:
    """Return the cosines of the codes of a batch within images, within texts and of images to texts, each ``(B, B)``."""
    image, text = F.normalize(pair.image, dim=1), F.normalize(pair.text, dim=1)
    return image @ image.T, text @ text.T, image @ text.T


def steepness(epochs: int) -> float:
    """Return the factor on the outputs before the tanh after some local epochs: (1 + epochs)^0.5."""
    return math.sqrt(1.0 + epochs)


class AnnealedMethod(LocalMethod, ABC):
    """A method whose loss compares the codes of a batch with the similarity of its inputs, with the switch ``anneal``."""

    key: ClassVar[str]

    @abstractmethod
    def losses(self, pair: CodePair, batch: PairBatch, buffers: Mapping[str, Tensor]) -> Terms:
        """Return the terms of the loss, given relaxed codes in (-1, 1) of items with at least one modality."""

    def build(self, spec: ModelSpec, bits: int) -> nn.Module:
        """Build towers without an activation after the hash layer. The loss applies the tanh."""
        refuse_networks(spec, self.key)
        return HashNet(spec, bits)

    def terms(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> Terms:
        """Return the loss of a batch with the tanh of the epoch."""
        batch, codes = with_inputs(batch, outputs.code)
        if not codes:
            return {}
        factor = steepness(state.epochs) if self.params.anneal else 1.0
        relaxed = {modality: torch.tanh(factor * code) for modality, code in codes.items()}
        return self.losses(code_pair(relaxed, batch), batch, state.buffers)
