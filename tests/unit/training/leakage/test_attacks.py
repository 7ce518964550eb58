"""The figures of attacks equal explicit loops, find what is there, and find nothing where nothing is."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from silohash.models.parameters import params_of
from silohash.run.config.load import load_resolved
from silohash.training.leakage.attacks import (
    FitScores,
    agreements,
    area_under_curve,
    calibrated,
    explained_share,
    mean_estimate,
    ridge_predictions,
)
from tests.runs import model_spec, silo_data

GENERATOR = np.random.default_rng(0)


def test_the_area_counts_pairs_and_half_of_the_ties() -> None:
    positive, negative = GENERATOR.integers(0, 6, 40), GENERATOR.integers(0, 5, 30)
    by_hand = np.mean([float(p > n) + 0.5 * float(p == n) for p in positive for n in negative])
    found = area_under_curve(positive, negative)
    assert found.value == pytest.approx(by_hand)
    assert 0 <= found.low < found.value < found.high <= 1


def test_intervals_cover_the_true_area() -> None:
    """Scores of a normal distribution that is shifted by 1 separate with probability 0.7602."""
    covered = 0
    for seed in range(200):
        generator = np.random.default_rng(seed)
        found = area_under_curve(generator.normal(1.0, 1.0, 60), generator.normal(0.0, 1.0, 60))
        covered += found.low <= 0.7602 <= found.high
    assert 180 <= covered <= 200


@pytest.mark.parametrize(("shift", "low", "high"), [(0.0, 0.45, 0.55), (5.0, 0.99, 1.0)])
def test_equal_scores_are_guesses_and_separate_ones_are_found(shift: float, low: float, high: float) -> None:
    found = area_under_curve(GENERATOR.normal(shift, 1, 2000), GENERATOR.normal(0, 1, 2000))
    assert low <= found.value <= high
    assert area_under_curve(np.ones(5), np.ones(7)).value == 0.5


def test_the_mean_of_areas_has_a_narrower_interval() -> None:
    one = area_under_curve(GENERATOR.normal(1, 1, 100), GENERATOR.normal(0, 1, 100))
    found = mean_estimate([one] * 4)
    assert found.value == pytest.approx(one.value)
    assert found.high - found.low == pytest.approx((one.high - one.low) / 2)


def test_ridge_finds_a_linear_map_and_nothing_in_noise() -> None:
    inputs, noise = GENERATOR.normal(size=(400, 10)), GENERATOR.normal(size=(400, 3))
    linear = inputs @ GENERATOR.normal(size=(10, 3)) + 2.0
    for targets, low, high in ((linear, 0.99, 1.0), (noise, -0.2, 0.05)):
        predicted = ridge_predictions(inputs[:200], targets[:200], inputs[200:])
        found = explained_share(predicted, targets[200:])
        assert low <= found.value <= high
        assert found.low < found.value < found.high


def test_the_mean_explains_nothing() -> None:
    true = GENERATOR.normal(size=(50, 4))
    assert explained_share(np.tile(true.mean(axis=0), (50, 1)), true).value == pytest.approx(0.0)
    assert explained_share(true, true).value == 1.0


def scores_of(local: str) -> tuple[FitScores, dict[str, np.ndarray]]:
    resolved = load_resolved({"data": {"name": "glyphs"}, "local": {"name": local, "bits": 16}})
    torch.manual_seed(0)
    model = resolved.local.build(model_spec(), 16)
    return FitScores(resolved, model, {}), params_of(model)


def test_the_score_of_an_item_is_its_negative_loss() -> None:
    found, params = scores_of("csq")
    data = silo_data(12)
    scores = found.of(params, data)
    alone = [found.of(params, data.take(torch.tensor([row])))[0] for row in range(12)]
    assert scores == pytest.approx(alone)
    moved = {name: array + 0.1 for name, array in params.items()}
    assert not np.allclose(found.of(moved, data), scores)


def test_other_methods_are_scored_by_the_agreement_of_the_modalities() -> None:
    found, params = scores_of("dcmh")
    data = silo_data(12)
    scores = found.of(params, data)
    model = found.model.eval()
    with torch.no_grad():
        outputs = model(data.batch(torch.arange(12))).logit
    image, text = (torch.tanh(outputs[m]).numpy().astype(float) for m in ("image", "text"))
    by_hand = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(image, text, strict=True)]
    assert scores == pytest.approx(by_hand, abs=1e-5)


def test_a_single_modality_is_scored_by_the_size_of_its_values() -> None:
    outputs = torch.tensor([[0.0, 0.0], [3.0, -3.0]])
    assert agreements({"image": outputs}) == pytest.approx([0.0, float(torch.tanh(torch.tensor(3.0)))])


def test_scores_are_compared_with_those_of_the_other_models() -> None:
    scores = np.array([[1.0, 5.0], [0.0, 4.0], [2.0, 0.0]])
    assert calibrated(scores, 0).tolist() == [0.0, 3.0]
    assert calibrated(scores, 2).tolist() == [1.5, -4.5]
