"""The state of optimizers that silos keep over rounds: as in one long training, and through everything that stores it."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from silohash.base import seeds
from silohash.base.types import Phase
from silohash.methods.federated.base import FederatedMethod
from silohash.methods.local.base import SiloState
from silohash.methods.local.supervised.dsph import DSPH
from silohash.methods.message import Message
from silohash.models.parameters import Optimizer, OptimizerPool, params_of
from silohash.training.checkpoint import load_checkpoint, save_checkpoint
from silohash.training.engines.port import SiloTask
from silohash.training.kept_optimizers import state_of
from silohash.training.silo import batches, make_context, make_optimizer, train_silo
from tests.runs import loop_config, model_spec, prepared, run_loop, same_arrays, silo_data

BITS = 16


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
