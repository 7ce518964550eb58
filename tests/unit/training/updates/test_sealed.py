"""Training with encrypted sums: nearly the result of plain ones, and silos that give the server nothing to read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from silohash.base.errors import OtherVersion, TooFewSilos, UnusableSecret

pytest.importorskip("tenseal")


from silohash.methods.federated.base import FederatedMethod, ServerState
from silohash.methods.message import Message
from silohash.run.config.load import load_resolved
from silohash.training.engines.port import WAIT_FOR_ALL, Absence, InProcess, Limits, SiloTask
from silohash.training.privacy.budget import KEY
from silohash.training.rounds import RoundSettings, run_rounds
from silohash.training.updates.chain import DIRECT, Chain, DamagedUpdateError
from silohash.training.updates.encryption import SUMS, SiloKey
from silohash.training.updates.sealed import (
    INITIAL,
    LAYOUTS,
    SEALED,
    EncryptedTotals,
    Encryption,
    SealedMethod,
    arrays_of,
    broadcast_of,
    label_of,
    layout_of,
    length_of,
    opened_state,
    read_layout,
    run_digest,
    state_from,
    state_of,
    vector_of,
)
from silohash.training.worker import Worker
from tests.runs import Records, prepared, run_loop, same_arrays, tiny

ARRAYS = {
    "b": np.arange(6, dtype=np.int64).reshape(2, 3),
    "a": np.asarray(2.5, np.float32),
    "c": np.array([True, False]),
}


@pytest.fixture(scope="module")
def given():
    return replace(prepared(federated={"rounds": 2}, exchange={"encryption": "ckks"}), key=SiloKey.new())


def encryption(given) -> Encryption:
    [link] = [one for one in Worker(given, torch.device("cpu")).chain.links if isinstance(one, Encryption)]
    return link


@pytest.fixture(scope="module")
def updates(given) -> list[Message]:
    worker = Worker(given, torch.device("cpu"))
    sent = Message("broadcast", "server", 0, encrypted=state_of(worker.first_state().server))
    return [worker.do(SiloTask("train", silo, sent)).update for silo in range(3)]


def test_layouts_keep_names_shapes_and_types() -> None:
    layout = read_layout(layout_of(ARRAYS))
    assert layout == [("a", (), "float32"), ("b", (2, 3), "int64"), ("c", (2,), "bool")]
    assert length_of(layout) == 9
    found = arrays_of(vector_of(ARRAYS) + 1e-9, layout)
    assert same_arrays(found, ARRAYS)
    assert vector_of({}).shape == (0,)
    for text in ("x", "[1]", '[["a", 3, "float32"]]', '[["a", [], "no type"]]'):
        with pytest.raises(DamagedUpdateError, match="layout of its encrypted values is damaged"):
            read_layout(text)


def test_updates_that_cannot_be_added_have_a_reason(given, updates: list[Message]) -> None:
    link, update, server = encryption(given), updates[0], ServerState(params={})

    def refused(update: Message, chain: Chain = DIRECT) -> str | None:
        return chain.arrived(update, {}, server, FederatedMethod(None))[1]

    assert refused(update, Chain((link,))) is None
    assert refused(update) == "its values are encrypted, and those of this run are not"
    assert refused(Message("update", "s", 0)) is None
    reason = "its values are not encrypted, as those of this run must be"
    assert refused(Message("update", "s", 0), Chain((link,))) == reason
    assert link.objection(replace(update, notes={"refused": "it holds NaN"})) == "it holds NaN"
    cut = {name: array[:-1] if name == "sums/data" else array for name, array in update.encrypted.items()}
    assert "its encrypted values are damaged" in str(link.objection(replace(update, encrypted=cut)))
    layouts = {**json.loads(update.notes[LAYOUTS]), "sums": layout_of({"weights/image": np.ones(3)})}
    found = link.objection(replace(update, notes={LAYOUTS: json.dumps(layouts)}))
    assert found == "it sent 2 encrypted values instead of 3"


def test_totals_have_one_sum_per_layout(given, updates: list[Message]) -> None:
    totals = EncryptedTotals()
    assert totals.updates() == []
    for update in updates[:2]:
        totals.add(update)
    [total] = totals.updates()
    assert total.counts == {"items": 50}
    assert [name for name, _ in json.loads(total.notes[LAYOUTS])] == ["parameters", "sums"]
    weights = {part: total.encrypted[f"1/{part}"] for part in ("data", "lengths")}
    assert given.key.decrypted(SUMS, weights, 2).tolist() == [50.0, 50.0]


class Some(InProcess):
    """An engine at which some silos do not carry out a kind of task."""

    def __init__(self, worker: Worker, away: set[int]) -> None:
        super().__init__(worker)
        self.away, self.asked = away, []

    def send(self, tasks, limits=WAIT_FOR_ALL):
        for task in tasks:
            if task.kind != "merge":
                yield self.worker.do(task)
                continue
            self.asked.append(task.silo)
            lost = task.silo in self.away
            yield Absence(task.silo, "did not answer") if lost else self.worker.do(task)


def run(given, away: set[int]) -> tuple[Some, Records]:
    worker, records = Worker(given, torch.device("cpu")), Records()
    engine = Some(worker, away)
    settings = RoundSettings(rounds=1, silos=["a", "b", "c"], validate=False, chain=worker.chain)
    state = worker.first_state()
    run_rounds(state, federated=given.resolved.federated, engine=engine, settings=settings, observers=[records])
    return engine, records


def test_another_silo_decrypts_if_the_first_does_not_answer(given) -> None:
    assert run(given, set())[0].asked == [0]
    engine, records = run(given, {0, 1})
    assert engine.asked == [0, 1, 2]
    assert records.records[0].downlink_bytes > run(given, set())[1].records[0].downlink_bytes
    with pytest.raises(TooFewSilos, match=r"2.*answer"):
        run(given, {0, 1, 2})


def test_states_travel_sealed_or_before_the_first_round_as_they_are() -> None:
    federated = load_resolved(tiny(Path("none"))).federated
    server = ServerState(params={"x": np.ones(2)}, extras={"e": np.zeros(1)}, private={"p": np.ones(1)})
    [content] = state_of(server).values()
    again = state_from(content.tobytes())
    assert same_arrays(again.params, server.params)
    assert same_arrays(again.extras, server.extras)
    assert same_arrays(again.private, server.private)
    assert broadcast_of(federated, server, 0, 1).params == server.params
    sealed = ServerState(params={}, private={"state": np.ones(3, np.uint8)})
    assert dict(broadcast_of(federated, sealed, 0, 1).encrypted) == {"state": sealed.private["state"]}


def test_traits_of_the_method_that_the_server_needs() -> None:
    plain = load_resolved(tiny(Path("none"), federated={"name": "fedcmr"})).federated
    method = SealedMethod(plain, InProcess(None), 3, Limits(5.0, quorum=2))
    assert method.traits.personalized
    assert not method.traits.means
    assert method.limits == Limits(5.0, quorum=0)
    assert encryption(replace(prepared(exchange={"encryption": "ckks"}))).traffic() == (0, 0)


METHODS: list[dict[str, Any]] = [
    {"name": "fedavg"},
    {"name": "fedavg", "server": {"optimizer": "fedadam"}, "fraction": 0.7},
    {"name": "feduch"},
    {"name": "fednova"},
    {"name": "fedcafe", "memory": "class_mean", "min_count": 1},
    {"name": "fedhap", "min_count": 1},
    {"name": "fedproto", "min_count": 1},
    {"name": "fedbignns"},
    {"name": "fedcmr"},
    {"name": "fedridge", "solve": "both"},
    {"name": "compose", "methods": [{"name": "fedproc", "min_count": 1}, {"name": "moon"}]},
]
NAMES = [f"{number} {method['name']}" for number, method in enumerate(METHODS)]


@pytest.fixture(scope="module")
def key() -> SiloKey:
    return SiloKey.new()


def inputs(key: SiloKey | None, federated: dict[str, Any], **sections: Any):
    exchange = {"encryption": "ckks"} if key else {}
    federated = {"rounds": 3, **federated}
    if federated["name"] == "fedridge" and key is None:
        federated["reveal_items"] = True
    return replace(prepared(federated=federated, exchange=exchange, **sections), key=key)


def opened(given, server: ServerState, round_: int) -> ServerState:
    return opened_state(given.key, run_digest(given.config), server, round_)


def gap(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> float:
    assert first.keys() == second.keys()
    return max(
        (float(np.abs(first[name].astype(float) - second[name]).max(initial=0.0)) for name in first), default=0.0
    )


@pytest.mark.whole_run
@pytest.mark.parametrize("federated", METHODS, ids=NAMES)
def test_encrypted_sums_give_the_result_of_plain_ones(key: SiloKey, federated: dict[str, Any]) -> None:
    """One round is compared, because later ones amplify rounding errors as those of any other machine."""
    plain_records, records = Records(), Records()
    fraction = federated.get("fraction", 1.0)
    plain = run_loop(inputs(None, federated), plain_records, stop=1, fraction=fraction)
    given = inputs(key, federated)
    state = run_loop(given, records, stop=1, fraction=fraction, wire=True)
    assert not state.server.params
    assert set(state.server.private) == {SEALED, "final"}
    found = opened(given, state.server, 1)
    assert gap(found.params, plain.server.params) < 2e-6
    assert gap(found.extras, plain.server.extras) < 1e-5
    assert found.private.keys() == plain.server.private.keys()
    scores = [record.validation for record in (records.records[0], plain_records.records[0])]
    assert scores[0] == pytest.approx(scores[1], abs=0.05)
    assert [silo.items for silo in records.records[0].silos] == [silo.items for silo in plain_records.records[0].silos]
    assert not [silo.rejected for silo in records.records[0].silos if silo.rejected]


@pytest.mark.whole_run
@pytest.mark.parametrize("federated", METHODS, ids=NAMES)
def test_all_rounds_run_and_can_be_continued(key: SiloKey, federated: dict[str, Any]) -> None:
    given, records = inputs(key, federated), Records()
    half = run_loop(given, records, stop=2)
    state = run_loop(given, records, state=half)
    assert [record.round for record in records.records] == [0, 1, 2]
    server = opened(given, state.server, 3)
    assert all(np.isfinite(array).all() for array in server.params.values())
    plain = run_loop(inputs(None, federated)).server
    assert {name: array.shape for name, array in server.params.items()} == {
        name: array.shape for name, array in plain.params.items()
    }


@pytest.mark.whole_run
def test_bytes_count_what_is_sent_for_the_sum_too(key: SiloKey) -> None:
    plain, records = Records(), Records()
    run_loop(inputs(None, {"name": "fedavg"}), plain, stop=2)
    state = run_loop(inputs(key, {"name": "fedavg"}), records, stop=2)
    size = state.server.private[SEALED].nbytes
    for before, after in zip(plain.records, records.records, strict=True):
        # A ciphertext holds 4,096 values, and these models are smaller: one of 131 kB and one of 262 kB per silo.
        assert 3 * 390_000 < after.uplink_bytes - size < 3 * 400_000
        assert after.downlink_bytes > before.downlink_bytes + 390_000


def result_of(given, round_: int = 0, server: ServerState | None = None, **changes: Any):
    worker = Worker(given, torch.device("cpu"))
    server = server or worker.first_state().server
    sent = Message(kind="broadcast", sender="server", round=round_, encrypted=state_of(server), **changes)
    return worker.do(SiloTask("train", 0, sent))


def test_nothing_in_an_update_but_counts_and_layouts_can_be_read(key: SiloKey) -> None:
    update = result_of(inputs(key, {"name": "fedhap", "min_count": 1})).update
    assert not any((update.params, update.extras, update.sums, update.records, update.weights, update.scalars))
    assert set(update.encrypted) == {"parameters/data", "parameters/lengths", "sums/data", "sums/lengths"}
    assert dict(update.counts) == {"items": 30}
    layouts = json.loads(update.notes[LAYOUTS])
    assert set(update.notes) == {LAYOUTS}
    assert [name for name, _, _ in json.loads(layouts["sums"])] == [
        "values/prototype_holders", "values/prototype_sum", "weights/image", "weights/text",
    ]  # fmt: skip


def test_updates_that_cannot_be_used_are_rejected_by_their_own_silo(key: SiloKey) -> None:
    given, records = inputs(key, {"name": "fedavg"}), Records()
    worker = Worker(given, torch.device("cpu"))
    server = worker.first_state().server
    broken = {**server.params, "image.hash.bias": np.full(16, np.nan, np.float32)}
    assert "holds NaN" in result_of(given, server=replace(server, params=broken)).update.notes["refused"]
    assert not records.records


def test_silos_do_not_send_what_the_server_could_read(key: SiloKey) -> None:
    given = inputs(key, {"name": "fedavg"})
    worker = Worker(given, torch.device("cpu"))
    server = worker.first_state().server
    plain = given.resolved.federated.broadcast(server, 0, round=0)
    with pytest.raises(OtherVersion):
        worker.do(SiloTask("train", 0, plain))
    later = Message(kind="broadcast", sender="server", round=1, encrypted=state_of(server))
    with pytest.raises(OtherVersion):
        worker.do(SiloTask("train", 0, later))
    with pytest.raises(OtherVersion):
        worker.do(SiloTask("weigh", 0, given.resolved.federated.broadcast(server, 0, round=0)))
    keyless = Worker(replace(given, key=None), torch.device("cpu"))
    with pytest.raises(UnusableSecret):
        keyless.do(SiloTask("validate", 0, replace(later, encrypted={SEALED: np.zeros(40, np.uint8)})))


@pytest.mark.whole_run
def test_states_of_another_round_run_or_key_are_refused(key: SiloKey) -> None:
    given = inputs(key, {"name": "fedavg"})
    state = run_loop(given, stop=1)
    assert opened(given, state.server, 1).params
    for digest, round_, other in (
        (run_digest(given.config), 2, key),
        ("x", 1, key),
        (run_digest(given.config), 1, SiloKey.new()),
    ):
        with pytest.raises(UnusableSecret):
            opened_state(other, digest, state.server, round_)
    plain = ServerState(params={"x": np.ones(1)})
    assert opened_state(key, "x", plain, 0) is plain
    assert label_of(SEALED, 0, "abc") == "the state of round 1 of run abc"


@pytest.mark.whole_run
@pytest.mark.parametrize(("unit", "name"), [("record", "fedproc"), ("silo", "fedavg")])
def test_noise_is_counted_as_without_encryption(key: SiloKey, unit: str, name: str) -> None:
    federated = {"name": name, "rounds": 3, **({"min_count": 1} if name == "fedproc" else {})}
    sections = {
        "validation": 0, "local": {"name": "csq"}, "evaluate": {"validation": 0.0},
    }  # fmt: skip
    privacy = {"unit": unit, "noise_multiplier": 1e-3, "statistics_noise_multiplier": 1e-3, "repeatable": True}
    plain_records, records = Records(), Records()
    plain = run_loop(
        prepared(federated=federated, exchange={"privacy": privacy}, **sections), plain_records, validate=False, stop=1
    )
    exchange = {"privacy": privacy, "encryption": "ckks"}
    given = replace(prepared(federated=federated, exchange=exchange, **sections), key=key)
    state = run_loop(given, records, validate=False, stop=1)
    assert gap(opened(given, state.server, 1).params, plain.server.params) < 2e-6
    assert records.records[0].privacy == plain_records.records[0].privacy
    run_loop(given, records, validate=False, state=state)
    spent = [record.privacy.epsilon for record in records.records if record.privacy is not None]
    assert len(spent) == 3
    assert spent == sorted(spent)


@pytest.mark.whole_run
def test_the_secret_of_the_server_stays_there(key: SiloKey) -> None:
    exchange = {"privacy": {"unit": "silo"}, "encryption": "ckks"}
    given = replace(prepared(validation=0, evaluate={"validation": 0.0}, exchange=exchange), key=key)
    first = Worker(given, torch.device("cpu")).first_state().server
    assert KEY in first.private
    assert KEY not in state_from(state_of(first)[INITIAL].tobytes()).private
    state = run_loop(given, validate=False, stop=1)
    assert np.array_equal(
        state.server.private[KEY], run_loop(given, validate=False, state=state, stop=2).server.private[KEY]
    )
    assert KEY not in opened(given, state.server, 1).private


@pytest.mark.whole_run
def test_a_silo_without_a_modality_and_one_that_releases_no_class(key: SiloKey) -> None:
    federated = {"name": "fedhap", "min_count": 20}
    plain = run_loop(inputs(None, federated, sizes=(30, 20, 0)), stop=1)
    given = inputs(key, federated, sizes=(30, 20, 0))
    found = opened(given, run_loop(given, stop=1).server, 1)
    assert gap(found.params, plain.server.params) < 2e-6
    assert np.array_equal(found.extras["mask"], plain.server.extras["mask"])
