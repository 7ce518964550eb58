"""MITH: the target codes, the distance between the branches, and the terms of a batch against explicit loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from silohash.base.types import Outputs
from silohash.methods.local.base import SiloData
from silohash.methods.local.concept_networks import CONCEPTS, GLOBAL, TOKEN, VECTOR, alignment
from silohash.methods.local.losses import pair_likelihood, pair_weights, similarity
from silohash.methods.local.supervised.mith import (
    CARD,
    MITH,
    MITHParams,
    distillation,
    target_codes,
    with_branch_codes,
)
from silohash.testing.inputs import BITS, Held, silo_data
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
