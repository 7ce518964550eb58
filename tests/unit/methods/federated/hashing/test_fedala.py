"""FedALA: learned mixing of the last layers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from silohash.methods.federated.base import FederatedMethod
from silohash.methods.federated.hashing.fedala import CARD, FedALA, FedALAParams, top_layers, updated_mix
from silohash.models.parameters import frozen_copy, params_of
from silohash.models.towers import Adapted, HashNet
from tests.runs import (
    model_spec,
    same_arrays,
)
from tests.unit.methods.federated.helpers import BITS, INFO, accepts, context_of, fresh_server, silo_context, traits_of


def test_mixing_weights_follow_the_gradient_within_bounds() -> None:
    mix, gradient, common, own = torch.ones(3), torch.tensor([1.0, -1.0, 0.2]), torch.ones(3), torch.zeros(3)
    torch.testing.assert_close(updated_mix(mix, gradient, common, own, 1.0), torch.tensor([0.0, 1.0, 0.8]))


class TestFedALA:
    NAMES = ("image.backbone.0.weight", "image.backbone.0.bias", "image.backbone.3.weight", "image.hash.weight",
             "image.hash.bias", "image.classifier.weight", "text.backbone.0.weight", "text.hash.weight")  # fmt: skip

    def test_top_layers_end_in_the_hash_layer(self) -> None:
        hashes = {"image.hash.weight", "image.hash.bias", "text.hash.weight"}
        assert set(top_layers(self.NAMES, 1)) == hashes
        assert set(top_layers(self.NAMES, 2)) == hashes | {"image.classifier.weight", "text.backbone.0.weight"}
        assert set(top_layers(self.NAMES, 0)) == set(self.NAMES)

    @pytest.mark.parametrize("layers", [0, 1])
    def test_mixes_the_layers_asked_for(self, layers: int) -> None:
        method = FedALA(FedALAParams(layers=layers, mixing_rate=100.0))
        server = method.init_server(HashNet(model_spec(), BITS), INFO)
        own = {f"model/{n}": (a + 0.1).astype(a.dtype) for n, a in server.params.items()}
        context = context_of(server, kept=own)
        method.begin_round(context)
        mix, state = context.kept("mix"), context.model.state_dict()
        assert set(mix) == ({n for n in server.params if ".hash." in n} if layers else set(server.params))
        assert any((share < 1).any() for share in mix.values())
        for name, array in server.params.items():
            share = mix.get(name, 1.0)
            np.testing.assert_allclose(state[name].numpy(), array + 0.1 * (1 - share), atol=1e-6)


def test_presets() -> None:
    assert FedALA.presets == {"recommended": {}, "paper": {}}
    params = FedALAParams()
    assert (params.mixing_rate, params.mixing_share, params.mixing_batch, params.layers) == (1.0, 0.8, 128, 1)


def test_a_step_on_the_mixing_weights_by_hand() -> None:
    mix, gradient = torch.tensor([0.5, 0.5, 0.5]), torch.tensor([1.0, -1.0, 9.0])
    common, own = torch.tensor([3.0, 3.0, 0.0]), torch.tensor([1.0, 1.0, 4.0])
    found = updated_mix(mix, gradient, common, own, 0.1)
    torch.testing.assert_close(found, torch.tensor([0.3, 0.7, 1.0]))


@pytest.mark.parametrize("first", [True, False])
def test_passes_over_a_contiguous_share_of_the_items(first: bool) -> None:
    method, context = FedALA(FedALAParams(mixing_share=0.5, mixing_batch=4)), silo_context(20)
    losses: list[float] = []
    batches = []
    for rows in method._batches(context, first=first, losses=losses):
        batches.append(rows.tolist())
        losses.append(float(len(losses)))  # never steady
    one_pass = [row for rows in batches[:3] for row in rows]
    assert one_pass == list(range(one_pass[0], one_pass[0] + 10))
    assert [len(rows) for rows in batches[:3]] == [4, 4, 2]
    assert len(batches) == (30 if first else 3)


@pytest.mark.parametrize(("batch", "deviation", "passes"), [(4, 0.09, 4), (4, 0.11, 10), (2, 0.09, 2)])
def test_the_first_learning_ends_once_ten_losses_are_steady(batch: int, deviation: float, passes: int) -> None:
    method, context = FedALA(FedALAParams(mixing_share=0.5, mixing_batch=batch)), silo_context(20)
    losses: list[float] = []
    count = 0
    for _ in method._batches(context, first=True, losses=losses):
        losses.append(deviation * (-1) ** count)  # the deviation of the last ten losses
        count += 1
    assert count == -(-10 // batch) * passes


def test_one_learned_step_follows_the_gradient_of_the_local_loss() -> None:
    method = FedALA(FedALAParams(mixing_share=1.0, mixing_rate=0.2))
    server = fresh_server(method)
    own = {f"model/{n}": (a + 0.1).astype(a.dtype) for n, a in server.params.items()}
    mix = {f"mix/{n}": np.full_like(a, 0.5) for n, a in server.params.items() if ".hash." in n}
    context, twin = (context_of(server, kept={**own, **mix}) for _ in range(2))
    method.begin_round(context)
    FederatedMethod.begin_round(method, twin)
    parameters = {n: p for n, p in twin.model.named_parameters() if ".hash." in n}
    with torch.no_grad():
        for parameter in parameters.values():
            parameter.add_(0.05)  # half the way from 0 to 0.1
    adapted = Adapted(twin.model, method.adapter, {})
    batch = twin.data.batch(torch.arange(20))
    global_start = frozen_copy(twin.model, server.params)
    twin.local.init_state(global_start, twin.data, twin.state)
    total = sum(
        weight * value
        for step in twin.local.steps(twin.model)
        for weight, value in twin.local.terms(step, adapted(batch, step.modalities), batch, twin.state).values()
    )
    gradients = torch.autograd.grad(total, list(parameters.values()))
    for (name, _), gradient in zip(parameters.items(), gradients, strict=True):
        expected = (0.5 - 0.2 * gradient * -0.1).clamp(0, 1)
        np.testing.assert_allclose(context.kept("mix")[name], expected.numpy(), atol=1e-5)
        np.testing.assert_allclose(
            context.model.get_parameter(name).detach().numpy(),
            server.params[name] + 0.1 * (1 - expected.numpy()),
            atol=1e-5,
        )


def test_without_a_model_of_its_own_a_silo_takes_the_global_one() -> None:
    method = FedALA(FedALAParams())
    server = fresh_server(method)
    context = context_of(server)
    method.personalize(context)
    assert same_arrays(params_of(context.model), server.params)
    assert context.kept("mix") == {}
    method.update(context)
    assert same_arrays(context.kept("model"), server.params)


def test_card_and_traits() -> None:
    assert (CARD.year, CARD.supervised) == (2023, False)
    assert traits_of(FedALA) == {"personalized": True, "codes_comparable": False, "keeps_model": True}


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("mixing_rate", 0, True),
        ("mixing_share", 0.01, True),
        ("mixing_share", 1, True),
        ("mixing_batch", 2, True),
        ("layers", 0, True),
        ("mixing_rate", -0.1, False),
        ("mixing_share", 0, False),
        ("mixing_share", 1.01, False),
        ("mixing_batch", 1, False),
        ("layers", -1, False),
    ],
)
def test_bounds_of_parameters(name: str, value: float, accepted: bool) -> None:
    assert accepts(FedALAParams, name, value) == accepted


def test_at_least_one_item_is_used_for_the_mixing() -> None:
    method, context = FedALA(FedALAParams(mixing_share=0.1)), silo_context(1)
    assert [rows.tolist() for rows in method._batches(context, first=False, losses=[])] == [[0]]


def test_a_rate_of_zero_keeps_the_mixing_weights_at_one() -> None:
    method = FedALA(FedALAParams(mixing_rate=0.0))
    server = fresh_server(method)
    own = {f"model/{n}": (a + 0.1).astype(a.dtype) for n, a in server.params.items()}
    context = context_of(server, kept=own)
    method.begin_round(context)
    assert all((share == 1).all() for share in context.kept("mix").values())
    assert same_arrays(params_of(context.model), server.params)
