"""PLFedCMH: its parameters and presets. `test_layer_mixtures` tests its mixtures and losses."""

from __future__ import annotations

import pytest

from silohash.methods.federated.hashing.plfedcmh import CARD, PLFedCMH, PLFedCMHParams
from tests.unit.methods.federated.helpers import accepts, traits_of


def test_presets() -> None:
    own = {"normalization": "code", "prototype_weight": 1e5, "min_count": 1, "max_labels": 1000}
    own |= {"hypernetworks": "per_silo"}
    assert PLFedCMH.presets == {
        "recommended": {}, "paper": own, "authors_code": {**own, "hyper_rate": -1e-3, "sequential": True},
    }  # fmt: skip
    params = PLFedCMHParams()
    assert params.hypernetworks == "shared"
    assert (params.class_code_weight, params.prototype_weight, params.hyper_rate) == (0.5, 1.0, 1e-3)
    assert (params.prototype_weighting, params.normalization, params.sequential, params.fuse) == (
        "uniform",
        "mean",
        False,
        False,
    )


def test_card_and_traits() -> None:
    assert (CARD.year, CARD.supervised) == (2023, True)
    assert traits_of(PLFedCMH) == {
        "needs_labels": True,
        "uniform_broadcast": False,
        "uplink": "records",
        "personalized": True,
        "codes_comparable": False,
        "averages": False,
    }


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("class_code_weight", 0, True),
        ("prototype_weight", 0, True),
        ("hyper_rate", -0.5, True),
        ("hyper_rate", 0, True),
        ("class_code_weight", -0.1, False),
        ("prototype_weight", -0.1, False),
    ],
)
def test_bounds_of_parameters(name: str, value: float, accepted: bool) -> None:
    assert accepts(PLFedCMHParams, name, value) == accepted
