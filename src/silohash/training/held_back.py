"""How sure hits are, and whether codes collapse: silos count hits of held-back queries and codes, and the server learns."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from silohash.base import types
from silohash.evaluate.calibration import HITS_COUNTED, Calibration, HitCounts, hit_counts
from silohash.evaluate.collapse import CodeCounts, CodeUse
from silohash.evaluate.items import ItemCodes, counts_by_distance
from silohash.evaluate.relevance import Pairs, Relevance
from silohash.index.codes import pack, unpack
from silohash.methods.local.base import SiloData, outputs_of
from silohash.training.updates.bounds import Announced

SEARCHES: tuple[types.Task, ...] = ("i2t", "t2i", "i2i", "t2t", "i2item", "t2item")
"""The tasks that a search performs."""

FEWEST_QUERIES = 5
"""A silo with fewer held-back queries of a task does not send its counts."""

ROUNDING = 1e-6

Packed: TypeAlias = npt.NDArray[Any]
"""Packed codes ``(n, W)``, or which items have them ``(n,)``."""


def words_of(
    model: torch.nn.Module, items: SiloData, side: types.Side, with_labels: Sequence[types.Side]
) -> dict[types.Modality, Packed]:
    """Return the packed codes of the items of a side, ``(n, W)`` per modality, with their labels if it is in a list."""
    outputs = outputs_of(model, items if side in with_labels else replace(items, labels=None))
    return {modality: pack(codes.cpu().numpy()) for modality, codes in outputs.items()}


def counted(items: SiloData, modality: types.Modality, ignore: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """Return which items have a modality and, if labels are ignored, a label besides these, ``(n,)`` bool."""
    found: npt.NDArray[np.bool_] = items.has(modality).cpu().numpy()
    if ignore and items.labels is not None:
        found = found & np.delete(items.labels.cpu().numpy(), ignore, axis=1).any(axis=1)
    return found


def silo_counts(
    model: torch.nn.Module,
    database: SiloData,
    queries: SiloData,
    bits: int,
    *,
    with_labels: Sequence[types.Side] = (),
    ignore: tuple[int, ...] = (),
) -> types.Arrays:
    """Return the counts of a silo's held-back queries, as ``task/name`` of `HitCounts`; empty if it has too few.

    Items that share a label with the query are right or, if pairs chose the round, those of the same picture. These are
    searched for among all items of the silo, the held-back ones without the codes with which they would find themselves.

    Sides in ``with_labels`` are encoded with true labels. Columns of labels in ``ignore`` do not count.
    """
    by_pairs = queries.pictures is not None
    if len(queries) < FEWEST_QUERIES or not len(database) or (queries.labels is None and not by_pairs):
        return {}
    search = _Search([database, queries] if by_pairs else [database], queries, ignore)
    asked_words = words_of(model, queries, "query", with_labels)
    words = _joined([words_of(model, part, "database", with_labels) for part in search.parts])
    found: types.Arrays = {}
    for task in SEARCHES:
        needed = {types.query_modality(task), *types.database_modalities(task)}
        if needed <= set(asked_words) and not (by_pairs and len(needed) == 1):
            counts = search.counts(task, asked_words[types.query_modality(task)], words, bits)
            found |= {} if counts is None else {f"{task}/{name}": array for name, array in counts._asdict().items()}
    return found


@dataclass(frozen=True)
class _Search:
    """The held-back queries of a silo, and the parts of its items that they search."""

    parts: Sequence[SiloData]
    queries: SiloData
    ignore: tuple[int, ...]

    def counts(
        self, task: types.Task, asked_words: Packed, words: Mapping[types.Modality, Packed], bits: int
    ) -> HitCounts | None:
        """Return the counts of a task, or None if there are too few queries or no items."""
        asked, searched = types.query_modality(task), types.database_modalities(task)
        held = _joined([{name: counted(part, name, self.ignore) for name in searched} for part in self.parts])
        if len(self.parts) > 1 and asked in held:
            held[asked][len(self.parts[0]) :] = False
        queries, rows = (
            np.flatnonzero(counted(self.queries, asked, self.ignore)),
            np.flatnonzero(np.any([*held.values()], 0)),
        )
        if len(queries) < FEWEST_QUERIES or not len(rows):
            return None
        items = ItemCodes(tuple(words[name][rows] for name in searched), tuple(held[name][rows] for name in searched))
        codes = items if len(searched) > 1 else items.sides[0]
        relevance = relevance_of(self.parts, self.queries, (queries, rows), self.ignore)
        return hit_counts(counts_by_distance(asked_words[queries], codes, relevance, bits))


def _joined(parts: Sequence[Mapping[types.Modality, Packed]]) -> dict[types.Modality, Packed]:
    """Return the rows of all parts one after another, per modality."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def relevance_of(
    parts: Sequence[SiloData], queries: SiloData, rows: tuple[types.Rows, types.Rows], ignore: tuple[int, ...]
) -> Relevance | Pairs:
    """Return which of some items of the parts are right for some queries, by pictures if there are, or by labels."""
    if queries.pictures is not None:
        groups = [each.pictures.cpu().numpy() for each in (queries, *parts) if each.pictures is not None]
        return Pairs.of_groups(groups[0][rows[0]], np.concatenate(groups[1:])[rows[1]])
    labels = [each.labels.cpu().numpy().astype(np.uint8) for each in (queries, *parts) if each.labels is not None]
    return Relevance(labels[0][rows[0]], labels[1][rows[1]], ignore)


