"""The first items of one silo over one or several modalities, such as its pictures and its texts.

The distance of an item is the smallest distance of its codes. Items at the same distance are ordered by the smallest order
value of their codes there (`order.magnitude_sums`), and then by the keyed hash of silo and id (`order`). A scan finds the
first k codes of a modality and all further codes at the distance of the last of them, so that the tie at the cut is
resolved and counted. Let x be one of the k nearest items, and m the modality of its nearest code. If the code of x were not
found there, the codes of k other items would precede it by a smaller distance. The distances of these items are no larger
than those of their codes, so k items would precede x. The codes that the scans find therefore suffice.

Items with the query as their id or caption, and those with all of its words, come first (`order`). Each group is found by a
scan among its items alone, which finds enough for the same reason. All indexes of a silo hold the same words of an item.
Words match in fields that the silo's policy releases and in items that it approves, and nowhere else (`matches_in`).

If the model scores pairs, these items are candidates, and the silo scores them (`best_items`). Words and regions of items
stay where they are: a silo scores its candidates in its own process. A silo on another machine is sent the words or regions
of the query only if its policy accepts them, and otherwise its code alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from silohash.base.analysis import Analysis, analyze, stop_words, term_of, words_of
from silohash.base.errors import NotFinite
from silohash.base.types import Modality, Rows
from silohash.index.base import Allowed, Distances, Keys, inside, positions
from silohash.index.digests import Digests
from silohash.search.composed import compared_text, parsed_text
from silohash.search.filters import Mask
from silohash.search.hits import Query
from silohash.search.loaded_index import Indexes, ItemSet, LoadedIndex, in_all
from silohash.search.order import (
    ALL_WORDS,
    BY_CODE,
    DISTANCE_BITS,
    EXACT,
    MOST_WORDS,
    STEP_BITS,
    VALUE_BITS,
    WORDLESS,
    first_places,
    packed_places,
    place_in_tier,
    possible_first,
)
from silohash.search.policy import Policy, Source

if TYPE_CHECKING:
    # Its module needs torch, without which a silo can search by codes.
    from silohash.run.model.matcher import Matcher

NO_KEY = -1

OWN_MODALITY: Mapping[Source | None, Modality] = {"text": "text", "picture": "image"}
"""The modality of what a code was made from."""

T = TypeVar("T")

_Places: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Matches:
    """The items of one index that have words of a query, or whose id is the query.

    Attributes:
        loaded: The index.
        whole: The items with the query as their id or whole caption.
        all_words: The items with all words.
        by_word: For each word, as ``2 ** place`` of its place in the query, the items with it.
        approved: Keys of the items that may be released, in ascending order; None for all.
        hidden_within: For a silo whose policy limits what answers tell of codes, the largest distance of an item that words
            find. All are then at the same distance, and words do not order other items, so that words never tell of codes.
            None for other silos.
    """

    loaded: LoadedIndex
    whole: ItemSet
    all_words: ItemSet
    by_word: Mapping[int, ItemSet]
    approved: Keys | None = None
    hidden_within: int | None = None

    def of(self, keys: Keys) -> tuple[_Places, _Places]:
        """Return the tiers of items, and the sums of ``2 ** place`` over the words that each has, ``(n,)`` each.

        Only these items are looked up: a frequent word is in most items, and a search needs few of them.
        """
        tiers, matched = np.full(len(keys), BY_CODE, np.int64), np.zeros(len(keys), np.int64)
        rows = self.loaded.rows_of(keys)
        tiers[self.all_words.holds(rows)] = ALL_WORDS
        tiers[self.whole.holds(rows)] = EXACT
        for bit, having in self.by_word.items():
            matched[having.holds(rows)] |= bit
        if self.approved is not None:
            matched[~positions(self.approved, keys)[1]] = 0
        return tiers, matched


Approved: TypeAlias = Callable[[], Collection[str] | None]
"""Returns the ids of the items that may be released; None for all."""

MatchesOf: TypeAlias = Mapping[Modality, Matches] | None
"""The matches in each index that is searched; None if the query does not have words."""


PassingIn: TypeAlias = Mapping[Modality, Mask] | None
"""Which items of each index that is searched pass the filters; None if there are no filters."""


def matches_in(
    indexes: Indexes, query: Query, policy: Policy, fields: Collection[str], approved: Approved
) -> MatchesOf:
    """Return what `matches_of` does for each index. ``approved`` is only called if there is a text to match."""
    text = compared_text(query.own_text, query.text, accepted=policy.accept_query_words)
    if text is None:
        return None
    ids, most_bits = approved(), query.bits if policy.max_distance_bits is None else policy.max_distance_bits
    limit = most_bits if policy.limits_codes else None
    found = {name: matches_of(loaded, text, fields, ids) for name, loaded in indexes.items()}
    return {name: replace(matches, hidden_within=limit) for name, matches in found.items()}


def matches_of(loaded: LoadedIndex, text: str, fields: Collection[str], approved: Collection[str] | None) -> Matches:
    """Return the items that match a text, by the analysis of the index.

    Args:
        loaded: The index.
        text: The query as it was typed, with excluded words, which do not count.
        fields: The released fields.
        approved: Ids of the items that may be released; None for all. Others do not match, so that their words stay hidden.
    """
    analysis, store = loaded.store.manifest.analysis, loaded.store
    text = parsed_text(text)[0]
    by_word = {bit: loaded.with_word(term, fields) for term, bit in _bits(text, analysis).items()}
    keys = loaded.live(store.keys_of_text(text.strip(), analyze(text, analysis) if "caption" in fields else ()))
    whole, all_words = ItemSet(loaded.rows_of(keys)), in_all([*by_word.values()])
    known = None if approved is None else loaded.approved(approved)
    if known is not None:
        whole, all_words = loaded.among(whole, known), loaded.among(all_words, known)
    return Matches(loaded, whole, all_words, by_word, known)


def rows_excluded(loaded: LoadedIndex, text: str, fields: Collection[str]) -> list[Rows]:
    """Return for each excluded word of a text the positions of the items that have all of its terms, in ascending order."""
    terms = filter(None, (analyze(word, loaded.store.manifest.analysis) for word in parsed_text(text)[1]))
    return [in_all([loaded.with_word(term, fields) for term in each]).every() for each in terms]


def _bits(text: str, analysis: Analysis) -> dict[str, int]:
    """Return each term of a text with the bit of its first word, without stop words unless there is nothing else."""
    words, left_out = words_of(text, analysis)[:MOST_WORDS], stop_words(analysis)
    placed = [(place, word) for place, word in enumerate(words) if word not in left_out] or [*enumerate(words)]
    return {term_of(word, analysis): 1 << place for place, word in reversed(placed)}


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
        tiers: For each item, its tier; None if the query does not have words.
        matched: For each item, the words that it has, as in `Matches`; None if the query does not have words.
    """

    distances_bits: Sequence[int]
    keys: Mapping[Modality, Sequence[int]]
    order_values: tuple[int, ...] | None = None
    tiers: tuple[int, ...] | None = None
    matched: tuple[int, ...] | None = None
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
        optional = (self.order_values, self.tiers, self.matched, self.cosines)
        columns = (None if column is None else taken(column, places) for column in optional)
        return NearItems(taken(self.distances_bits, places), keys, *columns)

    def shown(self, k: int) -> Sequence[int]:
        """Return the positions of the items that may be among the first k after the merge."""
        if self.cosines is None:
            return range(len(self))
        worded = sum(tier < BY_CODE for tier in self.tiers or ())
        return [*range(worded), *(worded + place for place in possible_first(self.cosines[worded:], k))]


