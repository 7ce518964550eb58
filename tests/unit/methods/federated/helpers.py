"""Tensors and silos for the tests of the federated methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError

from silohash.base.types import ReadArrays
from silohash.methods.federated.base import FederatedMethod, FederationInfo, ServerState, SiloContext
from silohash.methods.federated.screening import Outliers
from silohash.methods.local.base import MethodParams
from silohash.methods.local.supervised.dcmh import DCMH, DCMHParams
from silohash.methods.message import Message
from silohash.methods.traits import Traits
from silohash.models.parameters import params_of
from silohash.models.towers import HashNet
from silohash.training.engines.port import SiloTask
from silohash.training.silo import make_context
from tests.runs import loop_config, model_spec, silo_data

BITS, CLASSES = 8, 6
CURRENT = {"image.w": np.zeros(3, np.float32), "text.w": np.ones(2, np.float32), "image.steps": np.asarray(3)}
"""The global parameters to which `update` fits."""
INFO = FederationInfo(silos=4, classes=CLASSES, bits=BITS, total_rounds=3, exclusive=False)


def update(sender: str, image: object, text: object = (1, 1), weight: float = 1.0, steps: int = 4) -> Message:
    """Return a silo's update of a model with three weights for images and two for texts."""
    params = {"image.w": np.asarray(image, np.float32), "text.w": np.asarray(text, np.float32)}
    return Message(
        kind="update", sender=sender, round=0, params={**params, "image.steps": np.asarray(steps)},
        weights={"image": weight, "text": 1.0}, counts={"items": 1},
    )  # fmt: skip


def screened(current: ReadArrays, updates: Sequence[Message]) -> Outliers:
    """Return what is found among updates that are all added."""
    outliers = Outliers(current, len(updates))
    for each in updates:
        outliers.add(each)
    return outliers


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    """Return normal values in float64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def hot(rows: int, classes: int, seed: int = 0) -> torch.Tensor:
    """Return multi-hot labels in float64, at least one per row."""
    drawn = (torch.rand(rows, classes, generator=torch.Generator().manual_seed(seed)) < 0.4).double()
    drawn[torch.arange(rows), torch.arange(rows) % classes] = 1
    return drawn


def fresh_server(method: FederatedMethod, *, class_head: bool = False) -> ServerState:
    """Return the server state of a method before the first round."""
    torch.manual_seed(0)
    return method.init_server(HashNet(replace(model_spec(), class_head=class_head), BITS), INFO)


def server_of_trained_silos(method: FederatedMethod) -> ServerState:
    """Return the server state of a method that mixes layers, after each of four silos trained a model of its own."""
    server = fresh_server(method)
    server.private.update({f"trained/{group}": np.ones(4, np.bool_) for group in ("image", "text")})
    for silo in range(4):
        for name, array in server.params.items():
            server.private[f"bank/{silo}/{name}"] = array + draw(*array.shape, seed=silo).float().numpy()
    return server


def context_of(
    server: ServerState, *, class_head: bool = False, kept: Mapping[str, Any] | None = None, count: int = 20,
    round: int = 0, local: Any = None,  # noqa: A002  the field's word
) -> SiloContext:  # fmt: skip
    """Return the context of a silo with some pairs under a server state."""
    torch.manual_seed(1)
    model = HashNet(replace(model_spec(), class_head=class_head), BITS)
    broadcast = Message("broadcast", "server", round, params=server.params, extras=server.extras)
    task = SiloTask("train", 0, broadcast, dict(kept or {}))
    return make_context(task, loop_config(), model=model, local=local or DCMH(DCMHParams()), data=silo_data(count))


def silo_context(count: int, *, round: int = 0, **extras: float) -> SiloContext:  # noqa: A002  the field's word
    """Return the context of a silo with some pairs and some extras."""
    sent = {name: np.asarray(value) for name, value in extras.items()}
    params = params_of(HashNet(model_spec(), BITS))
    return context_of(ServerState(params=params, extras=sent), count=count, round=round)


TRAITS = (
    "needs_labels", "min_modalities", "uniform_broadcast", "uplink", "shares", "personalized",
    "codes_comparable", "class_head", "encode_extras", "pooled", "averages", "adds", "keeps_model",
)  # fmt: skip


def traits_of(kind: type[FederatedMethod]) -> dict[str, Any]:
    """Return the traits in which a method differs from FedAvg's defaults."""
    given = {name: getattr(kind.traits, name) for name in TRAITS}
    return {name: value for name, value in given.items() if value != getattr(Traits(), name)}


def accepts(kind: type[MethodParams], name: str, value: float) -> bool:
    """Return whether a parameter may have a value."""
    try:
        return bool(getattr(kind(**{name: value}), name) == value)
    except ValidationError:
        return False
