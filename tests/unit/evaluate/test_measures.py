"""Measures are read and printed by name, and agree with plain definitions."""

from itertools import pairwise, permutations

import numpy as np
import pytest

from silohash.base.errors import NoEffect, OutOfRange, SettingNeeded, UnknownOption, UserError
from silohash.evaluate.measures import PAIR_MEASURES, Measure, by_pairs, describe, evaluate_all, is_rank, mean_of
from silohash.evaluate.relevance import Pairs, Relevance
from tests.unit.evaluate import rankings
from tests.unit.evaluate.rankings import evaluated

TYPED = [
    "mAP@all",
    "mAP@50[denominator=retrieved]",
    "mAP@50[denominator=retrieved,ties=index]",
    "mAP@5000[denominator=first-k-relevant,empty=skip]",
    "P@10",
    "P@radius2",
    "R@10[ties=index]",
    "R@radius0[empty=skip]",
    "nDCG@100",
    "nDCG@all[gain=exponential,ties=index]",
    "Success@1",
    "R@1[by=pairs]",
    "R@10[by=pairs,ties=worst]",
    "R@radius2[by=pairs]",
    "mAP@50[denominator=min,by=pairs]",
    "MedR",
    "MedR[by=pairs,ties=index,empty=skip]",
]


@pytest.mark.parametrize("text", TYPED)
def test_what_is_typed_is_what_is_printed(text):
    assert str(Measure.parse(text)) == text
    assert Measure.parse(str(Measure.parse(text))) == Measure.parse(text)


def test_defaults_are_spelled_out_where_conventions_differ():
    assert str(Measure.parse("mAP@50")) == "mAP@50[denominator=retrieved]"
    assert Measure.parse(" MAP@50[ ties = index ] ") == Measure("mAP", 50, ties="index")
    assert Measure.parse("P@10[ties=expected]") == Measure.parse("P@10")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mPA@all", 'did you mean "mAP"'),
        ("ndgc@10", 'did you mean "nDCG"'),
        ("mAP", "is not a measure"),
        ("mAP@al", 'did you mean "all"'),
        ("mAP@1000000000", "up to 9 digits"),
        ("P@" + "9" * 5000, "up to 9 digits"),
        ("P@radius" + "9" * 5000, "is not a cutoff"),
        ("R@1[by=pairs,folds=1000000000]", "folds is"),
        ("mAP@0", "is 0; it must be at least 1"),
        ("mAP@50[denominater=min]", 'did you mean "denominator"'),
        ("mAP@50[denominator=retreived]", 'did you mean "retrieved"'),
        ("mAP@50[denominator]", 'cannot be ""'),
        ("mAP@all[denominator=min]", 'no option "denominator"'),
        ("mAP@all[denominator=retrieved]", 'no option "denominator"'),
        ("P@10[gain=linear]", 'no option "gain"; it has by, ties, empty'),
        ("P@10[by=pair]", 'did you mean "pairs"'),
        ("MedR@10", '"MedR" has no cutoff'),
        ("MedR[gain=linear]", 'no option "gain"; it has by, ties, empty'),
        ("MadR", "is not a measure"),
        ("P@radius2[ties=index]", 'no option "ties"'),
        ("P@all", "Give a cutoff, as"),
        ("mAP@radius2", "cannot have a radius"),
    ],
)
def test_what_is_mistyped_is_explained(text, words):
    with pytest.raises(UserError, match=r"^[^\n]*$") as error:
        Measure.parse(text)
    assert words in str(error.value)


def test_a_measure_made_in_code_is_checked_too():
    with pytest.raises(UnknownOption, match="gain"):
        Measure("P", 10, gain="exponential")


def test_every_form_that_is_listed_can_be_typed():
    listed = describe()
    assert [entry["name"] for entry in listed] == ["mAP", "P", "R", "nDCG", "Success", "MedR", "RSum"]
    for entry in listed:
        for form in entry["forms"]:
            assert Measure.parse(form).name == entry["name"]


def task(items=400, queries=9, bits=8, seed=3):
    generator = np.random.default_rng(seed)
    signs = [generator.integers(0, 2, (count, bits), dtype=np.uint8) for count in (queries, items)]
    labels = [(generator.random((count, 6)) < 0.2).astype(np.uint8) for count in (queries, items)]
    labels[0][:, 0] = 1
    labels[0][2] = 0
    return signs, labels


