"""FedAvg, each silo alone, and all data in one place."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from silohash.exchange.message import Message
from silohash.federated import FEDERATED_METHODS
from silohash.federated.base import SiloContext, entries_under
from silohash.federated.methods.centralized import Centralized, CentralizedParams
from silohash.federated.methods.fedcmr import FedCMR, FedCMRParams
from silohash.local.supervised.dcmh import DCMH, DCMHParams
from silohash.models.forward import Adapted
from silohash.models.parameters import frozen_copy, install, params_of
from silohash.models.towers import HashNet
from silohash.runtime.silo import SiloTask, make_context
from silohash.runtime.worker import Worker
from silohash.types import UserError
from tests.runs import (
    Records,
    first_state,
    loop_config,
    model_spec,
    prepared,
    run_loop,
    same_arrays,
    silo_data,
    train,
    write_archive,
)


def results_of(inputs) -> tuple[dict[str, np.ndarray], list]:
    """The first state's parameters and every silo's result, each trained from them."""
    worker = Worker(inputs, torch.device("cpu"))
    method, server = inputs.resolved.federated, first_state(inputs, worker).server
    tasks = [SiloTask("train", silo, method.broadcast(server, silo, round=0)) for silo in range(len(inputs.silos))]
    return server.params, [worker.do(task) for task in tasks]


def test_fedavg_is_the_mean_by_size_with_loops() -> None:
    inputs = prepared((30, 20, 10), federated={"rounds": 1})
    _, results = results_of(inputs)
    state = run_loop(inputs)
    for name, array in state.server.params.items():
        mean = (
            sum(size * r.update.params[name].astype(np.float64) for size, r in zip((30, 20, 10), results, strict=True))
            / 60
        )
        assert np.allclose(array, mean, atol=1e-6)


def test_uniform_weighting() -> None:
    inputs = prepared((30, 20, 10), federated={"rounds": 1, "weighting": "uniform"})
    _, results = results_of(inputs)
    assert [result.update.weights for result in results] == [{"image": 1.0, "text": 1.0}] * 3
    state = run_loop(inputs)
    for name, array in state.server.params.items():
        assert np.allclose(array, sum(r.update.params[name].astype(np.float64) for r in results) / 3, atol=1e-6)


@pytest.mark.parametrize("weighting", ["examples", "uniform"])
def test_silo_without_texts_weighs_nothing_in_the_text_tower(weighting: str) -> None:
    inputs = prepared((20, 20), validation=0, federated={"rounds": 1, "weighting": weighting})
    inputs.arrays["has_text"][:20] = False
    inputs.arrays["text"][:20] = 0
    start, results = results_of(inputs)
    assert results[0].update.weights["text"] == 0
    assert results[0].update.weights["image"] > 0
    assert all(np.array_equal(results[0].update.params[n], start[n]) for n in start if n.startswith("text."))
    state = run_loop(inputs, validate=False)
    texts = {name: array for name, array in state.server.params.items() if name.startswith("text.")}
    assert same_arrays(texts, {name: results[1].update.params[name] for name in texts})


def test_texts_that_nobody_has_leave_the_tower_as_it_was() -> None:
    inputs = prepared((20, 20), validation=0, federated={"rounds": 1})
    inputs.arrays["has_text"][:] = False
    state = run_loop(inputs, validate=False)
    start = first_state(inputs, Worker(inputs, torch.device("cpu"))).server.params
    assert all(
        np.array_equal(start[name], array) == name.startswith("text.") for name, array in state.server.params.items()
    )


def test_silos_start_every_round_from_the_same_parameters() -> None:
    inputs = prepared((20, 20), federated={"rounds": 1})
    worker = Worker(inputs, torch.device("cpu"))
    server = first_state(inputs, worker).server
    before = {name: array.copy() for name, array in server.params.items()}
    task = SiloTask("train", 0, inputs.resolved.federated.broadcast(server, 0, round=0))
    first = worker.do(task)
    assert same_arrays(server.params, before)
    worker.do(replace(task, silo=1))
    assert same_arrays(worker.do(task).update.params, first.update.params)


def test_local_keeps_its_own_model_and_sends_nothing() -> None:
    inputs, listener = prepared(federated={"name": "local", "rounds": 3}), Records()
    state = run_loop(inputs, listener)
    start = first_state(inputs, Worker(inputs, torch.device("cpu"))).server.params
    assert same_arrays(state.server.params, start)
    kept = [{name.removeprefix("model/"): array for name, array in state.silos[silo].items()} for silo in range(3)]
    assert all(set(params) == set(start) for params in kept)
    assert not same_arrays(kept[0], kept[1])
    assert [record.uplink_bytes for record in listener.records] == [0, 0, 0]
    assert [record.downlink_bytes for record in listener.records] == [0, 0, 0]
    losses = [record.loss for record in listener.records]
    assert losses[2] < losses[0]


def test_local_silo_trains_as_the_only_silo_of_fedavg_would() -> None:
    alone = run_loop(prepared((30,), federated={"name": "local", "rounds": 3}))
    federated = run_loop(prepared((30,), federated={"name": "fedavg", "rounds": 3}))
    own = {name.removeprefix("model/"): array for name, array in alone.silos[0].items()}
    assert same_arrays(own, federated.server.params)


def test_local_validates_the_silos_own_models() -> None:
    inputs = prepared(federated={"name": "local", "rounds": 2})
    worker = Worker(inputs, torch.device("cpu"))
    state = run_loop(inputs)
    broadcast = inputs.resolved.federated.broadcast(state.server, 0, round=2)
    for silo in range(3):
        worker.do(SiloTask("validate", silo, broadcast, state.silos[silo]))
        own = {name: array for name, array in state.silos[silo].items() if name.startswith("model/")}
        assert same_arrays({f"model/{name}": array for name, array in params_of(worker.model).items()}, own)


def test_params_are_copies_and_install_puts_them_back() -> None:
    model = HashNet(model_spec(), 8)
    params = params_of(model)
    with torch.no_grad():
        model.get_parameter("image.hash.weight").add_(1.0)
    assert not same_arrays(params, params_of(model))
    install(model, params)
    assert same_arrays(params, params_of(model))
    install(model, {"image.hash.bias": np.full(8, 3.0, np.float32)})
    assert (model.get_parameter("image.hash.bias") == 3).all()
    with pytest.raises(KeyError):
        install(model, {"elsewhere": np.zeros(1)})


def test_frozen_copy_takes_no_gradient_and_stays() -> None:
    model = HashNet(model_spec(dropout=0.5), 8).train()
    params = params_of(model)
    twin = frozen_copy(model, params)
    with torch.no_grad():
        model.get_parameter("image.hash.weight").add_(1.0)
    assert same_arrays(params, params_of(twin))
    assert not twin.training
    assert model.training
    assert not any(parameter.requires_grad for parameter in twin.parameters())


def test_adapted_passes_outputs_on() -> None:
    model = HashNet(model_spec(), 8).eval()
    batch = silo_data(4).batch(torch.arange(4))
    adapted = Adapted(model, FEDERATED_METHODS.resolve("fedavg")(None), {})
    assert torch.equal(adapted(batch).code["text"], model(batch).code["text"])
    assert list(adapted(batch, ("image",)).code) == ["image"]
    assert adapted.modalities == model.modalities


@pytest.mark.parametrize("name", FEDERATED_METHODS.names())
def test_every_method_has_a_card_and_presets(name: str) -> None:
    kind, card = FEDERATED_METHODS.resolve(name), FEDERATED_METHODS.card(name)
    assert card.key == name
    assert card.summary
    assert "recommended" in kind.presets
    for preset in kind.presets.values():
        kind(kind.Params(**preset))
    assert kind.shares_parameters or kind.personalized
    assert kind.uplink in {"sum", "records"}


def context_of(count: int, *, round: int = 0, **extras: float) -> SiloContext:  # noqa: A002
    """A silo of some pairs in a round of plain federated averaging."""
    model = HashNet(model_spec(), 8)
    sent = {name: np.asarray(value) for name, value in extras.items()}
    task = SiloTask("train", 0, Message("broadcast", "server", round, params=params_of(model), extras=sent))
    return make_context(task, loop_config(), model=model, local=DCMH(DCMHParams()), data=silo_data(count))


def test_pooled_training_in_parts_takes_the_steps_of_one_silo() -> None:
    (whole,) = Centralized(CentralizedParams()).begin_round(context_of(60))
    assert whole.rows is None
    parts = [Centralized(CentralizedParams(parts=3)).begin_round(context_of(60, round=n))[0].rows for n in range(2)]
    assert [len(set(rows.tolist())) for rows in parts] == [20, 20]
    assert set(parts[0].tolist()) != set(parts[1].tolist())


def test_moon_leaves_as_many_of_its_last_models_as_asked() -> None:
    def ended(buffer: int, stop: int):
        federated = {"name": "moon", "rounds": 4, "buffer": buffer, "contrast_weight": 1.0}
        return run_loop(prepared(federated=federated), stop=stop)

    one, two = ([ended(buffer, stop) for stop in (1, 2, 3, 4)] for buffer in (1, 2))
    assert same_arrays(one[1].server.params, two[1].server.params)  # there is but one model to leave before
    assert not same_arrays(one[2].server.params, two[2].server.params)
    for silo in range(3):
        kept = [state.silos[silo] for state in two]
        assert not entries_under("model-2", kept[0])
        for before, after in pairwise(kept):
            assert same_arrays(entries_under("model", before), entries_under("model-2", after))
        assert not any(name.startswith("model-") for name in one[3].silos[silo])
        assert not any(name.startswith("model-3") for name in kept[3])


class TestFedCMR:
    def test_a_silo_without_data_does_not_count(self, monkeypatch: pytest.MonkeyPatch) -> None:
        given, seen = prepared((20, 12, 0), federated={"name": "fedcmr", "rounds": 1}), []
        method = given.resolved.federated
        merge = method.merge_statistics
        monkeypatch.setattr(method, "merge_statistics", lambda server, sums: seen.append(sums) or merge(server, sums))
        state = run_loop(given)
        assert float(seen[0]["silos"]) == 2
        losses = [float(state.silos[silo]["loss/value"]) for silo in range(2)]
        assert min(losses) > 0
        assert float(seen[0]["loss"]) == pytest.approx(sum(losses))
        assert "loss/value" not in state.silos[2]

    def test_a_silo_without_a_finite_loss_neither_counts_nor_weighs(self) -> None:
        sums = {"all_items": 40.0, "all_classes": 12.0, "all_loss": 1.0, "all_silos": 2.0}
        for weighting, weights in {"additive": (True, False), "uniform": (True, True)}.items():
            found = []
            for loss in (0.5, float("nan")):
                method, context = FedCMR(FedCMRParams(weighting=weighting)), context_of(20, **sums)
                context.mean_loss = loss
                facts = method.silo_statistics(context)
                assert all(bool(value) == (loss == 0.5) for value in facts.values())
                found.append(method.weight(context, "image") > 0)
            assert tuple(found) == weights

    def test_a_loss_of_an_earlier_round_is_forgotten(self) -> None:
        method, context = FedCMR(FedCMRParams()), context_of(20)
        context.keep("loss", {"value": torch.tensor(0.1)})
        method.silo_statistics(context)
        assert not context.kept("loss")


@pytest.mark.parametrize("composed", [False, True])
def test_fedbignns_without_queries_held_back_is_refused_before_training(tmp_path: Path, composed: bool) -> None:
    def federated(**own: str) -> dict:
        member = {"name": "fedbignns", **own}
        given = {"name": "compose", "methods": [{"name": "moon"}, member]} if composed else member
        return {**given, "rounds": 1}

    archive, without = write_archive(tmp_path / "archive", count=60), {"validation": 0}
    with pytest.raises(UserError, match=r'"fedbignns" weights silos by .* \(evaluate\.validation is 0\)'):
        train(archive, tmp_path / "run", federated=federated(), evaluate=without)
    assert not (tmp_path / "run").exists()
    train(archive, tmp_path / "held", federated=federated())
    train(archive, tmp_path / "sizes", federated=federated(weighting="examples"), evaluate=without)
