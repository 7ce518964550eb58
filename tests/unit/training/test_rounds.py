"""The loop over rounds and silos: who takes part, what is refused, what is recorded, which round is chosen."""

from __future__ import annotations

import math
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch

from silohash.base.errors import Diverged
from silohash.methods.federated.base import ServerState
from silohash.methods.federated.screening import refusal
from silohash.training.engines.port import WAIT_FOR_ALL, InProcess, SiloTask
from silohash.training.rounds import RoundSettings, participants, run_rounds
from silohash.training.worker import Worker
from tests.runs import Records, prepared, run_loop, same_arrays


class Spoiling:
    """A worker that spoils what one silo returns."""

    def __init__(self, worker: Worker, silos: set[int], spoil) -> None:
        self.worker, self.silos, self.spoil = worker, silos, spoil

    def do(self, task):
        result = self.worker.do(task)
        return self.spoil(result) if task.kind == "train" and task.silo in self.silos else result


def with_params(result, **changes):
    params = {**result.update.params, **changes}
    return replace(result, update=replace(result.update, params=params))


def nan(result):
    broken = result.update.params["image.hash.weight"].copy()
    broken[0, 0] = np.nan
    return with_params(result, **{"image.hash.weight": broken})


def infinite(result):
    return with_params(result, **{"text.hash.bias": np.full(16, np.inf, np.float32)})


def shape(result):
    return with_params(result, **{"image.hash.weight": np.zeros((2, 2), np.float32)})


def stranger(result):
    return with_params(result, **{"audio.hash.weight": np.zeros(2, np.float32)})


def negative(result):
    return replace(result, update=replace(result.update, weights={"image": -1.0, "text": 3.0}))


def endless(result):
    return replace(result, update=replace(result.update, weights={"image": math.nan, "text": 3.0}))


def own(result):
    return replace(result, kept={"model/x": np.array([np.nan])})


def sums(result):
    return replace(result, update=replace(result.update, sums={"count": np.array([np.inf])}))


REFUSALS = [
    (nan, "params/image.hash.weight holds NaN or infinite values"),
    (infinite, "params/text.hash.bias holds NaN or infinite values"),
    (shape, "image.hash.weight has shape (2, 2), but (16, 16) in the global model"),
    (stranger, "audio.hash.weight is not a parameter of the global model"),
    (negative, "its weights are {'image': -1.0, 'text': 3.0}"),
    (endless, "its weights are {'image': nan, 'text': 3.0}"),
    (own, "its stored model/x holds NaN or infinite values"),
    (sums, "sums/count holds NaN or infinite values"),
]


def spoiled(inputs, silos: set[int], spoil, *observers, rounds: int = 1):
    worker = Worker(inputs, torch.device("cpu"))
    settings = RoundSettings(rounds=rounds, silos=[name for name, _, _ in inputs.silos], chain=worker.chain)
    return run_rounds(
        worker.first_state(), federated=inputs.resolved.federated,
        engine=InProcess(Spoiling(worker, silos, spoil)), settings=settings, observers=observers,
    )  # fmt: skip


@pytest.mark.whole_run
@pytest.mark.parametrize(("spoil", "reason"), REFUSALS, ids=[spoil.__name__ for spoil, _ in REFUSALS])
def test_a_silo_whose_update_cannot_be_used_is_named_and_left_out(spoil, reason: str) -> None:
    inputs, listener = prepared((30, 20, 10), federated={"rounds": 1}), Records()
    state = spoiled(inputs, {1}, spoil, listener)
    assert [silo.rejected for silo in listener.records[0].silos] == [None, reason, None]
    assert [silo.silo for silo in listener.records[0].silos] == ["silo-0", "silo-1", "silo-2"]
    assert 1 not in state.silos
    without = spoiled(inputs, {1}, nan)
    assert same_arrays(state.server.params, without.server.params)
    assert all(np.isfinite(array).all() for array in state.server.params.values())
    assert not same_arrays(state.server.params, run_loop(inputs).server.params)


