"""Class proxies: margins against the values of the literature, the network, and their weights in a federation."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from silohash.methods.local.base import SiloData, class_group, joint_step
from silohash.methods.local.proxies import PROXIES, ProxyNet, code_distance, separation_margin
from silohash.models.towers import batch_of
from silohash.testing.inputs import CLASSES, Held, model_spec, silo_data
from silohash.training.engines.port import SiloResult
from tests.unit.methods.local.helpers import averaged, trained

LISTED = [
    (12, 21, 1 / 3), (12, 24, 1 / 3), (12, 80, 1 / 3), (16, 21, 0.0), (16, 24, 0.0), (16, 80, 0.25), (24, 80, 1 / 6),
    (32, 80, 0.125), (48, 80, 1 / 12), (64, 21, 0.0), (64, 24, 0.0), (64, 80, 0.0),
]  # fmt: skip
"""Code length, number of classes, and the margin that the literature uses."""


@pytest.mark.parametrize(("bits", "classes", "margin"), LISTED)
def test_margins_of_the_literature(bits: int, classes: int, margin: float) -> None:
    assert separation_margin(classes, bits) == pytest.approx(margin, abs=1e-12)


@pytest.mark.parametrize(
    ("codes", "bits", "distance"),
    [(1, 8, 8), (2, 7, 6), (3, 6, 4), (4, 6, 4), (5, 7, 4), (8, 7, 4), (9, 7, 2), (16, 8, 4), (80, 6, 0), (2, 1, 0)],
)  # fmt: skip
def test_distances_by_hand(codes: int, bits: int, distance: int) -> None:
    assert code_distance(codes, bits) == distance


def test_margins_of_two_classes_and_of_too_many() -> None:
    assert separation_margin(2, 16) == -1.0
    assert separation_margin(60, 4) == 1.0


def made(bits: int = 8, held: Held | None = None) -> ProxyNet:
    torch.manual_seed(0)
    return ProxyNet(model_spec(held=held or Held()), bits)


def test_proxies_are_extra_outputs_of_items_with_labels_only() -> None:
    model, data = made(), silo_data(5)
    outputs = model(data.batch(torch.arange(5)))
    rows = [model.get_parameter(class_group(number)) for number in range(CLASSES)]
    assert torch.equal(outputs.extra[PROXIES], torch.stack(rows))
    assert torch.equal(outputs.code["image"], torch.tanh(outputs.logit["image"]))
    assert model(batch_of(data.image, "image", {})).extra == {}


def test_proxies_start_with_the_variance_of_the_paper_and_are_trained() -> None:
    model = made(bits=20_000)
    start = torch.stack([model.get_parameter(class_group(number)) for number in range(CLASSES)])
    assert float(start.detach().std()) == pytest.approx(math.sqrt(2 / CLASSES), rel=0.02)
    assert {class_group(number) for number in range(CLASSES)} <= set(joint_step(model).parameters)


def test_a_proxy_is_averaged_by_the_items_of_its_class() -> None:
    """Silos with 3, 1 and 0 items of class 0: the last one does not change its proxy, although it moved it."""
    whole = silo_data(12, single=True)
    silos = [of_classes(whole, counts) for counts in ((3, 5), (1, 0), (0, 4))]
    results = [trained("dsph", data, epochs=2) for data in silos]
    mean = averaged(results)
    for number, counts in ((0, (3, 1, 0)), (1, (5, 0, 4))):
        name = class_group(number)
        assert [result.update.weights[name] for result in results] == list(counts)
        expected = sum(c * params(r)[name].astype(np.float64) for c, r in zip(counts, results, strict=True)) / sum(
            counts
        )
        np.testing.assert_allclose(mean[name], expected, rtol=1e-5)
    assert not np.array_equal(params(results[2])["class0"], params(results[0])["class0"])
    assert "class2" not in mean


def of_classes(data: SiloData, counts: tuple[int, ...]) -> SiloData:
    """Return a silo with the given number of items of the first classes."""
    numbers = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    assert data.labels is not None
    return replace(data.take(torch.arange(len(numbers))), labels=torch.eye(CLASSES)[numbers])


def params(result: SiloResult) -> dict[str, np.ndarray]:
    return dict(result.update.params)
