"""MITH: the target codes, the distance between the branches, and the terms of a batch against explicit loops."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from silohash.base.errors import UnsuitableMethod
from silohash.base.types import Outputs
from silohash.methods.local.base import SiloData
from silohash.methods.local.losses import pair_likelihood, pair_weights, similarity
from silohash.methods.local.supervised.mith import (
    CARD,
    CONCEPTS,
    GLOBAL,
    MITH,
    TOKEN,
    VECTOR,
    AttentionLayer,
    BitwiseHash,
    ConceptLayers,
    ConceptNet,
    MITHParams,
    ResidualLayers,
    alignment,
    assignment,
    distillation,
    item_and_tokens,
    positions,
    target_codes,
    with_branch_codes,
)
from silohash.models.towers import batch_of
from silohash.testing.inputs import BITS, Held, model_spec, silo_data
from tests.unit.methods.federated.helpers import accepts, draw
from tests.unit.methods.local.helpers import ready


def test_target_codes_against_loops() -> None:
    codes = {"image": draw(9, 8), "text": draw(9, 8, seed=1)}
    held = {"image": torch.arange(9) % 3 > 0, "text": torch.arange(9) % 4 > 0}
    found = target_codes(codes, held, 0.7)
    for item in range(9):
        for bit in range(4):
            total = sum(
                0.7 * float(codes[m][item, bit]) + 0.3 * float(codes[m][item, 4 + bit]) for m in codes if held[m][item]
            )
            assert float(found[item, bit]) == (1.0 if total >= 0 else -1.0)
    assert target_codes({"text": torch.zeros(1, 2)}, {"text": torch.tensor([True])}, 0.5).tolist() == [[1.0]]


def test_the_teacher_receives_a_share_of_the_gradient() -> None:
    student, teacher = draw(3, 4).requires_grad_(), draw(3, 4, seed=1).requires_grad_()
    found = distillation(student, teacher, 0.1)
    np.testing.assert_allclose(found.detach(), 1.1 * (student - teacher).detach().square(), rtol=1e-9)
    found.sum().backward()
    np.testing.assert_allclose(student.grad, 2.0 * (student - teacher).detach(), rtol=1e-9)
    np.testing.assert_allclose(teacher.grad, -0.2 * (student - teacher).detach(), rtol=1e-9)


def test_codes_of_both_branches_stand_side_by_side() -> None:
    model, _ = ready(MITH(MITHParams()), data := silo_data(3))
    outputs = model(data.batch(torch.arange(3)))
    codes = with_branch_codes(outputs).code["text"]
    assert torch.equal(codes[:, :BITS], outputs.extra[f"text/{GLOBAL}"])
    assert torch.equal(codes[:, BITS:], outputs.extra[f"text/{TOKEN}"])


def partly() -> SiloData:
    """Return a silo of which some items have only a picture, some only a text, and most both."""
    data = silo_data(14)
    return replace(data, has_image=torch.arange(14) % 5 > 0, has_text=torch.arange(14) % 4 != 1)


@pytest.mark.parametrize(
    ("graded", "balanced", "per_bit"), [(True, True, True), (False, False, False), (True, False, True)]
)
def test_terms_of_a_batch_against_loops(graded: bool, balanced: bool, per_bit: bool) -> None:
    params = MITHParams(
        similarity="graded" if graded else "any", class_balance=balanced, per_bit=per_bit, contrast_weight=3.0,
        concept_share=0.5, distillation_weight=0.4, teacher_share=0.2, global_share=0.6, temperature=0.3,
        quantization_weight=2.0, token_weight=1.5, global_weight=7.0,
    )  # fmt: skip
    method, data = MITH(params), partly()
    model, state = ready(method, data)
    batch = data.batch(torch.arange(1, 9))
    terms = method.terms(method.steps(model)[0], outputs := model(batch), batch, state)
    assert {name: weight for name, (weight, _) in terms.items()} == {
        "token": 1.5, "global": 7.0, "quantization": 2.0, "contrast": 3.0, "concept_contrast": 1.5, "distillation": 0.4
    }  # fmt: skip
    expected = dict.fromkeys(terms, 0.0)
    for modality, other in (("image", "text"), ("text", "image")):
        rows = [place for place in range(8) if batch.has(modality)[place]]
        whole, part = (outputs.extra[f"{modality}/{name}"][rows].double() for name in (GLOBAL, TOKEN))
        for name, codes in (("token", part), ("global", whole)):
            losses = []
            for place, code in zip(rows, codes, strict=True):
                for anchor in range(14):
                    if name == "token" and not data.has(modality)[anchor]:
                        continue
                    source = other if name == "global" and data.has(other)[anchor] else modality
                    stored = state.buffers[source][anchor].double().chunk(2)[0 if name == "global" else 1]
                    similar = similarity(batch.labels[place : place + 1], data.labels[[anchor]], graded=graded).double()
                    loss = pair_likelihood(code[None], stored[None], similar)
                    losses.append(loss * pair_weights(similar, float(state.buffers["share"])) if balanced else loss)
            expected[name] += torch.stack(losses).mean().item()
        held = {m: batch.has(m) for m in ("image", "text")}
        targets = target_codes({m: v.double() for m, v in with_branch_codes(outputs).code.items()}, held, 0.6)
        expected["quantization"] += (0.5 * (whole + part) - targets[rows]).square().mean().item()
        distances = 1.2 * (whole - part).square()
        expected["distillation"] += (distances.mean() if per_bit else distances.sum(1).mean()).item()
    both = batch.has_image & batch.has_text
    assert 1 < int(both.sum()) < 8
    for name, part_name in (("contrast", VECTOR), ("concept_contrast", CONCEPTS)):
        image, text = (outputs.extra[f"{m}/{part_name}"][both].double() for m in ("image", "text"))
        expected[name] = alignment(image, text, 0.3).item()
    for name, (_, value) in terms.items():
        assert float(value) == pytest.approx(expected[name], rel=1e-4), name


def test_stored_codes_follow_the_batch_and_fall_back_on_the_other_modality() -> None:
    method, data = MITH(MITHParams(anchors=5)), partly()
    model, state = ready(method, data)
    assert state.buffers["image"].shape == (14, 2 * BITS)
    assert len(state.buffers["anchors"]) == 5
    assert not state.buffers["image"][0].any()  # the item has no picture
    with torch.no_grad():
        model.get_submodule("image").hash.offsets.add_(1.0)
    batch = data.batch(torch.tensor([2, 3]))
    outputs = model(batch)
    before = state.buffers["image"].clone()
    method.record(method.steps(model)[0], outputs, batch, state)
    changed = (state.buffers["image"] != before).any(1)
    assert changed.tolist() == [place in {2, 3} for place in range(14)]
    torch.testing.assert_close(state.buffers["image"][2, BITS:], outputs.extra[f"image/{TOKEN}"][0])


def test_one_modality_is_compared_with_itself_and_absent_items_have_no_terms() -> None:
    method, data = MITH(MITHParams()), silo_data(8, held=Held(image=False))
    model, state = ready(method, data)
    batch = data.batch(torch.arange(8))
    terms = method.terms(method.steps(model)[0], outputs := model(batch), batch, state)
    assert set(terms) == {"token", "global", "quantization", "distillation"}
    alike = similarity(batch.labels, batch.labels, graded=True)
    likelihood = pair_likelihood(outputs.extra[f"text/{GLOBAL}"], state.buffers["text"][:, :BITS], alike)
    expected = float((likelihood * pair_weights(alike, float(state.buffers["share"]))).mean().detach())
    assert float(terms["global"][1]) == pytest.approx(expected, rel=1e-5)
    absent = replace(batch, has_text=torch.zeros(8, dtype=torch.bool))
    assert method.terms(method.steps(model)[0], Outputs({}, {}, outputs.code), absent, state) == {}


def test_without_a_contrast_or_pairs_nothing_is_aligned() -> None:
    for method, data in (
        (MITH(MITHParams(contrast_weight=0)), silo_data(4)),
        (MITH(MITHParams()), replace(silo_data(4), has_text=torch.zeros(4, dtype=torch.bool))),
    ):
        model, state = ready(method, data)
        batch = data.batch(torch.arange(4))
        terms = method.terms(method.steps(model)[0], model(batch), batch, state)
        assert not {"contrast", "concept_contrast"} & set(terms)


def test_the_network_has_the_layers_of_the_parameters() -> None:
    params = MITHParams(layers=3, residual_layers=1, concepts_per_token=4)
    model, _ = ready(MITH(params), silo_data(3))
    assert model.most == 4
    assert len(model.shared["residual"].layers) == 1
    assert len(model.get_submodule("text.concepts.layers")) == 3


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("token_weight", -0.1, False),
        ("global_weight", 0, True),
        ("contrast_weight", -1, False),
        ("temperature", 0, False),
        ("global_share", 1, True),
        ("global_share", 1.1, False),
        ("teacher_share", 1.1, False),
        ("concepts_per_token", 0, False),
        ("layers", 0, True),
        ("residual_layers", -1, False),
        ("anchors", 0, False),
    ],
)
def test_bounds_of_parameters(name: str, value: float, accepted: bool) -> None:
    assert accepts(MITHParams, name, value) == accepted


def test_card_and_presets() -> None:
    assert (CARD.year, CARD.supervised, MITH.traits.needs_labels) == (2023, True, True)
    paper = MITHParams(**MITH.presets["paper"])
    weights = paper.token_weight, paper.global_weight, paper.quantization_weight, paper.contrast_weight
    assert weights == (1.0, 10.0, 8.0, 50.0)
    assert (paper.concept_share, paper.distillation_weight, paper.teacher_share) == (0.01, 1.0, 0.1)
    assert (paper.global_share, paper.temperature) == (0.99, 0.07)
    assert (paper.concepts_per_token, paper.residual_layers, paper.layers) == (8, 2, 2)
    assert (paper.similarity, paper.class_balance, paper.per_bit) == ("any", False, False)
    assert paper.anchors == 1_000_000
    assert MITH(MITHParams()).warnings({}) == []


WIDTH, FEW_BITS = 6, 5


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
    scores = torch.tanh(draw(3, 7, FEW_BITS))
    present = torch.rand(3, 7, generator=torch.Generator().manual_seed(1)) < 0.7
    expected = np.zeros((3, 7, FEW_BITS))
    for item in range(3):
        for concept in range(FEW_BITS):
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
    layers = ConceptLayers(WIDTH, FEW_BITS, 2)
    assert set(layers.state_dict()) == {name for name, _ in layers.named_parameters()}
    alike = layers(torch.zeros(1, FEW_BITS, WIDTH))
    assert float((alike[0, 0] - alike[0, 1]).detach().abs().max()) > 1e-3
    values = torch.randn(2, FEW_BITS, WIDTH)
    torch.testing.assert_close(ConceptLayers(WIDTH, FEW_BITS, 0)(values), values + positions(FEW_BITS, WIDTH))


def test_every_bit_has_its_own_weights() -> None:
    torch.manual_seed(0)
    layer, concepts = BitwiseHash(WIDTH, FEW_BITS).double(), draw(3, FEW_BITS, WIDTH)
    weight, bias = layer.directions.detach(), layer.offsets.detach()
    expected = [[math.tanh(float(concepts[i, k] @ weight[k] + bias[k])) for k in range(FEW_BITS)] for i in range(3)]
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


def made(held: Held | None = None, bits: int = FEW_BITS) -> ConceptNet:
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
        assert outputs.feature[modality].shape == (7, 16 + FEW_BITS * 16)
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
    with pytest.raises(UnsuitableMethod, match=r"mith shares layers .* layers have (16 and 24|24 and 16) units"):
        ConceptNet(uneven, FEW_BITS, most=1, residual_layers=1, layers=1)


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
