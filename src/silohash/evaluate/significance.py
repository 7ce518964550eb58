"""Confidence intervals and tests that resample the queries, and the interval of a mean over seeds.

Source: B. Efron, R. Tibshirani, "An introduction to the bootstrap", 1993, chapters 13 and 16.
"""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from silohash.base.errors import LengthsDiffer, OutOfRange
from silohash.base.seeds import numpy_generator
from silohash.evaluate.ties import Values

RESAMPLES = 2_000

FEWEST_QUERIES = 10
"""Fewer queries are not resampled: their spread says little about that of other queries."""

DRAWS_AT_ONCE = 1 << 22


def bootstrap_interval(
    values: npt.ArrayLike, seed: int, *, level: float = 0.95, resamples: int = RESAMPLES, median: bool = False
) -> tuple[float, float]:
    """Return the percentile interval of the mean, or of the median, over queries: (low, high).

    The level is the share of resampled means within the interval. Equal seeds and values ``(Q,)`` give equal intervals.
    Both ends are NaN for fewer than `FEWEST_QUERIES`.

    Raises:
        UserError: If the level is not between 0 and 1.
    """
    if not 0 < level < 1:
        raise OutOfRange(f"The level of an interval is {level}; it must lie between 0 and 1, as 0.95.")
    of_queries = np.asarray(values, np.float64)
    if len(of_queries) < FEWEST_QUERIES:
        return float("nan"), float("nan")
    means = _resampled(of_queries, seed, "bootstrap interval", resamples, np.median if median else np.mean)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def paired_bootstrap(first: npt.ArrayLike, second: npt.ArrayLike, seed: int, *, resamples: int = RESAMPLES) -> float:
    """Return the two-sided p-value of the difference between two means over the same queries.

    The differences are shifted to a mean of 0. The p-value is the share of resampled means that are at least as far from
    0 as the observed mean; the observation itself counts as one of them. It is 1 for fewer than `FEWEST_QUERIES`.
    The values ``(Q,)`` are those of each query under the two methods.

    Raises:
        UserError: If the two differ in their number of queries, or have none.
    """
    one, other = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if one.shape != other.shape or not one.size:
        raise LengthsDiffer(
            f"Values of {one.size} and of {other.size} queries cannot be compared query by query. Give one value per query."
        )
    if one.size < FEWEST_QUERIES:
        return 1.0
    difference = one - other
    found = abs(difference.mean())
    means = _resampled(difference - difference.mean(), seed, "paired bootstrap", resamples, np.mean)
    # A resample that equals the observation must count, although its mean can be rounded differently.
    slack = 1e-12 * max(1.0, found)
    return float((1 + np.count_nonzero(np.abs(means) >= found - slack)) / (1 + resamples))


def seed_interval(values: npt.ArrayLike) -> tuple[float, float]:
    """Return Student's 95 % interval of the mean over runs that differ only in their seed, from one value per run.

    Both ends are NaN for fewer than two runs. If all values are equal, both are that value.
    """
    of_runs = np.asarray(values, np.float64)
    if len(of_runs) < 2:
        return float("nan"), float("nan")
    # The mean of equal values can differ from them by rounding, which is not a spread.
    if (of_runs == of_runs[0]).all():
        return float(of_runs[0]), float(of_runs[0])
    half = student_quantile(0.95, len(of_runs) - 1) * float(of_runs.std(ddof=1)) / math.sqrt(len(of_runs))
    return float(of_runs.mean()) - half, float(of_runs.mean()) + half


def student_quantile(level: float, degrees: int) -> float:
    """Return the distance from 0 that a share ``level`` of Student's distribution stays within.

    Example:
        >>> round(student_quantile(0.95, 2), 3)
        4.303
    """
    from scipy.special import stdtrit  # here, because only means over seeds need it and its import is slow

    return float(stdtrit(degrees, 0.5 + level / 2))


def _resampled(values: Values, seed: int, purpose: str, resamples: int, statistic: Callable[..., Values]) -> Values:
    generator = numpy_generator(seed, purpose)
    at_once = max(1, DRAWS_AT_ONCE // len(values))
    means = [
        statistic(values[generator.integers(0, len(values), (min(at_once, resamples - start), len(values)))], axis=1)
        for start in range(0, resamples, at_once)
    ]
    return np.concatenate(means)
