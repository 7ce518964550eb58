"""Scores of items under a model: their own loss, or the agreement of picture and text."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from silohash.config.load import load_resolved
from silohash.models.parameters import params_of
from silohash.runtime.audit.scores import FitScores, agreements, calibrated
from tests.runs import model_spec, silo_data


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
