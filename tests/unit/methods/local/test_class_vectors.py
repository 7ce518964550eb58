"""Vectors of classes: the network, and their weights in a federation."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from silohash.methods.local.base import SiloData, class_group, joint_step
from silohash.methods.local.class_vectors import CLASS_VECTORS
from silohash.methods.local.supervised.dsph import ProxyNet
from silohash.models.towers import batch_of
from silohash.testing.inputs import CLASSES, Held, model_spec, silo_data
from silohash.training.engines.port import SiloResult
from tests.unit.methods.local.helpers import averaged, trained


def made(bits: int = 8, held: Held | None = None) -> ProxyNet:
    torch.manual_seed(0)
    return ProxyNet(model_spec(held=held or Held()), bits)


def test_proxies_are_extra_outputs_of_items_with_labels_only() -> None:
    model, data = made(), silo_data(5)
    outputs = model(data.batch(torch.arange(5)))
    rows = [model.get_parameter(class_group(number)) for number in range(CLASSES)]
    assert torch.equal(outputs.extra[CLASS_VECTORS], torch.stack(rows))
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
