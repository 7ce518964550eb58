"""Epsilon of what a run has released: how much one item, or one silo, can have changed it.

The accountant is that of the package dp-accounting. Everything here is Gaussian noise, on sums of clipped contributions.

Source: Mironov, Talwar and Zhang, "Rényi Differential Privacy of the Sampled Gaussian Mechanism", 2019, for random samples;
Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy", ICML 2018, for noise without samples.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

from silohash.base.optional import require


def epsilon_of_samples(
    noise_multiplier: float, rate: float, steps: int, *, statistics: Sequence[float] = (), delta: float
) -> float:
    """Return epsilon for adding or removing one item of a silo.

    Args:
        noise_multiplier: Standard deviation of the noise of a step, as a multiple of the limit on an item's gradient.
        rate: Probability with which an item takes part in a step, independent of the other items and steps. If it is 1,
            every item takes part in every step, and nothing is gained by the sampling.
        steps: Number of steps.
        statistics: Noise multipliers of further releases, in which all items take part.
        delta: Probability for which epsilon need not hold.

    Raises:
        UserError: If the package dp-accounting is not installed.
    """
    if rate >= 1.0:
        return epsilon_of_noise([*[noise_multiplier] * steps, *statistics], delta=delta)
    return _sampled(noise_multiplier, rate, steps, joint(statistics), delta)


def epsilon_of_noise(multipliers: Sequence[float], *, delta: float) -> float:
    """Return epsilon of several sums with Gaussian noise, none of them of a sample. It is exact.

    Args:
        multipliers: Per release the standard deviation of the noise, as a multiple of the largest contribution.
        delta: Probability for which epsilon need not hold.

    Returns:
        Epsilon: 0 without releases, and infinity if one of them has no noise.

    Raises:
        UserError: If the package dp-accounting is not installed.
    """
    multiplier = joint(multipliers)
    if multiplier == 0.0 or math.isinf(multiplier):
        return 0.0 if multiplier else math.inf
    require("dp_accounting", "Counting epsilon")
    from dp_accounting import get_epsilon_gaussian

    return float(get_epsilon_gaussian(multiplier, delta))


def epsilon_of_sampled_silos(multipliers: Sequence[float], *, drawn: int, silos: int, delta: float) -> float:
    """Return epsilon of rounds, in each of which the same number of silos is drawn at random without replacement.

    It holds for those who do not learn which silos took part. The analysis compares two federations in which one silo's
    contribution is replaced by any other, which changes a sum by up to twice the limit. It is never worse than that of
    rounds in which all silos take part.

    Args:
        multipliers: Per round the standard deviation of the noise, as a multiple of the limit on a contribution.
        drawn: Number of silos per round.
        silos: Number of all silos.
        delta: Probability for which epsilon need not hold.

    Raises:
        UserError: If the package dp-accounting is not installed.

    Source: Wang, Balle and Kasiviswanathan, "Subsampled Rényi Differential Privacy and Analytical Moments Accountant",
        AISTATS 2019.
    """
    always = epsilon_of_noise(multipliers, delta=delta)
    if drawn >= silos or not 0.0 < always < math.inf:
        return always
    from dp_accounting import GaussianDpEvent, NeighboringRelation, SampledWithoutReplacementDpEvent, rdp

    accountant = rdp.RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    with _quiet():
        for multiplier in multipliers:
            accountant.compose(SampledWithoutReplacementDpEvent(silos, drawn, GaussianDpEvent(multiplier / 2.0)))
    return min(always, float(accountant.get_epsilon(delta)))


def joint(multipliers: Sequence[float]) -> float:
    """Return the noise multiplier of one release that reveals as much as several; infinity without any.

    Independent Gaussian releases of the same items are worth one with (sum of z^-2)^(-1/2).

    Example:
        >>> joint([2.0, 2.0, 2.0, 2.0])
        1.0
    """
    if any(multiplier <= 0.0 for multiplier in multipliers):
        return 0.0
    precision = math.fsum(multiplier**-2 for multiplier in multipliers)
    return precision**-0.5 if precision else math.inf


@lru_cache(maxsize=256)
def _sampled(noise_multiplier: float, rate: float, steps: int, statistics: float, delta: float) -> float:
    """Return epsilon of sampled steps and of one release of all items; see `epsilon_of_samples`."""
    require("dp_accounting", "Counting epsilon")
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent, rdp

    accountant = rdp.RdpAccountant()
    if steps:
        step = PoissonSampledDpEvent(rate, GaussianDpEvent(noise_multiplier))
        with _quiet():
            accountant.compose(SelfComposedDpEvent(step, steps))
    if math.isfinite(statistics):
        accountant.compose(GaussianDpEvent(statistics))
    return float(accountant.get_epsilon(delta)) if steps or math.isfinite(statistics) else 0.0


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the accountant's remarks on orders of the divergence that it leaves out. The others give a valid bound."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
