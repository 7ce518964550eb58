"""Norms are limited to the bound itself, and the noise has the deviation that was asked for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from silohash.base.types import Arrays
from silohash.methods.clipping import clipped, noised, norm_of


def arrays(scale: float = 1.0) -> Arrays:
    generator = np.random.default_rng(0)
    return {"a": (scale * generator.normal(size=(7, 5))).astype(np.float32), "b": scale * generator.normal(size=11)}


def test_the_norm_is_that_of_all_values_together() -> None:
    found = arrays()
    assert norm_of(found) == pytest.approx(math.sqrt(sum(float(v) ** 2 for a in found.values() for v in a.ravel())))
    assert norm_of({}) == 0.0


@pytest.mark.parametrize("scale", [1e-6, 0.1, 1.0, 30.0, 1e12])
def test_a_norm_above_the_limit_becomes_the_limit_and_others_stay(scale: float) -> None:
    before = arrays(scale)
    after = clipped(before, 2.0)
    expected = min(2.0, norm_of(before))
    assert norm_of(after) == pytest.approx(expected, rel=1e-12)
    for name, array in before.items():
        assert np.allclose(after[name] * norm_of(before), array.astype(np.float64) * expected, rtol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_no_factor_limits_become_zero(value: float) -> None:
    before = arrays()
    before["a"][2, 3] = value
    assert norm_of(clipped(before, 2.0)) == 0.0


def test_zeros_stay_zeros() -> None:
    assert norm_of(clipped({"a": np.zeros(3)}, 1.0)) == 0.0


def test_the_noise_of_every_value_has_the_deviation() -> None:
    zeros = {"a": np.zeros((100, 200)), "b": np.zeros(20_000)}
    noise = noised(zeros, 0.7, np.random.default_rng(1))
    for name in zeros:
        values = noise[name].ravel()
        assert abs(values.mean()) < 5 * 0.7 / math.sqrt(values.size)
        assert abs(values.std() - 0.7) < 5 * 0.7 / math.sqrt(2 * values.size)
    assert abs(np.corrcoef(noise["a"].ravel(), noise["b"])[0, 1]) < 5 / math.sqrt(20_000)