def stable_rankings(signs, labels):
    distance = (signs[0][:, None] != signs[1][None]).sum(2)
    order = np.argsort(distance, axis=1, kind="stable")
    return np.take_along_axis(labels[0].astype(int) @ labels[1].T.astype(int), order, 1).tolist()


@pytest.mark.parametrize(
    ("text", "figure"),
    [
        ("mAP@all", lambda ranking: rankings.average_precision(ranking, 400, "all")),
        ("mAP@30[denominator=retrieved]", lambda ranking: rankings.average_precision(ranking, 30, "retrieved")),
        ("mAP@30[denominator=min]", lambda ranking: rankings.average_precision(ranking, 30, "min")),
        ("mAP@30[denominator=all]", lambda ranking: rankings.average_precision(ranking, 30, "all")),
        (
            "mAP@30[denominator=first-k-relevant]",
            lambda ranking: rankings.average_precision(ranking, 30, "first-k-relevant"),
        ),
        ("P@7", lambda ranking: sum(gain > 0 for gain in ranking[:7]) / 7),
        ("P@500", lambda ranking: sum(gain > 0 for gain in ranking) / 500),
        ("R@7", lambda r: sum(gain > 0 for gain in r[:7]) / max(1, sum(gain > 0 for gain in r))),
        ("Success@2", lambda ranking: float(any(ranking[:2]))),
        ("nDCG@20", lambda ranking: rankings.ndcg(ranking, 20)),
        ("nDCG@all", lambda ranking: rankings.ndcg(ranking, 400)),
    ],
)
def test_ties_in_database_order(text, figure):
    signs, labels = task()
    by_index = text[:-1] + ",ties=index]" if text.endswith("]") else text + "[ties=index]"
    found = evaluated(by_index, rankings.pack(signs[0]), rankings.pack(signs[1]), Relevance(*labels), 8)
    np.testing.assert_allclose(found.value, [figure(ranking) for ranking in stable_rankings(signs, labels)], atol=1e-12)
    assert (found.worst <= found.value + 1e-12).all()
    assert (found.value <= found.best + 1e-12).all()


def test_the_rank_after_the_last_item_does_not_count_items_that_are_left_out():
    labels = np.array([[1, 0], [0, 1], [0, 1]], np.uint8)
    relevance = Relevance(labels[:1], labels, left_out=np.array([[0, 2]]))
    codes = rankings.pack(np.eye(3, 8))
    for name in ("MedR", "MedR[ties=index]"):
        assert evaluated(name, codes[:1], codes, relevance, 8).mean() == 2


def test_database_order_changes_the_index_figure_only():
    signs, labels = task()
    shuffled = np.random.default_rng(1).permutation(400)
    measures = [Measure.parse(text) for text in ("mAP@all", "mAP@all[ties=index]")]

    def values(rows):
        codes = rankings.pack(signs[1][rows])
        relevance = Relevance(labels[0], labels[1][rows])
        return [part.mean() for part in evaluate_all(measures, rankings.pack(signs[0]), codes, relevance, 8).values()]

    (expected, by_index), (expected_again, by_index_again) = values(np.arange(400)), values(shuffled)
    assert expected == expected_again
    assert by_index != by_index_again


def test_queries_without_relevant_items_count_as_zero_or_are_skipped():
    signs, labels = task()
    codes = [rankings.pack(part) for part in signs]
    zero = evaluated("mAP@all", *codes, Relevance(*labels), 8)
    skip = evaluated("mAP@all[empty=skip]", *codes, Relevance(*labels), 8)
    lacking = [not any(ranking) for ranking in stable_rankings(signs, labels)]
    assert zero.queries_without_relevant == skip.queries_without_relevant == sum(lacking) == 1
    assert zero.value[lacking].tolist() == [0.0]
    assert zero.counted.all()
    assert skip.counted.tolist() == [not lack for lack in lacking]
    assert zero.mean() == pytest.approx(skip.mean() * 8 / 9)
    assert zero.prior == pytest.approx(np.mean(np.array(stable_rankings(signs, labels)) > 0))
    assert skip.prior == pytest.approx(zero.prior * 9 / 8)