def taken(values: Sequence[T], places: Sequence[int]) -> tuple[T, ...]:
    """Return the values at some places."""
    return tuple([values[place] for place in places])


def stored_rows(indexes: Indexes, items: NearItems) -> tuple[Sequence[str], Sequence[dict[str, Any]]]:
    """Return the ids and payloads of items, from the first modality by which each was found."""
    ids, payloads = [""] * len(items), [dict[str, Any]()] * len(items)
    missing: Sequence[int] = range(len(items))
    for modality, loaded in indexes.items():
        keys = items.keys[modality]
        places = [place for place in missing if keys[place] != NO_KEY]
        missing = [place for place in missing if keys[place] == NO_KEY]
        for place, (name, payload) in zip(places, loaded.rows([keys[place] for place in places]), strict=True):
            ids[place], payloads[place] = name, payload
    return ids, payloads


def items_to_merge(
    indexes: Indexes,
    query: Query,
    k: int,
    policy: Policy,
    radius_bits: int | None,
    fields: Collection[str],
    approved: Approved,
    passing: PassingIn = None,
) -> tuple[NearItems, dict[int, int]]:
    """Return the items that a silo answers with under its policy: at least the k of `nearest_items`.

    If outputs order items, they are those of the query's window, with their cosines. The window over all silos is among the
    windows of each. ``fields`` and ``approved`` are as in `matches_in`, and the rest as in `nearest_items`.
    """
    matches = matches_in(indexes, query, policy, fields, approved)
    steps = policy.distance_step_bits
    find = partial(nearest_items, radius_bits=radius_bits, step_bits=steps, matches=matches, passing=passing)
    if query.magnitudes is None or not all(loaded.has_outputs for loaded in indexes.values()):
        return find(indexes, query, k)
    items, left_out = find(indexes, query, max(k, min(query.window, policy.max_results)))
    cosines = np.zeros(len(items), np.int64)
    for modality, loaded in indexes.items():
        keys = np.array(items.keys[modality], np.int64)
        there = np.flatnonzero(keys != NO_KEY)
        found = loaded.cosines(keys[there], query.words, query.magnitudes)
        cosines[there] = np.maximum(cosines[there], found)
    return replace(items, cosines=tuple(cosines.tolist())), left_out


