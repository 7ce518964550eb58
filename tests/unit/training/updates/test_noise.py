"""The link of differential privacy: which results are noisy, what the silo keeps, and what the server counts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from silohash.training.engines.port import SiloTask
from silohash.training.privacy.budget import ASKED, KEY
from silohash.training.updates.noise import Noise
from silohash.training.worker import Worker
from tests.runs import prepared


def made(**privacy) -> tuple[Worker, Noise, SiloTask]:
    given = prepared(
        validation=0, local={"name": "csq"}, evaluate={"validation": 0.0}, exchange={"privacy": {**privacy}}
    )
    worker = Worker(given, torch.device("cpu"))
    [link] = [one for one in worker.chain.links if isinstance(one, Noise)]
    sent = given.resolved.federated.broadcast(worker.first_state().server, 0, round=0)
    return worker, link, SiloTask("train", 0, sent)


@pytest.mark.parametrize("unit", ["record", "silo"])
def test_a_secret_stays_in_the_silo_and_gives_the_same_update_again(unit: str) -> None:
    worker, _, task = made(unit=unit)
    first = worker.do(task)
    params = {name: np.array(array) for name, array in first.update.params.items()}
    assert first.kept[KEY].shape == (32,)
    assert np.isnan(first.loss)
    again = worker.do(SiloTask("train", 0, task.broadcast, kept={KEY: first.kept[KEY]}))
    assert all(np.array_equal(again.update.params[name], array) for name, array in params.items())
    other = worker.do(task)
    assert any(not np.array_equal(other.update.params[name], array) for name, array in params.items())


def test_announced_weights_are_public() -> None:
    worker, _, task = made(unit="silo")
    weights = worker.do(SiloTask("weigh", 0, task.broadcast)).update.weights
    assert set(weights.values()) == {1.0}


def test_the_server_has_a_secret_unless_the_run_can_be_repeated() -> None:
    for repeatable in (True, False):
        worker, link, _ = made(unit="silo", repeatable=repeatable)
        server = worker.first_state().server
        assert (KEY in server.private) != repeatable
        counts, record = link.released({}, [0, 2], [0])
        assert counts[ASKED].tolist() == [1, 0, 1]
        assert record is not None
