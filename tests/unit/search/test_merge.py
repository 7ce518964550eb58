"""Merging and querying: hand-computed merges, silos that do not answer, invalid answers, and the deadline."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from silohash.base.errors import UserError
from silohash.search.hits import Hits, Query
from silohash.search.merge import WAITING, merge
from tests.silos import MODEL, ask, made_up_codes, made_up_node, query_of

BITS = 16


class Scripted:
    """A node that does what the test says."""

    quick = False

    def __init__(self, name, act):
        self.name = name
        self.act = act

    def answer(self, query):
        return self.act(query)


def one_hit(silo, distance=3, **changed):
    return replace(
        Hits(ids=("x",), distances=(distance,), silos=(silo,), payloads=({},), model_digests=frozenset({MODEL})),
        **changed,
    )


@pytest.fixture
def node(tmp_path):
    return made_up_node(tmp_path, "north", made_up_codes(50, BITS, seed=1), BITS)


@pytest.fixture
def query():
    return query_of(made_up_codes(1, BITS, seed=2), BITS, k=5)


def test_node_that_raises_is_missing_and_the_others_answer(node, query):
    def fail(_):
        raise OSError("disk gone")

    hits = ask([node, Scripted("south", fail)], query)
    assert len(hits) == 5
    assert hits.missing_silos == {"south": "It failed: OSError: disk gone"}


def test_all_items_of_the_silos_that_answer_count_as_searched(tmp_path, node, query):
    south = made_up_node(tmp_path, "south", made_up_codes(30, BITS, seed=3), BITS)
    assert [node.answer(query).searched, ask([node, south], query).searched] == [50, 80]
    assert ask([node, Scripted("west", lambda _: one_hit("west", searched=7))], replace(query, offset=2)).searched == 57


def test_late_node_is_missing(node, query, monkeypatch):
    wait, now, answer = threading.Event(), [100.0], node.answer
    monkeypatch.setattr("silohash.search.bus.time", SimpleNamespace(monotonic=lambda: now[0]))

    def answer_until_the_deadline(asked):
        now[0] += 1.0
        return answer(asked)

    monkeypatch.setattr(node, "answer", answer_until_the_deadline)
    try:
        hits = ask([node, Scripted("slow", lambda _: wait.wait(60))], query, deadline_seconds=1.0)
    finally:
        wait.set()
    assert set(hits.silos) == {"north"}
    assert hits.missing_silos == {"slow": "It did not answer within 1 seconds."}


def test_answers_so_far_are_merged_after_each(tmp_path, node, query):
    south = made_up_node(tmp_path, "south", made_up_codes(50, BITS, seed=3), BITS)
    seen = []
    hits = ask([node, south, Scripted("west", lambda _: one_hit("north"))], replace(query, progress=seen.append))
    assert [list(so_far.missing_silos.values()).count(WAITING) for so_far in seen] == [2, 1, 0]
    assert vars(seen[-1]) == vars(hits)
    for so_far in seen:
        answered = [each for each in (node, south) if each.name not in so_far.missing_silos]
        alone = ask(answered, query)
        assert (so_far.ids, so_far.distances, so_far.left_out) == (alone.ids, alone.distances, alone.left_out)


def test_nodes_are_asked_at_the_same_time(query):
    together = threading.Barrier(3, timeout=60)

    def meet(name):
        def act(_):
            together.wait()
            return one_hit(name)

        return act

    hits = ask([Scripted(name, meet(name)) for name in "abc"], query)
    assert sorted(hits.silos) == ["a", "b", "c"]


def test_other_model_is_refused_with_the_reason(tmp_path, node, query):
    other = made_up_node(tmp_path, "south", made_up_codes(50, BITS, seed=1), BITS, model="77aa")
    hits = ask([node, other], query)
    assert set(hits.silos) == {"north"}
    assert "77aa" in hits.missing_silos["south"]
    assert hits.comparable


def test_all_silent_is_still_an_answer(query):
    def refuse(_):
        raise UserError("Closed on Sundays.")

    hits = ask([Scripted("a", refuse), Scripted("b", refuse)], query)
    assert len(hits) == 0
    assert hits.ties_at_cut == 0
    assert hits.missing_silos == {"a": "Closed on Sundays.", "b": "Closed on Sundays."}


def test_nobody_to_ask(query):
    assert len(ask([], query)) == 0


@pytest.mark.parametrize(
    ("answer", "flaw"),
    [
        (one_hit("someone else"), "name of another silo"),
        (one_hit("bad", missing_silos={"north": "ha"}), "name of another silo"),
        (one_hit("bad", model_digests=frozenset({"other"})), "another model"),
        (one_hit("bad", distance=17), "beyond the limit of 16 bits"),
        (one_hit("bad", distance=-1), "a negative distance"),
        (one_hit("bad", payloads=()), "unequal length"),
        (one_hit("bad", found_by=(("image",), ("image",))), "unequal length"),
        (one_hit("bad", found_by=(("text",),)), "sides other than image"),
        (one_hit("bad", left_out={3: -1}), "negative"),
        (one_hit("bad", ranks=(1,)), "ranks, which only the hub"),
        (
            one_hit("bad", ids=("x",) * 6, distances=(1,) * 6, silos=("bad",) * 6, payloads=({},) * 6),
            "6 hits when 5",
        ),
    ],
)
def test_dishonest_answers_are_left_out(node, query, answer, flaw):
    hits = ask([node, Scripted("bad", lambda _: answer)], query)
    assert set(hits.silos) == {"north"}
    assert flaw in hits.missing_silos["bad"]


def test_personal_models_get_a_query_each(tmp_path):
    words = {"north": made_up_codes(30, BITS, seed=1), "south": made_up_codes(30, BITS, seed=2)}
    nodes = [made_up_node(tmp_path, name, codes, BITS, model=f"of {name}") for name, codes in words.items()]
    queries = {
        name: Query(words=codes[0], bits=BITS, model_digest=f"of {name}", target="image", k=4)
        for name, codes in words.items()
    }
    hits = ask(nodes, queries)
    assert not hits.missing_silos
    assert not hits.comparable
    assert list(hits.ranks) == sorted(hits.ranks)
    assert len(hits) == 4
    alone = ask(nodes, {"north": queries["north"]})
    assert set(alone.silos) == {"north"}
    assert alone.comparable
    assert alone.ranks is None


def far_and_near(tmp_path, model_of):
    """Returns two silos, of which one's items all lie farther away than the other's, and a query for each."""
    at = {"far": [12, 13, 13, 14], "near": [0, 1, 1, 2]}
    words = {name: np.array([[(1 << d) - 1] for d in distances], np.uint16) for name, distances in at.items()}
    nodes = [made_up_node(tmp_path, name, codes, BITS, model=model_of(name)) for name, codes in words.items()]
    queries = {
        name: replace(query_of(np.zeros((1, 1), np.uint16), BITS, k=4), model_digest=model_of(name)) for name in at
    }
    return nodes, queries


def test_silos_with_models_of_their_own_are_merged_by_rank(tmp_path):
    nodes, queries = far_and_near(tmp_path, str)
    hits = ask(nodes, {name: replace(query, k=3) for name, query in queries.items()})
    assert hits.ranks == (1, 1, 2)
    assert set(hits.silos[:2]) == {"far", "near"}
    assert set(hits.distances[:2]) == {0, 12}
    assert hits.ties_at_cut == 3
    whole = ask(nodes, {name: replace(query, k=9) for name, query in queries.items()})
    assert whole.ranks == (1, 1, 2, 2, 2, 2, 4, 4)
    assert whole.left_out == {}
    pages = [ask(nodes, {n: replace(q, k=2, offset=offset) for n, q in queries.items()}) for offset in (0, 2, 4, 6)]
    assert [item for page in pages for item in zip(page.silos, page.ids, page.ranks, strict=True)] == list(
        zip(whole.silos, whole.ids, whole.ranks, strict=True)
    )
    turned = ask(nodes[::-1], {name: replace(query, k=9) for name, query in queries.items()})
    assert turned == whole


def test_a_query_a_silo_for_one_model_is_merged_by_distance(tmp_path):
    nodes, queries = far_and_near(tmp_path, lambda name: MODEL)
    hits = ask(nodes, queries)
    assert hits.comparable
    assert set(hits.silos) == {"near"}
    assert list(hits.distances) == [0, 1, 1, 2]


def test_an_empty_mapping_asks_nobody(node):
    assert not ask([node], {}).answered


def test_secret_changes_the_order_among_equals_only(tmp_path):
    node = made_up_node(tmp_path, "north", np.zeros((40, 1), np.uint16), BITS)
    query = query_of(np.zeros((1, 1), np.uint16), BITS, k=40)
    first, second = ask([node], query, secret=b"a"), ask([node], query, secret=b"b")
    assert sorted(first.ids) == sorted(second.ids)
    assert first.ids != second.ids
    assert ask([node], query, secret=b"a") == first


def part(silo, distances, left_out=None, model=MODEL):
    count = len(distances)
    return Hits(
        ids=tuple(f"{silo}-{number}" for number in range(count)),
        distances=tuple(distances),
        silos=(silo,) * count,
        payloads=tuple({"number": number} for number in range(count)),
        left_out=left_out or {},
        model_digests=frozenset({model}),
    )


@pytest.mark.parametrize(
    ("k", "distances", "left_out"),
    [
        (1, (1,), {}),  # items farther away than the last hit are not reported
        (2, (1, 2), {}),
        (3, (1, 2, 3), {3: 4}),  # one is dropped here, three were left out by the silos
        (4, (1, 2, 3, 3), {3: 3}),
        (5, (1, 2, 3, 3), {3: 3}),
    ],
)
def test_a_merge_computed_by_hand(k, distances, left_out):
    merged = merge([part("north", [1, 3], {3: 2}), part("south", [2, 3], {3: 1})], k=k, key=b"key")
    assert merged.distances == distances
    assert merged.left_out == left_out
    assert merged.ties_at_cut == left_out.get(3, 0)
    assert merged.ids[0] == "north-0"
    assert [payload["number"] for payload in merged.payloads] == [int(name[-1]) for name in merged.ids]


def test_the_sides_that_found_an_item_stay_with_it():
    both = replace(part("north", [2, 0]), found_by=(("text",), ("image", "text")))
    merged = merge([both, part("south", [1])], k=3, key=b"key")
    assert merged.found_by == (("image", "text"), (), ("text",))
    assert [hit.found_by for hit in merge([merged], k=2, key=b"key")] == [("image", "text"), ()]


def test_a_merge_of_answers_that_hold_fewer_hits_reports_all_that_is_left_out():
    merged = merge([part("north", [1, 3], {5: 2})], k=3, key=b"key")
    assert merged.left_out == {5: 2}
    assert merge([part("north", [1, 3], {5: 2})], k=2, key=b"key").left_out == {}


def test_ranks_computed_by_hand():
    merged = merge([part("north", [1, 1, 4], {4: 2}), part("south", [9, 9], {})], k=9, key=b"key", by_rank=True)
    assert merged.ranks == (1, 1, 1, 1, 3)
    assert sorted(zip(merged.silos, merged.distances, strict=True))[:3] == [("north", 1), ("north", 1), ("north", 4)]
    assert merged.left_out == {3: 2}
    again = merge([merged, part("east", [0])], k=9, key=b"key", by_rank=True)
    assert again.ranks == (1, 1, 1, 1, 1, 3)


def test_reasons_are_joined_whatever_the_order_of_the_parts():
    parts = [
        Hits(missing_silos={"a": "late"}, limited_silos={"b": "few"}),
        Hits(missing_silos={"a": "closed", "c": "gone"}),
    ]
    for ordered in (parts, parts[::-1]):
        merged = merge(ordered, k=1, key=b"")
        assert merged.missing_silos == {"a": "closed", "c": "gone"}
        assert merged.limited_silos == {"b": "few"}


@pytest.mark.parametrize(("distance", "radius_bits", "accepted"), [(16, None, True), (3, 3, True), (4, 3, False)])
def test_distances_are_accepted_up_to_the_radius(query, distance, radius_bits, accepted):
    answer = one_hit("a", distance)
    hits = ask([Scripted("a", lambda _: answer)], replace(query, radius_bits=radius_bits))
    assert (len(hits) == 1) is accepted
    assert ("beyond the limit of 3 bits" in hits.missing_silos.get("a", "")) is not accepted


def test_as_many_hits_as_requested_are_accepted(query):
    answer = part("a", [1, 2, 3, 4, 5, 6], {6: 0})
    hits = ask([Scripted("a", lambda _: answer)], replace(query, k=4, offset=2))
    assert hits.distances == (3, 4, 5, 6)
    assert not ask([Scripted("a", lambda _: answer)], replace(query, k=3, offset=2))


def scored(silo, scores, model=MODEL):
    return replace(part(silo, [5] * len(scores), model=model), scores=tuple(scores))


def test_silos_that_scored_share_their_ranks_with_those_that_compared_codes():
    parts = [scored("north", [0.9, 0.8, 0.1]), scored("south", [0.7, 0.2]), part("east", [1, 1, 4], {4: 2})]
    merged = merge(parts, k=8, key=b"key")
    assert merged.order == "rank"
    assert merged.ranks == (1, 1, 1, 1, 2, 2, 3, 3)
    of_scored = [name for name in merged.ids if not name.startswith("east")]
    assert of_scored == ["north-0", "north-1", "south-0", "south-1", "north-2"]
    assert [rank for rank, silo in zip(merged.ranks, merged.silos, strict=True) if silo == "east"] == [1, 1, 3]
    assert merged.left_out == {3: 2}
    assert merge(parts[::-1], k=8, key=b"key") == merged
    for k in range(1, 8):
        assert merge(parts, k=k, key=b"key").ids == merged.ids[:k]


def test_scores_of_different_models_are_not_compared():
    parts = [scored("north", [9.0, 8.0]), scored("south", [0.2, 0.1], "77aa"), scored("east", [0.4, 0.3], "77aa")]
    merged = merge(parts, k=6, key=b"key", by_rank=True)
    assert merged.ranks == (1, 1, 1, 2, 2, 2)
    assert {"north-0", "east-0", "east-1"} == set(merged.ids[:3])
    assert [name for name in merged.ids if name[0] in "se"] == ["east-0", "east-1", "south-0", "south-1"]


def test_a_silo_without_hits_does_not_take_the_scores_from_the_others():
    merged = merge([scored("north", [0.9, 0.8]), part("east", [])], k=3, key=b"key")
    assert merged.scores == (0.9, 0.8)


def test_a_silo_that_scored_without_a_hit_does_not_take_the_hits_of_the_others():
    parts = [scored("north", []), part("east", [1, 4], {4: 2})]
    for given in (parts, parts[::-1]):
        merged = merge(given, k=3, key=b"key")
        assert (merged.order, merged.ids, merged.distances) == ("distance", ("east-0", "east-1"), (1, 4))
        assert merged.ties_at_cut == 2


def of_ranks(silo, *ids):
    """Returns the answer of a silo that releases ranks only."""
    count = len(ids)
    return Hits(
        ids=ids, distances=(None,) * count, silos=(silo,) * count, payloads=({},) * count,
        model_digests=frozenset({MODEL}), alterations=("ranks",),
    )  # fmt: skip


def test_ranks_order_all_silos_if_one_releases_ranks_only():
    near = Hits(
        ids=("a", "b", "c"), distances=(1, 4, 4), silos=("near",) * 3, payloads=({},) * 3, left_out={4: 2},
        model_digests=frozenset({MODEL}),
    )  # fmt: skip
    merged = merge([near, of_ranks("hidden", "x", "y", "z")], k=5, key=b"key")
    places = dict(zip(merged.ids, zip(merged.ranks, merged.distances, strict=True), strict=True))
    assert places == {"a": (1, 1), "x": (1, None), "b": (2, 4), "c": (2, 4), "y": (2, None)}
    assert (merged.order, merged.alterations, dict(merged.left_out)) == ("rank", ("ranks",), {2: 2})
    first = merge([near, of_ranks("hidden", "x", "y", "z")], k=1, key=b"other")
    assert first.some_ranks_only, "also if no hit of the silo is on the page"
    assert not merge([near], k=1, key=b"key").some_ranks_only
    again = merge([merge([near], k=5, key=b"key", by_rank=True), of_ranks("hidden", "x", "y", "z")], k=5, key=b"key")
    assert (again.ids, again.ranks) == (merged.ids, merged.ranks)
    with pytest.raises(UserError, match="by rank"):
        merge([merged, near], k=5, key=b"key")


def test_ranks_of_one_silo_keep_its_order_and_tell_no_ties():
    merged = merge([of_ranks("hidden", "z", "x", "y")], k=2, key=b"key")
    assert (merged.ids, merged.ranks, merged.distances) == (("z", "x"), (1, 2), (None, None))
    assert merged.ties_at_cut == 0
    assert not merged.comparable
