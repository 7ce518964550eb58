"""Intervals and tests by resampling, and Student's interval over seeds."""

import subprocess
import sys

import numpy as np
import pytest

from silohash.base.errors import LengthsDiffer, OutOfRange
from silohash.evaluate import significance
from silohash.evaluate.significance import bootstrap_interval, paired_bootstrap, seed_interval, student_quantile

VALUES = np.random.default_rng(0).random(400)


def test_the_interval_is_that_of_the_normal_approximation():
    low, high = bootstrap_interval(VALUES, seed=0)
    spread = 1.96 * VALUES.std() / np.sqrt(400)
    assert (low, high) == pytest.approx((VALUES.mean() - spread, VALUES.mean() + spread), abs=0.15 * spread)


def test_the_same_seed_draws_the_same():
    assert bootstrap_interval(VALUES, seed=4) == bootstrap_interval(VALUES, seed=4)
    assert bootstrap_interval(VALUES, seed=4) != bootstrap_interval(VALUES, seed=5)
    other = VALUES + np.random.default_rng(1).normal(0, 0.3, 400)
    assert paired_bootstrap(VALUES, other, seed=4) == paired_bootstrap(VALUES, other, seed=4)


def test_a_higher_level_is_wider():
    low, high = bootstrap_interval(VALUES, seed=0, level=0.99)
    inner_low, inner_high = bootstrap_interval(VALUES, seed=0, level=0.5)
    assert low < inner_low < inner_high < high


def test_equal_values_leave_no_doubt_and_no_values_leave_no_interval():
    assert bootstrap_interval(np.full(10, 0.25), seed=0) == (0.25, 0.25)
    assert np.isnan(bootstrap_interval([], seed=0)).all()


def test_few_queries_have_no_interval_and_differ_by_nothing():
    assert np.isnan(bootstrap_interval(np.full(9, 0.25), seed=0)).all()
    assert paired_bootstrap(np.full(9, 0.25), np.full(9, 0.75), seed=0) == 1.0
    assert paired_bootstrap(np.full(10, 0.25), np.full(10, 0.75), seed=0) < 0.001


def test_the_paired_test_tells_a_difference_from_noise():
    noise = np.random.default_rng(2).normal(0, 0.1, 400)
    assert paired_bootstrap(VALUES, VALUES + 0.05 + noise, seed=0) == pytest.approx(1 / 2001)
    assert paired_bootstrap(VALUES, VALUES + noise - noise.mean(), seed=0) > 0.9
    assert paired_bootstrap(VALUES, VALUES, seed=0) == 1.0


def test_p_values_of_equal_methods_are_spread_evenly():
    generator = np.random.default_rng(3)
    p_values = [
        paired_bootstrap(generator.random(60), generator.random(60), seed, resamples=400) for seed in range(200)
    ]
    assert 0.02 <= np.mean(np.array(p_values) < 0.1) <= 0.2


def test_figures_of_other_queries_are_refused():
    with pytest.raises(LengthsDiffer, match=r"3.*2"):
        paired_bootstrap([1, 2, 3], [1, 2], seed=0)
    with pytest.raises(OutOfRange, match="95"):
        bootstrap_interval(VALUES, seed=0, level=95)


@pytest.mark.parametrize(("degrees", "quantile"), [(1, 12.7062), (2, 4.3027), (3, 3.1824), (9, 2.2622), (30, 2.0423)])
def test_students_quantiles_are_those_of_the_printed_table(degrees, quantile):
    assert student_quantile(0.95, degrees) == pytest.approx(quantile, abs=5e-5)


def test_the_interval_over_seeds():
    low, high = seed_interval([0.5, 0.7])
    assert (low + high) / 2 == pytest.approx(0.6)
    assert (high - low) / 2 == pytest.approx(12.7062 * 0.1, rel=1e-4)
    assert np.isnan(seed_interval([0.5])).all()
    assert np.isnan(seed_interval([])).all()
    assert seed_interval([0.1, 0.1, 0.1]) == (0.1, 0.1)


@pytest.mark.parametrize(("level", "quantile"), [(0.9, 2.9200), (0.99, 9.9248)])
def test_students_quantiles_of_other_levels(level, quantile):
    assert student_quantile(level, 2) == pytest.approx(quantile, abs=5e-5)


def test_students_quantile_cuts_equal_tails_of_the_density():
    quantile, degrees = student_quantile(0.8, 5), 5
    x = np.linspace(-quantile, quantile, 200_001)
    density = 8 / (3 * np.pi * np.sqrt(5)) * (1 + x**2 / degrees) ** -3  # Gamma(3) / (sqrt(5 pi) Gamma(5/2))
    assert float(((density[1:] + density[:-1]) / 2 * np.diff(x)).sum()) == pytest.approx(0.8, abs=1e-8)


@pytest.mark.whole_run
def test_scipy_is_imported_for_means_over_seeds_alone():
    code = (
        "import sys; from silohash.evaluate.significance import bootstrap_interval; "
        "bootstrap_interval([1.0, 2.0], seed=0); assert 'scipy.special' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_the_p_value_counts_the_observation_and_both_tails():
    # Differences -1 and 1 after the shift: the sum of ten is at least 4 from 0 with a probability of 2 * 176 / 1024.
    p_value = paired_bootstrap([1.4] * 5 + [-0.6] * 5, [0.0] * 10, seed=1, resamples=3000)
    assert p_value == pytest.approx(0.34375, abs=0.05)
    assert paired_bootstrap([5.0] * 10, [0.0] * 10, seed=1, resamples=9) == 0.1


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_levels_at_the_bounds_are_refused(level):
    with pytest.raises(OutOfRange):
        bootstrap_interval(VALUES, seed=0, level=level)


def test_no_queries_cannot_be_compared():
    with pytest.raises(LengthsDiffer, match="Values"):
        paired_bootstrap([], [], seed=0)


@pytest.mark.parametrize("draws", [1, 100, 1 << 22])
def test_the_number_of_resamples_does_not_depend_on_the_size_of_a_block(monkeypatch, draws):
    monkeypatch.setattr(significance, "DRAWS_AT_ONCE", draws)
    means = significance._resampled(VALUES[:30], 0, "purpose", 10, np.mean)
    assert means.shape == (10,)
    assert len(set(means.tolist())) == 10


def test_tails_are_equal():
    low, high = bootstrap_interval(VALUES, seed=0, level=0.5)
    means = significance._resampled(VALUES, 0, "bootstrap interval", 2000, np.mean)
    assert (means < low).mean() == pytest.approx(0.25, abs=1e-3)
    assert (means > high).mean() == pytest.approx(0.25, abs=1e-3)


def test_the_interval_of_a_median_is_not_moved_by_outliers():
    values = np.concatenate([np.arange(101.0), [1e6] * 3])
    low, high = bootstrap_interval(values, seed=0, median=True)
    assert 35 < low < np.median(values) < high < 69
    assert bootstrap_interval(values, seed=0)[1] > 1000
