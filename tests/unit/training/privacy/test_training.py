"""Training under differential privacy: samples, noise, what leaves a silo, and what it keeps."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from silohash.base.errors import DependencyMissing, NotPrivate
from silohash.base.types import Arrays
from silohash.methods.federated.prototypes import PROTOTYPE_MEAN
from silohash.methods.federated.shared_means import objection
from silohash.methods.federated.statistics import ReleaseParams, class_statistics
from silohash.methods.message import Message
from silohash.training.engines.port import SiloTask
from silohash.training.privacy.budget import KEY, sampling
from silohash.training.privacy.training import (
    FEWEST_DEVIATIONS,
    PrivateRound,
    RecordGradients,
    check_private_model,
    clipped,
    item_share,
    new_key,
    noise_share,
    noised,
    norm_of,
    private_change,
    private_statistics,
    stored_key,
)
from silohash.training.worker import Worker
from tests.runs import Records, prepared, run_loop, same_arrays

SIZES = (60, 40, 20)


def inputs(
    unit: str = "record", sizes=SIZES, *, local: str = "csq", federated: Any = None, train: Any = None, **privacy
):
    return prepared(
        sizes, validation=0, local={"name": local},
        federated={"rounds": 2, "local_epochs": 2, **(federated or {})}, train={"batch": 16, **(train or {})},
        evaluate={"validation": 0.0},
        exchange={"privacy": {"unit": unit, "repeatable": True, **privacy}},
    )  # fmt: skip


def first_task(prepared_inputs, silo: int = 0) -> tuple[Worker, SiloTask]:
    worker = Worker(prepared_inputs, torch.device("cpu"))
    state = worker.first_state()
    broadcast = prepared_inputs.resolved.federated.broadcast(state.server, silo, round=0)
    return worker, SiloTask("train", silo, broadcast)


def test_every_item_is_drawn_with_the_same_probability_and_independently() -> None:
    worker, task = first_task(inputs())
    assert worker.config.exchange.privacy is not None
    private = PrivateRound.of(task, worker.config, worker.config.exchange.privacy, 3)
    rate, steps = sampling(50, 20)
    drawn = np.zeros((4000, 50))
    number = 0
    for epoch in range(4000 // steps):
        for rows in private.samples(50, 20, epoch):
            drawn[number, rows.numpy()] = 1
            number += 1
    drawn = drawn[:number]
    slack = 5 * math.sqrt(rate * (1 - rate) / number)
    assert np.abs(drawn.mean(axis=0) - rate).max() < slack
    sizes = drawn.sum(axis=1)
    assert sizes.std() == pytest.approx(math.sqrt(50 * rate * (1 - rate)), rel=0.1)
    pairs = np.corrcoef(drawn.T) - np.eye(50)
    assert np.abs(pairs).max() < 6 / math.sqrt(number)


def test_the_noise_of_a_step_is_what_the_accountant_assumes_in_every_parameter() -> None:
    """With plain SGD and a limit on gradients of nearly zero, parameters move by noise alone."""
    settings = {"optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.0, "learning_rate": 0.5}
    made = inputs(sizes=(60,), train=settings, clip_norm=1e-3, noise_multiplier=3.0)
    worker, task = first_task(made)
    result = worker.do(task)
    rate, steps = sampling(60, 16)
    expected = 0.5 * math.sqrt(2 * steps) * 3.0 * 1e-3 / (rate * 60)
    moves = {name: array - task.broadcast.params[name] for name, array in result.update.params.items()}
    weights = np.concatenate([move.ravel() for move in moves.values()]) / expected
    assert abs(weights.std() - 1.0) < 0.2 + 5 / math.sqrt(2 * weights.size)
    for name, move in moves.items():
        assert 0.5 < move.std() / expected < 1.6, name


def test_an_item_moves_a_step_by_no_more_than_the_limit() -> None:
    settings = {"optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.0, "learning_rate": 1.0, "batch": 1000}
    made = inputs(sizes=(20,), train=settings, federated={"local_epochs": 1}, clip_norm=0.1, noise_multiplier=1e-12)
    loud = {**made.arrays, "image": made.arrays["image"].copy()}
    loud["image"][4] *= 1e5
    ends = []
    for arrays in (made.arrays, loud):
        worker, task = first_task(replace(made, arrays=arrays))
        ends.append(worker.do(task).update.params)
    change = math.sqrt(sum(float(np.square(ends[0][n].astype(float) - ends[1][n]).sum()) for n in ends[0]))
    assert 0 < change <= 2 * 0.1 / 20 * (1 + 1e-3)
    start = task.broadcast.params
    moved = math.sqrt(sum(float(np.square(ends[1][n].astype(float) - start[n]).sum()) for n in start))
    assert moved <= 0.1 * (1 + 1e-3)


@pytest.mark.parametrize("unit", ["record", "silo"])
def test_nothing_exact_leaves_a_silo(unit: str) -> None:
    worker, task = first_task(inputs(unit))
    result = worker.do(task)
    assert math.isnan(result.loss)
    assert not result.terms
    assert not result.warnings
    assert set(result.update.weights.values()) == {1.0}
    assert not result.update.sums
    assert not result.update.records
    assert not result.update.scalars
    assert result.update.counts == {"items": 60}


@pytest.mark.parametrize("unit", ["record", "silo"])
def test_weights_that_silos_announce_are_public(unit: str) -> None:
    worker, task = first_task(inputs(unit))
    assert worker.do(replace(task, kind="weigh")).update.weights == {"image": 1.0, "text": 1.0}


def test_a_silos_update_is_its_limited_change_and_its_share_of_the_noise() -> None:
    made = inputs("silo", local="dcmh", noise_multiplier=2.0, clip_norm=0.5)
    worker, task = first_task(made)
    moved = worker.do(task).update
    noise = np.concatenate(
        [(moved.params[n].astype(np.float64) - task.broadcast.params[n]).ravel() for n in moved.params]
    )
    expected = 2.0 * 0.5 / math.sqrt(len(SIZES) - 1)
    assert abs(noise.std() - expected) < 0.01 + 5 * expected / math.sqrt(2 * noise.size)
    quiet, task = first_task(inputs("silo", local="dcmh", noise_multiplier=1e-9, clip_norm=0.5))
    silent = quiet.do(task).update
    change = math.sqrt(
        sum(float(np.square(a.astype(float) - task.broadcast.params[n]).sum()) for n, a in silent.params.items())
    )
    assert change == pytest.approx(0.5, rel=1e-3)


def test_noise_is_secret_unless_the_run_must_be_repeatable() -> None:
    for repeatable in (True, False):
        made = inputs("silo", repeatable=repeatable)
        worker, task = first_task(made)
        first, second = (worker.do(task) for _ in range(2))
        again = worker.do(replace(task, kept=first.kept))
        assert (KEY in first.kept) is not repeatable
        assert same_arrays(first.update.params, again.update.params)
        assert same_arrays(first.update.params, second.update.params) is repeatable


def test_another_message_of_the_server_gets_other_noise() -> None:
    worker, task = first_task(inputs("silo", repeatable=False))
    key = {KEY: new_key(None)}
    broadcast = replace(task.broadcast, params={n: a + np.float32(1) for n, a in task.broadcast.params.items()})
    one, other = (worker.do(replace(t, kept=key)).update for t in (task, replace(task, broadcast=broadcast)))
    name = "image.hash.weight"
    differences = (one.params[name] - task.broadcast.params[name]) - (other.params[name] - broadcast.params[name])
    assert np.abs(differences).max() > 0.1


@pytest.mark.whole_run
@pytest.mark.parametrize("federated", ["fedavg", "moon", "feduch", "fedproc"])
def test_methods_train_under_privacy_per_item(federated: str) -> None:
    extra = {"min_count": 1} if federated == "fedproc" else {}
    listener = Records()
    made = inputs(federated={"name": federated, **extra}, noise_multiplier=0.5)
    state = run_loop(made, listener)
    assert state.round == 2
    assert all(np.isfinite(array).all() for array in state.server.params.values())
    assert all(record.privacy.epsilon > 0 for record in listener.records)
    assert all(record.loss is None for record in listener.records)
    assert not any(silo.rejected for record in listener.records for silo in record.silos)


@pytest.mark.whole_run
def test_little_noise_trains_as_well_as_none() -> None:
    """The sum of clipped gradients without noise is the gradient that ordinary training takes, but for the samples."""
    settings = {"optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.0, "learning_rate": 0.1, "batch": 1000}
    private = inputs(train=settings, clip_norm=1e6, noise_multiplier=1e-15)
    plain = prepared(
        SIZES, validation=0, local={"name": "csq"}, evaluate={"validation": 0.0}, train={**settings},
        federated={"rounds": 2, "local_epochs": 2, "weighting": "uniform"},
    )  # fmt: skip
    found, expected = (run_loop(made).server.params for made in (private, plain))
    for name, array in expected.items():
        assert np.allclose(found[name], array, atol=1e-5), name


def test_models_that_cannot_be_trained_per_item_are_refused_before_the_run() -> None:
    made = inputs()
    towers = {"image": replace(made.spec.towers["image"], kind="conv", shape=(1, 32, 32))}
    with pytest.raises(NotPrivate):
        check_private_model(made.resolved, replace(made.spec, towers=towers))
    check_private_model(made.resolved, made.spec)
    check_private_model(prepared().resolved, prepared().spec)


def test_a_missing_accountant_is_named_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("silohash.base.optional.installed", lambda package: package != "dp_accounting")
    made = inputs()
    with pytest.raises(DependencyMissing, match=r"exchange\.privacy needs dp_accounting, .* 'silohash\[privacy\]'"):
        check_private_model(made.resolved, made.spec)


def test_secret_of_a_purpose_stays_and_is_read_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "noise.safetensors"
    first = stored_key(path, "data 1")
    assert (first.shape, first.dtype) == ((32,), np.uint8)
    assert path.stat().st_mode & 0o077 == 0
    assert np.array_equal(stored_key(path, "data 1"), first)
    other = stored_key(path, "data 2")
    assert not np.array_equal(other, first)
    assert not np.array_equal(stored_key(path, "data 1"), first)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 4, bias=False)).double()


def losses_of(outputs: Tensor) -> Tensor:
    return (outputs - 0.5).square().sum(1)


def one_by_one(model: nn.Module, inputs: Tensor, limit: float) -> list[Tensor]:
    """The same sum as `Passes.clipped_sum`, with a backward pass per record."""
    total = [torch.zeros_like(p) for p in model.parameters()]
    for record in inputs:
        gradients = torch.autograd.grad(losses_of(model(record[None])).sum(), list(model.parameters()))
        norm = math.sqrt(sum(float(g.square().sum()) for g in gradients))
        for place, gradient in enumerate(gradients):
            total[place] += gradient * min(1.0, limit / max(norm, 1e-12))
    return total


def clipped_sum(model: nn.Module, inputs: Tensor, limit: float) -> list[Tensor]:
    with RecordGradients(model).watched() as passes:
        outputs = model(inputs)
    found = passes.clipped_sum(losses_of(outputs).sum(), limit)
    return [found[parameter] for parameter in model.parameters()]


@pytest.mark.parametrize("limit", [0.01, 1.0, 3.0, 1e6])
def test_the_sum_equals_that_of_a_loop(limit: float) -> None:
    model, inputs = network(), torch.randn(12, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for found, expected in zip(clipped_sum(model, inputs, limit), one_by_one(model, inputs, limit), strict=True):
        torch.testing.assert_close(found, expected)


def test_a_record_changes_the_sum_by_the_limit_at_most() -> None:
    model, inputs = network(), torch.randn(12, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    inputs[3] *= 1e4
    with_it, without = (clipped_sum(model, rows, 0.2) for rows in (inputs, inputs[torch.arange(12) != 3]))
    change = math.sqrt(sum(float((a - b).square().sum()) for a, b in zip(with_it, without, strict=True)))
    assert change == pytest.approx(0.2, rel=1e-9)


def test_a_record_whose_gradient_is_not_finite_counts_as_zero() -> None:
    model, inputs = network(), torch.randn(5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    broken = inputs.clone()
    broken[2, 0] = math.nan
    for found, expected in zip(
        clipped_sum(model, broken, 1.0), clipped_sum(model, inputs[torch.arange(5) != 2], 1.0), strict=True
    ):
        torch.testing.assert_close(found, expected)


def test_layers_that_do_not_take_part_have_no_gradient() -> None:
    model = network()
    with RecordGradients(model).watched() as passes:
        model(torch.zeros(2, 6, dtype=torch.float64))
    assert passes.clipped_sum(torch.zeros((), requires_grad=True) * 1.0, 1.0) == {}


def test_other_layers_are_refused() -> None:
    with pytest.raises(NotPrivate, match=r"0\.weight"):
        RecordGradients(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Linear(2, 2)))
    frozen = nn.Sequential(nn.Conv2d(1, 2, 3).requires_grad_(requires_grad=False), nn.Linear(2, 2))
    RecordGradients(frozen)


def test_a_layer_that_is_used_twice_is_refused() -> None:
    layer = nn.Linear(3, 3)
    with pytest.raises(NotPrivate), RecordGradients(layer).watched():
        layer(layer(torch.ones(2, 3)))


CLASSES, BITS = 5, 8


def update(change: float, **more) -> tuple[Message, dict[str, np.ndarray]]:
    origin = {"image.w": np.full((40, 50), 3.0, np.float32), "text.w": np.zeros(1000, np.float32)}
    params = {name: array + np.float32(change) for name, array in origin.items()}
    message = Message(
        kind="update", sender="a", round=0, params=params, weights={"image": 70.0, "text": 0.0}, counts={"items": 70},
        **more,
    )  # fmt: skip
    return message, origin


def change_of(message: Message, origin: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([(message.params[name].astype(np.float64) - origin[name]).ravel() for name in origin])


@pytest.mark.parametrize(("change", "norm"), [(1.0, 2.0), (0.01, 0.01 * math.sqrt(3000))])
def test_a_change_is_limited_before_noise_hides_it(change: float, norm: float) -> None:
    message, origin = update(change)
    silent = private_change(message, origin, clip_norm=2.0, deviation=0.0, generator=np.random.default_rng(0))
    assert np.linalg.norm(change_of(silent, origin)) == pytest.approx(norm, rel=1e-4)
    assert silent.weights == {"image": 1.0, "text": 1.0}
    assert {array.dtype for array in silent.params.values()} == {np.dtype(np.float32)}


def test_the_noise_of_a_change_has_its_deviation_in_every_parameter() -> None:
    message, origin = update(1.0)
    noisy, silent = (
        private_change(message, origin, clip_norm=2.0, deviation=deviation, generator=np.random.default_rng(0))
        for deviation in (0.5, 0.0)
    )
    for name in origin:
        noise = (noisy.params[name].astype(np.float64) - silent.params[name]).ravel()
        assert abs(noise.std() - 0.5) < 5 * 0.5 / math.sqrt(2 * noise.size)
        assert abs(noise.mean()) < 5 * 0.5 / math.sqrt(noise.size)


def test_the_noise_of_all_other_silos_is_what_the_accountant_assumes() -> None:
    for silos in (2, 3, 10):
        share = noise_share(2.0, 1.5, silos)
        assert math.sqrt(silos - 1) * share == pytest.approx(1.5 * 2.0)


def statistics(labels: torch.Tensor, values: torch.Tensor) -> Message:
    found = class_statistics(values, labels, ReleaseParams(min_count=1, max_labels=3))
    sums = {"prototype_sum/fused": found.sums.numpy(), "prototype_count/fused": found.counts.numpy()}
    message, _ = update(0.0, sums=sums)
    return replace(message, counts={"items": len(labels)})


def made_up(items: int = 400) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = (torch.rand(items, CLASSES, generator=generator) < 0.5).float()
    return labels, torch.tanh(torch.randn(items, BITS, generator=generator))


def test_no_item_changes_the_statistics_by_more_than_its_share() -> None:
    labels, values = made_up(40)
    labels[7], values[7] = 1.0, 1.0  # as many labels and as large values as possible
    share = item_share(statistics(labels, values), [PROTOTYPE_MEAN], max_labels=3)
    assert share == pytest.approx(math.sqrt(3 * (BITS + 1)))
    every = torch.arange(len(labels))
    largest = 0.0
    for item in range(len(labels)):
        full, less = (statistics(labels[rows], values[rows]).sums for rows in (every, every != item))
        largest = max(largest, math.sqrt(sum(float(np.square(full[n] - less[n]).sum()) for n in full)))
    assert 0.7 * share < largest <= share


def private(message: Message, multiplier: float, seed: int = 0) -> Message:
    return private_statistics(
        message, [PROTOTYPE_MEAN], max_labels=3, noise_multiplier=multiplier, generator=np.random.default_rng(seed)
    )


def test_the_noise_of_statistics_is_a_multiple_of_an_items_share() -> None:
    message = statistics(*made_up(4000))
    counts = [private(message, 2.0, seed).sums["prototype_count/fused"] for seed in range(300)]
    noise = np.stack(counts) - message.sums["prototype_count/fused"]
    expected = 2.0 * math.sqrt(3 * (BITS + 1))
    assert abs(noise[:, :].std() - expected) < 5 * expected / math.sqrt(2 * noise.size)


def test_noisy_statistics_can_be_used_and_rare_classes_are_left_out() -> None:
    labels, values = made_up()
    labels[:, 2] = 0.0
    labels[:3, 2] = 1.0
    message = statistics(labels, values)
    extras = {"prototypes/fused": np.zeros((CLASSES, BITS), np.float32)}
    dropped = 0
    for seed in range(20):
        found = private(message, 1.0, seed)
        assert objection(found, [PROTOTYPE_MEAN], extras) is None
        counts = found.sums["prototype_count/fused"]
        least = FEWEST_DEVIATIONS * math.sqrt(3 * (BITS + 1))
        assert ((counts == 0) | (counts >= least)).all()
        assert not found.sums["prototype_sum/fused"][counts == 0].any()
        dropped += counts[2] == 0
    assert dropped >= 18
    assert found.weights == {"image": 1.0, "text": 0.0}


def arrays(scale: float = 1.0) -> Arrays:
    generator = np.random.default_rng(0)
    return {"a": (scale * generator.normal(size=(7, 5))).astype(np.float32), "b": scale * generator.normal(size=11)}


def test_the_norm_is_that_of_all_values_together() -> None:
    found = arrays()
    assert norm_of(found) == pytest.approx(math.sqrt(sum(float(v) ** 2 for a in found.values() for v in a.ravel())))
    assert norm_of({}) == 0.0


@pytest.mark.parametrize("scale", [1e-6, 0.1, 1.0, 30.0, 1e12])
def test_a_norm_above_the_limit_becomes_the_limit_and_others_stay(scale: float) -> None:
    before = arrays(scale)
    after = clipped(before, 2.0)
    expected = min(2.0, norm_of(before))
    assert norm_of(after) == pytest.approx(expected, rel=1e-12)
    for name, array in before.items():
        assert np.allclose(after[name] * norm_of(before), array.astype(np.float64) * expected, rtol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_no_factor_limits_become_zero(value: float) -> None:
    before = arrays()
    before["a"][2, 3] = value
    assert norm_of(clipped(before, 2.0)) == 0.0


def test_zeros_stay_zeros() -> None:
    assert norm_of(clipped({"a": np.zeros(3)}, 1.0)) == 0.0


def test_the_noise_of_every_value_has_the_deviation() -> None:
    zeros = {"a": np.zeros((100, 200)), "b": np.zeros(20_000)}
    noise = noised(zeros, 0.7, np.random.default_rng(1))
    for name in zeros:
        values = noise[name].ravel()
        assert abs(values.mean()) < 5 * 0.7 / math.sqrt(values.size)
        assert abs(values.std() - 0.7) < 5 * 0.7 / math.sqrt(2 * values.size)
    assert abs(np.corrcoef(noise["a"].ravel(), noise["b"])[0, 1]) < 5 / math.sqrt(20_000)
