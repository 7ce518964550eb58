"""Compressing and restoring parameters: what is sent, what is kept for later, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from silohash.base.errors import UnsuitableMethod
from silohash.methods.federated.base import FederatedMethod, ServerState
from silohash.methods.message import Message
from silohash.training.engines.port import InProcess, SiloTask
from silohash.training.rounds import RoundSettings, run_rounds
from silohash.training.updates.chain import DIRECT, DamagedUpdateError
from silohash.training.updates.compression import (
    Codec,
    Compression,
    Half,
    Int8,
    TopK,
    compressed,
    largest,
    reference,
    restored,
)
from silohash.training.worker import Worker
from tests.runs import Records, prepared, run_loop, same_arrays

SHAPES = {"image.hash.weight": (8, 40), "image.hash.bias": (8,), "text.backbone.0.weight": (33, 5), "text.scale": ()}
CODECS: list[Codec] = [Half(), Int8(), TopK(0.1), TopK(0.01), TopK(1.0)]


def values(seed: int, spread: float = 1.0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {name: np.asarray(spread * generator.normal(size=shape), np.float32) for name, shape in SHAPES.items()}


def update(params: dict[str, np.ndarray]) -> Message:
    return Message(kind="update", sender="silo", round=0, params=params)


def moved(reference: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    return {name: reference[name] + change for name, change in values(seed, 0.01).items()}


@pytest.mark.parametrize("codec", CODECS)
def test_what_arrives_and_what_is_left_add_up_to_the_update(codec: Codec) -> None:
    reference = values(0)
    params = moved(reference, 1)
    message, left = compressed(update(params), reference, {}, codec)
    assert not message.params
    arrived = restored(Message.decode(message.encode()), reference, codec).params
    for name, array in params.items():
        assert arrived[name].dtype == array.dtype
        assert arrived[name].shape == array.shape
        error = arrived[name] + left.get(name, np.float32(0)) - array
        assert np.abs(error).max() < (1e-5 if codec == Half() else 1e-6)
    assert bool(left) == (codec in CODECS[1:4])


@pytest.mark.parametrize("codec", [Int8(), TopK(0.1)])
def test_over_the_rounds_everything_arrives(codec: Codec) -> None:
    reference, residual = values(0), {}
    wanted = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    arrived = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    largest_residual = 0.0
    for round_ in range(30):
        params = moved(reference, round_)
        message, residual = compressed(update(params), reference, residual, codec)
        got = restored(message, reference, codec).params
        for name in SHAPES:
            wanted[name] += params[name].astype(np.float64) - reference[name]
            arrived[name] += got[name].astype(np.float64) - reference[name]
            assert np.allclose(arrived[name] + residual.get(name, 0.0), wanted[name], atol=1e-5)
        largest_residual = max(largest_residual, *(float(np.abs(left).max()) for left in residual.values()))
    # What is left out does not pile up: with a tenth of the values per round, none waits for much longer than ten rounds.
    assert largest_residual < 0.3


def test_all_values_equal_no_compression_bit_for_bit() -> None:
    reference = values(0)
    params = moved(reference, 1) | {"image.hash.bias": np.array([-0.0, 1e-42, 0.0, -1.5] * 2, np.float32)}
    message, left = compressed(update(params), reference, {}, TopK(1.0))
    assert not left
    arrived = restored(message, reference, TopK(1.0)).params
    for name, array in params.items():
        assert arrived[name].tobytes() == array.tobytes()
    assert message.size_bytes() == update(params).size_bytes()


@pytest.mark.parametrize(
    ("codec", "size"),
    [
        (Half(), 2 * 1000),
        (Int8(), 1000 + 4 * 10),  # a step size per row
        (TopK(0.1), 4 * 100 + 125),  # a bit per value
        (TopK(0.01), 8 * 10),  # a position per chosen value
        (TopK(0.0101), 8 * 11),
    ],
)
def test_bytes(codec: Codec, size: int) -> None:
    reference = {"image.hash.weight": np.zeros((10, 100), np.float32)}
    params = {"image.hash.weight": np.random.default_rng(0).normal(size=(10, 100)).astype(np.float32)}
    message, _ = compressed(update(params), reference, {}, codec)
    assert message.size_bytes() == size
    assert len(message.encode()) < size + 700


def test_largest_values_are_sent_exactly_and_the_others_stay() -> None:
    reference = {"image.hash.bias": np.array([1.0, 2.0, 3.0, 4.0, 5.0], np.float32)}
    params = {"image.hash.bias": np.array([1.1, 2.0, 9.0, 1.0, 5.2], np.float32)}
    message, left = compressed(update(params), reference, {}, TopK(0.4))
    arrived = restored(message, reference, TopK(0.4)).params["image.hash.bias"]
    assert arrived.tolist() == [1.0, 2.0, 9.0, 1.0, 5.0]
    assert np.allclose(left["image.hash.bias"], [0.1, 0.0, 0.0, 0.0, 0.2], atol=1e-6)


def test_int8_has_a_step_size_per_row_and_rounds_to_half_of_it() -> None:
    reference = {"image.hash.weight": np.zeros((3, 50), np.float32)}
    params = np.random.default_rng(0).normal(size=(3, 50)).astype(np.float32) * np.array(
        [[1.0], [1e-4], [0.0]], np.float32
    )
    message, left = compressed(update({"image.hash.weight": params}), reference, {}, Int8())
    sizes = message.compressed["image.hash.weight/sizes"]
    assert np.allclose(sizes, np.abs(params).max(1) / 127)
    assert (np.abs(left["image.hash.weight"]) <= sizes[:, None] * 0.5001).all()
    assert (np.abs(message.compressed["image.hash.weight/steps"]).max(1) == [127, 127, 0]).all()


def test_integer_parameters_are_sent_as_they_are_and_others_keep_their_residual() -> None:
    count, waiting = np.asarray(7), {"text.scale": np.asarray(0.5, np.float32)}
    message, left = compressed(update({"image.count": count}), {"image.count": np.asarray(1)}, waiting, Int8())
    assert message.params == {"image.count": count}
    assert left == waiting


@pytest.mark.parametrize("codec", [Half(), Int8(), TopK(0.1)])
@pytest.mark.parametrize("spoiled", [np.nan, np.inf])
def test_values_that_are_not_finite_arrive_as_such(codec: Codec, spoiled: float) -> None:
    reference, params = values(0), values(1)
    params["image.hash.weight"][2, 3] = spoiled
    message, _ = compressed(update(params), reference, {}, codec)
    assert not np.isfinite(restored(message, reference, codec).params["image.hash.weight"]).all()


def test_changes_beyond_half_precision_arrive_as_infinite() -> None:
    reference = {"image.hash.bias": np.zeros(2, np.float32)}
    message, _ = compressed(update({"image.hash.bias": np.array([1.0, 1e6], np.float32)}), reference, {}, Half())
    assert np.isinf(restored(message, reference, Half()).params["image.hash.bias"]).tolist() == [False, True]


def spoil(codec: Codec, **changes: np.ndarray | None) -> Message:
    reference = {"image.hash.weight": np.zeros((10, 100), np.float32)}
    params = {"image.hash.weight": np.random.default_rng(0).normal(size=(10, 100)).astype(np.float32)}
    message, _ = compressed(update(params), reference, {}, codec)
    parts = {**message.compressed, **{f"image.hash.weight/{name}": array for name, array in changes.items()}}
    return replace(message, compressed={name: array for name, array in parts.items() if array is not None})


POSITIONS = np.arange(10, dtype=np.uint32)


@pytest.mark.parametrize(
    ("codec", "changes", "reason"),
    [
        (Half(), {"half": np.zeros((10, 99), np.float16)}, "half of type float16 and shape (10, 99)"),
        (Half(), {"half": np.zeros((10, 100), np.float32)}, "half of type float32 and shape (10, 100)"),
        (Half(), {"half": None, "other": POSITIONS}, "no half"),
        (Int8(), {"sizes": np.zeros(9, np.float32)}, "sizes of type float32 and shape (9,)"),
        (Int8(), {"steps": None}, "no steps"),
        (TopK(0.1), {"mask": np.zeros(124, np.uint8)}, "mask of type uint8 and shape (124,)"),
        (TopK(0.1), {"mask": np.full(125, 255, np.uint8)}, "values of type float32 and shape (100,)"),
        (TopK(0.01), {"positions": POSITIONS[:9]}, "values of type float32 and shape (10,)"),
        (TopK(0.01), {"positions": POSITIONS.astype(np.int64)}, "positions of type int64 and shape (10,)"),
        (TopK(0.01), {"positions": POSITIONS + 991}, "positions that do not exist"),
        (TopK(0.01), {"positions": POSITIONS // 2}, "positions that do not exist"),
        (TopK(0.01), {"positions": POSITIONS[::-1].copy()}, "positions that do not exist"),
        (TopK(0.01), {"positions": np.asarray(3, np.uint32)}, "positions of type uint32 and shape ()"),
    ],
)
def test_damaged_parts_are_refused(codec: Codec, changes: dict[str, np.ndarray], reason: str) -> None:
    reference = {"image.hash.weight": np.zeros((10, 100), np.float32)}
    with pytest.raises(DamagedUpdateError) as error:
        restored(spoil(codec, **changes), reference, codec)
    assert str(error.value) == f"its compressed image.hash.weight has {reason}"


def test_other_parameters_and_unexpected_compression_are_refused() -> None:
    with pytest.raises(DamagedUpdateError, match=r"^image.hash.weight is not a parameter of the global model$"):
        restored(spoil(Half()), {}, Half())
    refused = "its parameters are compressed, and those of this run are not"
    assert DIRECT.arrived(spoil(Half()), {}, ServerState(params={}), FederatedMethod(None))[1] == refused


def test_largest_takes_the_first_of_equal_values_and_nan_before_all() -> None:
    assert largest(np.zeros(5), 2).tolist() == [True, True, False, False, False]
    assert largest(np.array([1.0, np.nan, 5.0]), 1).tolist() == [False, True, False]
    sizes = np.abs(np.random.default_rng(0).normal(size=100))
    for count in (1, 7, 99, 100):
        chosen = largest(sizes, count)
        assert chosen.sum() == count
        assert sizes[chosen].min() >= sizes[~chosen].max(initial=0.0)


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


@pytest.mark.whole_run
@pytest.mark.parametrize("federated", METHODS, ids=[str(method["name"]) + str(len(method)) for method in METHODS])
def test_with_all_values_the_result_is_that_without_compression(federated: dict[str, Any]) -> None:
    plain, whole = (run_loop(inputs(compression, federated)) for compression in (None, EVERYTHING))
    assert same_arrays(server_arrays(plain.server), server_arrays(whole.server))
    assert plain.silos.keys() == whole.silos.keys()
    assert all(same_arrays(plain.silos[silo], whole.silos[silo]) for silo in plain.silos)


@pytest.mark.whole_run
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


@pytest.mark.whole_run
def test_half_and_int8_stay_near_the_run_without_compression() -> None:
    plain = run_loop(inputs(None, {"rounds": 4})).server.params
    start = Worker(inputs(None), torch.device("cpu")).first_state().server.params
    moved = float(sum(np.abs(plain[name] - start[name]).sum() for name in plain))
    for kind, share in (("half", 0.01), ("int8", 0.2)):
        other = run_loop(inputs({"kind": kind}, {"rounds": 4})).server.params
        assert 0 < sum(np.abs(plain[name] - other[name]).sum() for name in plain) < share * moved


@pytest.mark.whole_run
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
    federated, server = given.resolved.federated, worker.first_state().server
    sent = federated.broadcast(server, 0, round=0)
    result = worker.do(SiloTask("train", 0, sent))
    codec = Compression.of(given.config.exchange.compression, given.resolved.federated).codec
    assert codec is not None
    for name, params in worker.model.state_dict().items():
        parts = {p: result.update.compressed[f"{name}/{p}"] for p in ("steps", "sizes")}
        arrived = codec.decode(parts, reference(federated, sent)[name])
        assert np.allclose(arrived + result.kept[f"residual/{name}"], params.numpy(), atol=1e-7)


def test_residuals_are_not_taken_for_the_state_of_a_method() -> None:
    given = inputs({"kind": "int8"}, {"name": "moon"})
    worker = Worker(given, torch.device("cpu"))
    kept = {"residual/image.hash.bias": np.ones(16, np.float32)}
    sent = given.resolved.federated.broadcast(worker.first_state().server, 0, round=0)
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
    settings = RoundSettings(rounds=1, silos=["a", "b", "c"], validate=False, chain=worker.chain)
    state = worker.first_state()
    run_rounds(
        state, federated=given.resolved.federated, engine=InProcess(worker), settings=settings, observers=[records]
    )
    reasons = [silo.rejected for silo in records.records[0].silos]
    assert reasons[0] is reasons[2] is None
    assert reasons[1] is not None
    assert reasons[1].startswith("its compressed image.backbone.0.weight has half of type float16")


@pytest.mark.whole_run
def test_hash_layers_alone_are_trained_and_sent() -> None:
    given, records = inputs({"kind": "hash_layers"}), Records()
    start = Worker(given, torch.device("cpu")).first_state().server.params
    trained = run_loop(given, records).server.params
    for name in start:
        assert np.array_equal(start[name], trained[name]) == (".hash." not in name)
    hash_bytes = sum(array.nbytes for name, array in start.items() if ".hash." in name)
    assert [record.uplink_bytes for record in records.records] == [3 * hash_bytes] * 3


def test_hash_layers_alone_need_a_model_of_backbones_and_hash_layers() -> None:
    with pytest.raises(UnsuitableMethod, match=r"image\.mean"):
        Worker(inputs({"kind": "hash_layers"}, local={"name": "dscmr"}), torch.device("cpu"))
