"""Pooled training, in one part or in several."""

from __future__ import annotations

import pytest

from silohash.methods.federated.general.centralized import CARD, Centralized, CentralizedParams
from tests.unit.methods.federated.helpers import accepts, silo_context, traits_of


def test_pooled_training_in_parts_takes_the_steps_of_one_silo() -> None:
    (whole,) = Centralized(CentralizedParams()).begin_round(silo_context(60))
    assert whole.rows is None
    parts = [Centralized(CentralizedParams(parts=3)).begin_round(silo_context(60, round=n))[0].rows for n in range(2)]
    assert [len(set(rows.tolist())) for rows in parts] == [20, 20]
    assert set(parts[0].tolist()) != set(parts[1].tolist())


def test_parts_are_rounded_and_never_empty() -> None:
    for count, parts, expected in ((10, 3, 3), (11, 3, 4), (2, 9, 1)):
        (phase,) = Centralized(CentralizedParams(parts=parts)).begin_round(silo_context(count))
        assert len(phase.rows) == expected
        assert phase.rows.tolist() == sorted(phase.rows.tolist())
    assert CentralizedParams().parts == 1
    assert Centralized.traits.pooled


def test_card_and_traits() -> None:
    assert (CARD.year, CARD.supervised) == (2026, False)
    assert traits_of(Centralized) == {"pooled": True}


@pytest.mark.parametrize(("name", "value", "accepted"), [("parts", 1, True), ("parts", 0, False)])
def test_bounds_of_parameters(name: str, value: float, accepted: bool) -> None:
    assert accepts(CentralizedParams, name, value) == accepted