def searched_items(indexes: Indexes, passing: PassingIn = None) -> int:
    """Return the number of items that a search of some indexes compares, which is at least that of the largest."""
    return max(len(loaded.index) if passing is None else int(passing[name].sum()) for name, loaded in indexes.items())


def nearest_items(
    indexes: Indexes,
    query: Query,
    k: int,
    radius_bits: int | None,
    *,
    step_bits: int = 1,
    matches: MatchesOf = None,
    passing: PassingIn = None,
) -> tuple[NearItems, dict[int, int]]:
    """Return the first k items of a silo, in order, and the number of further items at the place of the last.

    Items with the same 64-bit digest of (silo, id) in two indexes are the same item.

    Args:
        indexes: The indexes to search. An item without a code on one of them is found by its other code.
        query: The code to search for, and the key of the order among equals.
        k: Number of items.
        radius_bits: Maximum distance of an item; None for no limit.
        step_bits: Distances are replaced by the middle of their step of this many bits before items are ordered, so that
            neither the order nor the choice of the items reveals more.
        matches: For each index, the items with words of the query; None if it does not have words.
        passing: For each index, the items to search; None for all.

    Returns:
        The items, and a mapping from the place of the last item (`order.place_in_tier`) to the number of items left out
        there. It is empty if there are none.
    """
    near = _near(indexes, query, k, radius_bits, step_bits, passing, {})
    worded = (matches or {}).items()
    for among in ({name: found.whole for name, found in worded}, {name: found.all_words for name, found in worded}):
        if any(map(len, among.values())):
            # Filters of a silo that hides distances are applied to what it found.
            found = _hidden(indexes, query, matches, among)
            found = found or _near(indexes, query, k, radius_bits, step_bits, passing, among)
            near = {name: _united(*near[name], *found[name]) for name in indexes}
    if len(indexes) == 1:
        [(name, loaded)] = indexes.items()
        return _of_one_index(name, loaded, *near[name], query, k, matches)
    return _joined(indexes, near, query, k, matches)


