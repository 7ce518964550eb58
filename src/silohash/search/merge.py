"""Send a query to every silo, and merge the answers so that they equal the answer of one pooled index.

Each silo answers with its first ``offset + k`` items in an order that is the same everywhere (`order`): (tier, distance,
-matched words, order value, keyed hash of silo and id). The order value is the sum of the query's magnitudes over the bits
in which the codes differ (`order.magnitude_sums`). The items of a silo that does not tell it get the expected one. The first
``offset + k`` of all items are among those, and merging finds them. No silo takes precedence among equals.

If all silos with hits know the outputs of their items, each answers with at least the first w items instead, and with their
cosines (`order.output_cosines`). The first w of all items are ordered by their cosines after the merge (`by_cosine`). Where
this window ends, and thus the order, does not depend on how items are divided among silos.

Distances between codes of different models are not comparable. If silos use different models, rank replaces distance:
one plus the number of items of the same silo that are in an earlier tier or strictly nearer. Of the two usual definitions of
rank, this one can be computed from a silo's first items alone, regardless of how many items at the same place are left out.
Equal ranks of different silos are ordered by the matched words, then by the number of equals in the same silo that come
before, and then by the same keyed hash. A merged result keeps its ranks, so that another hub can merge it again.

Scores replace distances if every silo with hits scored them, all with the same model. If only some did, ranks replace both.
The scores of silos with the same model are comparable, so these silos share their ranks: the n-th best item of s silos has
the rank (n - 1) // s + 1, which is about its rank among the items of one of them, and the better of two such items always
comes first. A silo that compared codes only has the ranks of its distances.

A silo whose policy is ``rank_only`` sends the order of its items and no distances. Ranks then give the order of all silos,
and its n-th item has the rank n. This is the exception to the promise that a merged answer equals that of a pooled index. A
single distance per answer, such as that of the silo's last item, would be better for the order. But with k = 1 it is the
exact distance of an item, and with any k it moves by one bit when one bit of the query does.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from silohash.base.errors import MixedKinds, ModelsDiffer
from silohash.search.bus import Bus, Replies, answers_to
from silohash.search.hits import Hits, Query, SearchOptions, changed, silent
from silohash.search.order import BY_CODE, expected_sums, place_in_tier, question_key, sort_keys, tier_of
from silohash.search.reasons import Reason
from silohash.search.requests import Answer, Browse, Refusal

T = TypeVar("T")

WAITING = Reason("It has not answered yet.", "late")


def merge(parts: Sequence[Hits], *, k: int, key: bytes, by_rank: bool = False) -> Hits:
    """Merge results into one. Merging is associative, and the order of the parts does not matter.

    Args:
        parts: Results of silos, or of hubs that merged some of them in the same way. Each must have been requested with at
            least k hits and the same key.
        k: Number of hits to keep.
        key: Key of the order among items at the same place.
        by_rank: Whether to order by the ranks within each silo, which is required if silos use different models. If only
            some results have scores, or some do not have distances, ranks give the order in any case.

    Returns:
        The first k hits, and the number of items known to be left out at each place up to that of the last hit.

    Raises:
        UserError: If results of different models, or results with ranks, are merged by distance; or the reverse.
    """
    digests = frozenset[str]().union(*(part.model_digests for part in parts))
    cosines, parts = _joined_cosines(parts), [part.by_distance for part in parts]
    by_rank, scored = by_rank or _needs_ranks(parts, digests), parts
    if by_rank:
        pools = _pools(parts)
        parts = [_ranked(part, pools) for part in parts]
    joined = _joined(parts, digests, by_rank=by_rank)
    order = _order(joined, key, k)
    # The cosines of silos' answers order nothing until all answers are merged (`by_cosine`).
    told = joined if cosines is None else changed(joined, cosines=cosines)
    if joined.scores is not None:
        return told.taken(order[:k], left_out={})
    if by_rank:
        order = _by_score(order, scored)
    last = joined.places_in_tiers[order[k - 1]] if len(order) >= k else None
    return told.taken(order[:k], left_out=_left_out(parts, len(order) - k, last))


def _needs_ranks(parts: Sequence[Hits], digests: frozenset[str]) -> bool:
    """Return whether only ranks can order results, as a silo released nothing else; those of several models are refused."""
    if any(part.ranks is None and not part.has_distances for part in parts):
        return True
    if any(part.ranks is not None for part in parts):
        raise MixedKinds("Some results were merged by rank and cannot be merged by distance. Merge them by rank.")
    if len(digests) > 1:
        raise ModelsDiffer(
            f"The results come from {len(digests)} models ({', '.join(sorted(digests))}), whose distances are not "
            "comparable. Index every silo with the same model, or merge the results by rank."
        )
    return len({part.scores is None for part in parts if len(part)}) > 1


class _Pool(NamedTuple):
    """The tiers with the scores of the silos with a model, with the opposite sign and ascending, and the number of silos."""

    steps: list[tuple[int, float]]
    silos: int


def _pools(parts: Sequence[Hits]) -> dict[frozenset[str], _Pool]:
    """Return the scores of all results that have scores, by the digest of their model."""
    pools: dict[frozenset[str], _Pool] = {}
    for part in parts:
        if part.scores is not None:
            steps, silos = pools.get(part.model_digests, _Pool([], 0))
            pools[part.model_digests] = _Pool(sorted([*steps, *part.steps]), silos + max(1, len(set(part.silos))))
    return pools


def _ranked(part: Hits, pools: Mapping[frozenset[str], _Pool]) -> Hits:
    """Return a result with ranks: those of its scores among the silos with its model, or of one silo's distances."""
    if part.ranks is not None:
        return part
    if part.scores is not None:
        # Silos of one pool share its ranks, so that each has about the ranks that it would have alone.
        pool = pools[part.model_digests]
        ranks = tuple(bisect_left(pool.steps, step) // pool.silos + 1 for step in part.steps)
        return replace(part, ranks=ranks, scores=None)
    if len(set(part.silos)) > 1:
        raise MixedKinds(
            f"A result of {len(set(part.silos))} silos was merged by distance and cannot be merged by rank. "
            "Merge it by rank from the start."
        )
    if not part.has_distances:
        # The n-th hit gets the rank n, as if no two were equally near.
        return replace(part, ranks=tuple(range(1, len(part) + 1)), left_out={})
    nearest = sorted(part.places_in_tiers)
    words = (-count.bit_count() for count in part.held_words)
    placed = [*zip(part.places_in_tiers, words, part.values, strict=True)]
    ranks = tuple(bisect_left(nearest, place) + 1 for place, *_ in placed)
    ordered = sorted(placed)
    smaller = (bisect_left(ordered, each) for each in placed)
    values = tuple(before + 1 - rank for before, rank in zip(smaller, ranks, strict=True))
    left_out = Counter[int]()
    for place, count in part.left_out.items():
        left_out[place_in_tier(tier_of(place), bisect_left(nearest, place) + 1)] += count
    return replace(part, ranks=ranks, left_out=left_out, order_values=values)


def _by_score(order: Sequence[int], parts: Sequence[Hits]) -> list[int]:
    """Return an order by rank in which the items of each pool come by their scores. Their ranks already do."""
    models = [part.model_digests for part in parts for _ in part.ids]
    scores = [score for part in parts for score in part.scores or (None,) * len(part)]
    tiers = [tier for part in parts for tier in part.in_tiers]
    pools: dict[frozenset[str], list[tuple[int, int, float]]] = {}
    for place, position in enumerate(order):
        score = scores[position]
        if score is not None:
            pools.setdefault(models[position], []).append((place, position, score))
    found = list(order)
    for pool in pools.values():
        best = sorted(pool, key=lambda entry: (tiers[entry[1]], -entry[2]))
        for (place, *_), (_, position, _) in zip(pool, best, strict=True):
            found[place] = position
    return found


def _joined(parts: Sequence[Hits], digests: frozenset[str], *, by_rank: bool) -> Hits:
    """Return the hits of all parts one after another."""
    worded = any(part.tiers is not None for part in parts)

    def column(name: str) -> tuple[Any, ...]:
        """Return the values of all parts."""
        return tuple(chain.from_iterable(getattr(part, name) for part in parts))

    return Hits(
        ids=column("ids"), distances=column("distances"), silos=column("silos"), payloads=column("payloads"),
        found_by=column("found"), missing_silos=_joined_reasons([part.missing_silos for part in parts]),
        limited_silos=_joined_reasons([part.limited_silos for part in parts]), model_digests=digests,
        ranks=tuple(chain.from_iterable(part.ranks or () for part in parts)) if by_rank else None,
        scores=_joined_scores(parts), order_values=column("values"),
        alterations=("ranks",) if any(part.some_ranks_only for part in parts) else None,
        tiers=column("in_tiers") if worded else None, matched=column("held_words") if worded else None,
        facets=_summed(parts),
    )  # fmt: skip


def _summed(parts: Sequence[Hits]) -> dict[str, dict[str, int]] | None:
    """Return the sums of the numbers of items with each value; None if there are none."""
    facets = [part.facets for part in parts if part.facets is not None]
    sums: dict[str, Counter[str]] = {}
    for name, counts in chain.from_iterable(each.items() for each in facets):
        sums.setdefault(name, Counter()).update(counts)
    return {name: dict(counts) for name, counts in sums.items()} if facets else None


def _joined_cosines(parts: Sequence[Hits]) -> tuple[int | None, ...] | None:
    """Return the cosines of all hits, or None if some have none, because hits with and without are not comparable."""
    known = [part.cosines for part in parts if len(part)]
    return tuple(chain.from_iterable(cosines or () for cosines in known)) if known and None not in known else None


def _joined_scores(parts: Sequence[Hits]) -> tuple[float, ...] | None:
    """Return the scores of all hits, or None if there are none. A silo without hits may have scored or not."""
    with_hits = [part for part in parts if len(part)] or parts
    known = [part.scores for part in with_hits if part.scores is not None]
    return tuple(chain.from_iterable(known)) if known else None


def _order(joined: Hits, key: bytes, k: int) -> list[int]:
    """Return the positions of hits in the order of `order`."""
    steps, silos, ids, values, words = joined.steps, joined.silos, joined.ids, joined.values, joined.held_words
    # Ids are hashed for the order among equals, which hits beyond the place of the k-th do not need.
    cut = sorted(steps)[k - 1] if k < len(steps) else None
    near = [p for p, step in enumerate(steps) if cut is None or step <= cut]

    def among(column: Sequence[T]) -> list[T]:
        """Return the values of the hits that may be among the first k."""
        return [column[p] for p in near]

    keys = sort_keys(among(steps), among(words), among(values), among(silos), among(ids), key)
    return [p for _, p in sorted(zip(keys, near, strict=True))]


def _left_out(parts: Sequence[Hits], dropped: int, last: int | None) -> dict[int, int]:
    """Return the number of items left out at each place: those dropped here, and those that the parts left out."""
    left_out = {last: dropped} if last is not None and dropped > 0 else {}
    for part in parts:
        for place, count in part.left_out.items():
            # Beyond the last hit, a silo may have more items than it reported.
            if last is None or place <= last:
                left_out[place] = left_out.get(place, 0) + count
    return dict(sorted(left_out.items()))


def _joined_reasons(parts: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Join reasons by silo. If parts have different reasons for one silo, the first in sorted order is kept."""
    reasons: dict[str, str] = {}
    # Sorted, so that the result does not depend on the order in which the answers arrived.
    for silo, reason in sorted({pair for part in parts for pair in part.items()}):
        reasons.setdefault(silo, reason)
    return reasons


async def ask(bus: Bus, queries: Mapping[str, Query], *, deadline_seconds: float, secret: bytes = b"") -> Hits:
    """Send queries to silos, and merge the answers that arrive before the deadline.

    Args:
        bus: The bus to the silos.
        queries: Maps each silo to its query. Queries may only differ in code, model and content. If they are for several
            models, answers are merged by rank. After each answer, their ``progress`` gets the page so far, if it is set.
        deadline_seconds: Time limit for the slowest silo.
        secret: The hub's key for the order among equals. The same secret gives the same order on every page.

    Returns:
        The requested page of hits. A silo that raised an error, refused, was late or gave an invalid answer is listed in
        ``missing_silos`` with the reason. If all silos did, there are no hits.
    """
    if not queries:
        return Hits()
    # It depends on the codes of a question alone.
    codes = list({id(query.words): query.words for query in queries.values()}.values())
    key = question_key(secret, codes if len(codes) == 1 else [queries[silo].words for silo in sorted(queries)])
    keyed = {id(query): changed(query, tie_key=key) for query in queries.values()}
    requests = {silo: keyed[id(query)] for silo, query in queries.items()}
    return await _gathered(bus, requests, partial(_merged, queries=queries, key=key), deadline_seconds)


async def ask_newest(bus: Bus, silos: Collection[str], request: Browse, *, deadline_seconds: float) -> Hits:
    """Return the requested page of the items of silos that pass the filters, newest first. See `ask`."""
    if not silos:
        return Hits()
    keyed = replace(request, tie_key=question_key(b"", ()))
    merged = partial(_merged_newest, request=keyed)
    return await _gathered(bus, dict.fromkeys(silos, keyed), merged, deadline_seconds)


async def _gathered(
    bus: Bus,
    requests: Mapping[str, Query] | Mapping[str, Browse],
    merged: Callable[[Replies[Answer]], Hits],
    deadline_seconds: float,
) -> Hits:
    """Ask silos, and return the merged answers. After each answer, ``progress`` of the requests gets those so far."""
    progress = next(iter(requests.values())).progress
    known: dict[str, Answer | Reason] = dict.fromkeys(requests, WAITING)

    def arrived(silo: str, answer: Answer | Reason) -> None:
        """Merge the answers so far."""
        known[silo] = answer
        if progress is not None:
            progress(merged(Replies.of(known)))

    return merged(await answers_to(bus, requests, deadline_seconds, arrived))


def _parts(replies: Replies[Answer]) -> tuple[dict[str, Hits], list[Hits]]:
    """Return the hits of the silos that answered, and silent results of the others."""
    refusals = {silo: answer.reason for silo, answer in replies.answers.items() if isinstance(answer, Refusal)}
    hits = {silo: answer for silo, answer in replies.answers.items() if isinstance(answer, Hits)}
    return hits, [silent(silo, reason) for silo, reason in {**replies.reasons, **refusals}.items()]


def _merged_newest(replies: Replies[Answer], request: Browse) -> Hits:
    """Return the requested page of the merged lists of items. Codes were not compared, so models may differ."""
    hits, parts = _parts(replies)
    lists = [replace(part, model_digests=frozenset()) for part in hits.values()]
    merged = merge([*lists, *parts], k=request.reach, key=request.tie_key)
    digests = frozenset[str]().union(*(part.model_digests for part in hits.values()))
    nothing = (None,) * len(merged)
    merged = replace(merged, distances=nothing, order_values=None, left_out={}, model_digests=digests, newest=True)
    return replace(merged.page(request.offset), facets=_most_frequent(merged, request))


def _most_frequent(merged: Hits, options: SearchOptions) -> Mapping[str, Mapping[str, int]] | None:
    """Return the most frequent values of each requested column with their numbers of items, in descending order."""
    if not options.facets:
        return None
    found = {name: (merged.facets or {}).get(name, {}) for name in options.facets}
    ordered = {
        name: sorted((-count, value) for value, count in counts.items() if count) for name, counts in found.items()
    }
    return {name: {value: -count for count, value in pairs[: options.facet_values]} for name, pairs in ordered.items()}


def _merged(replies: Replies[Answer], queries: Mapping[str, Query], key: bytes) -> Hits:
    """Return the requested page of the merged answers to queries."""
    hits, parts = _parts(replies)
    parts += [_with_order_values(answer, queries[silo]) for silo, answer in hits.items()]
    first = next(iter(queries.values()))
    by_rank = len({query.model_digest for query in queries.values()}) > 1
    by_outputs = first.window and not by_rank and _joined_cosines(parts) is not None
    # The page is cut after the merge, because the first hits of all silos may be of one silo.
    merged = merge(parts, k=first.most_hits if by_outputs else first.reach, key=key, by_rank=by_rank)
    merged = by_cosine(merged, first.window, first.reach) if by_outputs else merged.by_distance
    searched = sum(part.searched for part in parts)
    merged = changed(merged, order_values=None, searched=searched, facets=_most_frequent(merged, first))
    return merged.page(first.offset) if first.offset else merged


def by_cosine(merged: Hits, window: int, k: int) -> Hits:
    """Return the first k hits of a merged result, whose first ``window`` hits are ordered by cosines instead of distances.

    Hits that have all words of the query stay before them. Hits with the same cosine keep their order, and are counted if
    some are left out.
    """
    cosines, worded = merged.cosines or (), sum(tier < BY_CODE for tier in merged.in_tiers)
    inside = range(worded, max(worded, min(window, len(merged))))
    order = sorted(inside, key=lambda place: -(cosines[place] or 0))
    known = replace(merged, cosines=tuple(cosines[p] if p in inside else None for p in range(len(merged))))
    first = known.taken([*range(worded), *order, *range(inside.stop, len(merged))], left_out=merged.left_out)
    if not 0 < k < inside.stop:
        return first.taken([*range(min(k, len(first)))], left_out=first.left_out)
    places = first.places_in_tiers
    count = places[k:].count(places[k - 1]) + merged.left_out.get(places[k - 1], 0)
    return first.taken([*range(k)], left_out={places[k - 1]: count} if count else {})


def _with_order_values(hits: Hits, query: Query) -> Hits:
    """Return the answer of a silo with expected order values, if it could tell its own and did not."""
    if query.magnitudes is None or not (hits.order_values is hits.scores is None and hits.has_distances):
        return hits
    return replace(hits, order_values=expected_sums(hits.known_distances, query.magnitudes))