def test_without_any_counted_query_the_mean_is_no_number():
    codes = np.zeros((2, 1), np.uint8)
    found = evaluated("mAP@all[empty=skip]", codes, codes, Relevance(np.eye(2, dtype=np.uint8)[:, :1] * 0, codes), 8)
    assert np.isnan(found.mean())
    assert np.isnan(found.prior)


def test_precision_within_a_radius():
    query = rankings.pack(np.zeros((1, 8)))
    database = rankings.pack(np.tri(4, 8, -1))
    relevance = Relevance(np.ones((1, 1), np.uint8), np.array([[0], [1], [1], [0]], np.uint8))
    measures = [Measure.parse(text) for text in ("P@radius1", "R@radius1", "P@radius2")]
    found = evaluate_all(measures, query, database, relevance, 8)
    assert [part.mean() for part in found.values()] == pytest.approx([0.5, 0.5, 2 / 3])
    assert np.isnan(found[measures[0]].best).all()
    far = evaluated("P@radius0", query, database[1:], Relevance(relevance.query_labels, np.ones((3, 1))), 8)
    assert far.mean() == 0.0
    with pytest.raises(OutOfRange, match="8 bits"):
        evaluated("P@radius9", query, database, relevance, 8)


def test_pairs_can_be_measured_like_labels():
    signs, _ = task()
    codes = [rankings.pack(part) for part in signs]
    pairs = Pairs(9, 400, np.array([0, 0, 5]), np.array([7, 9, 11]))
    found = evaluated("mAP@all[ties=index]", *codes, pairs, 8)
    gains = np.zeros((9, 400), int)
    gains[pairs.query_rows, pairs.database_rows] = 1
    order = np.argsort((signs[0][:, None] != signs[1][None]).sum(2), axis=1, kind="stable")
    plain = [rankings.average_precision(row, 400, "all") for row in np.take_along_axis(gains, order, 1)]
    np.testing.assert_allclose(found.value, plain, atol=1e-12)
    assert found.queries_without_relevant == 7


def test_a_radius_leaves_no_room_for_a_cutoff():
    with pytest.raises(NoEffect, match="cannot have a radius"):
        Measure("P", 5, radius_bits=2)
    for text in ("P@all", "R@all", "Success@all"):
        with pytest.raises(SettingNeeded):
            Measure.parse(text)


def test_a_radius_of_all_bits_holds_every_item():
    signs, labels = task()
    codes = [rankings.pack(part) for part in signs]
    found = evaluated("P@radius8", *codes, Relevance(*labels), 8)
    assert found.mean() == pytest.approx(found.prior)


@pytest.mark.parametrize("room", [1, 16 * 400 * 2, 1 << 26])
def test_ranked_items_in_blocks_of_any_size(monkeypatch, room):
    signs, labels = task()
    monkeypatch.setattr("silohash.evaluate.measures.RANKED_BYTES", room)
    found = evaluated("R@7[ties=index]", rankings.pack(signs[0]), rankings.pack(signs[1]), Relevance(*labels), 8)
    plain = [sum(g > 0 for g in r[:7]) / max(1, sum(g > 0 for g in r)) for r in stable_rankings(signs, labels)]
    np.testing.assert_allclose(found.value, plain, atol=1e-12)


def test_means_of_the_best_and_the_worst_order():
    codes = np.zeros((2, 1), np.uint8)
    relevance = Relevance(np.array([[1], [0]], np.uint8), np.array([[1], [0]], np.uint8))
    for text, expected in (("Success@1", (0.25, 0.5, 0.0)), ("Success@1[empty=skip]", (0.5, 1.0, 0.0))):
        found = evaluated(text, codes, codes, relevance, 8)
        assert (found.mean(), found.mean("best"), found.mean("worst")) == expected


def test_more_labels_than_can_be_graded_are_counted_by_measures_without_grades():
    codes = rankings.pack(np.array([[0] * 8, [1] * 8]))
    relevance = Relevance(np.ones((2, 256), np.uint8), np.ones((2, 256), np.uint8))
    assert evaluated("mAP@all", codes, codes, relevance, 8).mean() == 1.0
    with pytest.raises(OutOfRange, match="256"):
        evaluated("nDCG@all", codes, codes, relevance, 8)


