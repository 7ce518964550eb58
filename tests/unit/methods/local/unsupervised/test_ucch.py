"""UCCH: the contrast with the memory and the ranking loss, compared with explicit loops in float64."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from torch import Tensor

from silohash.base.types import Outputs, PairBatch
from silohash.methods.local import LOCAL_METHODS
from silohash.methods.local.base import SiloState, outputs_of, signs
from silohash.methods.local.unsupervised.ucch import (
    CARD,
    UCCH,
    UCCHParams,
    fused,
    memory_contrast,
    moved_memory,
    ranking_loss,
    unit_codes,
)
from silohash.testing.inputs import BITS, silo_data
from tests.unit.methods.federated.helpers import accepts, draw
from tests.unit.methods.local.helpers import ready, trained


def unit(rows: int, bits: int = 6, seed: int = 0) -> Tensor:
    return F.normalize(draw(rows, bits, seed=seed), dim=1)


def given_outputs(batch: PairBatch, seed: int = 5) -> Outputs:
    """Return made-up outputs for a batch."""
    logit = {m: draw(len(batch.row), BITS, seed=seed + n).float() for n, m in enumerate(("image", "text"))}
    return Outputs(feature={}, logit=logit, code={m: torch.tanh(values) for m, values in logit.items()})


def test_the_contrast_is_the_cross_entropy_of_the_own_key() -> None:
    codes, positive, negatives = unit(4), signs(draw(4, 6, seed=1)), signs(draw(5, 6, seed=2))
    excluded = torch.zeros(4, 5, dtype=torch.bool)
    excluded[1, 3] = excluded[2, 0] = True
    found = memory_contrast(codes, positive, negatives, excluded, 0.9)
    for i in range(4):
        near = math.exp(float(codes[i] @ (positive[i] / math.sqrt(6))) / 0.9)
        far = sum(
            math.exp(float(codes[i] @ (negatives[j] / math.sqrt(6))) / 0.9) for j in range(5) if not excluded[i, j]
        )
        assert float(found[i]) == pytest.approx(-math.log(near / (near + far)), rel=1e-10)
    assert memory_contrast(codes, positive, negatives[:0], excluded[:, :0], 0.9).abs().max() == 0


@pytest.mark.parametrize(("margin", "shift", "temperature"), [(0.2, 0.1, 1.0), (0.0, 1.0, 0.5)])
def test_the_ranking_loss_reduces_pairs_below_the_margin(margin: float, shift: float, temperature: float) -> None:
    similarity = unit(5, seed=1) @ unit(5, seed=2).T
    similarity[1, 2] = similarity[1, 1] - margin  # at the margin, a pair is still close
    expected = 0.0
    for i in range(5):
        total = 0.0
        for j in range(5):
            value = float(similarity[i, j])
            if float(similarity[i, i]) - value > margin:
                value -= shift
            total += math.exp(value / temperature)
        expected += (margin + temperature * math.log(total) - float(similarity[i, i])) / 5
    found = ranking_loss(similarity, margin=margin, shift=shift, temperature=temperature)
    assert float(found) == pytest.approx(expected, rel=1e-10)


def test_codes_are_fused_over_the_modalities_that_an_item_has() -> None:
    codes = unit_codes({"image": draw(3, 4, seed=1), "text": draw(3, 4, seed=2)})
    has = {"image": torch.tensor([True, True, False]), "text": torch.tensor([True, False, False])}
    found = fused(codes, has)
    both = codes["image"][0] + codes["text"][0]
    torch.testing.assert_close(found[0], both / 2)
    torch.testing.assert_close(found[1], codes["image"][1])
    assert found[2].abs().max() == 0


def test_the_memory_moves_towards_the_latest_code() -> None:
    memory, codes = unit(3, seed=1), unit(3, seed=2)
    found = moved_memory(memory, codes, 0.4)
    for i in range(3):
        moved = 0.4 * memory[i] + 0.6 * codes[i]
        torch.testing.assert_close(found[i], moved / moved.norm())
    torch.testing.assert_close(moved_memory(memory, codes, 0.0), codes)


def test_parameters_of_a_loss_without_weight_have_no_effect() -> None:
    without = UCCHParams.without_effect
    assert {name for name, switch in without.items() if switch == {"contrast_weight": (0,)}} == {
        "temperature", "negatives", "momentum"
    }  # fmt: skip
    assert {name for name, switch in without.items() if switch == {"contrast_weight": (1,)}} == {
        "margin", "shift", "ranking_temperature"
    }  # fmt: skip


def test_the_terms_of_a_batch() -> None:
    data = replace(silo_data(12), has_text=torch.arange(12) % 4 > 0, has_image=torch.arange(12) != 5)
    method = UCCH(UCCHParams(contrast_weight=0.6, temperature=0.5, margin=0.3, shift=0.7, ranking_temperature=0.8))
    _, state = ready(method, data)
    batch = data.batch(torch.tensor([5, 0, 7, 2, 4, 9]))
    outputs = given_outputs(batch)
    terms = method.terms(method.steps(ready(method, data)[0])[0], outputs, batch, state)
    memory, codes = state.buffers["memory"].double(), unit_codes({m: c.double() for m, c in outputs.code.items()})
    contrast = 0.0
    for modality, values in codes.items():
        losses = []
        for i, row in enumerate(batch.row.tolist()):
            if not bool(batch.has(modality)[i]):
                continue
            scores = [math.exp(float(values[i] @ signs(memory[j])) / math.sqrt(BITS) / 0.5) for j in range(12)]
            losses.append(-math.log(scores[row] / sum(scores)))  # all 11 other items are negatives
        contrast += sum(losses) / len(losses)
    weight, value = terms["contrast"]
    assert weight == 0.6
    assert float(value) == pytest.approx(contrast, rel=1e-5)
    both = batch.has_image & batch.has_text
    similarity = codes["image"][both] @ codes["text"][both].T
    options = {"margin": 0.3, "shift": 0.7, "temperature": 0.8}
    weight, value = terms["ranking"]
    assert weight == pytest.approx(0.4)
    expected = ranking_loss(similarity, **options) + ranking_loss(similarity.T, **options)
    assert float(value) == pytest.approx(float(expected), rel=1e-5)


def test_terms_whose_weight_is_zero_are_left_out() -> None:
    data = silo_data(12)
    batch = data.batch(torch.arange(6))
    for share, expected in ((1.0, {"contrast"}), (0.0, {"ranking"}), (0.5, {"contrast", "ranking"})):
        method = UCCH(UCCHParams(contrast_weight=share))
        model, state = ready(method, data)
        assert set(method.terms(method.steps(model)[0], given_outputs(batch), batch, state)) == expected
    lacking = replace(batch, has_image=torch.zeros(6, dtype=torch.bool))
    assert set(method.terms(method.steps(model)[0], given_outputs(batch), lacking, state)) == {"contrast"}


def test_the_memory_starts_with_the_codes_of_the_model_and_follows_the_batches() -> None:
    data = replace(silo_data(10), has_text=torch.arange(10) > 2)
    method = UCCH(UCCHParams(momentum=0.3))
    model, state = ready(method, data)
    codes = unit_codes(outputs_of(model, data))
    start = F.normalize(fused(codes, {m: data.has(m) for m in codes}), dim=1)
    assert torch.equal(state.buffers["memory"], start)
    batch = data.batch(torch.tensor([7, 1]))
    outputs = given_outputs(batch)
    method.record(method.steps(model)[0], outputs, batch, state)
    latest = unit_codes(outputs.code)
    moved = {7: (latest["image"][0] + latest["text"][0]) / 2, 1: latest["image"][1]}  # item 1 has no text
    for row in range(10):
        expected = start[row]
        if row in moved:
            expected = F.normalize(0.3 * start[row] + 0.7 * moved[row], dim=0)
        torch.testing.assert_close(state.buffers["memory"][row], expected)


def test_negatives_are_items_with_a_modality_drawn_again_each_epoch() -> None:
    none = torch.arange(40) % 10 == 0
    data = replace(silo_data(40), has_text=~none, has_image=~none)
    method = UCCH(UCCHParams(negatives=12))
    model, state = ready(method, data)
    drawn = []
    for _ in range(2):
        rows = state.buffers["negatives"].tolist()
        assert len(set(rows)) == 12
        assert not any(none[rows])
        drawn.append(rows)
        method.end_epoch(model, data, state)
    assert drawn[0] != drawn[1]
    _, state = ready(UCCH(UCCHParams()), data)
    assert state.buffers["negatives"].tolist() == [row for row in range(40) if row % 10]


def test_a_silo_without_the_models_modality_has_an_empty_memory() -> None:
    data = silo_data(6)
    method = UCCH(UCCHParams())
    model, _ = ready(method, data)
    state = SiloState()
    bare = replace(data, image=None, text=None, has_image=~data.has_image, has_text=~data.has_text)
    method.init_state(model, bare, state)
    assert state.buffers["memory"].shape == (6, BITS)
    assert not state.buffers["memory"].any()
    assert len(state.buffers["negatives"]) == 0


def test_labels_have_no_influence() -> None:
    data = silo_data(40)
    with_labels, without = (trained("ucch", given) for given in (data, replace(data, labels=None, federation=None)))
    assert all((array == without.update.params[name]).all() for name, array in with_labels.update.params.items())


def test_card_and_presets() -> None:
    assert (CARD.year, CARD.supervised, UCCH.traits.needs_labels) == (2023, False, False)
    assert LOCAL_METHODS.resolve("ucch") is UCCH
    assert UCCH.presets == {
        "recommended": {}, "paper": {}, "authors_code": {"contrast_weight": 0.9, "shift": 1.0},
    }  # fmt: skip
    params = UCCHParams()
    assert (params.contrast_weight, params.temperature, params.negatives, params.momentum) == (0.7, 0.9, 4096, 0.4)
    assert (params.margin, params.shift, params.ranking_temperature) == (0.2, 0.1, 1.0)


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("contrast_weight", 0, True),
        ("contrast_weight", 1, True),
        ("contrast_weight", 1.1, False),
        ("temperature", 0, False),
        ("negatives", 1, True),
        ("negatives", 0, False),
        ("momentum", 0, True),
        ("momentum", 1, False),
        ("margin", 0, True),
        ("margin", -0.1, False),
        ("shift", 0, True),
        ("shift", -0.1, False),
        ("ranking_temperature", 0, False),
    ],
)
def test_bounds_of_parameters(name: str, value: float, accepted: bool) -> None:
    assert accepts(UCCHParams, name, value) == accepted