def sections(**changed):
    """Return a function that replaces sections of an update, each computed from what was there."""
    return lambda result: replace(
        result, update=replace(result.update, **{n: change(getattr(result.update, n)) for n, change in changed.items()})
    )


def without(*names: str):
    return lambda values: {name: value for name, value in values.items() if name not in names}


def typed(name: str, dtype: type):
    return lambda values: {**values, name: values[name].astype(dtype)}


def spoilt(name: str):
    return lambda values: {**values, name: values[name] * np.nan}


def added(name: str, value: object):
    return lambda values: {**values, name: np.asarray(value)}


nothing = sections(records=without("memory", "mask"), sums=lambda sums: {}, params=lambda params: {})
SUM, COUNT = "prototype_sum/image", "prototype_count/image"
HOSTILE = [
    ("plfedcmh", {}, nothing, "it has a weight for the parameters of"),
    ("plfedcmh", {}, sections(records=added("silo", 0)), "silo is in neither the means nor the template of the method"),
    ("plfedcmh", {}, sections(sums=without(COUNT)), f"{SUM} comes without prototype_count"),
    ("plfedcmh", {}, sections(sums=without(SUM)), f"{COUNT} comes without {SUM}"),
    ("plfedcmh", {}, sections(sums=spoilt(SUM)), f"sums/{SUM} holds NaN"),
    ("plfedcmh", {}, sections(sums=typed(SUM, np.int64)), f"{SUM} has type int64"),
    ("plfedcmh", {}, sections(params=typed("image.hash.weight", np.int32)), "image.hash.weight has type int32"),
    ("fedcafe", {}, nothing, "it has a weight for the parameters of"),
    ("fedcafe", {}, sections(records=without("mask")), "memory comes without mask"),
    ("fedcafe", {}, sections(records=without("memory")), "mask comes without memory"),
    ("fedcafe", {}, sections(records=typed("mask", np.int64)), "mask has type int64 instead of bool"),
    ("fedcafe", {}, sections(records=typed("memory", np.float64)), "memory has type float64 instead of float32"),
    ("fedcafe", {}, sections(records=spoilt("memory")), "records/memory holds NaN"),
    ("fedcafe", {}, sections(records=added("silo", 0)), "silo is in neither the means nor the template of the method"),
    ("ptfuch", {}, sections(records=without("prototypes")), "mask comes without prototypes"),
    ("fednova", {}, sections(sums=lambda sums: {}), "effective/image is missing"),
    ("fednova", {}, sections(counts=lambda counts: {"items": 10**400}), "its count of items is not between"),
    ("fedridge", {"reveal_items": True}, sections(sums=lambda sums: {}), "image/count is missing"),
    ("fedridge", {"reveal_items": True}, sections(sums=without("text/count")), "text/count is missing"),
    ("fedridge", {"reveal_items": True}, sections(sums=added("text/count", [1.0])), "text/count is float64 (1,)"),
    ("fedcca", {"reveal_items": True}, sections(sums=added("rotation", np.eye(16))), "rotation is in neither"),
    ("fedcmr", {}, sections(sums=without("loss")), "silos comes without loss"),
]


@pytest.mark.parametrize(
    ("method", "params", "spoil", "reason"), HOSTILE, ids=[f"{h[0]}: {h[3][:30]}" for h in HOSTILE]
)
def test_what_a_silo_says_about_itself_never_ends_a_run(method: str, params: dict, spoil, reason: str) -> None:
    federated = {"name": method, "rounds": 1, **params}
    inputs, listener = prepared((12, 10, 8), federated=federated), Records()
    state = spoiled(inputs, {0}, spoil, listener)
    first, *others = [silo.rejected for silo in listener.records[0].silos]
    assert first is not None
    assert first.startswith(reason)
    assert others == [None, None]
    assert all(np.isfinite(array).all() for array in state.server.params.values())


