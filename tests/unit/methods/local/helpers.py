"""Short trainings of local methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from silohash.base import seeds
from silohash.base.types import Arrays
from silohash.methods.federated.averaging import weighted_average
from silohash.methods.federated.base import FederatedMethod
from silohash.methods.local import LOCAL_METHODS
from silohash.methods.local.base import LocalMethod, SiloData, SiloState
from silohash.methods.message import Message
from silohash.models.parameters import params_of
from silohash.testing.inputs import BITS, BOTH, Held, loop_config, model_spec
from silohash.training.engines.port import SiloResult, SiloTask
from silohash.training.silo import make_context, train_silo


def trained(name: str, data: SiloData, *, epochs: int = 1, held: Held = BOTH, **params: Any) -> SiloResult:
    """Train one silo for one round with FedAvg, from the same parameters each time."""
    kind = LOCAL_METHODS.resolve(name)
    method = kind(kind.Params(**params))
    with seeds.torch_globally(0, "weights"):
        model = method.build(model_spec(held=held), BITS)
    config = loop_config(epochs=epochs, rounds=1, batch=16, learning_rate=0.01)
    task = SiloTask("train", 0, Message("broadcast", "server", 0, params=params_of(model)))
    return train_silo(make_context(task, config, model=model, local=method, data=data), FederatedMethod(None), config)


def cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the cosine of two vectors."""
    return (one @ other / (one.norm() * other.norm())).item()


def averaged(results: Sequence[SiloResult]) -> Arrays:
    """Return the weighted average of the silos' parameters."""
    return weighted_average(results[0].update.params, [result.update for result in results])


def ready(method: LocalMethod, data: SiloData, bits: int = BITS) -> tuple[torch.nn.Module, SiloState]:
    """Return a model and the state of a silo at the start of a phase."""
    held = Held(image=data.image is not None, text=data.text is not None)
    torch.manual_seed(0)
    model = method.build(model_spec(held=held), bits)
    state = SiloState()
    method.init_state(model, data, state)
    return model, state
