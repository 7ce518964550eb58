"""Networks over tokens: each part against explicit loops in float64, and the outputs of the whole network."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from silohash.base.types import UserError
from silohash.methods.local.concept_networks import (
    CONCEPTS,
    GLOBAL,
    TOKEN,
    VECTOR,
    AttentionLayer,
    BitwiseHash,
    ConceptLayers,
    ConceptNet,
    ResidualLayers,
    alignment,
    assignment,
    item_and_tokens,
    positions,
)
from silohash.models.towers import batch_of
from silohash.testing.inputs import Held, model_spec, silo_data
from tests.unit.methods.federated.helpers import draw

WIDTH, BITS = 6, 5


def normalized(values: np.ndarray) -> np.ndarray:
    """Return rows with mean 0 and variance 1, as a layer normalization that was not trained does."""
    return (values - values.mean(-1, keepdims=True)) / np.sqrt(values.var(-1, keepdims=True) + 1e-5)


def through(layer: nn.Module, values: np.ndarray) -> np.ndarray:
    return layer(torch.from_numpy(values)).detach().numpy()


def test_positions_by_hand() -> None:
    found = positions(4, WIDTH)
    for concept in range(4):
        for column in range(WIDTH):
            angle = concept / 10_000 ** (2 * (column // 2) / WIDTH)
            wave = math.cos(angle) if column % 2 else math.sin(angle)
            assert float(found[concept, column]) == pytest.approx(wave / math.sqrt(WIDTH), abs=1e-6)
    assert positions(3, 5).shape == (3, 5)


@pytest.mark.parametrize("most", [1, 3, 9])
def test_assignment_against_loops(most: int) -> None:
    scores = torch.tanh(draw(3, 7, BITS))
    present = torch.rand(3, 7, generator=torch.Generator().manual_seed(1)) < 0.7
    expected = np.zeros((3, 7, BITS))
    for item in range(3):
        for concept in range(BITS):
            for token in range(7):
                score = float(scores[item, token, concept])
                higher = int((scores[item, token] > score).sum())
                if present[item, token] and score > 0 and higher < most:
                    expected[item, token, concept] = math.exp(score)
            total = expected[item, :, concept].sum()
            expected[item, :, concept] /= total or 1.0
    np.testing.assert_allclose(assignment(scores, present, most), expected, rtol=1e-9)


def test_tokens_without_positive_scores_and_padding_belong_to_no_concept() -> None:
    scores = torch.tensor([[[-0.5, 0.0, -0.1], [0.9, 0.2, 0.1]]])
    assert not assignment(scores, torch.tensor([[True, False]]), 2).any()
    shares = assignment(scores, torch.tensor([[True, True]]), 2)
    assert shares.tolist() == [[[0.0, 0.0, 0.0], [1.0, 1.0, 0.0]]]


def test_residual_layers_add_to_their_inputs() -> None:
    torch.manual_seed(0)
    layers, values = ResidualLayers(WIDTH, 2).double(), draw(4, WIDTH).numpy()
    expected = values
    for layer in layers.layers:
        inner = through(layer[1], normalized(expected))
        assert inner.shape == (4, 4 * WIDTH)
        gelu = inner * 0.5 * (1 + np.vectorize(math.erf)(inner / math.sqrt(2)))
        expected = expected + through(layer[3], gelu)
    np.testing.assert_allclose(through(layers, values), expected, rtol=1e-7)
    np.testing.assert_array_equal(through(ResidualLayers(WIDTH, 0), values), values)


@pytest.mark.parametrize(("width", "heads"), [(16, 1), (64, 1), (128, 2), (130, 2), (200, 2), (512, 8), (67, 1)])
def test_heads_divide_the_width(width: int, heads: int) -> None:
    assert AttentionLayer(width).heads == heads


def test_attention_against_loops() -> None:
    torch.manual_seed(0)
    width, count = 128, 3
    layer, values = AttentionLayer(width).double(), draw(2, count, width).numpy()
    query, key, value = np.split(through(layer.inputs, normalized(values)), 3, axis=2)
    mixed = np.zeros_like(values)
    for item in range(2):
        for head in (slice(0, 64), slice(64, 128)):
            for one in range(count):
                scores = [query[item, one, head] @ key[item, other, head] / 8.0 for other in range(count)]
                shares = np.exp(scores) / np.exp(scores).sum()
                mixed[item, one, head] = sum(shares[other] * value[item, other, head] for other in range(count))
    between = values + through(layer.outputs, mixed)
    np.testing.assert_allclose(through(layer, values), through(layer.rest, between), rtol=1e-7)
    assert len(layer.rest.layers) == 1


def test_concepts_are_told_apart_by_their_positions() -> None:
    torch.manual_seed(0)
    layers = ConceptLayers(WIDTH, BITS, 2)
    assert set(layers.state_dict()) == {name for name, _ in layers.named_parameters()}
    alike = layers(torch.zeros(1, BITS, WIDTH))
    assert float((alike[0, 0] - alike[0, 1]).detach().abs().max()) > 1e-3
    values = torch.randn(2, BITS, WIDTH)
    torch.testing.assert_close(ConceptLayers(WIDTH, BITS, 0)(values), values + positions(BITS, WIDTH))


def test_every_bit_has_its_own_weights() -> None:
    torch.manual_seed(0)
    layer, concepts = BitwiseHash(WIDTH, BITS).double(), draw(3, BITS, WIDTH)
    weight, bias = layer.directions.detach(), layer.offsets.detach()
    expected = [[math.tanh(float(concepts[i, k] @ weight[k] + bias[k])) for k in range(BITS)] for i in range(3)]
    np.testing.assert_allclose(layer(concepts).detach(), expected, rtol=1e-7)
    assert float(weight.abs().max()) <= 1 / math.sqrt(WIDTH)


def test_alignment_against_loops() -> None:
    values, others = draw(2, 4, 3), draw(2, 4, 3, seed=1)
    total = 0.0
    for item in range(2):
        cosines = [[float(torch.cosine_similarity(a, b, dim=0)) / 0.1 for b in others[item]] for a in values[item]]
        for place in range(4):
            row, column = cosines[place], [line[place] for line in cosines]
            for line in (row, column):
                total += 0.5 * (math.log(sum(math.exp(c) for c in line)) - cosines[place][place])
    assert float(alignment(values, others, 0.1)) == pytest.approx(total / 8, rel=1e-9)
    assert float(alignment(values[0, :1], others[0, :1], 0.1)) == pytest.approx(0.0, abs=1e-12)


def made(held: Held | None = None, bits: int = BITS) -> ConceptNet:
    torch.manual_seed(0)
    return ConceptNet(model_spec(held=held or Held()), bits, most=3, residual_layers=2, layers=1)


def test_code_is_the_mean_of_both_branches() -> None:
    model, data = made(), silo_data(7)
    outputs = model(data.batch(torch.arange(7)))
    for modality in ("image", "text"):
        tower, vector = model.tower(modality), model.tower(modality).features(getattr(data, modality))
        residual = model.shared["residual"](vector)
        whole = torch.tanh(model.shared["hash"](residual))
        scores = torch.tanh(model.shared["hash"](residual.detach()))
        shares = assignment(scores.unsqueeze(1), torch.ones(7, 1, dtype=torch.bool), 3)
        concepts = tower.get_submodule("concepts")(shares.transpose(1, 2) * vector.unsqueeze(1))
        part = tower.hash(concepts)
        torch.testing.assert_close(outputs.code[modality], 0.5 * (whole + part))
        torch.testing.assert_close(outputs.extra[f"{modality}/{GLOBAL}"], whole)
        torch.testing.assert_close(outputs.extra[f"{modality}/{TOKEN}"], part)
        torch.testing.assert_close(outputs.extra[f"{modality}/{VECTOR}"], residual)
        projected = tower.get_submodule("projection")(concepts)
        torch.testing.assert_close(outputs.extra[f"{modality}/{CONCEPTS}"], projected)
        assert outputs.feature[modality].shape == (7, 16 + BITS * 16)
        assert outputs.logit[modality] is outputs.code[modality]
    assert model(replace(data.batch(torch.arange(7)), labels=None)).extra == {}


def test_scores_of_tokens_send_no_gradient_to_the_shared_layers() -> None:
    model, data = made(), silo_data(4)
    outputs = model(data.batch(torch.arange(4)), ("image",))
    outputs.extra[f"image/{TOKEN}"].sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in model.shared.parameters())
    assert model.tower("image").backbone[0].weight.grad.any()


def test_modalities_share_the_global_branch_only() -> None:
    names = {name for name, _ in made().named_parameters()}
    assert {name.split(".")[0] for name in names} == {"image", "text", "shared"}
    assert {".".join(name.split(".")[:2]) for name in names} == {
        "shared.residual", "shared.hash",
        *(f"{m}.{part}" for m in ("image", "text") for part in ("backbone", "hash", "concepts", "projection")),
    }  # fmt: skip


def test_towers_of_other_widths_are_refused() -> None:
    spec = model_spec()
    uneven = replace(spec, towers={**spec.towers, "text": replace(spec.towers["text"], hidden=24)})
    with pytest.raises(UserError, match=r"mith shares layers .* layers have (16 and 24|24 and 16) units"):
        ConceptNet(uneven, BITS, most=1, residual_layers=1, layers=1)


def test_outputs_of_one_modality() -> None:
    model, data = made(Held(image=False)), silo_data(3, held=Held(image=False))
    assert set(model(data.batch(torch.arange(3))).code) == {"text"}
    alone = model(batch_of(data.text[:1], "text", {})).code["text"]
    torch.testing.assert_close(alone, model(batch_of(data.text, "text", {})).code["text"][:1])


def test_vectors_are_their_own_single_token() -> None:
    model = made()
    values = torch.randn(3, 16)
    vector, tokens, present = item_and_tokens(model.tower("image"), values)
    assert torch.equal(tokens, vector.unsqueeze(1))
    assert present.tolist() == [[True]] * 3


def test_the_first_row_is_the_item_and_rows_of_zeros_are_padding() -> None:
    tower, values = made().tower("image"), torch.randn(2, 4, 16)
    values[0, 2:] = 0
    tower.backbone = nn.Identity()
    vector, tokens, present = item_and_tokens(tower, values)
    assert torch.equal(vector, values[:, 0])
    assert torch.equal(tokens, values[:, 1:])
    assert present.tolist() == [[True, False, False], [True, True, True]]
