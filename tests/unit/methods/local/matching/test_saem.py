"""SAEM: the losses against loops, and what the encoders see."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from silohash.base.errors import OutOfRange
from silohash.methods.local.base import SiloState
from silohash.methods.local.matching.saem import (
    SAEM,
    SAEMNet,
    SAEMParams,
    angular_loss,
    angular_weight,
    mixed,
    mixed_after_projection,
    projected,
    transformer_layer,
)
from silohash.testing.inputs import node_data, node_spec


def built(**params: float) -> tuple[SAEM, SAEMNet]:
    torch.manual_seed(0)
    method = SAEM(SAEMParams.model_validate({"channels": 8, "inner_width": 12, "word_width": 5, **params}))
    net = method.build(node_spec(), 16)
    assert isinstance(net, SAEMNet)
    return method, net


def test_the_angular_loss_is_that_of_a_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    anchors, partners = torch.rand(2, 4, 3, generator=generator, dtype=torch.float64)
    square = math.tan(math.radians(30)) ** 2
    total = 0.0
    for i in range(4):
        inner = 1.0
        for j in range(4):
            if j != i:
                wrong = 4 * square * float((anchors[i] + partners[i]) @ partners[j])
                inner += math.exp(wrong - 2 * (1 + square) * float(anchors[i] @ partners[i]))
        total += math.log(inner)
    assert angular_loss(anchors, partners, 30).item() == pytest.approx(total / 4)


def test_the_weight_of_the_angular_loss_falls_to_a_tenth() -> None:
    weights = [angular_weight(0.5, epoch) for epoch in (0, 4, 5, 10, 19, 20)]
    assert weights == pytest.approx([0.5, 0.5, 0.05, 0.005, 0.0005, 0.0])


def test_the_vector_of_a_text_depends_on_the_order_of_its_words_and_not_on_padding() -> None:
    _, net = built()
    words = torch.tensor([[0, 4, 5, 6, 1]], dtype=torch.int32)
    turned = torch.tensor([[0, 6, 5, 4, 1]], dtype=torch.int32)
    padded = torch.cat([words, torch.full((1, 3), -1, dtype=torch.int32)], 1)
    vector = net.text(words).values
    assert vector.shape == (1, 1, 16)
    torch.testing.assert_close(net.text(padded).values, vector)
    assert not torch.allclose(net.text(turned).values, vector, atol=1e-4)
    assert vector.norm().item() == pytest.approx(1.0)


def test_terms_hold_the_angular_loss_and_the_norms_of_the_image_encoder() -> None:
    method, net = built(norm_weight=0.25)
    data, state = node_data(6), SiloState(epochs=7)
    method.init_state(net, data, state)
    batch = replace(data.batch(torch.arange(6)), has_text=torch.arange(6) > 0)
    outputs = net.train()(batch)
    terms = method.terms(method.steps(net)[0], outputs, batch, state)
    image, text = outputs.extra["image"][1:], outputs.extra["text"][1:]
    weight, value = terms["angular"]
    assert weight == pytest.approx(0.05)
    torch.testing.assert_close(value, angular_loss(image, text, 45) + angular_loss(text, image, 45))
    norms = sum(p.norm() for name, p in net.image.named_parameters() if "bias" not in name)
    assert terms["norm"][0] == 0.25
    torch.testing.assert_close(terms["norm"][1], norms)


@pytest.mark.parametrize(("training", "dropout"), [(True, 0.0), (False, 0.3)])
def test_a_layer_with_known_queries_keys_and_values_equals_the_layer_of_torch(training: bool, dropout: float) -> None:
    torch.manual_seed(0)
    layer = transformer_layer(8, 2, 12, dropout).train(training)
    mask = torch.tensor([[True] * 5, [True, True, False, False, False], [False] * 5])
    found = []
    for factored in (True, False):
        values = torch.linspace(-2, 2, 3 * 5 * 8).sin().view(3, 5, 8).requires_grad_()
        layer.zero_grad()
        if factored:
            nodes = mixed_after_projection(layer, values, projected(layer, values), mask)
        else:
            nodes = mixed(layer, values, mask)
        (nodes * torch.arange(8.0)).sum().backward()
        found.append([nodes, values.grad, *(part.grad for part in layer.parameters())])
    torch.testing.assert_close(found[0], found[1], atol=1e-5, rtol=1e-4)


def test_dropout_changes_a_layer_with_known_queries_keys_and_values_in_training_alone() -> None:
    layer, values, mask = transformer_layer(8, 2, 12, 0.3), torch.ones(1, 3, 8), torch.ones(1, 3, dtype=torch.bool)
    projections = projected(layer, values)
    for training in (True, False):
        layer.train(training)
        first, second = (mixed_after_projection(layer, values, projections, mask) for _ in range(2))
        assert torch.equal(first, second) != training


def test_heads_divide_the_width() -> None:
    with pytest.raises(OutOfRange, match=r"local\.heads.*5.*16"):
        built(heads=5)
