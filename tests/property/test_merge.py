"""Merging is associative, and does not ask who came first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silohash.base.errors import MixedKinds, ModelsDiffer
from silohash.index.digests import item_digests
from silohash.search.hits import Hits, silent
from silohash.search.merge import by_cosine, merge
from silohash.search.order import keyed_order, possible_first, tie_order

KEY = b"key"
BY = pytest.mark.parametrize("by_rank", [False, True], ids=["by distance", "by rank"])


def answer(silo, items, k, limit=None):
    """Returns what an honest silo with items at (distance, order value) answers, under a policy of at most ``limit``.

    Items may also have a cosine.
    """
    distances, values = [item[0] for item in items], [item[1] for item in items]
    ids = [str(number) for number in range(len(distances))]
    places = tie_order([silo] * len(ids), ids, KEY)
    ranked = sorted(range(len(ids)), key=lambda i: (*items[i][:2], int(places[i])))
    kept = ranked[: min(k, limit or k)]
    cut = distances[kept[-1]] if kept else None
    left_out = sum(distances[i] == cut for i in ranked[len(kept) :])
    return Hits(
        ids=tuple(ids[i] for i in kept),
        distances=tuple(distances[i] for i in kept),
        silos=(silo,) * len(kept),
        payloads=tuple({"caption": ids[i]} for i in kept),
        left_out={cut: left_out} if left_out else {},
        order_values=tuple(values[i] for i in kept),
        cosines=tuple(items[i][2] for i in kept) if all(len(item) > 2 for item in items) else None,
        model_digests=frozenset({"m"}),
    )


@st.composite
def answers(draw):
    k = draw(st.integers(1, 8))
    many = draw(st.integers(1, 6))
    parts = []
    for number in range(many):
        items = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), max_size=12))
        limit = draw(st.none() | st.integers(1, 4))
        silo = f"silo{number}"
        parts.append(draw(st.sampled_from([answer(silo, items, k, limit), silent(silo, "late")])))
    return k, parts


@BY
@given(answers(), st.randoms(use_true_random=False))
def test_merge_does_not_ask_for_the_order_of_the_parts(by_rank, asked, random):
    k, parts = asked
    shuffled = random.sample(parts, len(parts))
    assert merge(shuffled, k=k, key=KEY, by_rank=by_rank) == merge(parts, k=k, key=KEY, by_rank=by_rank)


@BY
@given(answers(), st.integers(0, 6), st.booleans())
def test_merge_is_associative(by_rank, asked, cut, alone):
    k, parts = asked
    left, right = parts[:cut], parts[cut:]
    rest = right if alone else [merge(right, k=k, key=KEY, by_rank=by_rank)]
    nested = merge([merge(left, k=k, key=KEY, by_rank=by_rank), *rest], k=k, key=KEY, by_rank=by_rank)
    assert nested == merge(parts, k=k, key=KEY, by_rank=by_rank)


@st.composite
def silos_of_items(draw):
    items = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), max_size=12)
    return {f"silo{n}": draw(items) for n in range(draw(st.integers(1, 5)))}


@given(silos_of_items(), st.integers(1, 8))
def test_merge_by_rank_knows_from_short_answers_what_all_items_tell(silos, k):
    items = [(silo, str(number), *place) for silo, places in silos.items() for number, place in enumerate(places)]
    ranks = [1 + sum(other < distance for other, _ in silos[silo]) for silo, _, distance, _ in items]
    # Equals of other silos are compared by the number of equals in their own silo that come before them.
    before = [sum(other == d and less < value for other, less in silos[silo]) for silo, _, d, value in items]
    places = tie_order([silo for silo, *_ in items], [item for _, item, *_ in items], KEY)
    order = sorted(range(len(items)), key=lambda p: (ranks[p], before[p], int(places[p])))
    merged = merge([answer(silo, distances, k) for silo, distances in silos.items()], k=k, key=KEY, by_rank=True)
    assert list(zip(merged.silos, merged.ids, merged.distances, strict=True)) == [items[p][:3] for p in order[:k]]
    assert list(merged.ranks) == [ranks[p] for p in order[:k]]
    assert merged.ties_at_cut == sum(ranks[p] == merged.ranks[-1] for p in order[k:])
    assert not merged.comparable


@given(
    st.lists(st.lists(st.tuples(*map(st.integers, (0, 0, 0), (4, 2, 5))), max_size=12), min_size=1, max_size=5),
    st.integers(1, 30),
    st.integers(1, 30),
    st.integers(0, 4),
)
def test_outputs_order_the_same_items_of_any_silos(silos, window, k, cut):
    reach = max(window, k)
    items = [(f"silo{n}", str(i), *item) for n, silo in enumerate(silos) for i, item in enumerate(silo)]
    equal = dict(zip(items, tie_order([item[0] for item in items], [item[1] for item in items], KEY), strict=True))
    plain = sorted(items, key=lambda item: (*item[2:4], int(equal[item])))
    expected = [*sorted(plain[:window], key=lambda item: -item[4]), *plain[window:]]
    parts = [answer(f"silo{n}", silo, reach) for n, silo in enumerate(silos)]
    nested = [merge(parts[:cut], k=reach, key=KEY), *parts[cut:]]
    found = by_cosine(merge(nested, k=reach, key=KEY), window, k)
    assert list(zip(found.silos, found.ids, strict=True)) == [item[:2] for item in expected[:k]]
    assert [cosine for cosine in found.cosines or () if cosine is not None] == [item[4] for item in expected[:window]][
        :k
    ]
    if k < min(window, len(items)):
        assert found.ties_at_cut == sum(item[4] == expected[k - 1][4] for item in expected[k:window])
    for part in parts:
        possible = {part.ids[place] for place in possible_first(part.cosines or (), k)}
        assert {item for silo, item in zip(found.silos, found.ids, strict=True) if silo in part.silos} <= possible


@given(answers())
def test_merge_loses_and_repeats_nothing(asked):
    k, parts = asked
    merged = merge(parts, k=k, key=KEY)
    given_hits = sorted(
        (d, s, i) for part in parts for d, s, i in zip(part.distances, part.silos, part.ids, strict=True)
    )
    found = list(zip(merged.distances, merged.silos, merged.ids, strict=True))
    assert len(found) == min(k, len(given_hits))
    assert len(set(found)) == len(found)
    assert list(merged.distances) == [distance for distance, _, _ in given_hits][: len(found)]
    placed = list(zip(merged.distances, merged.order_values, strict=True))
    assert placed == sorted(placed)
    assert set(merged.missing_silos) == {silo for part in parts for silo in part.missing_silos}


@given(st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), unique=True, max_size=40), st.binary(max_size=20))
def test_order_has_no_ties_of_its_own(items, key):
    digests = item_digests([silo for silo, _ in items], [item for _, item in items])
    assert len(set(digests.tolist())) == len(items)
    assert len(set(keyed_order(digests, key).tolist())) == len(items)


@given(st.sampled_from([2, 3]))
def test_models_are_not_mixed_unasked(models):
    parts = [
        Hits(ids=("1",), distances=(2,), silos=(f"s{n}",), payloads=({},), model_digests=frozenset({f"m{n}"}))
        for n in range(models)
    ]
    with pytest.raises(ModelsDiffer, match=f"{models} models"):
        merge(parts, k=3, key=KEY)
    by_rank = merge(parts, k=3, key=KEY, by_rank=True)
    assert not by_rank.comparable
    with pytest.raises(MixedKinds):
        merge([by_rank.page(0)], k=3, key=KEY)


def test_several_silos_merged_by_distance_have_no_ranks_of_their_own():
    by_distance = merge([answer("a", [(1, 0), (2, 0)], 2), answer("b", [(0, 0), (3, 0)], 2)], k=2, key=KEY)
    with pytest.raises(MixedKinds, match="2"):
        merge([by_distance, answer("c", [(4, 0)], 2)], k=2, key=KEY, by_rank=True)
