"""Compressed updates in the loop: equal results where nothing is lost, fewer bytes, and residuals that survive."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from silohash.base.types import UserError
from silohash.methods.federated.base import ServerState
from silohash.training.engines.in_process import InProcess
from silohash.training.engines.port import SiloTask
from silohash.training.rounds import RoundSettings, run_rounds
from silohash.training.updates.compressed import codec_of, reference
from silohash.training.worker import Worker
from tests.runs import Records, first_state, prepared, run_loop, same_arrays

EVERYTHING = {"kind": "top_k", "share": 1.0}
METHODS: list[dict[str, Any]] = [
    {"name": "fedavg", "server": {"optimizer": "fedadam"}},
    {"name": "fednova"},
    {"name": "fedcafe"},
    {"name": "fedcafe", "memory": "class_mean"},
    {"name": "fedcmr"},
    {"name": "plfedcmh"},
    {"name": "fedridge", "solve": "both", "reveal_items": True},
    {"name": "compose", "methods": [{"name": "fednova"}, {"name": "fedproc"}]},
]


def inputs(compression: dict[str, Any] | None, federated: dict[str, Any] | None = None, **sections: Any):
    exchange = {"compression": compression} if compression else {}
    return prepared(federated={"rounds": 3, **(federated or {})}, exchange=exchange, **sections)


def server_arrays(server: ServerState) -> dict[str, np.ndarray]:
    sections = {"params": server.params, "extras": server.extras, "private": server.private}
    return {f"{section}/{name}": array for section, part in sections.items() for name, array in part.items()}


@pytest.mark.parametrize("federated", METHODS, ids=[str(method["name"]) + str(len(method)) for method in METHODS])
def test_with_all_values_the_result_is_that_without_compression(federated: dict[str, Any]) -> None:
    plain, whole = (run_loop(inputs(compression, federated)) for compression in (None, EVERYTHING))
    assert same_arrays(server_arrays(plain.server), server_arrays(whole.server))
    assert plain.silos.keys() == whole.silos.keys()
    assert all(same_arrays(plain.silos[silo], whole.silos[silo]) for silo in plain.silos)


@pytest.mark.parametrize("federated", METHODS, ids=[str(method["name"]) + str(len(method)) for method in METHODS])
@pytest.mark.parametrize("kind", ["half", "int8", "top_k"])
def test_every_method_trains_and_sends_fewer_bytes(federated: dict[str, Any], kind: str) -> None:
    plain, short = Records(), Records()
    run_loop(inputs(None, federated), plain)
    state = run_loop(inputs({"kind": kind}, federated), short, wire=True)
    assert all(np.isfinite(array).all() for array in state.server.params.values())
    assert not [silo.rejected for record in short.records for silo in record.silos if silo.rejected]
    last = 0 if federated["name"] == "fedridge" else -1
    trained = [record.uplink_bytes for record in (plain.records[1], short.records[1])]
    assert trained[1] < 0.8 * trained[0]
    assert (plain.records[last].uplink_bytes == short.records[last].uplink_bytes) == (last == 0)


def test_half_and_int8_stay_near_the_run_without_compression() -> None:
    plain = run_loop(inputs(None, {"rounds": 4})).server.params
    start = first_state(inputs(None), Worker(inputs(None), torch.device("cpu"))).server.params
    moved = float(sum(np.abs(plain[name] - start[name]).sum() for name in plain))
    for kind, share in (("half", 0.01), ("int8", 0.2)):
        other = run_loop(inputs({"kind": kind}, {"rounds": 4})).server.params
        assert 0 < sum(np.abs(plain[name] - other[name]).sum() for name in plain) < share * moved


@pytest.mark.parametrize("name", ["fedavg", "fedbignns"])  # the second waits for merged statistics
def test_residuals_stay_with_silos_that_do_not_take_part_and_survive_an_interruption(name: str) -> None:
    given = inputs({"kind": "top_k", "share": 0.05}, {"name": name, "rounds": 5})
    whole = run_loop(given, fraction=0.5)
    half = run_loop(given, fraction=0.5, stop=2)
    assert any(n.startswith("residual/") for kept in half.silos.values() for n in kept)
    rest = run_loop(given, fraction=0.5, state=half)
    assert same_arrays(whole.server.params, rest.server.params)
    assert all(same_arrays(whole.silos[silo], rest.silos[silo]) for silo in whole.silos)


def test_what_is_left_out_of_a_round_is_what_the_silo_keeps() -> None:
    given = inputs({"kind": "int8"})
    worker = Worker(given, torch.device("cpu"))
    federated, server = given.resolved.federated, first_state(given, worker).server
    sent = federated.broadcast(server, 0, round=0)
    result = worker.do(SiloTask("train", 0, sent))
    codec = codec_of(given.config.exchange.compression)
    assert codec is not None
    for name, params in worker.model.state_dict().items():
        parts = {p: result.update.compressed[f"{name}/{p}"] for p in ("steps", "sizes")}
        arrived = codec.decode(parts, reference(federated, sent)[name])
        assert np.allclose(arrived + result.kept[f"residual/{name}"], params.numpy(), atol=1e-7)


def test_residuals_are_not_taken_for_the_state_of_a_method() -> None:
    given = inputs({"kind": "int8"}, {"name": "moon"})
    worker = Worker(given, torch.device("cpu"))
    kept = {"residual/image.hash.bias": np.ones(16, np.float32)}
    sent = given.resolved.federated.broadcast(first_state(given, worker).server, 0, round=0)
    result = worker.do(SiloTask("train", 0, sent, kept=kept))
    assert {name.partition("/")[0] for name in result.kept} == {"model", "residual"}


def test_an_update_that_cannot_be_restored_is_rejected_with_its_reason() -> None:
    given, records = inputs({"kind": "half"}), Records()

    class Spoiling(Worker):
        def do(self, task):
            result = super().do(task)
            if task.kind != "train" or task.silo != 1:
                return result
            parts = {name: array[:1] for name, array in result.update.compressed.items()}
            return replace(result, update=replace(result.update, compressed=parts))

    worker = Spoiling(given, torch.device("cpu"))
    settings = RoundSettings(
        rounds=1, silos=["a", "b", "c"], validate=False, codec=codec_of(given.config.exchange.compression)
    )
    state = first_state(given, worker)
    run_rounds(
        state, federated=given.resolved.federated, engine=InProcess(worker), settings=settings, observers=[records]
    )
    reasons = [silo.rejected for silo in records.records[0].silos]
    assert reasons[0] is reasons[2] is None
    assert reasons[1] is not None
    assert reasons[1].startswith("its compressed image.backbone.0.weight has half of type float16")


def test_hash_layers_alone_are_trained_and_sent() -> None:
    given, records = inputs({"kind": "hash_layers"}), Records()
    start = first_state(given, Worker(given, torch.device("cpu"))).server.params
    trained = run_loop(given, records).server.params
    for name in start:
        assert np.array_equal(start[name], trained[name]) == (".hash." not in name)
    hash_bytes = sum(array.nbytes for name, array in start.items() if ".hash." in name)
    assert [record.uplink_bytes for record in records.records] == [3 * hash_bytes] * 3


def test_hash_layers_alone_need_a_model_of_backbones_and_hash_layers() -> None:
    with pytest.raises(UserError, match=r'"hash_layers" would leave image\.mean untrained'):
        Worker(inputs({"kind": "hash_layers"}, local={"name": "dscmr"}), torch.device("cpu"))
