"""Merging is associative, and does not ask who came first."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from silohash.base.analysis import Analysis, term_of
from silohash.base.errors import MixedKinds, ModelsDiffer
from silohash.index.base import IndexManifest
from silohash.index.codes import from_bytes
from silohash.index.digests import item_digests
from silohash.index.store import Store
from silohash.search.hits import Hits, Query, silent
from silohash.search.merge import by_cosine, merge
from silohash.search.node import SiloNode
from silohash.search.order import ALL_WORDS, BY_CODE, EXACT, keyed_order, place_in_tier, possible_first, tie_order
from tests.silos import ask

KEY = b"key"
BY = pytest.mark.parametrize("by_rank", [False, True], ids=["by distance", "by rank"])


def answer(silo, items, k, limit=None):
    """Returns what an honest silo with items at (distance, order value) answers, under a policy of at most ``limit``.

    Further values of an item are its tier, the words that it has, and its cosine.
    """
    cosines = [item[4] for item in items if len(item) == 5]
    worded = any(item[2] < BY_CODE for item in items if len(item) > 2)
    items = [(*item, BY_CODE, 0)[:4] if worded else (*item[:2], BY_CODE, 0) for item in items]
    distances, values, tiers, words = zip(*items, strict=True) if items else ((),) * 4
    ids = [str(number) for number in range(len(distances))]
    places = tie_order([silo] * len(ids), ids, KEY)
    ranked = sorted(range(len(ids)), key=lambda i: (*sort_key(*items[i]), int(places[i])))
    kept = ranked[: min(k, limit or k)]
    steps = [place_in_tier(tier, distance) for tier, distance in zip(tiers, distances, strict=True)]
    cut = steps[kept[-1]] if kept else None
    left_out = sum(steps[i] == cut for i in ranked[len(kept) :])
    return Hits(
        ids=tuple(ids[i] for i in kept),
        distances=tuple(distances[i] for i in kept),
        silos=(silo,) * len(kept),
        payloads=tuple({"caption": ids[i]} for i in kept),
        left_out={cut: left_out} if left_out else {},
        order_values=tuple(values[i] for i in kept),
        cosines=tuple(cosines[i] for i in kept) if len(cosines) == len(items) else None,
        model_digests=frozenset({"m"}),
        tiers=tuple(tiers[i] for i in kept) if set(tiers) - {BY_CODE} else None,
        matched=tuple(words[i] for i in kept) if set(tiers) - {BY_CODE} else None,
    )


def sort_key(distance, value, tier=BY_CODE, words=0):
    return tier, distance, -words.bit_count(), value


ITEMS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 2))
    | st.tuples(st.integers(0, 4), st.integers(0, 2), st.sampled_from([EXACT, ALL_WORDS, BY_CODE]), st.integers(0, 7)),
    max_size=12,
)


@st.composite
def answers(draw):
    k = draw(st.integers(1, 8))
    many = draw(st.integers(1, 6))
    parts = []
    for number in range(many):
        items = draw(ITEMS)
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
    return {f"silo{n}": draw(ITEMS) for n in range(draw(st.integers(1, 5)))}


@given(silos_of_items(), st.integers(1, 8))
def test_merge_by_rank_knows_from_short_answers_what_all_items_tell(silos, k):
    parts = [answer(silo, places, k) for silo, places in silos.items()]
    # Without a match in any tier, a silo does not tell of words.
    told = {silo: [item[: 4 if any(len(i) > 2 and i[2] < BY_CODE for i in items) else 2] for item in items]
            for silo, items in silos.items()}  # fmt: skip
    keys = {silo: [sort_key(*item) for item in items] for silo, items in told.items()}
    items = [(silo, str(number), *key) for silo, found in keys.items() for number, key in enumerate(found)]
    ranks = [1 + sum(other[:2] < tuple(key[:2]) for other in keys[silo]) for silo, _, *key in items]
    # Equals of other silos are compared by the number of equals in their own silo that come before them.
    before = [
        sum(other[:2] == tuple(key[:2]) and other < tuple(key) for other in keys[silo]) for silo, _, *key in items
    ]
    places = tie_order([silo for silo, *_ in items], [item for _, item, *_ in items], KEY)

    def placed(p):
        return items[p][2], ranks[p], items[p][4], before[p], int(places[p])

    order = sorted(range(len(items)), key=placed)
    merged = merge(parts, k=k, key=KEY, by_rank=True)
    found = zip(merged.silos, merged.ids, merged.in_tiers, merged.distances, strict=True)
    assert list(found) == [items[p][:4] for p in order[:k]]
    assert list(merged.ranks) == [ranks[p] for p in order[:k]]
    last = [placed(p)[:2] for p in order[:k]][-1:]
    assert merged.ties_at_cut == sum(placed(p)[:2] == last[0] for p in order[k:])
    assert not merged.comparable


@given(
    st.lists(
        st.lists(st.tuples(*map(st.integers, (0, 0, EXACT, 0, 0), (4, 2, BY_CODE, 0, 5))), max_size=12),
        min_size=1,
        max_size=5,
    ),
    st.integers(1, 30),
    st.integers(1, 30),
    st.integers(0, 4),
)
def test_outputs_order_the_same_items_of_any_silos(silos, window, k, cut):
    reach = max(window, k)
    items = [(f"silo{n}", str(i), *item) for n, silo in enumerate(silos) for i, item in enumerate(silo)]
    equal = dict(zip(items, tie_order([item[0] for item in items], [item[1] for item in items], KEY), strict=True))
    plain = sorted(items, key=lambda item: (item[4], *item[2:4], int(equal[item])))
    worded = sum(item[4] < BY_CODE for item in plain)
    near = sorted(plain[worded : max(worded, window)], key=lambda item: -item[6])
    expected = [*plain[:worded], *near, *plain[max(worded, window) :]]
    parts = [answer(f"silo{n}", silo, reach) for n, silo in enumerate(silos)]
    nested = [merge(parts[:cut], k=reach, key=KEY), *parts[cut:]]
    found = by_cosine(merge(nested, k=reach, key=KEY), window, k)
    assert list(zip(found.silos, found.ids, strict=True)) == [item[:2] for item in expected[:k]]
    told = [cosine for cosine in found.cosines or () if cosine is not None]
    assert told == [item[6] for item in expected[worded:window]][: max(0, k - worded)]
    if k < min(window, len(items)):
        last, rest = expected[k - 1], expected[k:]
        ties = [item[4] == last[4] and item[2] == last[2] for item in rest]
        if k > worded:
            ties = [item[6] == last[6] for item in expected[k:window]]
        assert found.ties_at_cut == sum(ties)
    for part in parts:
        first = sum(tier < BY_CODE for tier in part.in_tiers)
        shown = [*range(first), *(first + p for p in possible_first((part.cosines or ())[first:], k))]
        possible = {part.ids[place] for place in shown}
        assert {item for silo, item in zip(found.silos, found.ids, strict=True) if silo in part.silos} <= possible


CAPTION = st.lists(st.sampled_from(["boat", "red", "sea", "fog"]), max_size=3).map(" ".join)


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 255), CAPTION), max_size=10), min_size=1, max_size=3),
    st.sampled_from(["boat", "red sea", "nothing known"]),
    st.sets(st.sampled_from(["boats", "fog", "sea", "2"]), min_size=1),
    st.integers(1, 7),
    st.sampled_from([None, 3]),
)
def test_excluding_words_leaves_out_items_and_changes_no_other_place(silos, text, excluded, k, radius_bits):
    with ExitStack() as opened:
        folder, nodes = Path(opened.enter_context(TemporaryDirectory())), []
        for number, items in enumerate(silos):
            manifest = IndexManifest("m", 8, "image", silo=f"silo{number}", analysis=Analysis(languages=("en",)))
            store = opened.enter_context(Store.create(folder / f"{number}.sqlite", manifest))
            codes = np.array([[code] for code, _ in items], np.uint8).reshape(-1, 1)
            store.add(
                [*map(str, range(len(items)))], from_bytes(codes, 8), [json.dumps({"caption": c}) for _, c in items]
            )
            nodes.append(SiloNode(f"silo{number}", {"image": store}))
        typed = f"{text} {' '.join(f'-{word}' for word in excluded)}"
        query = Query(words=from_bytes(np.array([[5]], np.uint8), 8)[0], bits=8, model_digest="m", target="image", k=k)
        query = replace(query, radius_bits=radius_bits)
        whole = ask(nodes, replace(query, own_text=text, k=100))
        terms = {term_of(word, Analysis(languages=("en",))) for word in excluded}
        rows = zip(whole.silos, whole.ids, whole.steps, whole.held_words, whole, strict=True)
        expected = [row[:4] for row in rows if terms.isdisjoint({row[1], *row[4].caption.split()})]
        found, ties = [], []
        for offset in range(0, len(expected) + k, k):
            hits = ask(nodes, replace(query, own_text=typed, offset=offset))
            found += zip(hits.silos, hits.ids, hits.steps, hits.held_words, strict=True)
            ties.append(hits.ties_at_cut)
    assert found == expected
    ends = [expected[min(end, len(expected)) - 1][2] for end in range(k, len(expected) + k, k)]
    rest = [[row[2] for row in expected[end:]] for end in range(k, len(expected) + k, k)]
    assert ties[: len(ends)] == [steps.count(end) for end, steps in zip(ends, rest, strict=True)]


@given(answers())
def test_merge_loses_and_repeats_nothing(asked):
    k, parts = asked
    merged = merge(parts, k=k, key=KEY)
    given_hits = sorted(hit for part in parts for hit in zip(part.steps, part.silos, part.ids, strict=True))
    found = list(zip(merged.steps, merged.silos, merged.ids, strict=True))
    assert len(found) == min(k, len(given_hits))
    assert len(set(found)) == len(found)
    assert merged.steps == [step for step, _, _ in given_hits][: len(found)]
    counts = [-words.bit_count() for words in merged.held_words]
    placed = list(zip(merged.steps, counts, merged.order_values, strict=True))
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
