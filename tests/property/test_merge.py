"""Merging is associative, and does not ask who came first."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from silohash.search.hits import Hits, silent
from silohash.search.merge import merge
from silohash.search.order import item_digests, keyed_order, tie_order
from silohash.types import UserError

KEY = b"key"


def answer(silo, distances, k, limit=None):
    """Returns what an honest silo with items at these distances answers, under a policy of at most ``limit`` items."""
    ids = [str(number) for number in range(len(distances))]
    places = tie_order([silo] * len(ids), ids, KEY)
    ranked = sorted(range(len(ids)), key=lambda i: (distances[i], int(places[i])))
    kept = ranked[: min(k, limit or k)]
    cut = distances[kept[-1]] if kept else None
    left_out = sum(distances[i] == cut for i in ranked[len(kept) :])
    return Hits(
        ids=tuple(ids[i] for i in kept),
        distances=tuple(distances[i] for i in kept),
        silos=(silo,) * len(kept),
        payloads=tuple({"caption": ids[i]} for i in kept),
        left_out={cut: left_out} if left_out else {},
        model_digests=frozenset({"m"}),
    )


@st.composite
def answers(draw):
    k = draw(st.integers(1, 8))
    many = draw(st.integers(1, 6))
    parts = []
    for number in range(many):
        distances = draw(st.lists(st.integers(0, 4), max_size=12))
        limit = draw(st.none() | st.integers(1, 4))
        silo = f"silo{number}"
        parts.append(draw(st.sampled_from([answer(silo, distances, k, limit), silent(silo, "late")])))
    return k, parts


@settings(max_examples=200, deadline=None)
@given(answers(), st.randoms(use_true_random=False))
def test_merge_does_not_ask_for_the_order_of_the_parts(asked, random):
    k, parts = asked
    shuffled = random.sample(parts, len(parts))
    assert merge(shuffled, k=k, key=KEY) == merge(parts, k=k, key=KEY)


@settings(max_examples=200, deadline=None)
@given(answers(), st.integers(0, 6))
def test_merge_is_associative(asked, cut):
    k, parts = asked
    left, right = parts[:cut], parts[cut:]
    nested = merge([merge(left, k=k, key=KEY), merge(right, k=k, key=KEY)], k=k, key=KEY)
    assert nested == merge(parts, k=k, key=KEY)


@settings(max_examples=200, deadline=None)
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
    assert set(merged.missing_silos) == {silo for part in parts for silo in part.missing_silos}


@settings(max_examples=100, deadline=None)
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
    with pytest.raises(UserError, match=f"{models} models"):
        merge(parts, k=3, key=KEY)
    assert not merge(parts, k=3, key=KEY, across_models=True).comparable
