"""The loop over a silo's epochs, batches and steps."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from silohash.base import seeds
from silohash.base.types import Phase, Step
from silohash.methods.federated.base import FederatedMethod
from silohash.methods.local.base import SiloState
from silohash.methods.local.supervised.dcmh import DCMH, DCMHParams
from silohash.methods.local.supervised.dsph import DSPH
from silohash.methods.message import Message
from silohash.models.parameters import Optimizer, OptimizerPool, params_of
from silohash.run.config.sections import RunConfig, TrainConfig
from silohash.training.checkpoint import load_checkpoint, save_checkpoint
from silohash.training.engines.port import SiloTask
from silohash.training.silo import (
    _optimizers,
    _trained,
    batches,
    finish_silo,
    learning_rate,
    local_view,
    make_context,
    make_optimizer,
    state_of,
    step_norm,
    train_silo,
    with_separate_terms,
)
from tests.runs import loop_config, model_spec, prepared, run_loop, same_arrays, silo_data

BITS = 16


def context(data=None, *, round: int = 0, seed: int = 0, dropout: float = 0.0, kept=None, epochs: int = 2, **params):  # noqa: A002
    local = DCMH(DCMHParams(**params))
    with seeds.torch_globally(seed, "weights"):
        model = local.build(model_spec(dropout=dropout), BITS)
    broadcast = Message("broadcast", "server", round, params=params_of(model))
    task = SiloTask("train", 0, broadcast, kept or {})
    config = loop_config(seed=seed, epochs=epochs)
    return make_context(task, config, model=model, local=local, data=silo_data() if data is None else data)


def trained(config: RunConfig, **more):
    return train_silo(context(**more), FederatedMethod(None), config)


@pytest.mark.parametrize(("round", "expected"), [(0, [0, 1, 2]), (2, [6, 7, 8])])
def test_a_silo_counts_the_epochs_of_all_rounds(round: int, expected: list[int]) -> None:  # noqa: A002
    silo, seen = context(round=round, epochs=3), []
    assert silo.state.epochs == expected[0]
    silo.local.record = lambda step, outputs, batch, state: seen.append(state.epochs)
    train_silo(silo, FederatedMethod(None), loop_config(epochs=3))
    assert sorted(set(seen)) == expected
    assert seen == sorted(seen)


def test_epochs_are_counted_over_all_phases() -> None:
    class TwoPhases(FederatedMethod):
        """Trains two phases of two epochs and one epoch."""

        def begin_round(self, context):
            (phase,) = super().begin_round(context)
            return [phase, replace(phase, name="more", epochs=1)]

    counted = []
    train_silo(context(), TwoPhases(None), loop_config(), lambda *epoch: counted.append(epoch))
    assert counted == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 19, 20, 21, 36, 37, 100])
def test_batches_are_a_partition_of_the_rows(count: int) -> None:
    here = context(silo_data(count))
    settings = loop_config(batch=16)
    drawn = list(batches(here, Phase("train", here.model, 1), settings, 0))
    assert sorted(torch.cat(drawn).tolist()) == list(range(count))
    assert all(len(rows) == 16 for rows in drawn[:-1])
    assert len(drawn) == 1 or 4 < len(drawn[-1]) <= 16 + 4


def test_batches_differ_by_epoch_round_phase_silo_and_seed_and_by_nothing_else() -> None:
    def order(epoch: int = 0, name: str = "train", silo: int = 0, round: int = 0, seed: int = 0) -> list[int]:  # noqa: A002
        here = replace(context(silo_data(30)), silo=silo, round=round)
        return torch.cat(
            list(batches(here, Phase(name, here.model, 1), loop_config(batch=8, seed=seed), epoch))
        ).tolist()

    orders = [order(), order(epoch=1), order(name="x"), order(silo=1), order(round=1), order(seed=1)]
    assert len({tuple(found) for found in orders}) == 6
    assert order() == orders[0]


def test_batches_of_a_phase_with_rows_of_its_own() -> None:
    here = context(silo_data(30))
    settings = loop_config(batch=8)
    some = Phase("train", here.model, 1, rows=np.array([3, 4, 29]))
    assert sorted(torch.cat(list(batches(here, some, settings, 0))).tolist()) == [3, 4, 29]
    assert list(batches(here, replace(some, rows=np.zeros(0, np.int64)), settings, 0)) == []


@pytest.mark.parametrize(("count", "expected"), [(0, 0), (5, 1), (16, 1), (31, 1), (32, 2), (100, 6)])
def test_independent_batches_are_random_subsets(count: int, expected: int) -> None:
    here = context(silo_data(count), independent_batches=True)
    drawn = list(batches(here, Phase("train", here.model, 1), loop_config(batch=16), 0))
    assert len(drawn) == expected
    assert all(len(rows.unique()) == len(rows) == min(count, 16) for rows in drawn)
    if count == 100:
        assert len(torch.cat(drawn).unique()) < 6 * 16
        assert len({tuple(sorted(rows.tolist())) for rows in drawn}) == 6


@pytest.mark.parametrize(("fresh", "rounds"), [(False, 1), (True, 3)])
def test_fresh_optimizers_start_new_in_each_epoch(fresh: bool, rounds: int) -> None:
    class Counting(OptimizerPool):
        """Counts how often optimizers start with the state of a new one."""

        started = 0

        def optimizer(self, *wanted, **more):
            self.started += 1
            return super().optimizer(*wanted, **more)

    pool, config = Counting(), loop_config(epochs=3, learning_rate=0.01)
    first, again = (context(silo_data(20), fresh_optimizers=fresh, epochs=3) for _ in range(2))
    update = train_silo(first, FederatedMethod(None), config, optimizers=pool).update
    assert pool.started == 2 * rounds  # the image step and the text step
    kept = train_silo(again, FederatedMethod(None), config).update.params
    assert same_arrays(update.params, kept)


def test_terms_in_steps_of_their_own_follow_the_local_steps() -> None:
    joint = Step("joint", ("image.", "text."), ("image", "text"))
    binary = replace(joint, name="binary", regularize=False)
    found = with_separate_terms([joint, binary])
    assert [(s.name, s.modalities, s.regularize, s.own_terms) for s in found] == [
        ("joint", ("image", "text"), False, True),
        ("binary", ("image", "text"), False, True),
        ("image terms", ("image",), True, False),
        ("text terms", ("text",), True, False),
    ]
    assert all(step.parameters == joint.parameters for step in found)
    alone = with_separate_terms([Step("text", ("text.",), ("text",))])
    assert [(s.name, s.parameters) for s in alone] == [("text", ("text.",)), ("text terms", ("text.",))]


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_steps_that_train_the_same_parameters_share_their_optimizer(name: str) -> None:
    model = context().model
    towers: dict[str, tuple[str, ...]] = {"a": ("image.", "text."), "b": ("image.", "text."), "c": ("image.",)}
    steps = [Step(step, parameters, ()) for step, parameters in towers.items()]
    settings = TrainConfig(optimizer=name)
    made = _optimizers(model, steps, OptimizerPool(), settings, 0.1)
    assert made["a"] is made["b"] is not made["c"]
    assert len(made["c"].parameters) * 2 == len(made["a"].parameters)


def test_the_local_method_sees_all_pairs_unless_the_phase_hides_some() -> None:
    data = silo_data(30)
    phase = Phase("train", context().model, 1, rows=np.array([29, 3, 7]))
    batch = data.batch(torch.tensor([7, 29]))
    seen, renumbered = local_view(phase, data)
    assert seen is data
    assert renumbered(batch) is batch
    seen, renumbered = local_view(replace(phase, hides_other_rows=True), data)
    assert len(seen) == 3
    assert torch.equal(seen.text, data.text[[3, 7, 29]])
    assert renumbered(batch).row.tolist() == [1, 2]
    assert torch.equal(renumbered(batch).text, seen.text[[1, 2]])


def test_learning_rate_falls_to_a_tenth_on_a_half_cosine() -> None:
    settings = TrainConfig(learning_rate=2.0, decay=True)
    rates = [learning_rate(settings, number, 5) for number in range(5)]
    for number, rate in enumerate(rates):
        assert rate == pytest.approx(0.2 + 1.8 * (1 + np.cos(np.pi * number / 4)) / 2)
    assert learning_rate(TrainConfig(learning_rate=2.0), 4, 5) == 2.0
    assert learning_rate(settings, 0, 1) == 2.0


def test_geometric_learning_rates_have_a_common_factor() -> None:
    settings = TrainConfig(learning_rate=1e-2, decay="geometric", final_learning_rate=1e-6)
    assert [learning_rate(settings, number, 5) for number in range(5)] == pytest.approx([1e-2, 1e-3, 1e-4, 1e-5, 1e-6])
    assert learning_rate(settings, 0, 1) == 1e-2


@pytest.mark.parametrize(
    ("epochs", "steps"), [(1, [0] * 10 + [1] * 10 + [2]), (5, [0, 0, 1, 1, 2]), (4, [0, 0, 0, 1, 1, 2])]
)
def test_learning_rates_fall_in_steps_of_local_epochs(epochs: int, steps: list[int]) -> None:
    settings = TrainConfig(learning_rate=3.0, decay="steps", decay_factor=0.9, decay_epochs=10)
    rates = [learning_rate(settings, number, len(steps), epochs) for number in range(len(steps))]
    assert rates == pytest.approx([3.0 * 0.9**step for step in steps])


def test_a_silo_trains_at_the_rate_of_the_round_and_the_context_knows_it() -> None:
    pool = OptimizerPool()
    config = loop_config(epochs=2, optimizer="sgd", momentum=0.0, learning_rate=0.5, decay="steps", decay_factor=0.5)
    config = config.model_copy(update={"train": config.train.model_copy(update={"decay_epochs": 2})})
    for number in (0, 1, 2):
        here = context(round=number)
        train_silo(here, FederatedMethod(None), config, optimizers=pool)
        rates = {made.learning_rate for made in pool._made[here.model].values()}
        assert rates == {0.5 * 0.5**number}
        task = SiloTask("train", 0, here.payload)
        again = make_context(task, config, model=here.model, local=here.local, data=here.data)
        assert again.step_norm(2, 0.4) == pytest.approx(1 + (1 - 0.5 * 0.5**number * 0.4))


@pytest.mark.parametrize("kind", ["adam", "adamw", "sgd"])
def test_optimizers_get_their_settings(kind: str) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    made = make_optimizer([weight], TrainConfig(optimizer=kind, weight_decay=0.1, momentum=0.7), 0.5)
    assert (made.kind, made.learning_rate, made.weight_decay, made.momentum) == (kind, 0.5, 0.1, 0.7)


def test_weight_decay_of_a_parameter_without_gradient() -> None:
    moved = {}
    for kind in ("adamw", "adam"):
        weight = torch.nn.Parameter(torch.tensor([2.0, -0.5, 0.0]))
        chosen = TrainConfig() if kind == "adamw" else TrainConfig(optimizer=kind)
        optimizer = make_optimizer([weight], chosen, 0.5)
        weight.grad = torch.zeros(3)
        before = weight.detach().clone()
        optimizer.step()
        moved[kind] = (weight.detach() - before).tolist()
    assert moved["adamw"] == pytest.approx([-0.5 * 0.01 * 2.0, 0.5 * 0.01 * 0.5, 0.0], abs=1e-7)
    assert moved["adam"] == pytest.approx([-0.5, 0.5, 0.0], abs=1e-5)


@pytest.mark.parametrize(("kind", "decay", "equal"), [("adamw", 0.3, True), ("adam", 0.0, True), ("adam", 0.3, False)])
def test_steps_that_do_not_depend_on_a_factor_of_the_loss(kind: str, decay: float, equal: bool) -> None:
    ends = []
    for factor in (1.0, 10.0):
        weight = torch.nn.Parameter(torch.tensor([2.0, -0.5, 1.0]))
        optimizer = make_optimizer([weight], TrainConfig(optimizer=kind, weight_decay=decay), 0.1)
        for step in range(4):
            weight.grad = factor * torch.tensor([0.3, -0.2, 0.1]) * (-1.0) ** (step // 2)
            optimizer.step()
        ends.append(weight.detach())
    assert torch.allclose(*ends, atol=1e-5) == equal


def test_training_lowers_the_loss_and_moves_every_parameter() -> None:
    first, last = trained(loop_config(batch=8), epochs=1), trained(loop_config(batch=8), epochs=8)
    assert last.loss < first.loss
    start = params_of(context().model)
    assert all(not np.array_equal(start[name], array) for name, array in last.update.params.items())
    assert last.update.counts == {"items": 40}
    assert last.update.weights == {"image": 40.0, "text": 40.0}


def test_loss_is_the_weighted_sum_of_its_terms() -> None:
    result = trained(loop_config(batch=8))
    params = DCMHParams()
    weights = {"likelihood": 1.0, "quantization": params.quantization_weight, "balance": params.balance_weight}
    assert result.loss == pytest.approx(sum(weights[name] * value for name, value in result.terms.items()), rel=1e-4)


def test_same_draws_give_the_same_bits_and_leave_the_global_generator_alone() -> None:
    state = torch.get_rng_state()
    first, second = (trained(loop_config(batch=8), dropout=0.5) for _ in range(2))
    assert torch.equal(state, torch.get_rng_state())
    assert same_arrays(first.update.params, second.update.params)
    assert first.loss == second.loss
    other = trained(loop_config(batch=8, seed=1), dropout=0.5)
    assert not same_arrays(first.update.params, other.update.params)


def test_steps_are_counted() -> None:
    here = context(silo_data(40))
    train_silo(here, FederatedMethod(None), loop_config(batch=16))
    assert here.steps_taken == {"image": 2 * 3, "text": 2 * 3}


def test_terms_of_the_federated_method_are_added_to_regularized_steps_only() -> None:
    class Pull(FederatedMethod):
        """Adds a term to the steps that have one."""

        def terms(self, context, batch, outputs):
            seen.append(tuple(outputs.code))
            return {"pull": (1.0, torch.stack([code.square().mean() for code in outputs.code.values()]).sum())}

    class OneStep(DCMH):
        """Takes the terms of the federated method in the text step only."""

        def steps(self, model):
            return [replace(step, regularize=step.name == "text") for step in super().steps(model)]

    seen: list[tuple[str, ...]] = []
    here = context(silo_data(40))
    here.local = OneStep(DCMHParams())
    result = train_silo(here, Pull(None), loop_config(batch=16))
    assert set(seen) == {("text",)}
    assert len(seen) == here.steps_taken["text"] == here.steps_taken["image"]
    assert set(result.terms) == {"likelihood", "quantization", "balance", "pull"}


def test_bfloat16_runs_and_keeps_weights_in_float32() -> None:
    seen = []
    here = context()
    here.model.get_submodule("image.backbone.0").register_forward_hook(lambda *about: seen.append(about[2].dtype))
    result = train_silo(here, FederatedMethod(None), loop_config(batch=8, precision="bfloat16"))
    assert torch.bfloat16 in seen
    assert {array.dtype for array in result.update.params.values()} == {np.dtype(np.float32)}
    exact = trained(loop_config(batch=8))
    assert result.loss == pytest.approx(exact.loss, rel=0.02)
    assert not same_arrays(result.update.params, exact.update.params)


def moved(result) -> float:
    start = params_of(context().model)
    return float(np.sqrt(sum(np.square(array - start[name]).sum() for name, array in result.update.params.items())))


def test_clip_norm_limits_what_a_step_may_do() -> None:
    plain = loop_config(batch=64, optimizer="sgd", learning_rate=1.0, decay=False)
    free = trained(plain, epochs=1)
    clipped = trained(loop_config(batch=64, optimizer="sgd", learning_rate=1.0, clip_norm=1e-3), epochs=1)
    assert moved(free) > 0.01
    assert moved(clipped) <= np.sqrt(2) * 1e-3 * 1.001  # one image step and one text step of length 0.001
    assert moved(clipped) > 1e-4


def test_silo_without_items_trains_nothing() -> None:
    empty = silo_data(4)
    none = {n: getattr(empty, n)[:0] for n in ("image", "text", "labels", "has_image", "has_text")}
    result = trained(loop_config(), data=replace(empty, **none))
    assert np.isnan(result.loss)
    assert result.terms == {}
    assert result.update.weights == {"image": 0.0, "text": 0.0}
    assert same_arrays(result.update.params, params_of(context().model))


def test_what_a_silo_keeps_goes_in_and_out() -> None:
    here = context(kept={"own/x": np.arange(3.0)})
    assert here.state.kept["own/x"].tolist() == [0, 1, 2]
    assert here.kept("own")["x"].tolist() == [0, 1, 2]
    assert here.previous_model is None
    here.keep("model", here.model.state_dict())
    result = train_silo(here, FederatedMethod(None), loop_config())
    assert {name.split("/")[0] for name in result.kept} == {"own", "model"}


def test_models_of_the_context_are_frozen_copies() -> None:
    here = context()
    before = params_of(here.model)
    frozen = here.global_model
    train_silo(here, FederatedMethod(None), loop_config(batch=8))
    assert same_arrays(params_of(frozen), before)
    assert not same_arrays(params_of(here.model), before)
    again = context(kept={f"model/{name}": array + 1 for name, array in before.items()})
    assert again.previous_model is not None
    assert np.allclose(params_of(again.previous_model)["image.hash.bias"], before["image.hash.bias"] + 1)


def test_two_rounds_are_enough_for_the_decay() -> None:
    settings = TrainConfig(learning_rate=2.0, decay=True)
    assert [learning_rate(settings, number, 2) for number in (0, 1)] == pytest.approx([2.0, 0.2])


@pytest.mark.parametrize(
    ("settings", "pull", "length"),
    [
        ({"optimizer": "sgd", "momentum": 0.0}, 0.0, 3.0),
        ({"optimizer": "sgd", "momentum": 0.5}, 0.0, 1 + 1.5 + 1.75),
        ({"optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.5}, 0.0, 3.0),
        ({"optimizer": "sgd", "momentum": 0.0}, 0.25, 1 + 0.75 + 0.75**2),
        ({"optimizer": "adam"}, 0.25, 3.0),
    ],
)
def test_the_length_of_three_steps(settings: dict[str, object], pull: float, length: float) -> None:
    assert step_norm(TrainConfig(**settings), 3, pull) == pytest.approx(length)
    if not pull:
        assert step_norm(TrainConfig(**settings), 3) == pytest.approx(length)


def test_the_length_of_steps_of_an_optimizer_that_restarts() -> None:
    momentum = TrainConfig(optimizer="sgd", momentum=0.5)
    assert step_norm(momentum, 4, restarts=2) == pytest.approx(2 * (1 + 1.5))
    assert step_norm(momentum, 5, restarts=2) == pytest.approx((1 + 1.5 + 1.75) + (1 + 1.5))
    config = loop_config(optimizer="sgd", momentum=0.5, epochs=3)
    here = context(fresh_optimizers=True)
    made = make_context(SiloTask("train", 0, here.payload), config, model=here.model, local=here.local, data=here.data)
    assert made.step_norm(6, 0.0) == pytest.approx(3 * (1 + 1.5))


def test_the_length_in_a_context_is_that_at_the_rounds_learning_rate() -> None:
    config = loop_config(optimizer="sgd", momentum=0.0, learning_rate=0.5, decay=False)
    here = context()
    task = SiloTask("train", 0, here.payload)
    made = make_context(task, config, model=here.model, local=here.local, data=here.data)
    assert made.step_norm(2, 0.4) == pytest.approx(1 + (1 - 0.5 * 0.4))
    assert np.isnan(made.validation_score())
    assert same_arrays(made.initial, params_of(here.model))


def test_a_silo_goes_on_from_what_it_stored_while_it_waited() -> None:
    class Counting(FederatedMethod):
        """Sends a statistic, so that the round has two exchanges."""

        def statistics(self, context):
            return {"count": np.asarray(1.0)}

    config, method = loop_config(batch=16), Counting(None)
    first = train_silo(context(), method, config)
    assert first.update.kind == "statistics"
    assert first.update.counts == {"items": 40}
    again = context(kept=first.kept)
    assert again.state.kept == {}
    second = finish_silo(again, first.kept, method, config)
    assert (second.update.kind, second.loss, second.terms) == ("update", pytest.approx(first.loss), {})
    assert again.steps_taken == {"image": 2 * 3, "text": 2 * 3}
    assert second.kept == {}
    assert same_arrays(second.update.params, trained(config).update.params)


def test_a_loss_that_is_not_finite_is_stored_as_zero() -> None:
    here = context()
    for loss, stored in ((0.5, 0.5), (float("nan"), 0.0), (float("inf"), 0.0)):
        here.means["loss"] = loss
        assert float(_trained(here)["trained/loss"]) == stored


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_the_kept_state_of_optimizers_is_that_of_one_long_training(name: str) -> None:
    config = loop_config(rounds=3, epochs=2, batch=8, optimizer=name, learning_rate=0.01, optimizer_state="keep")
    data, local, pool = silo_data(20), DSPH(DSPH.Params()), OptimizerPool()
    with seeds.torch_globally(0, "weights"):
        model = local.build(model_spec(), BITS)
    ours, params, kept = copy.deepcopy(model), params_of(model), {}
    moving = [p for _, p in ours.named_parameters()]
    optimizer = make_optimizer(moving, config.train, 0.01)
    for number in range(3):
        task = SiloTask("train", 0, Message("broadcast", "server", number, params=params), kept)
        context = make_context(task, config, model=model, local=local, data=data)
        result = train_silo(context, FederatedMethod(None), config, optimizers=pool)
        # what another silo does with the same optimizers must not matter
        other = make_context(replace(task, silo=1, kept={}), config, model=copy.deepcopy(model), local=local, data=data)
        train_silo(other, FederatedMethod(None), config, optimizers=pool)
        params, kept = dict(result.update.params), {n: a.copy() for n, a in result.kept.items()}
        params = {n: a.copy() for n, a in params.items()}
        state = SiloState()
        local.init_state(ours, data, state)
        for epoch in range(2):
            for rows in batches(context, Phase("train", ours, 2), config, epoch):
                batch = data.batch(rows)
                (step,) = local.steps(ours)
                loss = sum(w * v for w, v in local.terms(step, ours(batch, step.modalities), batch, state).values())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        for weight, (parameter, value) in zip(moving, ours.named_parameters(), strict=True):
            assert weight is value
            assert np.array_equal(params[parameter], value.detach().numpy()), (number, parameter)
    assert all(key.startswith("optimizer/train/joint/") for key in kept)
    assert {key.rpartition("/")[2] for key in kept} == ({"0"} if name == "sgd" else {"0", "1", "2"})
    reset = loop_config(rounds=3, epochs=2, batch=8, optimizer=name, learning_rate=0.01)
    task = SiloTask("train", 0, Message("broadcast", "server", 0, params=params_of(model)))
    assert not train_silo(
        make_context(task, reset, model=model, local=local, data=data), FederatedMethod(None), reset
    ).kept


def test_the_kept_state_survives_a_checkpoint_bytes_and_auxiliary_networks(tmp_path) -> None:
    given = {
        "local": {"name": "dcmh"},
        "train": {"optimizer_state": "keep"},
        "federated": {"name": "fedhap", "rounds": 3},
    }
    whole = run_loop(prepared(**given))
    assert any("/auxiliary networks/" in name for name in whole.silos[0])
    save_checkpoint(tmp_path / "checkpoint", run_loop(prepared(**given), stop=1), "digest")
    resumed = run_loop(prepared(**given), state=load_checkpoint(tmp_path / "checkpoint", "digest"))
    for other in (resumed, run_loop(prepared(**given), wire=True)):
        assert same_arrays(whole.server.params, other.server.params)
        assert all(same_arrays(whole.silos[silo], other.silos[silo]) for silo in whole.silos)
    reset = run_loop(prepared(**{**given, "train": {}}))
    assert not same_arrays(whole.server.params, reset.server.params)


def test_parameters_without_steps_and_momentum_that_is_off_have_no_state() -> None:
    model = nn.Linear(4, 3)
    momentum, plain = (Optimizer([*model.parameters()], "sgd", 0.1, momentum=value) for value in (0.9, 0.0))
    assert state_of(momentum, dict(model.named_parameters())) == {}
    (torch.ones(2, 4) @ model.weight.T).sum().backward()
    momentum.step()
    plain.step()
    assert set(state_of(momentum, dict(model.named_parameters()))) == {"weight/0"}
    assert state_of(plain, dict(model.named_parameters())) == {}