@pytest.mark.whole_run
def test_the_server_knows_a_silo_by_its_connection() -> None:
    inputs = prepared((12, 10, 8), federated={"name": "plfedcmh", "rounds": 1})
    state = spoiled(inputs, {2}, lambda result: replace(result, update=replace(result.update, silo=0, sender="silo-0")))
    honest = run_loop(inputs)
    assert same_arrays(state.server.private, honest.server.private)
    assert not same_arrays(
        *({n: honest.server.private[f"bank/{silo}/{n}"] for n in honest.server.params} for silo in (0, 2))
    )


def test_a_round_in_which_no_silo_can_be_used_ends_the_run_with_advice() -> None:
    saved = []
    inputs = prepared((10, 10), federated={"rounds": 1})
    worker = Worker(inputs, torch.device("cpu"))
    with pytest.raises(Diverged, match=r"train\.learning_rate"):
        run_rounds(
            worker.first_state(), federated=inputs.resolved.federated,
            engine=InProcess(Spoiling(worker, {0, 1}, nan)),
            settings=RoundSettings(rounds=1, silos=["silo-0", "silo-1"]), save=saved.append,
        )  # fmt: skip
    assert saved == []


def test_good_updates_are_not_refused() -> None:
    inputs = prepared((10,))
    worker = Worker(inputs, torch.device("cpu"))
    server = worker.first_state().server

    result = worker.do(SiloTask("train", 0, inputs.resolved.federated.broadcast(server, 0, round=0)))
    assert refusal(result.update, result.kept, server, inputs.resolved.federated) is None
    assert refusal(result.update, {"count": np.array([3])}, server, inputs.resolved.federated) is None


@pytest.mark.parametrize(("fraction", "count"), [(1.0, 10), (0.5, 5), (0.25, 3), (0.24, 2), (0.01, 1), (0.95, 10)])
def test_participants(fraction: float, count: int) -> None:
    settings = RoundSettings(rounds=9, silos=[str(number) for number in range(10)], fraction=fraction)
    drawn = [participants(settings, number) for number in range(9)]
    assert all(len(set(silos)) == count and silos == sorted(silos) for silos in drawn)
    assert drawn == [participants(settings, number) for number in range(9)]
    if count < 10:
        assert len({tuple(silos) for silos in drawn}) > 1
        assert drawn != [participants(replace(settings, seed=1), number) for number in range(9)]
        if count > 1:
            assert set().union(*drawn) == set(range(10))


@pytest.mark.whole_run
def test_silos_that_do_not_take_part_are_not_in_the_record_and_keep_what_they_had() -> None:
    inputs, listener = prepared((10, 10, 10, 10), federated={"name": "local", "rounds": 3}), Records()
    before = None
    for stop in (1, 2, 3):
        state = run_loop(inputs, listener, state=before, stop=stop, fraction=0.5)
        there = {int(silo.silo[-1]) for silo in listener.records[-1].silos}
        assert len(there) == 2
        if before is not None:
            for silo in set(before.silos) - there:
                assert same_arrays(before.silos[silo], state.silos[silo])
            for silo in set(before.silos) & there:
                assert not same_arrays(before.silos[silo], state.silos[silo])
        before = state


@pytest.mark.whole_run
def test_record_of_a_round() -> None:
    inputs, listener = prepared((30, 20, 10), federated={"rounds": 2}), Records()
    state = run_loop(inputs, listener)
    model = sum(array.nbytes for array in state.server.params.values())
    for number, record in enumerate(listener.records):
        assert record.round == number
        assert [silo.items for silo in record.silos] == [30, 20, 10]
        assert record.loss == pytest.approx(sum(silo.items * silo.loss for silo in record.silos) / 60)
        assert record.uplink_bytes == record.downlink_bytes == 3 * model
        assert 0 < record.validation < 1