def _near(
    indexes: Indexes,
    query: Query,
    k: int,
    radius_bits: int | None,
    step_bits: int,
    passing: PassingIn,
    among: Mapping[Modality, ItemSet],
) -> dict[Modality, tuple[Keys, Distances]]:
    """Return the keys and distances of the codes of the k nearest items, and of all at the distance of the last."""
    passed = passing or {}
    chosen = {name: loaded.chosen(among.get(name), passed.get(name)) for name, loaded in indexes.items()}
    limit_bits = most_bits = query.bits if radius_bits is None else radius_bits
    near: dict[Modality, tuple[Keys, Distances]] = {}
    # No code is needed beyond the smallest of the radius and of all k-th distances, which codes of the query's own modality
    # have in most searches.
    for name in sorted(indexes, key=lambda name: name != OWN_MODALITY.get(query.source)):
        near[name] = indexes[name].nearest(query.words, k, chosen[name], limit_bits)
        if len(near[name][0]) >= k:
            limit_bits = min(limit_bits, int(near[name][1].max()))
    if step_bits > 1:
        # Codes up to the largest distance that is rounded like the limit are equals of those at the limit.
        last_bits = limit_bits // step_bits * step_bits + step_bits - 1
        limit_bits = min(most_bits, last_bits)
        return {name: _rounded(loaded, query, limit_bits, step_bits, chosen[name]) for name, loaded in indexes.items()}
    return {name: inside(*near[name], limit_bits) for name in indexes}


def _hidden(
    indexes: Indexes, query: Query, matches: MatchesOf, among: Mapping[Modality, ItemSet]
) -> dict[Modality, tuple[Keys, Distances]]:
    """Return the keys and distances of all items in a tier, whatever their distance, if it is to be hidden."""
    limits = {name: match.hidden_within for name, match in (matches or {}).items()}
    return {
        name: loaded.within(query.words, limit, loaded.chosen(among[name]))
        for name, loaded in indexes.items()
        if (limit := limits[name]) is not None
    }


def _united(keys: Keys, distances: Distances, others: Keys, further: Distances) -> tuple[Keys, Distances]:
    """Return the keys and distances of codes that are in one of two groups, each once."""
    new = ~positions(np.sort(keys), others)[1]
    return np.concatenate([keys, others[new]]), np.concatenate([distances, further[new]])


