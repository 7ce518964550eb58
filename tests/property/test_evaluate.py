import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from silohash.evaluate.cutoffs import average_precision_at, hits, ndcg, success
from silohash.evaluate.measures import Measure
from silohash.evaluate.relevance import Relevance
from silohash.evaluate.ties import Histogram, average_precision, histogram
from tests.unit.evaluate import rankings

GROUPS = st.lists(st.lists(st.integers(0, 2), max_size=3), min_size=1, max_size=3).filter(any)
COUNTS = arrays.arrays(np.int64, (2, 5, 3), elements=st.integers(0, 300)).filter(
    lambda counts: counts.sum(2).any(1).all()
)


def same_total(counts):
    """Gives both queries equally many items, as a database does."""
    counts[:, -1, 0] += counts.sum((1, 2)).max() - counts.sum((1, 2))
    return Histogram(counts)


@given(GROUPS, st.integers(1, 10), st.sampled_from(["retrieved", "min", "first-k-relevant", "all"]))
def test_the_expectation_is_the_mean_over_all_orders(groups, cutoff, denominator):
    counts = Histogram(rankings.counts_of(groups, levels=3))
    found = average_precision_at(counts, cutoff, denominator)
    plain = rankings.over_orders(lambda order: rankings.average_precision(order, cutoff, denominator), groups)
    np.testing.assert_allclose([value[0] for value in found], plain, rtol=0, atol=1e-12)


@given(COUNTS, st.integers(1, 2000))
def test_worst_expected_best_stand_in_order_within_zero_and_one(counts, cutoff):
    counts = same_total(counts)
    figures = [average_precision(counts), success(counts, cutoff), ndcg(counts, cutoff, "exponential")]
    figures += [average_precision_at(counts, cutoff, d) for d in ("retrieved", "min", "first-k-relevant", "all")]
    for expected, best, worst in figures:
        assert (worst >= -1e-9).all()
        assert (worst <= expected + 1e-9).all()
        assert (expected <= best + 1e-9).all()
        assert (best <= 1 + 1e-9).all()
    assert (hits(counts, cutoff).expected <= cutoff + 1e-9).all()


@given(COUNTS)
def test_all_conventions_agree_without_a_cut(counts):
    counts = same_total(counts)
    for denominator in ("retrieved", "min", "first-k-relevant", "all"):
        for found, whole in zip(
            average_precision_at(counts, counts.database, denominator), average_precision(counts), strict=True
        ):
            np.testing.assert_allclose(found, whole, atol=1e-12)


@settings(max_examples=30)
@given(st.integers(8, 140), st.integers(1, 50), st.integers(1, 80), st.booleans(), st.integers(0, 1000))
def test_counts_lose_nothing_and_silos_add_up(bits, items, classes, graded, seed):
    generator = np.random.default_rng(seed)
    codes = rankings.pack(generator.integers(0, 2, (items + 3, bits)))
    labels = (generator.random((items + 3, classes)) < 0.3).astype(np.uint8)

    def of(start, stop):
        relevance = Relevance(labels[:3], labels[start:stop])
        return histogram(codes[:3], codes[start:stop], relevance, bits, graded=graded)

    pooled = of(0, items + 3)
    assert pooled.items.sum(1).tolist() == [items + 3] * 3
    shared = labels[:3].astype(int) @ labels.T
    assert pooled.relevant_in_all.tolist() == (shared > 0).sum(1).tolist()
    merged = (of(0, 1) + of(1, items + 3)).counts
    np.testing.assert_array_equal(merged, pooled.counts[:, :, : merged.shape[2]])
    assert not pooled.counts[:, :, merged.shape[2] :].any()


@given(
    st.sampled_from(["mAP", "nDCG", "P", "R", "Success"]),
    st.integers(1, 10**6),
    st.sampled_from(["expected", "index"]),
    st.sampled_from(["zero", "skip"]),
)
def test_measures_survive_being_printed_and_read(name, cutoff, ties, empty):
    measure = Measure(name, cutoff, ties=ties, empty=empty)
    assert Measure.parse(str(measure)) == measure
