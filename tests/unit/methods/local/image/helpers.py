"""Models, states and trainings for the tests of image hashing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from silohash.base import seeds
from silohash.base.types import Outputs, Step
from silohash.methods.federated.base import FederatedMethod
from silohash.methods.local import LOCAL_METHODS
from silohash.methods.local.base import LocalMethod, SiloData, SiloState, outputs_of
from silohash.methods.message import Message
from silohash.models.parameters import params_of
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.training.engines.port import SiloTask
from silohash.training.silo import make_context, train_silo
from tests.runs import loop_config, model_spec, silo_data
from tests.unit.methods.local.synthetic import IMAGE_WIDTH, Items, mean_average_precision, synthetic

BITS = 8
IMAGE = Step("image", ("image.",), ("image",))
TEXT = Step("text", ("text.",), ("text",))


def ready(method: LocalMethod, data: SiloData) -> tuple[torch.nn.Module, SiloState]:
    """Return a model and its state at the start of a phase."""
    torch.manual_seed(0)
    model = method.build(model_spec(image=data.image is not None, text=data.text is not None), BITS)
    state = SiloState()
    method.init_state(model, data, state)
    return model, state


def outputs_with(codes: torch.Tensor, **extra: torch.Tensor) -> Outputs:
    """Return outputs of which only the codes of images, and some extra tensors, are set."""
    return Outputs(feature={}, logit={}, code={"image": codes}, extra=extra)


def total(terms: Any) -> torch.Tensor:
    """Return the weighted sum of terms."""
    return torch.stack([weight * value for weight, value in terms.values()]).sum()


def without_labels(count: int, *rows: int) -> SiloData:
    """Return the pairs of a silo of which some rows have no label."""
    data = silo_data(count)
    labels = data.labels.clone()
    labels[list(rows)] = 0
    return replace(data, labels=labels)


def double(state: SiloState) -> None:
    """Convert the working tensors to float64."""
    state.buffers = {n: b.double() if b.is_floating_point() else b for n, b in state.buffers.items()}


def image_precision(name: str, bits: int, *, epochs: int) -> float:
    """Return the mAP@all of images to images after the training of one silo on the synthetic archive."""

    def pictures(items: Items) -> SiloData:
        """Return the items without their texts."""
        return replace(items.silo(), text=None, has_text=torch.zeros(len(items), dtype=torch.bool))

    kind = LOCAL_METHODS.resolve(name)
    method, split = kind(kind.Params()), synthetic()
    with seeds.torch_globally(0, "weights"):
        model = method.build(ModelSpec({"image": TowerSpec("mlp", (IMAGE_WIDTH,), hidden=256)}, classes=12), bits)
    config = loop_config(epochs=epochs, rounds=1, batch=64, learning_rate=3e-3)
    task = SiloTask("train", 0, Message("broadcast", "server", 0, params=params_of(model)))
    data = pictures(split.train)
    train_silo(make_context(task, config, model=model, local=method, data=data), FederatedMethod(None), config)
    query, database = (outputs_of(model, pictures(items))["image"].numpy() for items in (split.query, split.database))
    return mean_average_precision(query, database)
