"""Values that the server solves for: what silos add to their updates, and what becomes of the sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from silohash.base.types import Arrays, ReadArrays
from silohash.methods.federated.base import FederatedMethod, RunFacts, ServerState
from silohash.methods.federated.general.local import Local
from silohash.methods.federated.server_values import PREFIX, with_solution, with_sums
from silohash.methods.local.base import MethodParams, ServerSolved, SiloData
from silohash.methods.local.supervised.dcmh import DCMH, DCMHParams
from silohash.methods.message import Message
from silohash.models.towers import HashNet
from silohash.testing.inputs import loop_config, model_spec, silo_data
from silohash.training.engines.port import SiloTask
from silohash.training.silo import make_context


class Mean(DCMH):
    """A method whose model has the mean of all inputs, which the server computes."""

    def silo_sums(self, model: torch.nn.Module, data: SiloData) -> Arrays:
        """Return the sum and number of the images."""
        assert data.image is not None
        return {"total": data.image.sum(0).numpy().astype(np.float64), "items": np.asarray(float(len(data)))}

    def empty_sums(self, params: ReadArrays) -> Arrays:
        """Return zeros if the server holds the mean."""
        if "mean" not in params:
            return {}
        return {"total": np.zeros(len(params["mean"])), "items": np.asarray(0.0)}

    def solve(self, params: ReadArrays, sums: ReadArrays) -> Arrays:
        """Return the mean."""
        return {"mean": sums["total"] / sums["items"]}


def context_of(data: SiloData, method: DCMH):
    model = HashNet(model_spec(), 8)
    task = SiloTask("train", 0, Message("broadcast", "server", 0, params={"mean": np.zeros(16)}))
    return make_context(task, loop_config(), model=model, local=method, data=data)


def test_the_server_solves_with_the_sums_of_the_silos() -> None:
    method, whole = Mean(DCMHParams()), silo_data(10)
    federated = FederatedMethod(None, RunFacts(local=method))
    assert isinstance(method, ServerSolved)
    assert not isinstance(DCMH(DCMHParams()), ServerSolved)
    updates = []
    for start, end in ((0, 3), (3, 10)):
        part = whole.take(torch.arange(start, end))
        update = Message("update", "silo", 0, sums={"other": np.ones(2)})
        updates.append(with_sums(update, federated, context_of(part, method)))
        assert updates[-1].sums.keys() == {"other", f"{PREFIX}/total", f"{PREFIX}/items"}
    server = with_solution(ServerState({"mean": np.zeros(16), "image.w": np.ones(2)}), updates, federated)
    assert np.allclose(server.params["mean"], whole.image.mean(0).numpy(), atol=1e-6)
    assert server.params["image.w"].tolist() == [1, 1]


@pytest.mark.parametrize("federated", [FederatedMethod(None), Local(MethodParams())])
def test_nothing_is_added_without_a_solver_or_shared_parameters(federated: FederatedMethod) -> None:
    method = Mean(DCMHParams())
    if isinstance(federated, Local):
        federated = Local(MethodParams(), RunFacts(local=method))
    update = Message("update", "silo", 0)
    assert with_sums(update, federated, context_of(silo_data(4), method)) is update
    server = ServerState({"mean": np.zeros(2)})
    assert with_solution(server, [update], federated) is server


def test_sums_are_ignored_if_no_method_asks_for_them() -> None:
    update = Message("update", "silo", 0, sums={f"{PREFIX}/total": np.ones(2)})
    server = ServerState({"mean": np.zeros(2)})
    assert with_solution(server, [update, replace(update)], FederatedMethod(None)) is server
