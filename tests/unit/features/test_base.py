"""Sums over silos: added in order, checked for their shapes, and turned into mean and deviation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from silohash.base.errors import SilosDiffer, TooFewSilos
from silohash.features.base import CONSTANT, add_statistics, blocks, known, mean_and_deviation, stored_sums


def sums(values: np.ndarray) -> dict[str, np.ndarray]:
    return {
        "count": np.full(values.shape[1], float(len(values))),
        "sum": values.sum(axis=0),
        "sum_squares": np.square(values).sum(axis=0),
    }


def test_sums_of_silos_are_those_of_all() -> None:
    values = np.random.default_rng(0).normal(3.0, 2.0, (30, 4))
    parts = [sums(values[:1]), sums(values[1:12]), sums(values[12:])]
    before = {name: array.copy() for name, array in parts[0].items()}
    total = add_statistics(iter(parts))
    for name, array in sums(values).items():
        np.testing.assert_allclose(total[name], array)
        np.testing.assert_array_equal(parts[0][name], before[name])


def test_one_silo_is_enough() -> None:
    assert add_statistics([{"count": np.array([2])}])["count"].tolist() == [2]


def test_sums_that_differ_in_shape_name_the_silo() -> None:
    with pytest.raises(SilosDiffer, match=r"3.*\{'count.*3,\)\}"):
        add_statistics([{"count": np.zeros(2)}, {"count": np.zeros(2)}, {"count": np.zeros(3)}])
    with pytest.raises(SilosDiffer, match="2"):
        add_statistics([{"count": np.zeros(2)}, {"total": np.zeros(2)}])


def test_sets_are_united_whatever_their_sizes() -> None:
    sets = [np.array(members, np.uint64) for members in ([3, 2**64 - 1], [], [1, 3])]
    total = add_statistics([{"texts": np.array([1]), "word_digests": members} for members in sets])
    assert total["word_digests"].tolist() == [1, 3, 2**64 - 1]
    assert total["word_digests"].dtype == np.uint64
    assert total["texts"].tolist() == [3]
    with pytest.raises(SilosDiffer, match="2"):
        add_statistics([{"texts": np.zeros(1), "word_digests": sets[0]}, {"texts": np.zeros(1)}])


def test_no_sums_at_all() -> None:
    with pytest.raises(TooFewSilos):
        add_statistics([])


def test_mean_and_deviation_against_loops() -> None:
    values = np.random.default_rng(1).normal(-1.0, 3.0, (25, 3))
    mean, deviation = mean_and_deviation(sums(values))
    for column in range(3):
        total = sum(float(value) for value in values[:, column]) / 25
        squares = sum((float(value) - total) ** 2 for value in values[:, column]) / 25
        assert mean[column] == pytest.approx(total)
        assert deviation[column] == pytest.approx(math.sqrt(squares))


def test_constant_and_empty_columns_do_not_vary() -> None:
    summed = {
        "count": np.array([3, 0, 1]),
        "sum": np.array([3e6, 0.0, 5.0]),
        "sum_squares": np.array([3e12, 0.0, 25.0]),
    }
    mean, deviation = mean_and_deviation(summed)
    assert mean.tolist() == [1e6, 0.0, 5.0]
    assert deviation.tolist() == [0.0, 0.0, 0.0]


def test_the_smallest_variance_that_counts() -> None:
    for share, varies in ((0.5 * CONSTANT, False), (2.0 * CONSTANT, True)):
        summed = {"count": np.ones(1), "sum": np.array([math.sqrt(1.0 - share)]), "sum_squares": np.ones(1)}
        assert bool(mean_and_deviation(summed)[1][0] > 0) is varies


@pytest.mark.parametrize(("count", "most", "sizes"), [(0, 3, []), (3, 3, [3]), (4, 3, [3, 1]), (7, 2, [2, 2, 2, 1])])
def test_blocks_cover_every_row_once(count: int, most: int, sizes: list[int]) -> None:
    rows = np.arange(count) * 10
    found = list(blocks(rows, most))
    assert [len(block) for _, block in found] == sizes
    filled = np.full(count, -1)
    for place, block in found:
        filled[place] = block
    np.testing.assert_array_equal(filled, rows)


def test_a_featurizer_that_is_not_fitted() -> None:
    assert known({"count": np.ones(1)}, "given")["count"].tolist() == [1.0]
    with pytest.raises(RuntimeError, match='featurizer "given" is not fitted'):
        known(None, "given")


def test_stored_sums_have_the_shapes_of_their_featurizer() -> None:
    shapes = {"count": (1,), "sum": (3,)}
    arrays = {"count": np.ones(1), "sum": np.ones(3, np.int64), "mean": np.ones(3)}
    found = stored_sums(arrays, shapes)
    assert found is not None
    assert list(found) == ["count", "sum", "mean"]
    assert stored_sums({}, shapes) is None
    for changed, says in (
        ({"sum": np.ones(3)}, '"count" is missing'),
        ({**arrays, "sum": np.ones(2)}, r'"sum" is float64 of shape \(2,\) instead of numbers of shape \(3,\)'),
        ({**arrays, "count": np.ones(1, bool)}, '"count" is bool'),
    ):
        with pytest.raises(ValueError, match=says):
            stored_sums(changed, shapes)
