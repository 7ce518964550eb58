"""Federated methods with their own terms off are federated averaging, and servers that see only sums end alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from silohash.methods.federated.base import FederatedMethod, ServerState
from silohash.methods.message import Message
from silohash.models.towers import group_of
from tests.runs import prepared, run_loop

OFF: Mapping[str, Mapping[str, Any]] = {
    "fedprox": {"proximal_weight": 0.0},
    "moon": {"contrast_weight": 0.0},
    "feduch": {"contrast_weight": 0.0, "distillation_weight": 0.0},
    "ptfuch": {"global_weight": 0.0, "local_weight": 0.0},
    "fedproc": {"contrast_weight": 0.0},
    "fedala": {"mixing_rate": 0.0},
    "fedbignns": {"weighting": "examples"},
    "fedhap": {
        "triplet_weight": 0.0, "quantization_weight": 0.0, "adversarial_weight": 0.0, "weighting": "examples",
    },
    "fedcafe": {
        "enhance": False, "enhance_weight": 0.0, "consistency_weight": 0.0, "class_weight": 0.0,
        "weighting": "examples",
    },
}  # fmt: skip
ON: Mapping[str, Mapping[str, Any]] = {
    "fedprox": {"proximal_weight": 1.0},
    "moon": {},
    "feduch": {},
    "fedproc": {},
    "fedhap": {"min_count": 1},
    "fedcafe": {"min_count": 1},
}


def ended(name: str, sizes=(30, 20, 10), **params: Any) -> ServerState:
    given = prepared(sizes, federated={"name": name, "rounds": 3, **params}, train={"learning_rate": 0.01})
    return run_loop(given).server


def farthest(first: ServerState, second: ServerState) -> float:
    """Returns the largest difference between parameters that both have."""
    names = first.params.keys() & second.params.keys()
    assert {name.rpartition(".")[0] for name in names} >= {"image.hash", "text.hash"}
    return max(float(np.abs(first.params[name] - second.params[name]).max()) for name in names)


@pytest.mark.parametrize("name", OFF)
def test_with_its_terms_off_it_is_federated_averaging(name: str) -> None:
    assert farthest(ended("fedavg"), ended(name, **OFF[name])) == 0.0


@pytest.mark.parametrize("name", ON)
def test_with_its_terms_on_it_is_not(name: str) -> None:
    assert farthest(ended("fedavg"), ended(name, **ON[name])) > 1e-4


def test_fedcafe_with_a_memory_of_means_is_federated_averaging_with_its_terms_off() -> None:
    assert farthest(ended("fedavg"), ended("fedcafe", memory_rows="mean", **OFF["fedcafe"])) == 0.0
    unit, means = (ended("fedcafe", min_count=1, memory_rows=rows) for rows in ("unit", "mean"))
    assert farthest(unit, means) > 1e-4


def test_fednova_with_equal_steps_is_federated_averaging() -> None:
    assert farthest(ended("fedavg", (20, 20, 20)), ended("fednova", (20, 20, 20))) < 1e-6
    assert farthest(ended("fedavg", (60, 40, 4)), ended("fednova", (60, 40, 4))) > 1e-5


def test_fedcmr_that_shares_all_evenly_without_extras_is_federated_averaging() -> None:
    plain = {"share": "all", "weighting": "uniform", "residual": 0.0, "enhance_fraction": 0.0}
    assert farthest(ended("fedavg", (20, 20, 20)), ended("fedcmr", (20, 20, 20), **plain)) < 1e-6


SUMMED: Mapping[str, Mapping[str, Any]] = {
    "fedavg": {},
    "fednova": {},
    "fedbignns": {},
    "fedproc": {"min_count": 1},
    "fedproto": {"min_count": 1},
    "fedhap": {"min_count": 1},
    "fedcafe": {"min_count": 1, "memory": "class_mean"},
    "fedcafe, means": {"min_count": 1, "memory": "class_mean", "memory_rows": "mean"},
    "fedcmr": {},
    "fedcmr, all": {"share": "all"},
}


def blended(updates: list[Message]) -> Message:
    """Returns one update that says of all of them only what secure aggregation would show."""
    groups = {group for update in updates for group in update.weights}
    weights = {group: sum(update.weights.get(group, 0.0) for update in updates) for group in groups}
    params = {}
    for name in {name for update in updates for name in update.params}:
        group = group_of(name)
        total = sum(u.params[name].astype(np.float64) * u.weights.get(group, 0.0) for u in updates)
        params[name] = (total / weights[group]).astype(updates[0].params[name].dtype)
    sums: dict[str, np.ndarray] = {}
    for update in updates:
        for name, array in update.sums.items():
            sums[name] = sums[name] + array if name in sums else array
    return replace(updates[0], sender="all", params=params, weights=weights, sums=sums, records={})


@pytest.mark.whole_run
@pytest.mark.parametrize("variant", SUMMED)
def test_a_server_that_sees_only_sums_ends_alike(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, params = variant.partition(",")[0], SUMMED[variant]
    plain = ended(name, **params)
    given = prepared(federated={"name": name, "rounds": 3, **params}, train={"learning_rate": 0.01})
    method: FederatedMethod = given.resolved.federated
    assert method.traits.uplink == "sum"
    aggregate = method.aggregate
    monkeypatch.setattr(method, "aggregate", lambda server, updates: aggregate(server, [blended(list(updates))]))
    seen = run_loop(given).server
    for section in ("params", "extras"):
        one, other = getattr(plain, section), getattr(seen, section)
        assert one.keys() == other.keys()
        for key in one:
            np.testing.assert_allclose(
                one[key].astype(np.float64), other[key].astype(np.float64), atol=2e-5, err_msg=key
            )
