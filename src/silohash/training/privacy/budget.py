"""Count what a run has released under differential privacy, round by round.

The counts are arrays of the server's state, so that a resumed run continues with the budget that it has spent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from silohash.base.optional import only_errors, require
from silohash.base.types import Arrays, ReadArrays
from silohash.run.config.load import ResolvedConfig
from silohash.run.config.sections import PrivacyConfig
from silohash.run.events import PrivacyRecord

ACCOUNTANT = "absl"
"""Logger in which the accountant remarks on orders of the divergence that it leaves out. The others give a valid bound."""

KEY = "privacy/key"
"""Name of the secret among the arrays that a silo keeps, and among the server's private arrays: ``(32,)`` uint8."""

ASKED, MULTIPLIERS = "privacy/asked", "privacy/multipliers"
"""Names of the counts: ``(K,)`` int64, the rounds in which each silo was asked to train, and ``(rounds, K)`` float64, per
round the noise multiplier for the silos whose updates were used, and 0 for the others."""


def sampling(items: int, batch: int) -> tuple[float, int]:
    """Return the probability with which each item takes part in a step, and the number of steps per epoch.

    The number of training items is taken for public. ``batch`` is the expected number of items per step.

    Example:
        >>> sampling(100, 25), sampling(10, 25), sampling(0, 25)
        ((0.25, 4), (1.0, 1), (1.0, 0))
    """
    return (min(1.0, batch / items), max(1, round(items / batch))) if items else (1.0, 0)


@dataclass(frozen=True)
class Budget:
    """What the accountant must know of a run, among which the number of training items of each silo."""

    resolved: ResolvedConfig
    settings: PrivacyConfig
    items: Sequence[int]

    @property
    def drawn(self) -> int:
        """The number of silos per round."""
        return self.resolved.config.federated.participants(len(self.items))

    def spent(self, before: ReadArrays, *, asked: Sequence[int], used: Sequence[int]) -> tuple[Arrays, PrivacyRecord]:
        """Return the server's private counts after a round, and the record of what all rounds so far have released.

        Silos that were asked to train count, whether their answers arrived or not.
        """
        silos = len(self.items)
        counts = np.array(before.get(ASKED, np.zeros(silos, np.int64)))
        counts[list(asked)] += 1
        row = np.zeros((1, silos))
        row[0, list(used)] = self.multiplier(len(used))
        rows = np.concatenate([before.get(MULTIPLIERS, np.zeros((0, silos))), row])
        kept = {name: before[name] for name in (KEY,) if name in before}
        return kept | {ASKED: counts, MULTIPLIERS: rows}, self.record(counts, rows)

    def multiplier(self, used: int) -> float:
        """Return the noise multiplier of a round for any other silo, if the updates of ``used`` silos were added up.

        It is the configured one if all silos of the round answered. With the unit ``record``, each silo adds all of it.
        """
        if self.settings.unit == "record":
            return self.settings.noise_multiplier
        return self.settings.noise_multiplier * math.sqrt(max(0, used - 1) / (self.drawn - 1))

    def record(self, asked: np.ndarray, multipliers: np.ndarray) -> PrivacyRecord:
        """Return epsilon after the counted rounds; the largest of all silos."""
        delta = self.settings.delta
        if self.settings.unit == "record":
            epsilon = server = max(map(self._of_items, self.items, asked.tolist()))
        else:
            epsilon = self._of_silos(multipliers)
            single = self.settings.noise_multiplier / math.sqrt(self.drawn - 1) / 2.0
            server = epsilon_of_noise([single] * int(asked.max()), delta=delta)
        known, at_server = (each if math.isfinite(each) else None for each in (epsilon, server))
        return PrivacyRecord(self.settings.unit, known, at_server, delta, self.settings.repeatable)

    def _of_items(self, items: int, rounds: int) -> float:
        """Return epsilon for an item of a silo that has trained in some rounds."""
        settings, config = self.settings, self.resolved.config
        rate, steps = sampling(items, config.train.batch)
        if not steps or not rounds:
            return 0.0
        statistics = [settings.statistics_noise_multiplier] * rounds if self.resolved.federated.traits.means else []
        steps *= config.federated.local_epochs * rounds
        return epsilon_of_samples(settings.noise_multiplier, rate, steps, statistics=statistics, delta=settings.delta)

    def _of_silos(self, multipliers: np.ndarray) -> float:
        """Return epsilon for a silo, for those who see the models of all rounds."""
        delta, silos = self.settings.delta, len(self.items)
        if self.drawn < silos:
            rounds = [float(value) for value in multipliers.max(axis=1)]
            return epsilon_of_sampled_silos(rounds, drawn=self.drawn, silos=silos, delta=delta)
        if (multipliers.max(axis=1) <= 0).any():  # a round in which the update of a single silo was used has no noise
            return math.inf
        return max(epsilon_of_noise([float(v) for v in column if v > 0], delta=delta) for column in multipliers.T)


def epsilon_of_samples(
    noise_multiplier: float, rate: float, steps: int, *, statistics: Sequence[float] = (), delta: float
) -> float:
    """Return epsilon for adding or removing one item of a silo, which need not hold with probability delta.

    A noise multiplier is the standard deviation of the noise of a step, as a multiple of the limit on an item's gradient.
    ``statistics`` are those of further releases, in which all items take part. The rate is the probability with which an
    item takes part in a step, independent of the other items and steps. If it is 1, nothing is gained by the sampling.

    Raises:
        UserError: If the package dp-accounting is not installed, as in all functions here that count epsilon.
    """
    if rate >= 1.0:
        return epsilon_of_noise([*[noise_multiplier] * steps, *statistics], delta=delta)
    return _sampled(noise_multiplier, rate, steps, joint(statistics), delta)


def epsilon_of_noise(multipliers: Sequence[float], *, delta: float) -> float:
    """Return epsilon of several sums with Gaussian noise, none of them of a sample. It is exact.

    It is 0 without releases, and infinity if one of them has no noise. There is one noise multiplier per release.
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
    rounds in which all silos take part. There is one noise multiplier per round, in which ``drawn`` of all silos take part.

    Source: Wang, Balle and Kasiviswanathan, "Subsampled Rényi Differential Privacy and Analytical Moments Accountant",
        AISTATS 2019.
    """
    always = epsilon_of_noise(multipliers, delta=delta)
    if drawn >= silos or not 0.0 < always < math.inf:
        return always
    from dp_accounting import GaussianDpEvent, NeighboringRelation, SampledWithoutReplacementDpEvent, rdp

    accountant = rdp.RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    with only_errors(ACCOUNTANT):
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
        with only_errors(ACCOUNTANT):
            accountant.compose(SelfComposedDpEvent(step, steps))
    if math.isfinite(statistics):
        accountant.compose(GaussianDpEvent(statistics))
    return float(accountant.get_epsilon(delta)) if steps or math.isfinite(statistics) else 0.0