def test_validation_picks_the_round_not_the_last() -> None:
    inputs, listener = prepared(federated={"rounds": 4}), Records()
    scores = iter([0.2, 0.9, 0.9, 0.5])

    def scored(result):
        return replace(result, update=replace(result.update, scalars={"score": score}, counts={"queries": 5}))

    worker = Worker(inputs, torch.device("cpu"))

    class Scoring(InProcess):
        def send(self, tasks, limits=WAIT_FOR_ALL):
            nonlocal score
            tasks = list(tasks)
            if tasks[0].kind == "validate":
                score = next(scores)
                return [scored(worker.do(task)) for task in tasks]
            return map(worker.do, tasks)

    score, states = 0.0, []
    state = run_rounds(
        worker.first_state(), federated=inputs.resolved.federated, engine=Scoring(worker),
        settings=RoundSettings(rounds=4, silos=["a", "b", "c"]), observers=[listener], save=states.append,
    )  # fmt: skip
    assert [record.best for record in listener.records] == [True, True, False, False]
    assert (state.best_round, state.best_score) == (1, 0.9)
    assert same_arrays(state.chosen()[0].params, states[1].server.params)
    assert not same_arrays(state.server.params, states[1].server.params)


@pytest.mark.parametrize(
    ("score", "queries"), [(math.nan, 5), (math.inf, 5), (2.0, 5), (-0.5, 5), (0.9, -100), (0.9, 10**400)]
)
def test_an_impossible_score_of_a_silo_does_not_choose_the_round(score: float, queries: int) -> None:
    inputs, listener = prepared(federated={"rounds": 2}), Records()
    worker = Worker(inputs, torch.device("cpu"))

    class Scoring(InProcess):
        def send(self, tasks, limits=WAIT_FOR_ALL):
            for task in tasks:
                result = worker.do(task)
                if task.kind == "validate":
                    lying = task.silo == 0 and task.broadcast.round == 1
                    told, number = (score, queries) if lying else (0.2 * task.broadcast.round, 5)
                    update = replace(result.update, scalars={"score": told}, counts={"queries": number})
                    result = replace(result, update=update)
                yield result

    state = run_rounds(
        worker.first_state(), federated=inputs.resolved.federated, engine=Scoring(worker),
        settings=RoundSettings(rounds=2, silos=["a", "b", "c"]), observers=[listener],
    )  # fmt: skip
    assert [record.validation for record in listener.records] == pytest.approx([0.2, 0.4])
    assert (state.best_round, state.best_score) == (1, pytest.approx(0.4))


@pytest.mark.whole_run
@pytest.mark.parametrize("final", [False, True])
def test_a_final_state_is_deployed_whatever_its_score(monkeypatch: pytest.MonkeyPatch, final: bool) -> None:
    scores = iter([0.9, 0.2, 0.3])
    monkeypatch.setattr("silohash.training.rounds.mean_score", lambda given: next(scores))
    inputs, listener = prepared((20, 20), federated={"rounds": 3}), Records()
    monkeypatch.setattr(ServerState, "final", final)
    state = run_loop(inputs, listener)
    assert (state.best_round, state.best_score) == ((2, 0.3) if final else (0, 0.9))
    assert same_arrays(state.chosen()[0].params, state.server.params) is final
    assert [record.best for record in listener.records] == [True, final, final]


@pytest.mark.whole_run
def test_without_validation_the_last_round_is_taken() -> None:
    inputs, listener = prepared(validation=0), Records()
    state = run_loop(inputs, listener, validate=True)
    assert [record.validation for record in listener.records] == [None, None, None]
    assert [record.best for record in listener.records] == [True, True, True]
    assert state.chosen()[2] == 2
    assert same_arrays(state.chosen()[0].params, state.server.params)


def test_a_round_is_recorded_before_it_is_saved() -> None:
    inputs, order = prepared((10,), federated={"rounds": 2}), []
    worker = Worker(inputs, torch.device("cpu"))
    listener = Records()
    listener.round = lambda record: order.append(("record", record.round))
    run_rounds(
        worker.first_state(), federated=inputs.resolved.federated, engine=InProcess(worker),
        settings=RoundSettings(rounds=2, silos=["a"]), observers=[listener],
        save=lambda state: order.append(("save", state.round - 1)),
    )  # fmt: skip
    assert order == [("record", 0), ("save", 0), ("record", 1), ("save", 1)]


