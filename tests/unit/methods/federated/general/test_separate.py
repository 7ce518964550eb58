"""The loss of a federated method in each silo alone, as a federation of one silo."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from silohash.base.errors import UnsuitableMethod, WrongValue
from silohash.methods.federated.general.separate import CARD, Separate
from silohash.run.config.load import load_resolved
from silohash.training.engines.port import SiloTask
from silohash.training.worker import Worker
from tests.runs import Records, prepared, run_loop, same_arrays
from tests.unit.methods.federated.helpers import traits_of

HAP = {"name": "fedhap", "min_count": 1}


def alone(member: dict[str, Any], sizes: tuple[int, ...] = (20, 30), rounds: int = 3) -> Any:
    inputs = prepared(sizes, federated={"name": "separate", "methods": [member], "rounds": rounds})
    listener = Records()
    return run_loop(inputs, listener), listener, inputs


def kept(state: Any, silo: int, prefix: str) -> dict[str, np.ndarray]:
    start = f"{prefix}/"
    return {n.removeprefix(start): array for n, array in state.silos[silo].items() if n.startswith(start)}


@pytest.mark.whole_run
@pytest.mark.parametrize(
    "member",
    [
        HAP,
        {**HAP, "adversarial_weight": 0.0},
        {"name": "fedproc", "min_count": 1},
        {"name": "fedprox"},
        {"name": "moon"},
    ],
)
def test_a_silo_ends_as_the_only_silo_of_a_federation(member: dict[str, Any]) -> None:
    state, _, _ = alone(member, (30,))
    whole = run_loop(prepared((30,), federated={**member, "rounds": 3}))
    assert same_arrays(kept(state, 0, "model"), whole.server.params)
    assert same_arrays(kept(state, 0, "extras"), whole.server.extras)


@pytest.mark.whole_run
def test_with_fedavg_it_is_separate_training() -> None:
    state, _, _ = alone({"name": "fedavg"})
    local = run_loop(prepared((20, 30), federated={"name": "local", "rounds": 3}))
    for silo in range(2):
        assert same_arrays(kept(state, silo, "model"), kept(local, silo, "model"))


def test_silos_have_prototypes_of_their_own_and_send_nothing() -> None:
    state, listener, _ = alone(HAP)
    first, second = (kept(state, silo, "extras") for silo in range(2))
    assert first["mask"].any()
    assert not np.array_equal(first["prototypes"], second["prototypes"])
    assert not same_arrays(kept(state, 0, "model"), kept(state, 1, "model"))
    assert [record.uplink_bytes for record in listener.records] == [0, 0, 0]
    assert not state.server.params
    assert {"fedhap/prototype", "fedhap/adversarial"} <= set(listener.records[1].terms)
    assert "fedhap/prototype" not in listener.records[0].terms


def test_a_silo_deploys_its_own_model() -> None:
    state, _, inputs = alone(HAP)
    worker = Worker(inputs, torch.device("cpu"))
    broadcast = inputs.resolved.federated.broadcast(state.server, 1, round=3)
    worker.do(SiloTask("validate", 1, broadcast, state.silos[1]))
    for name, tensor in worker.model.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), kept(state, 1, "model")[name])


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("fedcafe", "has its own adapt_outputs"),
        ("fedcmr", "has its own statistics"),
        ("plfedcmh", "has its own broadcast"),
        ("local", "does not share whole models"),
        ("centralized", "pools all data"),
        ("fedridge", "sends sums that reveal items"),
    ],
)
def test_methods_that_a_silo_alone_cannot_use_are_refused(name: str, why: str) -> None:
    config = {"data": {"name": "glyphs"}, "federated": {"name": "separate", "methods": [{"name": name}]}}
    with pytest.raises(UnsuitableMethod, match=f'federated.methods: "{name}" {why}'):
        load_resolved(config)


@pytest.mark.parametrize("methods", [[], [{"name": "fedavg"}, {"name": "fedprox"}]])
def test_exactly_one_method(methods: list[dict[str, str]]) -> None:
    with pytest.raises(WrongValue, match="methods"):
        load_resolved({"data": {"name": "glyphs"}, "federated": {"name": "separate", "methods": methods}})


def test_card_and_traits() -> None:
    plain = load_resolved({"data": {"name": "glyphs"}, "federated": {"name": "separate"}}).federated
    labeled = load_resolved({"data": {"name": "glyphs"}, "federated": {"name": "separate", "methods": [HAP]}}).federated
    assert isinstance(plain, Separate)
    assert (plain.traits.needs_labels, labeled.traits.needs_labels) == (False, True)
    assert (CARD.key, CARD.supervised, CARD.sends, CARD.link) == ("separate", False, (), "")
    assert traits_of(Separate) == {
        "shares": "none", "averages": False, "personalized": True,
        "codes_comparable": False,
    }  # fmt: skip
