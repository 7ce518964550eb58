"""The nearest items of one silo over one or several modalities, such as its pictures and its texts.

The distance of an item is the smallest distance of its codes. Items at the same distance are ordered by the smallest order
value of their codes there (`order.magnitude_sums`), and then by the keyed hash of silo and id (`order`). A scan finds the
first k codes of a modality and all further codes at the distance of the last of them, so that the tie at the cut is
resolved and counted. Let x be one of the k nearest items, and m the modality of its nearest code. If the code of x were not
found there, the codes of k other items would precede it by a smaller distance. The distances of these items are no larger
than those of their codes, so k items would precede x. The codes that the scans find therefore suffice.

If the model scores pairs, these items are candidates, and the silo scores them (`best_items`). Words and regions of items
stay where they are: a silo scores its candidates in its own process. A silo on another machine is sent the words or regions
of the query only if its policy accepts them, and otherwise its code alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from silohash.base.errors import NotFinite
from silohash.base.types import Modality, Rows
from silohash.index.base import Distances, Keys
from silohash.index.digests import Digests
from silohash.search.hits import Query
from silohash.search.loaded_index import LoadedIndex
from silohash.search.order import first_places, possible_first
from silohash.search.policy import Policy

if TYPE_CHECKING:
    # Its module needs torch, without which a silo can search by codes.
    from silohash.run.model.matcher import Matcher

NO_KEY = -1

VALUE_BITS = 17
"""Lowest bits of a place, which hold the order value: at most 256 magnitudes of 255. The others hold the distance."""

T = TypeVar("T")

_Places: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class NearItems:
    """The nearest items of a silo, in order.

    Attributes:
        distances_bits: For each item, the distance of its nearest code.
        keys: For each modality that was searched, the key of each item there; `NO_KEY` for an item that does not have a
            code at its distance.
        order_values: For each item, what orders it among those at its distance (`magnitude_sums`); None if only the keyed
            hash does.
        cosines: For each item, the largest cosine of the query's outputs with those of its codes at its distance; None if
            outputs do not order the items.
    """

    distances_bits: Sequence[int]
    keys: Mapping[Modality, Sequence[int]]
    order_values: tuple[int, ...] | None = None
    cosines: tuple[int, ...] | None = None

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self.distances_bits)

    @property
    def found_by(self) -> tuple[tuple[Modality, ...], ...]:
        """For each item, the modalities of which it has a code at its distance."""
        if len(self.keys) == 1:
            return ((*self.keys,),) * len(self)
        columns = [[(modality,) if key != NO_KEY else () for key in keys] for modality, keys in self.keys.items()]
        return tuple(sum(found, ()) for found in zip(*columns, strict=True))

    def taken(self, places: Sequence[int]) -> NearItems:
        """Return the items at the given places, in the given order."""
        keys = {modality: taken(column, places) for modality, column in self.keys.items()}
        columns = (None if column is None else taken(column, places) for column in (self.order_values, self.cosines))
        return NearItems(taken(self.distances_bits, places), keys, *columns)

    def shown(self, k: int) -> Sequence[int]:
        """Return the positions of the items that may be among the first k after the merge."""
        return range(len(self)) if self.cosines is None else possible_first(self.cosines, k)


def taken(values: Sequence[T], places: Sequence[int]) -> tuple[T, ...]:
    """Return the values at some places."""
    return tuple([values[place] for place in places])


def items_to_merge(
    indexes: Mapping[Modality, LoadedIndex], query: Query, k: int, policy: Policy, radius_bits: int | None
) -> tuple[NearItems, dict[int, int]]:
    """Return the items that a silo answers with under its policy: at least the k of `nearest_items`.

    If outputs order items, they are those of the query's window, with their cosines. The window over all silos is among the
    windows of each. The other arguments and the result are as in `nearest_items`.
    """
    if query.magnitudes is None or not all(loaded.has_outputs for loaded in indexes.values()):
        return nearest_items(indexes, query, k, radius_bits, step_bits=policy.distance_step_bits)
    window = min(query.window, policy.max_results)
    items, left_out = nearest_items(indexes, query, max(k, window), radius_bits, step_bits=policy.distance_step_bits)
    cosines = np.zeros(len(items), np.int64)
    for modality, loaded in indexes.items():
        keys = np.array(items.keys[modality], np.int64)
        there = np.flatnonzero(keys != NO_KEY)
        found = loaded.cosines(keys[there], query.words, query.magnitudes)
        cosines[there] = np.maximum(cosines[there], found)
    return replace(items, cosines=tuple(cosines.tolist())), left_out


def nearest_items(
    indexes: Mapping[Modality, LoadedIndex], query: Query, k: int, radius_bits: int | None, *, step_bits: int = 1
) -> tuple[NearItems, dict[int, int]]:
    """Return the k nearest items of a silo, in order, and the number of further items at the distance of the last.

    Items with the same 64-bit digest of (silo, id) in two indexes are the same item.

    Args:
        indexes: The indexes to search. An item without a code on one of them is found by its other code.
        query: The code to search for, the label to filter by, and the key of the order among equals.
        k: Number of items.
        radius_bits: Maximum distance of an item; None for no limit.
        step_bits: Distances are replaced by the middle of their step of this many bits before items are ordered, so that
            neither the order nor the choice of the items reveals more.

    Returns:
        The items, and a mapping from the distance of the last item to the number of items left out there. It is empty if
        there are none.
    """
    near = {name: loaded.nearest(query.words, k, query.label) for name, loaded in indexes.items()}
    if len(indexes) == 1 and radius_bits is None and step_bits == 1:
        # All that the only index found is within the limit, which would be its own k-th distance.
        [(name, loaded)] = indexes.items()
        return _of_one_index(name, loaded, *near[name], query, k)
    limit_bits = _limit_bits([distances for _, distances in near.values()], query, k, radius_bits)
    if step_bits > 1:
        # Codes up to the largest distance that is rounded like the limit are equals of those at the limit.
        last_bits = limit_bits // step_bits * step_bits + step_bits - 1
        limit_bits = min(query.bits if radius_bits is None else radius_bits, last_bits)
        near = {name: _rounded(loaded, query, limit_bits, step_bits) for name, loaded in indexes.items()}
    else:
        near = {name: _inside(*found, limit_bits) for name, found in near.items()}
    if len(indexes) == 1:
        [(name, loaded)] = indexes.items()
        return _of_one_index(name, loaded, *near[name], query, k)
    return _joined(indexes, near, query, k)


def _rounded(loaded: LoadedIndex, query: Query, limit_bits: int, step_bits: int) -> tuple[Keys, Distances]:
    """Return the keys of all codes of a modality within a limit, and their distances rounded to the middle of a step.

    Rounding down would put the silo before all that state exact distances. No distance is stated beyond the query's radius.
    """
    keys, distances = loaded.within(query.words, limit_bits, query.label)
    step, most = np.int32(step_bits), query.bits if query.radius_bits is None else min(query.bits, query.radius_bits)
    return keys, np.minimum(distances // step * step + (step - 1) // 2, np.int32(most))


def _inside(keys: Keys, distances: Distances, limit_bits: int) -> tuple[Keys, Distances]:
    """Return the keys and distances of the codes within a limit."""
    inside = distances <= limit_bits
    return (keys, distances) if inside.all() else (keys[inside], distances[inside])


def _limit_bits(found: list[Distances], query: Query, k: int, radius_bits: int | None) -> int:
    """Return the distance beyond which no code is needed: the smallest of the radius and of all k-th distances."""
    cuts = [int(distances.max()) for distances in found if len(distances) >= k]
    return min([*cuts, query.bits if radius_bits is None else radius_bits])


def _of_one_index(
    name: Modality, loaded: LoadedIndex, keys: Keys, distances: Distances, query: Query, k: int
) -> tuple[NearItems, dict[int, int]]:
    """Return the first k items of the codes of one modality, and the number of ties left out."""
    places, valued = _places(loaded, keys, distances, query)
    ranked = first_places(places, loaded.digests(keys), query.tie_key, k)
    return _near_items(places, ranked, {name: keys[ranked].tolist()}, valued=valued)


def _places(loaded: LoadedIndex, keys: Keys, distances: Distances, query: Query) -> tuple[_Places, bool]:
    """Return a place for each code, ordered by (distance, order value), and whether there are order values."""
    places = distances.astype(np.int64) << VALUE_BITS
    values = None if query.magnitudes is None else loaded.order_values(keys, query.words, query.magnitudes)
    return (places, False) if values is None else (places | values, True)


def _near_items(
    places: _Places, ranked: Rows, keys: Mapping[Modality, Sequence[int]], *, valued: bool
) -> tuple[NearItems, dict[int, int]]:
    """Return the items at some positions, and the number of others at the distance of the last, by that distance."""
    found, left_out = places[ranked], {}
    values = tuple((found & ((1 << VALUE_BITS) - 1)).tolist()) if valued else None
    distances = (found >> VALUE_BITS).tolist()
    if len(found) < len(places) and (count := int((places >> VALUE_BITS <= distances[-1]).sum()) - len(found)):
        left_out = {distances[-1]: count}
    return NearItems(distances, keys, values), left_out


def _joined(
    indexes: Mapping[Modality, LoadedIndex], near: Mapping[Modality, tuple[Keys, Distances]], query: Query, k: int
) -> tuple[NearItems, dict[int, int]]:
    """Return the first k items of the codes that were found of each modality, and the number of ties left out."""
    names = list(indexes)
    index_of = np.concatenate([np.full(len(near[name][0]), number) for number, name in enumerate(names)])
    keys = np.concatenate([near[name][0] for name in names])
    placed = [_places(indexes[name], *near[name], query) for name in names]
    places, valued = np.concatenate([places for places, _ in placed]), all(valued for _, valued in placed)
    digests: Digests = np.concatenate([indexes[name].digests(near[name][0]) for name in names])
    items, item_of = _grouped(digests)
    nearest = np.full(len(items), np.iinfo(np.int64).max)
    np.minimum.at(nearest, item_of, places)
    ranked = first_places(nearest, items, query.tie_key, k)
    place_of = np.full(len(items), -1, np.int64)
    place_of[ranked] = np.arange(len(ranked))
    codes = np.flatnonzero((place_of[item_of] >= 0) & (places >> VALUE_BITS == nearest[item_of] >> VALUE_BITS))
    found = np.full((len(names), len(ranked)), NO_KEY, np.int64)
    found[index_of[codes], place_of[item_of[codes]]] = keys[codes]
    return _near_items(nearest, ranked, dict(zip(names, found.tolist(), strict=True)), valued=valued)


def _grouped(digests: Digests) -> tuple[Digests, npt.NDArray[np.int64]]:
    """Return each digest once, in ascending order, and the position of each given one. `numpy.unique` loads more modules."""
    order = np.argsort(digests, kind="stable")
    ordered = digests[order]
    first = np.ones(len(ordered), bool)
    first[1:] = ordered[1:] != ordered[:-1]
    position = np.empty(len(ordered), np.int64)
    position[order] = np.cumsum(first) - 1
    return ordered[first], position


def candidates(matcher: Matcher, query: Query, modality: Modality, k: int) -> int:
    """Return the number of items of a modality that a silo finds by their codes before it scores them and releases k.

    Items of the same picture count as one of the query's candidates.

    Raises:
        UserError: If the words or regions of the silo's items cannot be read.
    """
    return max(k, query.candidates * matcher.most_shared(modality))


def best_items(
    matcher: Matcher, query: Query, modality: Modality, items: NearItems, k: int
) -> tuple[NearItems, tuple[float, ...]]:
    """Return the k of the candidates with the highest scores, and their scores. Items with equal scores keep their order.

    Raises:
        UserError: If a score is not finite, or the words or regions of an item cannot be read.
    """
    assert query.nodes is not None  # noqa: S101  the second stage follows from them
    scores = matcher.scores(query.nodes, modality, items.keys[modality])
    if not all(map(math.isfinite, scores)):
        raise NotFinite("Some of its scores are not finite numbers. Train the model again with a lower learning rate.")
    order = sorted(range(len(items)), key=lambda place: -scores[place])[:k]
    return replace(items.taken(order), order_values=None), tuple(scores[place] for place in order)
