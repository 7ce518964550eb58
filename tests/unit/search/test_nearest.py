"""The nearest items over two modalities equal those of a plain scan, ties included; the best of them by scores; items with
the words of a query, and nothing of what is not released."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from silohash.base.analysis import Analysis
from silohash.base.errors import NotFinite, UserError
from silohash.index.base import FIELDS, IndexManifest
from silohash.index.store import Store
from silohash.search.hits import Query
from silohash.search.loaded_index import LoadedIndex
from silohash.search.merge import merge
from silohash.search.nearest import NO_KEY, NearItems, best_items, candidates, matches_of, nearest_items
from silohash.search.node import SiloNode
from silohash.search.order import ALL_WORDS, BY_CODE, EXACT, tie_order
from silohash.search.policy import CONTENT_REFUSED, Policy
from tests.silos import MODEL, ask, made_up_codes, made_up_node, query_of

BITS = 8
KEY = b"key"
CODE_BITS = 16


def side_at(folder, modality, distances):
    """Return a modality whose items lie at the given distances from the code 0; ``distances`` maps an id to a distance."""
    store = Store.create(folder / f"{modality}.sqlite", IndexManifest("m", BITS, modality))
    words = np.array([[(1 << distance) - 1] for distance in distances.values()], np.uint16).reshape(-1, 1)
    store.add(list(distances), words)
    return LoadedIndex("north", store, "flat")


def query(**asked):
    return Query(words=np.zeros(1, np.uint16), bits=BITS, model_digest="m", target="item", tie_key=KEY, **asked)


def found(indexes, k, radius_bits=None):
    items, left_out = nearest_items(indexes, query(k=k), k, radius_bits)
    ids = []
    for place, (modality, *_) in enumerate(items.found_by):
        ids.append(indexes[modality].store.item_ids(np.array([items.keys[modality][place]]))[0])
    return list(zip(items.distances_bits, ids, items.found_by, strict=True)), left_out


def plain(image, text, k, radius_bits=BITS):
    """Return the same by looking at every item."""
    rows = []
    for name in {*image, *text}:
        codes = {"image": image.get(name), "text": text.get(name)}
        nearest = min(distance for distance in codes.values() if distance is not None)
        if nearest <= radius_bits:
            matched = tuple(loaded for loaded, distance in codes.items() if distance == nearest)
            rows.append((nearest, int(tie_order(["north"], [name], KEY)[0]), name, matched))
    rows.sort()
    kept = [(distance, name, matched) for distance, _, name, matched in rows[:k]]
    more = sum(1 for distance, *_ in rows[k:] if kept and distance == kept[-1][0])
    return kept, ({kept[-1][0]: more} if more else {})


def test_an_item_is_found_by_the_nearer_of_its_codes(tmp_path):
    indexes = {
        "image": side_at(tmp_path, "image", {"a": 1, "b": 5, "c": 2}),
        "text": side_at(tmp_path, "text", {"a": 4, "b": 0, "c": 2, "d": 3}),
    }
    expected = [(0, "b", ("text",)), (1, "a", ("image",)), (2, "c", ("image", "text")), (3, "d", ("text",))]
    assert found(indexes, 9) == (expected, {})
    assert found(indexes, 3) == (expected[:3], {})
    assert found(indexes, 9, radius_bits=1) == (expected[:2], {})
    assert found({"text": indexes["text"]}, 2)[0] == [(0, "b", ("text",)), (2, "c", ("text",))]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("k", [1, 2, 5, 11, 40])
def test_items_ties_and_counts_equal_a_plain_scan(tmp_path, seed, k):
    generator = np.random.default_rng([seed, k])
    names = [f"item {number}" for number in range(30)]
    image, text = (
        {name: int(generator.integers(0, 4)) for name in names if generator.random() < share} for share in (0.8, 0.6)
    )
    indexes = {"image": side_at(tmp_path, "image", image), "text": side_at(tmp_path, "text", text)}
    assert found(indexes, k) == plain(image, text, k)
    assert found(indexes, k, radius_bits=1) == plain(image, text, k, radius_bits=1)


def test_the_tie_at_the_cut_counts_every_item_once(tmp_path):
    """Ten items tie on both modalities, five on one: fifteen items, of which four are kept."""
    both = {f"b{number}": 2 for number in range(10)}
    indexes = {
        "image": side_at(tmp_path, "image", both),
        "text": side_at(tmp_path, "text", {**both, **{f"t{number}": 2 for number in range(5)}}),
    }
    items, left_out = found(indexes, 4)
    assert len(items) == 4
    assert left_out == {2: 11}


def test_a_side_that_ends_before_the_cut_of_the_other(tmp_path):
    indexes = {
        "image": side_at(tmp_path, "image", {"a": 6, "b": 7}),
        "text": side_at(tmp_path, "text", {"a": 3, "c": 3, "d": 3}),
    }
    items, left_out = found(indexes, 2)
    assert {distance for distance, *_ in items} == {3}
    assert left_out == {3: 1}


@pytest.mark.parametrize(
    ("source", "limits"), [("text", {"text": 8, "image": 1}), ("picture", {"image": 8, "text": 3})]
)
def test_the_modality_of_the_query_is_searched_first_and_limits_the_other(tmp_path, source, limits):
    indexes = {
        "image": side_at(tmp_path, "image", {"a": 3, "b": 3, "c": 6}),
        "text": side_at(tmp_path, "text", {"a": 1, "b": 1, "c": 1}),
    }
    asked = {}
    for name, loaded in indexes.items():

        def nearest(*given, name=name, plain=loaded.nearest):
            """Note the limit of a search."""
            asked[name] = given[-1]
            return plain(*given)

        loaded.nearest = nearest
    items, left_out = nearest_items(indexes, query(k=2, source=source), 2, None)
    assert asked == limits
    assert (items.distances_bits, left_out) == ([1, 1], {1: 1})


def test_no_items(tmp_path):
    assert found({"text": side_at(tmp_path, "text", {})}, 3) == ([], {})


def test_items_keep_a_key_per_side_and_can_be_chosen_from():
    items = NearItems([0, 1, 2], {"image": [NO_KEY, 4, 6], "text": [5, NO_KEY, 7]})
    assert len(items) == 3
    assert items.found_by == (("text",), ("image",), ("image", "text"))
    assert items.taken([2, 0]) == NearItems((2, 0), {"image": (6, NO_KEY), "text": (7, 5)})
    assert items.taken([]).found_by == ()
    assert NearItems([3], {"text": [8]}).found_by == (("text",),)


class ByKey:
    """Scores items by their key: the highest key is best."""

    def __init__(self, factor: float = 1.0, shared: int = 1) -> None:
        self.factor, self.shared = factor, shared
        self.scored: list[int] = []
        self.asked: list[object] = []

    def most_shared(self, modality):
        return self.shared

    def nodes(self, content, modality):
        if content.shape != (1, 2):
            raise UserError("The words of the query do not fit the model.")
        self.asked.append((content.tolist(), modality))
        return {"values": content}

    def scores(self, query, modality, keys):
        self.scored += keys
        return [self.factor * key for key in keys]


def asked(k=3, **changed):
    query = query_of(made_up_codes(1, CODE_BITS, seed=2), CODE_BITS, k=k)
    return replace(query, **{"target": "image", "nodes": {"values": np.zeros(1)}, **changed})


@pytest.fixture
def north(tmp_path):
    node = made_up_node(tmp_path, "north", made_up_codes(50, CODE_BITS, seed=1), CODE_BITS)
    node.matcher = ByKey()
    return node


def test_a_silo_scores_its_candidates_and_releases_the_best(north):
    query = asked(candidates=20)
    nearest = north.answer(replace(query, nodes=None, k=20))
    hits = north.answer(query)
    assert sorted(north.matcher.scored, reverse=True)[:3] == list(hits.scores)
    assert len(north.matcher.scored) == 20
    assert set(hits.ids) < set(nearest.ids)
    assert hits.order == "score"
    assert hits.left_out == {}
    distances = dict(zip(nearest.ids, nearest.distances, strict=True))
    assert [distances[name] for name in hits.ids] == list(hits.distances)


def test_all_candidates_give_the_exhaustive_order(north):
    hits = north.answer(asked(k=50, candidates=50))
    assert list(hits.scores) == list(range(49, -1, -1))


def test_items_of_one_picture_count_as_one_candidate():
    assert candidates(ByKey(shared=5), asked(candidates=20), "image", 3) == 100
    assert candidates(ByKey(), asked(candidates=2), "image", 3) == 3


def test_scores_of_silos_are_merged(north, tmp_path):
    south = made_up_node(tmp_path / "south", "south", made_up_codes(50, CODE_BITS, seed=3), CODE_BITS)
    south.matcher = ByKey(factor=0.5)
    hits = ask([north, south], asked(k=6, candidates=50))
    expected = sorted([float(key) for key in range(50)] + [key / 2 for key in range(50)], reverse=True)[:6]
    assert list(hits.scores) == expected
    assert hits.ties_at_cut == 0


def test_a_silo_without_scores_makes_all_be_ordered_by_rank(north, tmp_path):
    south = made_up_node(
        tmp_path / "south",
        "south",
        made_up_codes(50, CODE_BITS, seed=3),
        CODE_BITS,
        policy=Policy(distance_step_bits=2),
    )
    south.matcher = ByKey()
    hits = ask([north, south], asked(k=6))
    assert hits.scores is None
    assert hits.ranks == tuple(sorted(hits.ranks))
    assert [name for silo, name in zip(hits.silos, hits.ids, strict=True) if silo == "north"] == list(
        north.answer(asked(k=6)).ids[: hits.silos.count("north")]
    )
    assert "does not release scores" in hits.limited_silos["south"]


def test_silos_of_several_models_are_merged_by_the_ranks_of_their_scores(north):
    first = north.answer(asked(candidates=50))
    second = replace(first, silos=("south",) * 3, scores=(0.5, 0.4, 0.3), model_digests=frozenset({"other"}))
    hits = merge([first, second], k=6, key=b"", by_rank=True)
    assert hits.ranks == (1, 1, 2, 2, 3, 3)
    assert hits.scores is None


def test_scores_that_are_not_finite_are_refused():
    near = NearItems([1, 2], {"image": [4, 5]})
    with pytest.raises(NotFinite):
        best_items(ByKey(factor=float("nan")), asked(), "image", near, 1)


def test_items_with_equal_scores_keep_the_order_of_their_codes():
    near = NearItems([1, 2, 3], {"image": [4, 6, 5]})
    items, scores = best_items(ByKey(factor=0.0), asked(), "image", near, 2)
    assert items.keys["image"] == (4, 6)
    assert scores == (0.0, 0.0)


def accepting(tmp_path, policy, matcher):
    node = made_up_node(tmp_path, "north", made_up_codes(50, CODE_BITS, seed=1), CODE_BITS, policy=policy)
    node.matcher = matcher
    return node


CONTENT = {"nodes": None, "content": np.array([[3, 4]])}


def test_words_that_came_over_the_bus_are_scored_if_the_policy_accepts_them(tmp_path):
    node = accepting(tmp_path, Policy(accept_query_content=True), ByKey())
    hits = node.answer(asked(**CONTENT))
    assert node.matcher.asked == [([[3, 4]], "image")]
    assert hits.scores == node.answer(asked()).scores
    assert hits.limited_silos == {}


def test_words_that_came_over_the_bus_are_not_used_if_the_policy_does_not_accept_them(tmp_path):
    node = accepting(tmp_path, Policy(), ByKey())
    hits = node.answer(asked(**CONTENT))
    assert node.matcher.asked == node.matcher.scored == []
    assert hits.scores is None
    assert hits.ids == node.answer(asked(nodes=None)).ids
    assert hits.limited_silos == {"north": CONTENT_REFUSED}


def test_a_silo_whose_model_cannot_score_says_so(tmp_path):
    hits = accepting(tmp_path, Policy(accept_query_content=True), None).answer(asked(**CONTENT))
    assert hits.scores is None
    assert hits.limited_silos == {"north": "It compared codes only, because its model cannot score items."}


def test_words_that_do_not_fit_the_model_are_refused(tmp_path):
    node = accepting(tmp_path, Policy(accept_query_content=True), ByKey())
    hits = node.answer(asked(nodes=None, content=np.zeros((1, 3))))
    assert hits.missing_silos == {"north": "The words of the query do not fit the model."}


def test_a_silo_without_the_regions_of_its_items_answers_by_codes(north):
    def missing(modality):
        raise UserError("The regions of its items are not stored. Index the silo again.")

    north.matcher.most_shared = missing
    hits = north.answer(asked())
    assert hits.scores is None
    assert hits.ids == north.answer(asked(nodes=None)).ids
    assert hits.limited_silos["north"].startswith("It compared codes only. The regions of its items are not stored")


CAPTIONS = {"a-1": "two boats at sea", "b": "Boats", "c": "the sea", "d": "a lamp"}
FAR = np.array([[0], [1], [3], [0xFFFF]], np.uint16)


@pytest.fixture
def store(tmp_path: Path):
    manifest = IndexManifest(MODEL, 16, "image", silo="north", analysis=Analysis(languages=("en",)))
    with Store.create(tmp_path / "image.sqlite", manifest) as created:
        payloads = [json.dumps({"caption": text, "labels": ["thing"]}) for text in CAPTIONS.values()]
        created.add([*CAPTIONS], FAR, payloads)
        yield created


def matching(store, text, fields=FIELDS, approved=None):
    loaded = LoadedIndex("north", store, "flat")
    matches, keys = matches_of(loaded, text, fields, approved), loaded.index.keys
    tiers, matched = matches.of(keys)
    every = zip(store.item_ids(keys), tiers.tolist(), matched.tolist(), strict=True)
    found = {name: (tier, bin(words)) for name, tier, words in every if tier < BY_CODE or words}
    whole, all_words = (store.item_ids(keys[items.every()]) for items in (matches.whole, matches.all_words))
    assert whole == [name for name, (tier, _) in found.items() if tier == EXACT]
    assert {*whole, *all_words} == {name for name, (tier, _) in found.items() if tier < BY_CODE}
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("boat", {"a-1": (ALL_WORDS, "0b1"), "b": (EXACT, "0b1")}),
        ("the boats sea", {"a-1": (ALL_WORDS, "0b110"), "b": (BY_CODE, "0b10"), "c": (BY_CODE, "0b100")}),
        ("sea boat boats", {"a-1": (ALL_WORDS, "0b11"), "b": (BY_CODE, "0b10"), "c": (BY_CODE, "0b1")}),
        (" a-1 ", {"a-1": (EXACT, "0b10")}),
        ("nothing", {}),
        ("?!", {}),
        (
            "thing lamp",
            {"a-1": (BY_CODE, "0b1"), "b": (BY_CODE, "0b1"), "c": (BY_CODE, "0b1"), "d": (ALL_WORDS, "0b11")},
        ),
    ],
)
def test_tiers_and_words(store, text, expected):
    assert matching(store, text) == expected


def test_many_words(store):
    assert matching(store, "lamp " + " ".join(f"x{number}" for number in range(40)) + " sea") == {"d": (BY_CODE, "0b1")}


def test_words_of_fields_that_are_not_released_and_of_items_that_are_not_approved_do_not_match(store):
    assert matching(store, "a lamp", ("labels",)) == {}
    assert matching(store, "boats", FIELDS, {"b", "c"}) == {"b": (EXACT, "0b1")}
    assert matching(store, "a-1", FIELDS, frozenset()) == {}


def searched(store, text, **policy):
    """Returns the ids of the items that a silo with a policy finds."""
    return sorted(SiloNode("north", {"image": store}, Policy(**policy)).answer(worded(text)).ids)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("boat -lamp", ["a-1", "b", "c"]),
        ("-SEAS boat", ["b", "d"]),
        ("boat -lamp -sea", ["b"]),
        ('lamp -"boats at sea"', ["b", "c", "d"]),
        ("boat -c", ["a-1", "b", "d"]),
        ("lamp -thing", []),
        ("boat -nothing", [*CAPTIONS]),
        ("boat -the", [*CAPTIONS]),
        ("boat sea-lamp - lamp", [*CAPTIONS]),
    ],
)
def test_items_with_excluded_words_are_not_found(store, text, expected):
    assert searched(store, text) == expected


def test_words_exclude_nothing_in_fields_that_are_not_released_and_items_that_are_not_approved(store, tmp_path):
    assert searched(store, "thing -lamp", fields=("labels",)) == ["a-1", "b", "c", "d"]
    (tmp_path / "approved.txt").write_text("b\nc\n")
    assert searched(store, "boat -sea -lamp", approve=tmp_path / "approved.txt") == ["b"]
    store.remove(["c"])
    assert searched(store, "boat -sea") == ["b", "d"]
    limited = {"max_near_queries": 9, "max_results": 2}
    assert searched(store, "lamp -two", max_results=2) == ["b", "d"]
    assert searched(store, "kite -two", **limited) == ["b"], "no item beyond the nearest takes the place"


def test_words_of_removed_items_do_not_match(store):
    store.remove(["b"])
    assert matching(store, "boats") == {"a-1": (ALL_WORDS, "0b1")}
    store.add(["a-1"], FAR[:1], [json.dumps({"caption": "a kite"})])
    assert matching(store, "boats") == {}
    assert matching(store, "kite") == {"a-1": (EXACT, "0b1")}


def worded(text, **options):
    return Query(words=FAR[0], bits=16, model_digest=MODEL, target="image", source="text", own_text=text, **options)


def test_an_item_with_the_words_is_found_however_far_its_code(store):
    node = SiloNode("north", {"image": store})
    hits = node.answer(worded("lamp", k=2))
    assert (hits.ids, hits.distances, hits.tiers, hits.left_out) == (("d", "a-1"), (16, 0), (EXACT, BY_CODE), {})
    assert node.answer(worded("lamp", k=2, radius_bits=15)).ids == ("a-1", "b"), "a filter stays a filter"


def test_an_answer_does_not_depend_on_what_is_not_released(store, tmp_path):
    """The node is the same but for a caption and an item, neither of which it may release."""
    with Store.create(tmp_path / "other.sqlite", store.manifest) as other:
        payloads = [json.dumps({"caption": "unlike", "labels": ["thing"]})] * 4
        other.add([*CAPTIONS], FAR, payloads)
        (tmp_path / "approved.txt").write_text("a-1\nb\nc\n")
        policy = Policy(fields=("labels",), approve=tmp_path / "approved.txt")
        nodes = [SiloNode("north", {"image": each}, policy) for each in (store, other)]
        for text in ("a lamp", "two boats at sea", "lamp", "sea", "d", "thing", "boat -lamp", "thing -d", "-sea"):
            for k in (1, 2, 4):
                assert nodes[0].answer(worded(text, k=k)) == nodes[1].answer(worded(text, k=k)), (text, k)


@pytest.mark.parametrize("accepts", [False, True])
def test_words_from_another_machine_are_only_compared_if_the_policy_accepts_them(store, accepts):
    node = SiloNode("north", {"image": store}, Policy(accept_query_words=accepts))
    sent = replace(worded("lamp", k=1), own_text=None, text="lamp")
    hits = node.answer(sent)
    assert (hits.ids, hits.tiers) == ((("d",), (EXACT,)) if accepts else (("a-1",), None))
    assert node.status().accepts_words is accepts
    hits = node.answer(replace(sent, text="lamp -two", k=2))
    assert hits.ids == (("d", "b") if accepts else ("a-1", "b"))


@pytest.mark.parametrize(
    "limits",
    [{"max_near_queries": 9}, {"rank_only": True}, {"code_noise": 0.1}, {"distance_step_bits": 4}],
    ids=lambda limits: next(iter(limits)),
)
def test_what_words_find_tells_nothing_of_codes_if_the_policy_limits_what_answers_tell(store, limits):
    node = SiloNode("north", {"image": store}, Policy(**limits))

    def told(code, **options):
        hits = node.answer(replace(worded("sea", k=2, **options), words=code))
        return {*hits.ids}, hits.distances, hits.tiers, hits.left_out, hits.ranks

    assert told(FAR[0])[2] == (EXACT, ALL_WORDS)
    assert told(FAR[0]) == told(FAR[3]) == told(~FAR[0])
    if not node.policy.rank_only:
        assert told(FAR[0], radius_bits=0)[0] == told(FAR[3], radius_bits=0)[0], "a radius would tell distances"
    store.add(["e"], FAR[:1], [json.dumps({"caption": "a lamp of glass"})])
    plain, partly = (node.answer(worded(text, k=3)) for text in (None, "glass mirror"))
    assert (partly.tiers, partly.matched) == ((BY_CODE,) * 3, (0,) * 3)
    assert replace(partly, tiers=None, matched=None) == plain, "words would bring items to the front of their equals"


def test_words_do_not_find_what_is_beyond_the_policys_largest_distance(store):
    for limits in ({}, {"max_near_queries": 9}):
        node = SiloNode("north", {"image": store}, Policy(max_distance_bits=15, **limits))
        assert "d" not in node.answer(worded("lamp", k=4)).ids