def _rounded(
    loaded: LoadedIndex, query: Query, limit_bits: int, step_bits: int, among: Allowed | None
) -> tuple[Keys, Distances]:
    """Return the keys of all codes of a modality within a limit, and their distances rounded to the middle of a step.

    Rounding down would put the silo before all that state exact distances. No distance is stated beyond the query's radius.
    """
    keys, distances = loaded.within(query.words, limit_bits, among)
    step, most = np.int32(step_bits), query.bits if query.radius_bits is None else min(query.bits, query.radius_bits)
    return keys, np.minimum(distances // step * step + (step - 1) // 2, np.int32(most))


def _of_one_index(
    name: Modality, loaded: LoadedIndex, keys: Keys, distances: Distances, query: Query, k: int, matches: MatchesOf
) -> tuple[NearItems, dict[int, int]]:
    """Return the first k items of the codes of one modality, and the number of ties left out."""
    places, words, valued = _places(loaded, keys, distances, query, None if matches is None else matches[name])
    ranked = first_places(places, loaded.digests(keys), query.tie_key, k)
    held = None if matches is None else words[ranked]
    return _near_items(places, ranked, {name: keys[ranked].tolist()}, held, valued=valued)


def _places(
    loaded: LoadedIndex, keys: Keys, distances: Distances, query: Query, matches: Matches | None
) -> tuple[_Places, _Places, bool]:
    """Return the place and the words of each code, and whether there are order values."""
    values = None if query.magnitudes is None else loaded.order_values(keys, query.words, query.magnitudes)
    if matches is None:
        # As `packed_places` has it for all other hits, which takes several times as long.
        places = WORDLESS + (distances.astype(np.int64) << STEP_BITS)
        return places if values is None else places | values, np.zeros(len(keys), np.int64), values is not None
    tiers, words = matches.of(keys)
    if matches.hidden_within is not None:
        stated = min(matches.hidden_within, query.bits if query.radius_bits is None else query.radius_bits)
        worded = tiers < BY_CODE
        distances, words = np.where(worded, stated, distances), np.where(worded, words, 0)
    return packed_places(distances, tiers, words, 0 if values is None else values), words, values is not None


def _near_items(
    places: _Places,
    ranked: Rows,
    keys: Mapping[Modality, Sequence[int]],
    words: npt.NDArray[np.int64] | None,
    *,
    valued: bool,
) -> tuple[NearItems, dict[int, int]]:
    """Return the items at some positions, and the number of others at the place of the last, by that place."""
    found, left_out = places[ranked], {}
    values = tuple((found & ((1 << VALUE_BITS) - 1)).tolist()) if valued else None
    steps = found >> STEP_BITS
    distances = (steps & ((1 << DISTANCE_BITS) - 1)).tolist()
    if len(found) < len(places) and (count := int((places < (steps[-1] + 1) << STEP_BITS).sum()) - len(found)):
        left_out = {place_in_tier(int(steps[-1]) >> DISTANCE_BITS, distances[-1]): count}
    if words is None:
        return NearItems(distances, keys, values), left_out
    return NearItems(distances, keys, values, tuple((steps >> DISTANCE_BITS).tolist()), tuple(words.tolist())), left_out


def _joined(
    indexes: Indexes, near: Mapping[Modality, tuple[Keys, Distances]], query: Query, k: int, matches: MatchesOf
) -> tuple[NearItems, dict[int, int]]:
    """Return the first k items of the codes that were found of each modality, and the number of ties left out."""
    names = list(indexes)
    index_of = np.concatenate([np.full(len(near[name][0]), number) for number, name in enumerate(names)])
    keys = np.concatenate([near[name][0] for name in names])
    placed = [_places(indexes[name], *near[name], query, None if matches is None else matches[name]) for name in names]
    places, words = (np.concatenate(parts) for parts in zip(*((place, word) for place, word, _ in placed), strict=True))
    valued = all(valued for *_, valued in placed)
    digests: Digests = np.concatenate([indexes[name].digests(near[name][0]) for name in names])
    items, item_of = grouped(digests)
    nearest = np.full(len(items), np.iinfo(np.int64).max)
    np.minimum.at(nearest, item_of, places)
    ranked = first_places(nearest, items, query.tie_key, k)
    place_of = np.full(len(items), -1, np.int64)
    place_of[ranked] = np.arange(len(ranked))
    codes = np.flatnonzero((place_of[item_of] >= 0) & (places >> STEP_BITS == nearest[item_of] >> STEP_BITS))
    found = np.full((len(names), len(ranked)), NO_KEY, np.int64)
    found[index_of[codes], place_of[item_of[codes]]] = keys[codes]
    held = np.zeros(len(ranked), np.int64)
    np.maximum.at(held, place_of[item_of[codes]], words[codes])
    columns = dict(zip(names, found.tolist(), strict=True))
    return _near_items(nearest, ranked, columns, None if matches is None else held, valued=valued)


def grouped(digests: Digests) -> tuple[Digests, npt.NDArray[np.int64]]:
    """Return each digest once, in ascending order, and the position of each given one. `numpy.unique` loads more modules."""
    order = np.argsort(digests)
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
    """Return the k first of the candidates by tier and score, and their scores. Items with equal scores keep their order.

    Raises:
        UserError: If a score is not finite, or the words or regions of an item cannot be read.
    """
    assert query.nodes is not None  # noqa: S101  the second stage follows from them
    scores = matcher.scores(query.nodes, modality, items.keys[modality])
    if not all(map(math.isfinite, scores)):
        raise NotFinite("Some of its scores are not finite numbers. Train the model again with a lower learning rate.")
    tiers = items.tiers or (BY_CODE,) * len(items)
    order = sorted(range(len(items)), key=lambda place: (tiers[place], -scores[place]))[:k]
    return replace(items.taken(order), order_values=None), tuple(scores[place] for place in order)
