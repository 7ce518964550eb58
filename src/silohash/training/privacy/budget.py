"""Count what a run has released under differential privacy, round by round.

The counts are arrays of the server's state, so that a resumed run continues with the budget that it has spent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from silohash.base.types import Arrays, ReadArrays
from silohash.run.config.load import ResolvedConfig
from silohash.run.config.sections import PrivacyConfig
from silohash.run.privacy_record import PrivacyRecord
from silohash.training.privacy.accounting import epsilon_of_noise, epsilon_of_sampled_silos, epsilon_of_samples

KEY = "privacy/key"
"""Name of the secret among the arrays that a silo keeps, and among the server's private arrays: ``(32,)`` uint8."""

ASKED, MULTIPLIERS = "privacy/asked", "privacy/multipliers"
"""Names of the counts: ``(K,)`` int64, the rounds in which each silo was asked to train, and ``(rounds, K)`` float64, per
round the noise multiplier for the silos whose updates were used, and 0 for the others."""


def sampling(items: int, batch: int) -> tuple[float, int]:
    """Return the probability with which each item takes part in a step, and the number of steps per epoch.

    Args:
        items: Number of training items, which is taken for public.
        batch: Expected number of items per step.

    Example:
        >>> sampling(100, 25), sampling(10, 25), sampling(0, 25)
        ((0.25, 4), (1.0, 1), (1.0, 0))
    """
    return (min(1.0, batch / items), max(1, round(items / batch))) if items else (1.0, 0)


@dataclass(frozen=True)
class Budget:
    """What the accountant must know of a run.

    Attributes:
        settings: The table ``[exchange.privacy]``.
        items: Number of training items of each silo.
        batch: Expected number of items per step.
        epochs: Local epochs per round.
        drawn: Number of silos per round.
        statistics: Whether silos send class statistics in every round.
    """

    settings: PrivacyConfig
    items: Sequence[int]
    batch: int
    epochs: int
    drawn: int
    statistics: bool

    @classmethod
    def of(cls, resolved: ResolvedConfig, items: Sequence[int]) -> Budget | None:
        """Return the budget of a run, or None without differential privacy.

        Args:
            resolved: The config of the run with its methods.
            items: Number of training items of each silo.
        """
        config = resolved.config
        if config.exchange.privacy is None:
            return None
        return cls(
            settings=config.exchange.privacy,
            items=items,
            batch=config.train.batch,
            epochs=config.federated.local_epochs,
            drawn=config.federated.participants(len(items)),
            statistics=bool(resolved.federated.traits.means),
        )

    def spent(self, before: ReadArrays, *, asked: Sequence[int], used: Sequence[int]) -> tuple[Arrays, PrivacyRecord]:
        """Return the counts after a round, and the record of what all rounds so far have released.

        Args:
            before: The server's private arrays before the round.
            asked: Numbers of the silos that were asked to train. Whether their answers arrived or not, they count.
            used: Numbers of the silos whose updates were used.

        Returns:
            The server's private arrays of privacy, and the record.
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
            epsilon = server = max(
                self._of_items(items, int(rounds)) for items, rounds in zip(self.items, asked, strict=True)
            )
        else:
            epsilon = self._of_silos(multipliers)
            single = self.settings.noise_multiplier / math.sqrt(self.drawn - 1) / 2.0
            server = epsilon_of_noise([single] * int(asked.max()), delta=delta)
        return PrivacyRecord(
            unit=self.settings.unit, epsilon=_finite(epsilon), epsilon_server=_finite(server), delta=delta,
            repeatable=self.settings.repeatable,
        )  # fmt: skip

    def _of_items(self, items: int, rounds: int) -> float:
        """Return epsilon for an item of a silo that has trained in some rounds."""
        rate, steps = sampling(items, self.batch)
        if not steps or not rounds:
            return 0.0
        statistics = [self.settings.statistics_noise_multiplier] * rounds if self.statistics else []
        return epsilon_of_samples(
            self.settings.noise_multiplier, rate, steps * self.epochs * rounds, statistics=statistics,
            delta=self.settings.delta,
        )  # fmt: skip

    def _of_silos(self, multipliers: np.ndarray) -> float:
        """Return epsilon for a silo, for those who see the models of all rounds."""
        delta, silos = self.settings.delta, len(self.items)
        if self.drawn < silos:
            rounds = [float(value) for value in multipliers.max(axis=1)]
            return epsilon_of_sampled_silos(rounds, drawn=self.drawn, silos=silos, delta=delta)
        return max(epsilon_of_noise([float(v) for v in column if v > 0], delta=delta) if _hidden(multipliers) else math.inf
                   for column in multipliers.T)  # fmt: skip


def _hidden(multipliers: np.ndarray) -> bool:
    """Return whether every round has noise: more than one silo's update was used."""
    return bool((multipliers.max(axis=1) > 0).all())


def _finite(epsilon: float) -> float | None:
    """Return epsilon, or None if there is no guarantee."""
    return epsilon if math.isfinite(epsilon) else None
