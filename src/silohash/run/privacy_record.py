"""What a run has released under differential privacy, as its records hold it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PrivacyRecord:
    """What all rounds so far have released under differential privacy.

    Attributes:
        unit: Whether items or silos are hidden, ``record`` or ``silo``.
        epsilon: For those who see the models of the rounds, other silos included; None if there is no guarantee.
        epsilon_server: For the server, which sees the update of each silo; None if there is no guarantee.
        delta: Probability for which both need not hold.
        repeatable: Whether the noise can be derived from the seed. Both then show only what noise of this size would give.
    """

    unit: str
    epsilon: float | None
    epsilon_server: float | None
    delta: float
    repeatable: bool = False


def epsilon_words(privacy: PrivacyRecord) -> str:
    """Return epsilon and delta in words, such as ``epsilon 2.31 (delta 1e-05)``."""
    epsilon = "infinite" if privacy.epsilon is None else f"{privacy.epsilon:.2f}"
    return f"epsilon {epsilon} (delta {privacy.delta:g})"
