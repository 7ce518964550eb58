"""Server-side optimizers, compared with hand-computed steps."""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import replace

import numpy as np
import pytest
import torch

from silohash.methods.federated.base import ServerState
from silohash.methods.federated.server_optimizers import ServerOptimizer
from silohash.models.towers import HashNet
from tests.runs import (
    WIDTH,
    Records,
    prepared,
    run_loop,
)


def test_server_optimizers_step_by_the_averaged_move() -> None:
    before = ServerState(params={"image.w": np.asarray([1.0, 2.0], np.float32)})
    after = replace(before, params={"image.w": np.asarray([2.0, 1.0], np.float32)})
    momentum = ServerOptimizer("fedavgm", momentum=0.5)
    first = momentum.step(before, after)
    np.testing.assert_allclose(first.params["image.w"], [2, 1])
    second = momentum.step(first, replace(first, params={"image.w": np.asarray([3.0, 0.0], np.float32)}))
    np.testing.assert_allclose(second.params["image.w"], [3.5, -0.5])
    for name, square in (("fedadam", 0.99e-6 + 0.01), ("fedyogi", 1e-6 + 0.01)):
        adaptive = ServerOptimizer(name, learning_rate=0.1, floor=1e-3)
        found = adaptive.step(before, after).params["image.w"]
        move = 0.1 * 0.1 / (np.sqrt(square) + 1e-3)
        np.testing.assert_allclose(found, [1 + move, 2 - move], rtol=1e-4)


@pytest.mark.whole_run
@pytest.mark.parametrize("optimizer", ["fedavgm", "fedadam", "fedyogi"])
def test_server_optimizers_learn_by_their_default_rates(optimizer: str) -> None:
    given = prepared(federated={"rounds": 8, "server": {"optimizer": optimizer}}, train={"learning_rate": 0.01})
    listener = Records()
    run_loop(given, listener)
    losses = [record.loss for record in listener.records]
    assert losses[-1] < 0.8 * losses[0], losses


def states(value: float) -> tuple[ServerState, ServerState]:
    before = ServerState(params={"image.w": np.asarray([1.0]), "image.steps": np.asarray(3)})
    return before, replace(before, params={"image.w": np.asarray([value]), "image.steps": np.asarray(8)})


@pytest.mark.parametrize("name", ["fedadam", "fedyogi"])
def test_two_adaptive_steps_by_hand(name: str) -> None:
    optimizer = ServerOptimizer(name)
    assert (optimizer.momentum, optimizer.square_decay, optimizer.floor) == (0.9, 0.99, 1e-3)
    before, after = states(3.0)
    state, parameter, mean, square = after, 1.0, 0.0, 1e-6
    for delta in (2.0, -0.5):
        mean = 0.9 * mean + 0.1 * delta
        change = delta**2
        square = (
            0.99 * square + 0.01 * change if name == "fedadam" else square - 0.01 * change * np.sign(square - change)
        )
        parameter += 0.01 * mean / (math.sqrt(square) + 1e-3)
        target = before.params["image.w"] + delta
        state = optimizer.step(before, replace(state, params={"image.w": target, "image.steps": np.asarray(8)}))
        assert state.params["image.w"][0] == pytest.approx(parameter)
        before = state
    assert state.params["image.steps"] == 8


def test_yogi_shrinks_squares_that_are_too_large() -> None:
    before, after = states(1.1)
    private = {"server/square/image.w": np.asarray([4.0]), "server/mean/image.w": np.asarray([0.0])}
    found = ServerOptimizer("fedyogi").step(before, replace(after, private=private)).private
    assert found["server/square/image.w"][0] == pytest.approx(4.0 - 0.01 * 0.01)


@pytest.mark.parametrize(("rate", "expected"), [(None, 3.0), (0.5, 2.0)])
def test_momentum_takes_the_averaged_update_as_it_is_by_default(rate: float | None, expected: float) -> None:
    before, after = states(3.0)
    assert ServerOptimizer("fedavgm", learning_rate=rate).step(before, after).params["image.w"].tolist() == [expected]


def test_the_first_square_is_that_of_the_floor() -> None:
    before, after = states(1.0)
    private = ServerOptimizer("fedadam", floor=0.5, square_decay=0.9).step(before, after).private
    assert private["server/square/image.w"].tolist() == [pytest.approx(0.9 * 0.25)]
    before, after = states(2.0)
    private = ServerOptimizer("fedyogi", floor=0.5, square_decay=0.9).step(before, after).private
    assert private["server/square/image.w"].tolist() == [pytest.approx(0.25 + 0.1)]


def test_yogi_keeps_squares_that_fit_exactly() -> None:
    before, after = states(3.0)
    private = {"server/square/image.w": np.asarray([4.0]), "server/mean/image.w": np.asarray([0.0])}
    found = ServerOptimizer("fedyogi").step(before, replace(after, private=private)).private
    assert found["server/square/image.w"].tolist() == [4.0]


@pytest.mark.parametrize("name", ["fedavgm", "fedadam", "fedyogi"])
def test_buffers_take_the_plain_average(name: str) -> None:
    averages = [{"image.w": 1.0 - n, "image.norm.running_var": variance} for n, variance in enumerate((0.5, 0.1, 0.02))]
    state = ServerState(params={"image.w": np.asarray([2.0]), "image.norm.running_var": np.asarray([1.0])})
    for average in averages:
        after = replace(state, params={n: np.asarray([value]) for n, value in average.items()})
        state = ServerOptimizer(name, learning_rate=2.0).step(state, after, {"image.norm.running_var"})
        assert state.params["image.norm.running_var"].tolist() == [average["image.norm.running_var"]]
        assert state.params["image.w"].tolist() != [average["image.w"]]
    assert {n for n in state.private if "running_var" in n} == set()


@pytest.mark.whole_run
def test_buffers_of_a_training_take_the_plain_average(monkeypatch: pytest.MonkeyPatch) -> None:
    build = HashNet.__init__

    def with_statistics(self: HashNet, *args: object, **named: object) -> None:
        build(self, *args, **named)
        for modality in ("image", "text"):
            tower = self.tower(modality)
            tower.backbone = torch.nn.Sequential(torch.nn.BatchNorm1d(WIDTH), tower.backbone)

    monkeypatch.setattr(HashNet, "__init__", with_statistics)
    seen: list[dict[str, np.ndarray]] = []
    step = ServerOptimizer.step

    def noted(self: ServerOptimizer, before: ServerState, after: ServerState, buffers: Set[str]) -> ServerState:
        found = step(self, before, after, buffers)
        names = [n for n in after.params if "running" in n]
        assert len(names) == 4
        assert all(np.array_equal(found.params[n], after.params[n]) for n in names)
        seen.append({n: found.params[n] for n in names if n.endswith("running_var")})
        return found

    monkeypatch.setattr(ServerOptimizer, "step", noted)
    run_loop(prepared(federated={"rounds": 4, "server": {"optimizer": "fedavgm"}}), validate=False)
    assert len(seen) == 4
    assert all((variance > 0).all() for found in seen for variance in found.values())
