"""What silos send under differential privacy: limits, noise, public weights."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from silohash.base.types import Arrays
from silohash.methods.federated.private_updates import (
    FEWEST_DEVIATIONS,
    clipped,
    item_share,
    noise_share,
    noised,
    norm_of,
    private_change,
    private_statistics,
)
from silohash.methods.federated.prototypes import PROTOTYPE_MEAN
from silohash.methods.federated.shared_means import objection
from silohash.methods.federated.statistics import ReleaseParams, class_statistics
from silohash.methods.message import Message

CLASSES, BITS = 5, 8


def update(change: float, **more) -> tuple[Message, dict[str, np.ndarray]]:
    origin = {"image.w": np.full((40, 50), 3.0, np.float32), "text.w": np.zeros(1000, np.float32)}
    params = {name: array + np.float32(change) for name, array in origin.items()}
    message = Message(
        kind="update", sender="a", round=0, params=params, weights={"image": 70.0, "text": 0.0}, counts={"items": 70},
        **more,
    )  # fmt: skip
    return message, origin


def change_of(message: Message, origin: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([(message.params[name].astype(np.float64) - origin[name]).ravel() for name in origin])


@pytest.mark.parametrize(("change", "norm"), [(1.0, 2.0), (0.01, 0.01 * math.sqrt(3000))])
def test_a_change_is_limited_before_noise_hides_it(change: float, norm: float) -> None:
    message, origin = update(change)
    silent = private_change(message, origin, clip_norm=2.0, deviation=0.0, generator=np.random.default_rng(0))
    assert np.linalg.norm(change_of(silent, origin)) == pytest.approx(norm, rel=1e-4)
    assert silent.weights == {"image": 1.0, "text": 1.0}
    assert {array.dtype for array in silent.params.values()} == {np.dtype(np.float32)}


def test_the_noise_of_a_change_has_its_deviation_in_every_parameter() -> None:
    message, origin = update(1.0)
    noisy, silent = (
        private_change(message, origin, clip_norm=2.0, deviation=deviation, generator=np.random.default_rng(0))
        for deviation in (0.5, 0.0)
    )
    for name in origin:
        noise = (noisy.params[name].astype(np.float64) - silent.params[name]).ravel()
        assert abs(noise.std() - 0.5) < 5 * 0.5 / math.sqrt(2 * noise.size)
        assert abs(noise.mean()) < 5 * 0.5 / math.sqrt(noise.size)


def test_the_noise_of_all_other_silos_is_what_the_accountant_assumes() -> None:
    for silos in (2, 3, 10):
        share = noise_share(2.0, 1.5, silos)
        assert math.sqrt(silos - 1) * share == pytest.approx(1.5 * 2.0)


def statistics(labels: torch.Tensor, values: torch.Tensor) -> Message:
    found = class_statistics(values, labels, ReleaseParams(min_count=1, max_labels=3))
    sums = {"prototype_sum/fused": found.sums.numpy(), "prototype_count/fused": found.counts.numpy()}
    message, _ = update(0.0, sums=sums)
    return replace(message, counts={"items": len(labels)})


def made_up(items: int = 400) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = (torch.rand(items, CLASSES, generator=generator) < 0.5).float()
    return labels, torch.tanh(torch.randn(items, BITS, generator=generator))


def test_no_item_changes_the_statistics_by_more_than_its_share() -> None:
    labels, values = made_up(40)
    labels[7], values[7] = 1.0, 1.0  # as many labels and as large values as possible
    share = item_share(statistics(labels, values), [PROTOTYPE_MEAN], max_labels=3)
    assert share == pytest.approx(math.sqrt(3 * (BITS + 1)))
    every = torch.arange(len(labels))
    largest = 0.0
    for item in range(len(labels)):
        full, less = (statistics(labels[rows], values[rows]).sums for rows in (every, every != item))
        largest = max(largest, math.sqrt(sum(float(np.square(full[n] - less[n]).sum()) for n in full)))
    assert 0.7 * share < largest <= share


def private(message: Message, multiplier: float, seed: int = 0) -> Message:
    return private_statistics(
        message, [PROTOTYPE_MEAN], max_labels=3, noise_multiplier=multiplier, generator=np.random.default_rng(seed)
    )


def test_the_noise_of_statistics_is_a_multiple_of_an_items_share() -> None:
    message = statistics(*made_up(4000))
    counts = [private(message, 2.0, seed).sums["prototype_count/fused"] for seed in range(300)]
    noise = np.stack(counts) - message.sums["prototype_count/fused"]
    expected = 2.0 * math.sqrt(3 * (BITS + 1))
    assert abs(noise[:, :].std() - expected) < 5 * expected / math.sqrt(2 * noise.size)


def test_noisy_statistics_can_be_used_and_rare_classes_are_left_out() -> None:
    labels, values = made_up()
    labels[:, 2] = 0.0
    labels[:3, 2] = 1.0
    message = statistics(labels, values)
    extras = {"prototypes/fused": np.zeros((CLASSES, BITS), np.float32)}
    dropped = 0
    for seed in range(20):
        found = private(message, 1.0, seed)
        assert objection(found, [PROTOTYPE_MEAN], extras) is None
        counts = found.sums["prototype_count/fused"]
        least = FEWEST_DEVIATIONS * math.sqrt(3 * (BITS + 1))
        assert ((counts == 0) | (counts >= least)).all()
        assert not found.sums["prototype_sum/fused"][counts == 0].any()
        dropped += counts[2] == 0
    assert dropped >= 18
    assert found.weights == {"image": 1.0, "text": 0.0}


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
