"""Choice of faster first layers: which towers get which, and models have their own layers afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from silohash.base.types import PairBatch
from silohash.models.batch_layers import MOST_COLUMNS, BatchLayer
from silohash.models.first_layers import fast_first_layers, fast_layer, first_layer
from silohash.models.item_layers import MOST_ITEMS, ItemLayer, SGDRule
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.models.towers import HashNet

RULE = SGDRule(rate=0.1, momentum=0.8, weight_decay=0.05)


def net(width: int = 20, **more: float) -> HashNet:
    """Return a network of images."""
    torch.manual_seed(0)
    return HashNet(ModelSpec({"image": TowerSpec("mlp", (width,), hidden=6, **more)}, classes=0), 4)  # type: ignore[arg-type]


def batch_of(images: Tensor, rows: Tensor) -> PairBatch:
    """Return some images as a batch."""
    held = torch.ones(len(rows), dtype=torch.bool)
    return PairBatch(rows, images[rows], None, None, held, ~held)


def dense(items: int) -> Tensor:
    """Return inputs without zeros."""
    return torch.randn(items, 20, generator=torch.Generator().manual_seed(1))


def sparse(items: int) -> Tensor:
    """Return inputs of which each has a value in one column."""
    return nn.functional.one_hot(torch.arange(items) * 7 % 20, 20).float()


@pytest.mark.parametrize("items", [1, int(MOST_ITEMS * 20), int(MOST_ITEMS * 20) + 1, 0])
def test_silos_with_few_items_train_by_items(items: int) -> None:
    found = fast_layer(nn.Linear(20, 6), dense(items), RULE, 4)
    assert (found is not None) == (1 <= items <= 10)
    assert isinstance(found, ItemLayer | None)


@pytest.mark.parametrize("items", [8, 40])
@pytest.mark.parametrize(("batch", "by_columns"), [(1, True), (4, True), (9, False)])
def test_inputs_with_many_zeros_train_by_columns(items: int, batch: int, by_columns: bool) -> None:
    inputs = sparse(items)
    assert bool((1 - (1 - inputs.mean(0)) ** batch).mean() <= MOST_COLUMNS) == by_columns
    found = fast_layer(nn.Linear(20, 6), inputs, RULE, batch)
    assert isinstance(found, BatchLayer) == by_columns
    assert (found is None) == (not by_columns and items == 40)


def test_steps_on_the_same_batch_share_the_passes_over_the_weights() -> None:
    found = fast_layer(nn.Linear(20, 6), dense(40), RULE, 4, steps=2)
    assert isinstance(found, BatchLayer)
    assert not found.modes.by_columns
    assert fast_layer(nn.Linear(20, 6), dense(40), RULE, 9, steps=2) is None, "products of two items take too long"
    swinging = replace(RULE, weight_decay=5.0)
    assert fast_layer(nn.Linear(20, 6), dense(40), swinging, 4, steps=2) is None
    assert fast_layer(nn.Linear(20, 6), sparse(40), swinging, 4) is None


def test_only_linear_layers_on_the_inputs_are_replaced() -> None:
    inputs = torch.zeros(3, 20)
    model = net()
    assert first_layer(model, "image", inputs) is model.get_submodule("image.backbone.0")
    assert first_layer(model, "image", None) is None
    assert first_layer(model, "image", inputs.double()) is None
    assert first_layer(net(scale=2.0), "image", inputs) is None
    for name in ("weight", "bias"):
        fixed = net()
        fixed.get_parameter(f"image.backbone.0.{name}").requires_grad_(requires_grad=False)
        assert first_layer(fixed, "image", inputs) is None
    linear = HashNet(ModelSpec({"image": TowerSpec("linear", (20,), hidden=20)}, classes=0), 4)
    assert first_layer(linear, "image", inputs) is None


@pytest.mark.parametrize("images", [dense(6), dense(40), sparse(40)])
def test_the_layers_are_put_back_with_their_weights(images: Tensor) -> None:
    model, plain = net().train(), net().train()
    first = model.tower("image").get_submodule("backbone.0")
    for trained in (model, plain):
        optimizer = torch.optim.SGD(
            trained.parameters(), lr=RULE.rate, momentum=RULE.momentum, weight_decay=RULE.weight_decay
        )
        data = {"image": images if trained is model else None}
        with fast_first_layers(trained, data, RULE, 3, 2) as layers:  # type: ignore[arg-type]
            for rows in ([4, 1, 2], [0, 5], [4, 1, 2]):
                batch = batch_of(images, torch.tensor(rows))
                layers.announce(batch)
                for _ in range(2):
                    optimizer.zero_grad()
                    trained(batch).code["image"].square().sum().backward()
                    optimizer.step()
                    layers.step()
            assert (trained.get_parameter("image.backbone.0.weight").grad is None) == (trained is model)
    assert model.tower("image").get_submodule("backbone.0") is first
    for name, array in plain.state_dict().items():
        assert torch.allclose(model.state_dict()[name], array, atol=1e-6), name


@pytest.mark.parametrize(("images", "kind"), [(dense(3), ItemLayer), (sparse(3), BatchLayer)])
def test_the_layers_are_put_back_after_an_error(images: Tensor, kind: type) -> None:
    model = net()
    first = model.tower("image").get_submodule("backbone.0")
    seen = []

    def fail() -> None:
        """Fail inside the block."""
        with fast_first_layers(model, {"image": images}, RULE, 3):
            seen.append(model.tower("image").get_submodule("backbone.0"))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert [type(layer) for layer in seen] == [kind]
    assert model.tower("image").get_submodule("backbone.0") is first
