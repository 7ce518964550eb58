import numpy as np
import pytest

from silohash.evaluate.recall import recall_at, recall_sum
from silohash.evaluate.relevance import Pairs
from silohash.evaluate.ties import histogram
from tests.unit.evaluate.rankings import pack


def test_pairs_of_groups_name_every_partner():
    pairs = Pairs.of_groups(np.array([7, 3, 9]), np.array([3, 7, 7, 4]))
    assert sorted(zip(pairs.query_rows.tolist(), pairs.database_rows.tolist(), strict=True)) == [(0, 1), (0, 2), (1, 0)]


def test_codes_that_find_their_pairs_reach_the_highest_sum():
    signs = np.random.default_rng(0).integers(0, 2, (40, 64))
    names = np.array([f"{row}.jpg" for row in range(40)])
    found = recall_sum(pack(signs), pack(np.repeat(signs, 5, 0)), names, np.repeat(names, 5), 64)
    assert found.total == found.best == found.worst == 600.0
    assert found.image_to_text == found.text_to_image == {1: 100.0, 5: 100.0, 10: 100.0}


def test_equal_codes_find_as_often_as_chance():
    codes = pack(np.zeros((20, 16)))
    captions = pack(np.zeros((100, 16)))
    found = recall_sum(codes, captions, np.arange(20), np.repeat(np.arange(20), 5), 16, cutoffs=(1, 10))
    missed = np.prod([(95 - drawn) / (100 - drawn) for drawn in range(10)])
    assert found.image_to_text == pytest.approx({1: 5.0, 10: 100 * (1 - missed)})
    assert found.text_to_image == pytest.approx({1: 5.0, 10: 50.0})
    assert (found.best, found.worst) == (400.0, 0.0)
    assert found.total == pytest.approx(5 + 100 * (1 - missed) + 55)


def test_a_partner_before_the_cut_is_found_for_sure():
    query = pack(np.zeros((1, 8)))
    database = pack(np.tri(4, 8, -1))
    counts = histogram(query, database, Pairs(1, 4, np.array([0, 0]), np.array([1, 3])), 8)
    assert [recall_at(counts, cutoff).expected[0] for cutoff in (1, 2, 3)] == [0.0, 1.0, 1.0]
