"""What a run's records say of differential privacy."""

from __future__ import annotations

import pytest

from silohash.run.privacy_record import PrivacyRecord, epsilon_words


@pytest.mark.parametrize(
    ("epsilon", "words"), [(2.314, "epsilon 2.31 (delta 1e-05)"), (None, "epsilon infinite (delta 1e-05)")]
)
def test_epsilon_in_words(epsilon: float | None, words: str) -> None:
    assert epsilon_words(PrivacyRecord("record", epsilon, None, 1e-5)) == words
