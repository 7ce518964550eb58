"""The contract of methods, for federated ones with DCMH and local ones with FedAvg: they learn, repeat and resume."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from silohash.federated import FEDERATED_METHODS
from silohash.local import LOCAL_METHODS
from silohash.models.parameters import params_of
from silohash.runtime.checkpoint import load_checkpoint, save_checkpoint
from silohash.runtime.prepared import Prepared
from silohash.runtime.silo import SiloTask, autocast
from silohash.runtime.worker import Worker
from tests.runs import Records, prepared, run_loop, same_arrays, silo_data

PAIRS = [("dcmh", federated) for federated in FEDERATED_METHODS.names()]
PAIRS += [(local, "fedavg") for local in LOCAL_METHODS.names() if local != "dcmh"]
MODALITIES = {"both": (True, True), "image only": (True, False), "text only": (False, True)}

each_pair = pytest.mark.parametrize(("local", "federated"), PAIRS, ids=["-".join(pair) for pair in PAIRS])


def inputs(local: str, federated: str, sizes=(30, 20, 10), **more) -> Prepared:
    pooled = FEDERATED_METHODS.resolve(federated).pooled
    rounds = more.pop("rounds", 3)
    return prepared(
        (sum(sizes),) if pooled else sizes, local={"name": local}, federated={"name": federated, "rounds": rounds},
        train={"learning_rate": 0.01}, **more,
    )  # fmt: skip


def skip_unless_fit(federated: str, modalities: str) -> None:
    if sum(MODALITIES[modalities]) < FEDERATED_METHODS.resolve(federated).min_modalities:
        pytest.skip(f"{federated} needs both modalities")


@each_pair
@pytest.mark.parametrize("modalities", MODALITIES)
@pytest.mark.parametrize("single", [True, False], ids=["single-label", "multi-label"])
def test_learns(local: str, federated: str, modalities: str, single: bool) -> None:
    skip_unless_fit(federated, modalities)
    image, text = MODALITIES[modalities]
    listener = Records()
    run_loop(inputs(local, federated, image=image, text=text, single=single, rounds=6), listener)
    first, last = listener.records[0].terms, listener.records[-1].terms
    lasting = first.keys() & last.keys()  # some terms start in the second round
    assert sum(last[name] for name in lasting) < sum(first[name] for name in lasting)
    assert all(silo.rejected is None for record in listener.records for silo in record.silos)
    assert listener.records[-1].validation > 0


@each_pair
def test_is_deterministic_and_the_same_through_bytes(local: str, federated: str) -> None:
    first, second, wired = (run_loop(inputs(local, federated), wire=wire) for wire in (False, False, True))
    for other in (second, wired):
        assert same_arrays(first.server.params, other.server.params)
        assert same_arrays(first.server.extras, other.server.extras)
        assert first.silos.keys() == other.silos.keys()
        assert all(same_arrays(first.silos[silo], other.silos[silo]) for silo in first.silos)
        assert first.best_score == other.best_score


@pytest.mark.parametrize("federated", FEDERATED_METHODS.names())
def test_trains_in_bfloat16(federated: str) -> None:
    sizes, listener = (30, 20, 10), Records()
    given = prepared(
        (sum(sizes),) if FEDERATED_METHODS.resolve(federated).pooled else sizes,
        federated={"name": federated, "rounds": 2}, train={"learning_rate": 0.01, "precision": "bfloat16"},
    )  # fmt: skip
    state = run_loop(given, listener)
    assert all(array.dtype == np.float32 and np.isfinite(array).all() for array in state.server.params.values())
    assert all(silo.rejected is None for record in listener.records for silo in record.silos)
    assert all(np.isfinite([record.loss, *record.terms.values()]).all() for record in listener.records)


@pytest.mark.parametrize("local", LOCAL_METHODS.names())
def test_outputs_are_float32_where_towers_run_in_bfloat16(local: str) -> None:
    given = inputs(local, "fedcafe")
    model = Worker(given, torch.device("cpu")).model
    batch = silo_data(8).batch(torch.arange(8))
    with autocast("bfloat16", torch.device("cpu")):
        outputs, product = model(batch), torch.ones(2, 2) @ torch.ones(2, 2)
    assert product.dtype == torch.bfloat16
    for part in (outputs.feature, outputs.logit, outputs.code, outputs.class_logit):
        assert [values.dtype for values in part.values()] == [torch.float32] * 2


@each_pair
def test_state_goes_through_a_checkpoint(local: str, federated: str, tmp_path) -> None:
    whole = run_loop(inputs(local, federated))
    save_checkpoint(tmp_path / "checkpoint", run_loop(inputs(local, federated), stop=1), "digest")
    resumed = run_loop(inputs(local, federated), state=load_checkpoint(tmp_path / "checkpoint", "digest"))
    for section in ("params", "extras", "private"):
        assert same_arrays(getattr(whole.server, section), getattr(resumed.server, section))
    assert all(same_arrays(whole.silos[silo], resumed.silos[silo]) for silo in whole.silos)
    assert whole.best_score == resumed.best_score


def without(inputs: Prepared, case: str) -> Prepared:
    """Remove something from the first silo."""
    arrays = {name: array.copy() for name, array in inputs.arrays.items()}
    own = slice(0, inputs.silos[0][1] + inputs.silos[0][2])
    if case == "labels":
        arrays["labels"][own] = 0
    elif case == "all classes but one":
        arrays["labels"][own] = np.eye(arrays["labels"].shape[1], dtype=np.float32)[0]
    elif case == "pictures":
        arrays["has_image"][own], arrays["image"][own] = False, 0
    elif case == "texts":
        arrays["has_text"][own], arrays["text"][own] = False, 0
    return replace(inputs, arrays=arrays)


@each_pair
@pytest.mark.parametrize("case", ["items but one", "all items", "labels", "all classes but one", "pictures", "texts"])
def test_trains_with_a_silo_that_lacks_something(local: str, federated: str, case: str) -> None:
    sizes = {"items but one": (1, 20, 20), "all items": (0, 20, 20)}.get(case, (12, 20, 20))
    listener = Records()
    state = run_loop(without(inputs(local, federated, sizes, rounds=2), case), listener)
    assert all(np.isfinite(array).all() for array in state.server.params.values())
    assert all(silo.rejected is None for record in listener.records for silo in record.silos)
    assert all(np.isfinite(record.loss) for record in listener.records)


@each_pair
def test_silos_that_take_part_late_or_never_can_deploy(local: str, federated: str) -> None:
    given = inputs(local, federated, (10, 10, 10, 10, 10, 10), rounds=2)
    state = run_loop(given, fraction=1 / 3)
    worker, method = Worker(given, torch.device("cpu")), given.resolved.federated
    for silo in range(len(given.silos)):
        broadcast = method.broadcast(state.server, silo, round=2)
        deployed = worker.do(SiloTask("deploy", silo, broadcast, state.silos.get(silo, {}))).update
        assert deployed.sender == given.silos[silo][0]
        assert all(np.isfinite(array).all() for array in deployed.params.values())


@each_pair
def test_traits_are_true(local: str, federated: str) -> None:
    given = inputs(local, federated, rounds=1)
    kind, listener = type(given.resolved.federated), Records()
    state = run_loop(given, listener)
    worker = Worker(given, torch.device("cpu"))
    shared = given.resolved.federated.shared_parameters(worker.model)
    assert bool(shared) == kind.shares_parameters
    own_bytes = sum(array.nbytes for name, array in params_of(worker.model).items() if name in shared)
    assert listener.records[0].uplink_bytes >= own_bytes * len(given.silos)
    assert set(shared) <= set(state.server.params)
    assert kind.codes_comparable or kind.personalized
    assert set(kind.encode_extras) <= set(state.server.extras)
    broadcasts = [given.resolved.federated.broadcast(state.server, silo, round=1) for silo in (0, len(given.silos) - 1)]
    if kind.uniform_broadcast:
        assert same_arrays(broadcasts[0].arrays(), broadcasts[1].arrays())
