"""Losses against frozen models, compared with explicit loops."""

from __future__ import annotations

import math

import pytest
import torch

from silohash.methods.federated.contrastive_losses import cosine_gap, model_contrast
from tests.unit.methods.federated.helpers import draw


def test_model_contrast_is_the_cross_entropy_of_two_cosines() -> None:
    values, ahead, behind = draw(5, 4, seed=1), draw(5, 4, seed=2), draw(5, 4, seed=3)
    found = model_contrast(values, ahead, [behind], 0.5)
    for i in range(5):
        near, far = (
            math.exp(float(values[i] @ other[i] / values[i].norm() / other[i].norm()) / 0.5)
            for other in (ahead, behind)
        )
        assert float(found[i]) == pytest.approx(-math.log(near / (near + far)))
    assert float(model_contrast(values, ahead, [ahead], 0.5)[0]) == pytest.approx(math.log(2))
    assert float(model_contrast(values, ahead, [ahead] * 4, 0.5)[0]) == pytest.approx(math.log(5))


def test_cosine_gap_is_zero_for_the_same_direction_and_two_for_the_opposite() -> None:
    values = draw(3, 4)
    torch.testing.assert_close(cosine_gap(values, 2 * values), torch.zeros(3, dtype=torch.float64), atol=1e-7, rtol=0)
    torch.testing.assert_close(cosine_gap(values, -values), torch.full((3,), 2.0, dtype=torch.float64))


def test_two_negatives_each_count() -> None:
    values, ahead, one, other = (draw(3, 4, seed=seed) for seed in range(4))
    found = model_contrast(values, ahead, [one, other], 0.3)
    for i in range(3):
        scores = [math.exp(float(values[i] @ x[i] / values[i].norm() / x[i].norm()) / 0.3) for x in (ahead, one, other)]
        assert float(found[i]) == pytest.approx(-math.log(scores[0] / sum(scores)))
