"""FedProx: the proximal term and its gradient."""

from __future__ import annotations

import pytest
import torch

from silohash.methods.federated.base import FederatedMethod
from silohash.methods.federated.general.fedprox import CARD, FedProx, FedProxParams, proximal, proximal_terms
from tests.unit.methods.federated.helpers import accepts, context_of, draw, fresh_server, traits_of


def test_proximal_is_half_the_squared_distance() -> None:
    pairs = [(draw(3, 2, seed=1), draw(3, 2, seed=2)), (draw(4, seed=3), draw(4, seed=4))]
    expected = sum(float((a - b).square().sum()) for a, b in pairs) / 2
    assert float(proximal(pairs)) == pytest.approx(expected)


def test_presets() -> None:
    assert FedProx.presets == {"recommended": {}, "paper": {}, "authors_code": {"proximal_weight": 0.0}}
    assert FedProxParams().proximal_weight == 0.01


@pytest.mark.parametrize("tower", ["image", "text"])
def test_the_gradient_pulls_the_towers_of_the_step_to_the_global_model(tower: str) -> None:
    method = FedProx(FedProxParams(proximal_weight=0.3))
    context = context_of(fresh_server(method))
    FederatedMethod.begin_round(method, context)
    with torch.no_grad():
        for parameter in context.model.parameters():
            parameter.add_(0.5)
    batch = context.data.batch(torch.arange(4))
    weight, value = method.terms(context, batch, context.model(batch, (tower,)))["proximal"]
    assert weight == 0.3
    count = sum(p.numel() for name, p in context.model.named_parameters() if name.startswith(tower))
    assert float(value) == pytest.approx(0.5 * 0.25 * count, rel=1e-5)
    gradients = torch.autograd.grad(value, list(context.model.parameters()), allow_unused=True)
    for (name, _), gradient in zip(context.model.named_parameters(), gradients, strict=True):
        if name.startswith(tower):
            torch.testing.assert_close(gradient, torch.full_like(gradient, 0.5))
        else:
            assert gradient is None


def test_only_shared_and_trainable_parameters_count() -> None:
    method = FedProx(FedProxParams())
    context = context_of(fresh_server(method))
    context.model.get_parameter("image.hash.bias").requires_grad_(requires_grad=False)
    outputs = context.model(context.data.batch(torch.arange(2)))
    method.shared_parameters = lambda model: ["image.hash.bias", "image.hash.weight"]
    _, value = proximal_terms(method, context, outputs, 1.0)["proximal"]
    sent = torch.from_numpy(context.payload.params["image.hash.weight"])
    expected = 0.5 * (context.model.get_parameter("image.hash.weight") - sent).square().sum()
    torch.testing.assert_close(value, expected)
    method.shared_parameters = lambda model: []
    assert proximal_terms(method, context, outputs, 1.0) == {}
    assert proximal_terms(method, context, outputs, 0.0) == {}


def test_card_and_traits() -> None:
    assert (CARD.year, CARD.supervised) == (2020, False)
    assert traits_of(FedProx) == {}


@pytest.mark.parametrize(
    ("name", "value", "accepted"), [("proximal_weight", 0, True), ("proximal_weight", -0.1, False)]
)
def test_bounds_of_parameters(name: str, value: float, accepted: bool) -> None:
    assert accepts(FedProxParams, name, value) == accepted
