"""The score of held-back items: one observation per item, and unknown where nothing can be told apart."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.evaluate.ties import Histogram
from silohash.evaluate.validation import ValidationScore, validation_score_of

NEAR, FAR, TIED = [[0, 1], [1, 0]], [[1, 0], [0, 1]], [[1, 1], [0, 0]]
NOTHING_RELEVANT = [[1, 0], [1, 0]]


def counts(*queries: list[list[int]]) -> Histogram:
    return Histogram(np.array(queries))


def test_queries_of_one_item_are_one_observation() -> None:
    first = (np.array([7, 3]), counts(NEAR, TIED))
    second = (np.array([7, 7, 3]), counts(FAR, FAR, NEAR))
    found = validation_score_of([0.4, 0.6], [0.1, 0.3], [first, second])
    assert found[:2] == pytest.approx((0.5, 0.2))
    observed = [1 / 3, 0.75]
    assert found[2:] == pytest.approx((np.mean(observed), np.std(observed, ddof=1) / np.sqrt(2), 2))


def test_queries_without_relevant_items_are_not_judged() -> None:
    found = validation_score_of([0.4], [0.1], [(np.arange(3), counts(NEAR, NOTHING_RELEVANT, TIED))])
    assert found[2:] == pytest.approx((0.75, 0.25, 2))
    none = validation_score_of([0.4], [0.1], [(np.arange(1), counts(NOTHING_RELEVANT))])
    assert np.isnan(none[2:4]).all()
    assert (none.score, none.judged) == (0.4, 0)


def test_one_item_has_no_error() -> None:
    one = validation_score_of([0.4], [0.1], [(np.zeros(1, int), counts(NEAR))])
    assert (one.auc, one.judged) == (1.0, 1)
    assert np.isnan(one.auc_error)


def test_without_tasks_everything_is_unknown() -> None:
    nothing = validation_score_of([], [], [])
    assert nothing.judged == 0
    assert np.isnan(nothing[:4]).all()
    assert isinstance(nothing, ValidationScore)
