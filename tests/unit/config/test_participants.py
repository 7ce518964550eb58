"""How many silos robust rules need: what is refused and what is accepted."""

from __future__ import annotations

import pytest

from silohash.config.load import load_config, load_resolved
from silohash.config.participants import objection_to_config, objection_to_silos
from silohash.types import UserError

KRUM = {"rule": "multi_krum", "faulty": 0.3}


@pytest.mark.parametrize(
    ("silos", "fraction", "faulty", "needed"),
    [(5, 1.0, 0.3, 7), (7, 1.0, 0.3, 9), (10, 0.5, 0.3, 7), (4, 1.0, 0.2, 5), (2, 1.0, 0.0, 3)],
)
def test_multi_krum_is_refused_with_too_few_silos(silos: int, fraction: float, faulty: float, needed: int) -> None:
    config = {
        "data": {"name": "glyphs"}, "partition": {"silos": silos},
        "federated": {"fraction": fraction, "robust": {"rule": "multi_krum", "faulty": faulty}},
    }  # fmt: skip
    with pytest.raises(UserError, match=f'"multi_krum" needs at least {needed} silos per round'):
        load_config(config)
    config["federated"] = {**config["federated"], "robust": {"rule": "median", "faulty": faulty}}
    load_config(config)


@pytest.mark.parametrize(
    ("silos", "fraction", "faulty"), [(10, 1.0, 0.3), (9, 1.0, 0.3), (5, 1.0, 0.2), (18, 0.5, 0.3)]
)
def test_multi_krum_is_accepted_with_enough_silos(silos: int, fraction: float, faulty: float) -> None:
    robust = {"rule": "multi_krum", "faulty": faulty}
    config = load_config(
        {
            "data": {"name": "glyphs"},
            "partition": {"silos": silos},
            "federated": {"fraction": fraction, "robust": robust},
        }
    )
    assert config.federated.participants(silos) >= 5
    assert objection_to_config(config) == ""


def test_silos_that_the_archive_counts_are_checked_once_they_are_known() -> None:
    config = load_config(
        {
            "data": {"name": "glyphs"},
            "partition": {"kind": "column", "silos": 3, "column": "place"},
            "federated": {"robust": KRUM},
        }
    )
    assert objection_to_config(config) == objection_to_silos(config, 9) == ""
    expected = "needs at least 9 silos per round to withstand 3 faulty ones, but 8 of 8 take part"
    assert expected in objection_to_silos(config, 8)


def test_pooled_training_needs_no_silos_for_a_rule_and_applies_none() -> None:
    resolved = load_resolved(
        {
            "data": {"name": "glyphs"},
            "partition": {"silos": 3},
            "federated": {"name": "centralized", "robust": KRUM},
        }
    )
    assert resolved.federated.aggregation.screens == ()
