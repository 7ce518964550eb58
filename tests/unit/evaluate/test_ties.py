"""Histograms by distance equal plain counts, and average precision the mean over all orders of ties."""

import numpy as np
import pytest

from silohash.base.errors import BitsDiffer, LengthsDiffer, NothingUsable, UserError, WrongShape
from silohash.evaluate import ties
from silohash.evaluate.relevance import Pairs, Relevance
from silohash.evaluate.ties import Histogram, average_precision, histogram, precision_recall
from tests.unit.evaluate.rankings import average_precision as plain_average_precision
from tests.unit.evaluate.rankings import counts_of, over_orders, pack, random_groups


def task(bits, queries=5, items=4500, classes=70, rate=0.05, seed=0):
    generator = np.random.default_rng([seed, bits])
    query_signs = generator.integers(0, 2, (queries, bits), dtype=np.uint8)
    signs = generator.integers(0, 2, (items, bits), dtype=np.uint8)
    signs[: items // 100] = query_signs[0]
    signs[items // 100 : items // 50] = 1 - query_signs[1]
    labels = [(generator.random((count, classes)) < rate).astype(np.uint8) for count in (queries, items)]
    return query_signs, signs, *labels


def counted_plainly(query_signs, signs, gains):
    distance = (query_signs[:, None] != signs[None]).sum(2)
    counts = np.zeros((len(query_signs), query_signs.shape[1] + 1, gains.max() + 1), np.int64)
    for query in range(len(query_signs)):
        np.add.at(counts[query], (distance[query], gains[query]), 1)
    return counts


@pytest.mark.parametrize("bits", [8, 12, 16, 24, 48, 64, 100, 127, 128, 200, 255, 256])
def test_counts_equal_a_plain_count_at_every_length(bits):
    query_signs, signs, query_labels, labels = task(bits)
    shared = query_labels.astype(int) @ labels.T.astype(int)
    relevance = Relevance(query_labels, labels)
    found = histogram(pack(query_signs), pack(signs), relevance, bits)
    np.testing.assert_array_equal(found.counts, counted_plainly(query_signs, signs, (shared > 0).astype(int)))
    graded = histogram(pack(query_signs), pack(signs), relevance, bits, graded=True).counts
    expected = counted_plainly(query_signs, signs, shared)
    np.testing.assert_array_equal(graded[:, :, : expected.shape[2]], expected)
    assert not graded[:, :, expected.shape[2] :].any()


@pytest.mark.parametrize("bits", [16, 128, 256])
def test_counts_of_pairs(bits):
    query_signs, signs, _, _ = task(bits)
    pairs = Pairs(5, 4500, np.array([0, 0, 4, 1]), np.array([3, 4499, 7, 50]))
    gains = np.zeros((5, 4500), int)
    gains[pairs.query_rows, pairs.database_rows] = 1
    found = histogram(pack(query_signs), pack(signs), pairs, bits)
    np.testing.assert_array_equal(found.counts, counted_plainly(query_signs, signs, gains))


@pytest.mark.parametrize("word", [np.uint16, np.uint32, np.uint64])
def test_the_width_of_the_words_does_not_matter(word):
    query_signs, signs, query_labels, labels = task(64, items=200)
    relevance = Relevance(query_labels, labels)
    wide = histogram(pack(query_signs).view(word), pack(signs).view(word), relevance, 64)
    np.testing.assert_array_equal(wide.counts, histogram(pack(query_signs), pack(signs), relevance, 64).counts)


def test_collapsed_codes_do_not_overflow():
    items = 70_000
    labels = np.ones((items, 1), np.uint8)
    codes = np.zeros((items, 1), np.uint64)
    found = histogram(codes[:1], codes, Relevance(labels[:1], labels), 64)
    assert found.counts[0, 0].tolist() == [0, items]
    assert found.counts.sum() == items


def test_threads_change_nothing(monkeypatch):
    monkeypatch.setattr(ties, "WORTH_THREADS", 0)
    query_signs, signs, query_labels, labels = task(32, queries=150)
    one, two = (
        histogram(pack(query_signs), pack(signs), Relevance(query_labels, labels), 32, threads=threads)
        for threads in (1, 2)
    )
    np.testing.assert_array_equal(one.counts, two.counts)
    assert one.items.sum(1).tolist() == [4500] * 150


@pytest.mark.parametrize("graded", [False, True])
def test_merged_silos_equal_the_pool(graded):
    query_signs, signs, query_labels, labels = task(16)
    codes = pack(signs)

    def of(rows):
        return histogram(pack(query_signs), codes[rows], Relevance(query_labels, labels[rows]), 16, graded=graded)

    silos = np.array_split(np.random.default_rng(1).permutation(4500), [10, 1300, 4499])
    merged = of(silos[0]) + of(silos[1]) + of(silos[2]) + of(silos[3])
    pooled = of(np.arange(4500))
    np.testing.assert_array_equal(merged.counts, pooled.counts)
    np.testing.assert_array_equal(average_precision(merged).expected, average_precision(pooled).expected)


def test_histograms_of_other_codes_are_not_added():
    with pytest.raises(LengthsDiffer, match="16 bits"):
        Histogram(np.zeros((1, 17, 2), np.int64)) + Histogram(np.zeros((1, 33, 2), np.int64))


@pytest.mark.parametrize("seed", range(60))
def test_average_precision_equals_the_mean_over_all_orders(seed):
    groups = random_groups(np.random.default_rng(seed))
    found = average_precision(Histogram(counts_of(groups)))
    expected = over_orders(lambda ranking: plain_average_precision(ranking, len(ranking), "all"), groups)
    np.testing.assert_allclose([value[0] for value in found], expected, rtol=0, atol=1e-12)


def test_the_closed_form_holds_its_digits_far_down_a_long_ranking():
    counts = np.zeros((1, 3, 2), np.int64)
    counts[0, 0, 0] = 1_000_000
    counts[0, 1] = [0, 2]
    found = average_precision(Histogram(counts)).expected[0]
    assert found == pytest.approx((1 / 1_000_001 + 2 / 1_000_002) / 2, rel=1e-9)


@pytest.mark.parametrize(
    ("query_words", "database_words", "bits", "kind", "words"),
    [
        (np.zeros((2, 1), np.uint64), np.zeros((3, 1), np.uint64), 64, LengthsDiffer, "2"),
        (np.zeros((1, 1), np.uint64), np.zeros((3, 2), np.uint64), 64, BitsDiffer, None),
        (np.zeros((1, 1), np.uint16), np.zeros((3, 1), np.uint64), 64, BitsDiffer, None),
        (np.zeros((1, 1), np.int64), np.zeros((3, 1), np.uint64), 64, WrongShape, "int64"),
        (np.zeros((1, 1), np.uint64), np.full((3, 1), 1 << 20, np.uint64), 16, BitsDiffer, "16"),
        (np.zeros((1, 1), np.uint16), np.full((3, 1), 1 << 12, np.uint16), 12, BitsDiffer, "12"),
        (np.zeros((1, 5), np.uint64), np.zeros((3, 5), np.uint64), 300, BitsDiffer, "1 to 256 bits"),
    ],
)
def test_codes_that_do_not_fit_are_refused(query_words, database_words, bits, kind: type[UserError], words: str | None):
    relevance = Relevance(np.ones((1, 1), np.uint8), np.ones((3, 1), np.uint8))
    with pytest.raises(kind, match=words):
        histogram(query_words, database_words, relevance, bits)


def test_an_empty_database_is_refused():
    none = np.zeros((0, 1), np.uint64)
    with pytest.raises(NothingUsable):
        histogram(
            np.zeros((1, 1), np.uint64), none, Relevance(np.ones((1, 1), np.uint8), np.ones((0, 1), np.uint8)), 64
        )


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("own", [np.array([7, -1, 59, 0]), np.array([[7, 8], [-1, -1], [3, 59], [0, -1]])])
def test_the_querys_own_items_leave_its_ranking(own, graded):
    signs = np.random.default_rng(2).integers(0, 2, (60, 16), dtype=np.uint8)
    labels = (np.random.default_rng(3).random((60, 5)) < 0.4).astype(np.uint8)
    asking = np.array([7, 20, 59, 3])
    relevance = Relevance(labels[asking], labels, ignore=(1,), left_out=own)
    found = histogram(pack(signs[asking]), pack(signs), relevance, 16, graded=graded)
    for query, items in enumerate(np.atleast_2d(own.T).T):
        rows = np.delete(np.arange(60), items[items >= 0])
        rest = Relevance(labels[asking[query : query + 1]], labels[rows], ignore=(1,))
        alone = histogram(pack(signs[asking[query : query + 1]]), pack(signs[rows]), rest, 16, graded=graded)
        levels = alone.counts.shape[2]
        np.testing.assert_array_equal(found.counts[query, :, :levels], alone.counts[0])
    everything = histogram(pack(signs[asking]), pack(signs), Relevance(labels[asking], labels), 16)
    assert everything.items.sum(1).tolist() == [60] * 4


def test_the_querys_own_item_leaves_a_ranking_in_the_order_of_the_database():
    signs = np.random.default_rng(2).integers(0, 2, (30, 8), dtype=np.uint8)
    labels = (np.random.default_rng(3).random((30, 5)) < 0.4).astype(np.uint8)
    words = ties.to_words(pack(signs), 8)
    relevance = Relevance(labels[:4], labels, left_out=np.array([0, 1, -1, 3]))
    found = ties.ranked_gains(words[:4], words, relevance, 8, np.array([0, 2, 3]))
    for line, query in zip(found, (0, 2, 3), strict=True):
        rows = np.arange(30) if query == 2 else np.delete(np.arange(30), query)
        rest = Relevance(labels[query : query + 1], labels[rows])
        alone = ties.ranked_gains(words[query : query + 1], words[rows], rest, 8, np.array([0]))[0]
        assert line.tolist() == [*alone, *([] if query == 2 else [0])]


def test_all_items_at_one_distance_are_ranked_at_random():
    counts = Histogram(np.array([[[1, 0], [0, 1], [2, 0]], [[0, 0], [3, 1], [0, 0]]]))
    tied = counts.all_tied()
    assert tied.counts.tolist() == [[[3, 1]], [[3, 1]]]
    expected = (1 + 1 / 2 + 1 / 3 + 1 / 4) / 4
    assert average_precision(tied).expected == pytest.approx([expected, expected])


def test_precision_and_recall_by_radius():
    counts = Histogram(np.array([[[0, 1], [3, 0], [0, 1]], [[0, 0], [2, 2], [1, 0]]]))
    precision, recall = precision_recall(counts)
    np.testing.assert_allclose(precision, [0.5, (1 / 4 + 1 / 2) / 2, (2 / 5 + 2 / 5) / 2])
    np.testing.assert_allclose(recall, [0.25, 0.75, 1.0])


def test_area_under_the_roc_curve_is_the_share_of_pairs_in_the_right_order():
    query_signs, signs, query_labels, labels = task(16, items=60, classes=8, rate=0.2)
    query_labels[4] = 0
    relevance = (query_labels.astype(int) @ labels.T.astype(int)) > 0
    distance = (query_signs[:, None] != signs[None]).sum(2)
    found = histogram(pack(query_signs), pack(signs), Relevance(query_labels, labels), 16).auc()
    for query in range(4):
        apart = distance[query][~relevance[query]][None] - distance[query][relevance[query]][:, None]
        assert found[query] == pytest.approx(((apart > 0) + (apart == 0) / 2).mean())
    assert np.isnan(found[4])
