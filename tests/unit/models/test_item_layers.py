"""Training of first layers by items: the weights equal those of SGD on a usual layer."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from silohash.models.item_layers import MOST_ITEMS, ItemLayer, SGDRule, first_layer, trained_by_items
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.models.towers import HashNet
from silohash.types import PairBatch
from tests.unit.federated.helpers import draw

RULE = SGDRule(rate=0.1, momentum=0.8, weight_decay=0.05)


def net(width: int = 20, **more: float) -> HashNet:
    """Return a network of images."""
    torch.manual_seed(0)
    return HashNet(ModelSpec({"image": TowerSpec("mlp", (width,), hidden=6, **more)}, classes=0), 4)  # type: ignore[arg-type]


def batch_of(images: Tensor, rows: Tensor) -> PairBatch:
    """Return some images as a batch."""
    held = torch.ones(len(rows), dtype=torch.bool)
    return PairBatch(rows, images[rows], None, None, held, ~held)


def sgd(parameters: list[nn.Parameter], rule: SGDRule) -> torch.optim.SGD:
    """Return torch's optimizer."""
    return torch.optim.SGD(parameters, lr=rule.rate, momentum=rule.momentum, weight_decay=rule.weight_decay)


@pytest.mark.parametrize("rule", [RULE, replace(RULE, momentum=0.0), replace(RULE, weight_decay=0.0)])
def test_weights_are_those_of_sgd(rule: SGDRule) -> None:
    plain, inputs = nn.Linear(9, 4).double(), draw(5, 9, seed=1)
    layer = ItemLayer.of(copy.deepcopy(plain), inputs, rule)
    wanted, found = sgd(list(plain.parameters()), rule), sgd(list(layer.parameters()), rule)
    for number in range(6):
        rows = torch.tensor([[0, 3], [1, 4], [2, 0]][number % 3])
        taken = inputs[rows]
        layer.batch = (rows, taken)
        # One step has a loss of two passes, and a pass without a gradient does not count.
        layer(taken)
        losses = [(at(taken).sin() + (at(taken) ** 2 if number == 4 else 0)).sum() for at in (plain, layer)]
        for loss, optimizer in zip(losses, (wanted, found), strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        layer.step()
        assert losses[0].item() == pytest.approx(losses[1].item())
    assert layer.weight.grad is None
    layer.step()
    assert torch.allclose(layer.current(), plain.weight, atol=1e-12)
    assert torch.allclose(layer.bias, plain.bias, atol=1e-12)
    assert torch.allclose(layer.eval()(inputs), plain(inputs), atol=1e-12)
    layer.settle()
    assert torch.allclose(layer.weight, plain.weight, atol=1e-12)


def test_inputs_that_were_not_announced_pass_without_a_step() -> None:
    inputs = draw(5, 9)
    layer = ItemLayer.of(nn.Linear(9, 4).double(), inputs, RULE)
    layer.batch = (torch.tensor([0, 1]), inputs[:2])
    layer(inputs[:2].clone()).sum().backward()
    before = layer.current()
    layer.step()
    assert torch.equal(layer.current(), before)


@pytest.mark.parametrize("items", [1, int(MOST_ITEMS * 20), int(MOST_ITEMS * 20) + 1, 0])
def test_only_silos_with_few_items_train_by_items(items: int) -> None:
    found = first_layer(net(), "image", torch.zeros(items, 20))
    assert (found is not None) == (1 <= items <= 10)


def test_other_towers_do_not_train_by_items() -> None:
    inputs = torch.zeros(3, 20)
    assert first_layer(net(), "image", None) is None
    assert first_layer(net(), "image", inputs.double()) is None
    assert first_layer(net(scale=2.0), "image", inputs) is None
    fixed = net()
    fixed.get_parameter("image.backbone.0.weight").requires_grad_(requires_grad=False)
    assert first_layer(fixed, "image", inputs) is None
    linear = HashNet(ModelSpec({"image": TowerSpec("linear", (20,), hidden=20)}, classes=0), 4)
    assert first_layer(linear, "image", inputs) is None


def test_the_layers_are_put_back_with_their_weights() -> None:
    images, rows = torch.randn(6, 20, generator=torch.Generator().manual_seed(1)), torch.tensor([4, 1, 2])
    model, plain = net().train(), net().train()
    first = model.tower("image").get_submodule("backbone.0")
    for trained in (model, plain):
        optimizer = sgd(list(trained.parameters()), RULE)
        data = {"image": images if trained is model else None}
        with trained_by_items(trained, data, RULE) as layers:  # type: ignore[arg-type]
            for _ in range(3):
                batch = batch_of(images, rows)
                layers.announce(batch)
                optimizer.zero_grad()
                trained(batch).code["image"].square().sum().backward()
                optimizer.step()
                layers.step()
            assert (trained.get_parameter("image.backbone.0.weight").grad is None) == (trained is model)
    assert model.tower("image").get_submodule("backbone.0") is first
    for name, array in plain.state_dict().items():
        assert torch.allclose(model.state_dict()[name], array, atol=1e-6), name


def test_the_layers_are_put_back_after_an_error() -> None:
    model = net()
    first = model.tower("image").get_submodule("backbone.0")
    seen = []

    def fail() -> None:
        """Fail inside the block."""
        with trained_by_items(model, {"image": torch.zeros(3, 20)}, RULE):
            seen.append(model.tower("image").get_submodule("backbone.0"))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert [type(layer) for layer in seen] == [ItemLayer]
    assert model.tower("image").get_submodule("backbone.0") is first
