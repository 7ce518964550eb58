"""Measures of scores equal those of plain rankings, whatever is tied, left out or graded."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from silohash.base.errors import LengthsDiffer, NotFinite
from silohash.evaluate import scores as module
from silohash.evaluate.measures import Measure, evaluate_all
from silohash.evaluate.relevance import Pairs, Relevance
from silohash.evaluate.scores import BEST, NO_WORDS, Scores, best_scored, score_gains, score_histogram

NAMES = ("R@1", "R@3", "Success@2", "MedR", "mAP@all", "mAP@3[denominator=min]", "P@4", "RSum")


def value(name: str, gains: np.ndarray) -> float:
    """Return a measure of one ranking by pairs, as its definition says."""
    found = np.flatnonzero(gains)
    cut = int(name.split("@")[1].split("[")[0]) if "@" in name and "@all" not in name else len(gains)
    precisions = [(number + 1) / (place + 1) for number, place in enumerate(found) if place < cut]
    return {
        "R": float(bool((found < cut).any())),
        "Success": float(bool((found < cut).any())),
        "MedR": float(found[0] + 1) if len(found) else len(gains) + 1.0,
        "mAP": sum(precisions) / min(len(found), cut) if len(found) else 0.0,
        "P": (found < cut).sum() / cut,
        "RSum": float(sum((found < k).any() for k in (1, 5, 10))),
    }[name.split("@")[0]]


def orders(values: np.ndarray, gains: np.ndarray) -> list[np.ndarray]:
    """Return the gains in every order in which the scores do not increase."""
    groups = [gains[values == score].tolist() for score in np.unique(values)[::-1]]
    arranged = [list(itertools.permutations(group)) for group in groups]
    return [np.array(list(itertools.chain(*parts))) for parts in itertools.product(*arranged)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("levels", [2, 3, 50])
def test_measures_by_pairs_are_those_of_all_orders(name: str, levels: int) -> None:
    generator = np.random.default_rng(levels)
    values = generator.integers(0, levels, (5, 7)).astype(np.float32) / 10
    pairs = Pairs.of_groups(np.arange(5), np.array([0, 1, 2, 0, 3, 0, 1]))
    option = name.rstrip("]") + ",by=pairs]" if "[" in name else f"{name}[by=pairs]"
    measure = Measure.parse(option)
    found = evaluate_all([measure], NO_WORDS, Scores(values), pairs, 0)[measure]
    gains = pairs.gains(np.arange(5))
    for query in range(5):
        every = [value(name, ranking) for ranking in orders(values[query], gains[query])]
        assert found.value[query] == pytest.approx(np.mean(every))
        extremes = (max(every), min(every)) if name != "MedR" else (min(every), max(every))
        assert (found.best[query], found.worst[query]) == pytest.approx(extremes)


def test_identity_finds_all_and_constant_scores_find_nothing_at_worst() -> None:
    measures = [Measure.parse(text) for text in ("R@1[by=pairs,ties=worst]", "RSum[by=pairs,ties=worst]")]
    pairs = Pairs.of_groups(np.arange(20), np.arange(20))
    right = evaluate_all(measures, NO_WORDS, Scores(np.eye(20)), pairs, 0)
    constant = evaluate_all(measures, NO_WORDS, Scores(np.ones((20, 20))), pairs, 0)
    assert [right[measure].mean() for measure in measures] == [1.0, 3.0]
    assert [constant[measure].mean() for measure in measures] == [0.0, 0.0]
    assert constant[measures[0]].prior == pytest.approx(0.05)
    assert constant[measures[1]].prior == pytest.approx(0.05 + 0.25 + 0.5)


def labels(count: int, seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).random((count, 4)) < 0.4).astype(np.uint8)


@pytest.mark.parametrize("own", [None, np.array([2, -1, 0]), np.array([[2, 9], [-1, 5], [0, -1]])])
def test_labels_left_out_items_and_grades(own: np.ndarray | None) -> None:
    relevance = Relevance(labels(3, 0), labels(12, 1), (), own)
    values = np.random.default_rng(2).normal(size=(3, 12))
    measures = [Measure.parse(text) for text in ("mAP@all", "nDCG@5", "R@4", "mAP@all[ties=index]")]
    found = evaluate_all(measures, NO_WORDS, Scores(values), relevance, 0)
    ranked = score_gains(Scores(values), relevance, np.arange(3))
    for query in range(3):
        kept = [
            item
            for item in np.argsort(-values[query], kind="stable")
            if own is None or item not in own[query : query + 1]
        ]
        gains = (relevance.query_labels[query] @ relevance.database_labels[kept].T).astype(float)
        assert ranked[query, : len(kept)].tolist() == gains.tolist()
        hits = np.flatnonzero(gains)
        average = np.mean([(number + 1) / (place + 1) for number, place in enumerate(hits)]) if len(hits) else 0.0
        discount = 1 / np.log2(np.arange(5) + 2)
        ideal = np.sort(gains)[::-1][:5] @ discount
        assert found[measures[0]].value[query] == pytest.approx(average)
        assert found[measures[1]].value[query] == pytest.approx(gains[:5] @ discount / ideal if ideal else 0.0)
        assert found[measures[2]].value[query] == pytest.approx((hits < 4).sum() / max(1, len(hits)))
        assert found[measures[3]].value[query] == pytest.approx(average)


def test_ties_by_index_keep_the_order_of_the_database() -> None:
    pairs = Pairs.of_groups(np.zeros(1), np.array([1, 0]))
    assert score_gains(Scores(np.ones((1, 2))), pairs, np.arange(1)).tolist() == [[0, 1]]


def test_histograms_stay_small_and_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = Pairs.of_groups(np.arange(30), np.arange(30).repeat(2))
    scores = Scores(np.random.default_rng(0).normal(size=(30, 60)))
    whole = score_histogram(scores, pairs)
    assert whole.counts.shape == (30, 5, 2)
    assert (whole.items.sum(1) == 60).all()
    monkeypatch.setattr(module, "BLOCK_CELLS", 130)
    np.testing.assert_array_equal(score_histogram(scores, pairs).counts, whole.counts)


def test_unfit_scores_are_refused() -> None:
    with pytest.raises(NotFinite):
        Scores(np.array([[np.nan]]))
    with pytest.raises(LengthsDiffer, match=r"2.*3.*2.*2"):
        score_histogram(Scores(np.zeros((2, 3))), Pairs.of_groups(np.arange(2), np.arange(2)))


def test_the_best_scored_items_are_relevant() -> None:
    generator = np.random.default_rng(0)
    values = generator.normal(size=(4, 30))
    pairs = best_scored(Scores(values))
    for query in range(4):
        expected = np.argsort(-values[query])[:BEST]
        assert set(pairs.database_rows[pairs.query_rows == query]) == set(expected)
    few = best_scored(Scores(values[:, :3]))
    assert len(few.query_rows) == 12