@pytest.mark.whole_run
def test_a_round_of_a_thousand_silos() -> None:
    inputs, listener = prepared((2,) * 1_000, validation=0, federated={"rounds": 1, "local_epochs": 1}), Records()
    state = run_loop(inputs, listener, held_bytes=0, validate=False)
    size = sum(array.nbytes for array in state.server.params.values())
    (record,) = listener.records
    assert [silo.silo for silo in record.silos] == [f"silo-{number}" for number in range(1_000)]
    assert not any(silo.rejected for silo in record.silos)
    assert record.uplink_bytes == record.downlink_bytes == 1_000 * size
    assert state.silos.keys() == set(range(1_000))


class Counting(InProcess):
    """An engine that counts how many of the updates it has returned are still in memory."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker)
        self.alive, self.most, self.kinds = set(), 0, []

    def send(self, tasks, limits=WAIT_FOR_ALL):
        for task in tasks:
            self.kinds.append(task.kind)
            result = self.worker.do(task)
            for array in list(result.update.params.values())[:1]:
                self.alive.add(id(array))
                weakref.finalize(array, self.alive.discard, id(array))
            yield result
            array = None
            del result
            self.most = max(self.most, len(self.alive))


@pytest.mark.whole_run
@pytest.mark.parametrize(
    ("federated", "weighed"),
    [
        ({"name": "fedavg"}, True),
        ({"name": "fedprox"}, True),
        ({"name": "fedhap"}, True),
        ({"name": "fedcafe", "memory": "class_mean"}, True),
        ({"name": "fedcafe", "memory": "kmeans"}, False),
        ({"name": "fedavg", "robust": {"rule": "median"}}, False),
    ],
)
def test_memory_does_not_grow_with_the_number_of_silos(federated: dict, weighed: bool) -> None:
    inputs = prepared((8,) * 12, validation=0, federated={"rounds": 2, **federated})
    worker = Worker(inputs, torch.device("cpu"))
    engine = Counting(worker)
    settings = RoundSettings(
        rounds=2,
        silos=[name for name, _, _ in inputs.silos],
        validate=False,
        buffers=frozenset(),
        held_bytes=0,
        chain=worker.chain,
    )
    state = run_rounds(worker.first_state(), federated=inputs.resolved.federated, engine=engine, settings=settings)
    assert engine.most <= 2
    assert ("weigh" in engine.kinds) == weighed
    assert same_arrays(state.server.params, run_loop(inputs, validate=False).server.params)


def test_a_rejected_update_is_left_out_of_a_fold() -> None:
    inputs = prepared((30, 20, 10), federated={"rounds": 1})
    after = []
    for held_bytes in (0, 1 << 30):
        worker = Worker(inputs, torch.device("cpu"))
        settings = RoundSettings(rounds=1, silos=["a", "b", "c"], held_bytes=held_bytes)
        listener = Records()
        state = run_rounds(
            worker.first_state(), federated=inputs.resolved.federated,
            engine=InProcess(Spoiling(worker, {1}, nan)), settings=settings, observers=[listener],
        )  # fmt: skip
        assert listener.records[0].silos[1].rejected
        after.append(state.server.params)
    for name, array in after[0].items():
        np.testing.assert_allclose(array, after[1][name], rtol=1e-5, atol=1e-6)


@pytest.mark.whole_run
@pytest.mark.parametrize("sizes", [(0, 8, 12), (8, 0, 12)])
def test_updates_are_added_up_after_the_statistics_even_if_a_silo_has_none(sizes: tuple[int, ...]) -> None:
    inputs = prepared(sizes, validation=0, federated={"rounds": 2, "name": "fedcafe", "memory": "class_mean"})
    folded, listed = (run_loop(inputs, held_bytes=held, validate=False) for held in (0, 1 << 30))
    assert same_arrays(folded.server.params, listed.server.params)
    assert same_arrays(folded.server.extras, listed.server.extras)