def calibrations(sent: Iterable[tuple[types.ReadArrays, Announced | None]], bits: int) -> dict[types.Task, Calibration]:
    """Return what is learned from the counts of silos, each with what it announced, or None for a silo of this process.

    Counts that are impossible are left out, so that no silo counts for more than the queries that it announced.
    """
    received, found = [*sent], {}
    for task in SEARCHES:
        counts = [_possible(arrays, task, bits, announced) for arrays, announced in received]
        learned = Calibration.learned([each for each in counts if each is not None])
        if learned is not None:
            found[task] = learned
    return found


def _possible(arrays: types.ReadArrays, task: types.Task, bits: int, announced: Announced | None) -> HitCounts | None:
    """Return a silo's counts of a task, or None if there are none or they cannot be counts."""
    right, items, searched = (arrays.get(f"{task}/{name}", np.zeros(0)) for name in HitCounts._fields)
    table = HITS_COUNTED, bits + 1
    if not all(map(_is_count, (right, items, searched), (table, table, (1,)))):
        return None
    queries, rows = float(items[0].sum()), float(searched[0])
    bounded = (right <= items + ROUNDING).all() and items.sum(1).max() <= queries + ROUNDING and rows >= 1
    if announced is not None and (queries > announced.validation or rows > announced.training + announced.validation):
        return None
    return HitCounts(right, items, searched) if bounded else None


def silo_code_counts(
    model: torch.nn.Module, items: SiloData, bits: int, *, with_labels: Sequence[types.Side] = ()
) -> types.Arrays:
    """Return the counts of a silo's codes, as ``modality/name`` of `CodeCounts`. Sides are as in `silo_counts`.

    A modality of fewer items than a code has bits is left out, because their codes could be put together from the counts.
    """
    found: types.Arrays = {}
    for modality, words in words_of(model, items, "database", with_labels).items():
        held, vectors = counted(items, modality, ()), getattr(items, modality)
        if items.count(modality) >= max(bits, FEWEST_QUERIES):
            inputs = len({vector.tobytes() for vector in vectors.cpu().numpy()[held]})
            totals = np.array([held.sum(), inputs, len(np.unique(words[held], axis=0))], np.float64)
            places = (unpack(words[held], bits) > 0).astype(np.float64)
            found |= {f"{modality}/totals": totals, f"{modality}/together": places.T @ places}
    return found


def code_uses(sent: Iterable[tuple[types.ReadArrays, Announced | None]], bits: int) -> dict[types.Modality, CodeUse]:
    """Return the use of the codes of each modality from the possible counts of silos, as in `calibrations`."""
    received, found = [*sent], dict[types.Modality, CodeUse]()
    for modality in types.MODALITIES:
        counts = []
        for arrays, announced in received:
            totals, together = (arrays.get(f"{modality}/{name}", np.zeros(0)) for name in CodeCounts._fields)
            sound = _is_count(totals, (3,)) and _is_count(together, (bits, bits))
            most = math.inf if announced is None else announced.training
            if sound and totals.min() >= 1 and max(totals.max(), together.max()) <= totals[0] <= most:
                counts.append(CodeCounts(totals, together))
        if counts:
            found[modality] = CodeUse.learned(CodeCounts(*(np.sum(each, axis=0) for each in zip(*counts, strict=True))))
    return found


def _is_count(array: np.ndarray, shape: tuple[int, ...]) -> bool:
    """Return whether an array has a shape, and numbers that can be counts."""
    fits = array.shape == shape and array.dtype == np.float64
    return fits and bool(np.isfinite(array).all()) and float(array.min()) >= 0