DISTANCES = np.array([[0, 1, 1, 1, 3], [2, 2, 2, 2, 2], [4, 1, 0, 1, 1], [1, 0, 2, 3, 0]])
PARTNERS = [[2], [0, 3], [0], []]


def orders(distances, relevant):
    """The relevance of the items in every order of a ranking by distance."""
    for order in permutations(range(len(distances))):
        if all(distances[a] <= distances[b] for a, b in pairwise(order)):
            yield [item in relevant for item in order]


def found_within(relevant, k):
    return float(any(relevant[:k]))


def first(relevant, _):
    return relevant.index(True) + 1 if any(relevant) else len(relevant) + 1


@pytest.mark.parametrize(
    ("name", "k", "value"), [("R@1", 1, found_within), ("R@3", 3, found_within), ("MedR", 0, first)]
)
def test_measures_by_pairs_are_those_of_all_orders_of_ties(name, k, value):
    words = np.array([[(1 << distance) - 1 for distance in row] for row in DISTANCES], np.uint16)
    pairs = [(query, item) for query, items in enumerate(PARTNERS) for item in items]
    expected = [
        [value(order, k) for order in orders(row, items)] for row, items in zip(DISTANCES, PARTNERS, strict=True)
    ]
    chance = [[value(order, k) for order in orders(np.zeros(5), items)] for items in PARTNERS]
    measures = [Measure.parse(f"{name}[by=pairs{more}]") for more in ("", ",ties=worst", ",empty=skip")]
    for query, (values, tied) in enumerate(zip(expected, chance, strict=True)):
        own = [item for row, item in pairs if row == query]
        relevance = Pairs(1, 5, np.zeros(len(own), np.int64), np.array(own, np.int64))
        plain, worst, skip = evaluate_all(
            measures, np.zeros((1, 1), np.uint16), words[query][:, None], relevance, 16
        ).values()
        lowest, highest = (min(values), max(values)) if name != "MedR" else (max(values), min(values))
        assert (plain.mean(), plain.mean("best"), plain.mean("worst")) == pytest.approx(
            (np.mean(values), highest, lowest)
        )
        assert worst.mean() == pytest.approx(lowest)
        assert plain.prior == worst.prior == pytest.approx(np.mean(tied))
        assert np.isnan(skip.mean()) == (not own)


def test_recall_by_pairs_within_a_radius_needs_one_partner():
    words = np.array([[0], [1], [3]], np.uint16)
    relevance = Pairs(2, 3, np.array([0, 0, 1]), np.array([0, 2, 2]))
    measures = [Measure.parse(name) for name in ("R@radius1[by=pairs]", "R@radius1")]
    by_pair, share = evaluate_all(measures, np.zeros((2, 1), np.uint16), words, relevance, 16).values()
    assert (by_pair.value.tolist(), share.value.tolist()) == ([1.0, 0.0], [0.5, 0.0])
    assert by_pair.prior == 0.5


def test_ties_in_the_order_of_the_database_by_pairs():
    words = np.array([[1], [1], [0], [1]], np.uint16)
    relevance = Pairs(1, 4, np.array([0, 0]), np.array([1, 3]))
    measures = [Measure.parse(f"{name}[by=pairs,ties=index]") for name in ("R@2", "R@3", "MedR")]
    found = evaluate_all(measures, np.zeros((1, 1), np.uint16), words, relevance, 16)
    assert [values.mean() for values in found.values()] == [0.0, 1.0, 3.0]


def test_ranks_have_a_median():
    values = np.array([1.0, 2.0, 9.0])
    assert (mean_of(values), mean_of(values, are_ranks=True)) == (4.0, 2.0)
    assert np.isnan(mean_of(values[:0], are_ranks=True))
    assert [is_rank(name) for name in (*PAIR_MEASURES, "mAP@all")] == [False, False, False, True, False]
    assert [by_pairs(name) for name in (*PAIR_MEASURES, "mAP@all")] == [True] * 4 + [False]
