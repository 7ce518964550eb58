"""Networks beside the towers: normalization, averages over windows, the label network, and vectors of classes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from silohash.methods.local.base import SiloData, class_group, joint_step
from silohash.methods.local.label_networks import CLASS_VECTORS, LabelNet, LocalResponse, MultiScale
from silohash.methods.local.supervised.dsph import DSPH, DSPHParams
from silohash.models.towers import batch_of
from silohash.testing.inputs import CLASSES, Held, model_spec, silo_data
from silohash.training.engines.port import SiloResult
from tests.unit.methods.local.helpers import averaged, trained


def test_local_response_by_a_loop_over_units() -> None:
    values = 20.0 * torch.from_numpy(np.random.default_rng(0).normal(size=(3, 9)))
    found = LocalResponse()(values)
    for row in range(3):
        for unit in range(9):
            around = [float(values[row, near]) ** 2 for near in range(max(0, unit - 2), min(9, unit + 3))]
            expected = float(values[row, unit]) / (2 + 1e-4 * sum(around)) ** 0.75
            assert float(found[row, unit]) == pytest.approx(expected, rel=1e-9)


def test_the_gradient_of_the_local_response_is_that_of_torch() -> None:
    values = torch.from_numpy(20.0 * np.random.default_rng(0).normal(size=(3, 9))).requires_grad_()
    toward = torch.from_numpy(np.random.default_rng(1).normal(size=(3, 9)))
    reference = nn.functional.local_response_norm(values.unsqueeze(2), 5, alpha=5e-4, beta=0.75, k=2.0).squeeze(2)
    [expected] = torch.autograd.grad(reference, values, toward)
    [found] = torch.autograd.grad(LocalResponse()(values), values, toward)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


def test_scales_are_averages_over_windows_that_fit() -> None:
    scales = MultiScale(6, ((7, 7), (3, 3), (2, 1)))
    assert scales.windows == ((3, 3), (2, 1))
    assert scales.outputs == 18
    row = torch.tensor([[1.0, 2.0, 6.0, 0.0, 0.0, 3.0]])
    found = scales(row)
    assert found.shape == (1, 18)
    assert torch.equal(found[:, :6], row)
    # averages 3 and 1, stretched from two values to six: the centers are at 1 and 4
    assert found[0, 6:12].tolist() == pytest.approx([3.0, 3.0, 3 - 2 / 3, 3 - 4 / 3, 1.0, 1.0], abs=1e-5)
    assert float(found[0, 12:].detach().max()) <= 4.0
    with torch.no_grad():
        scales.factors.copy_(torch.tensor([2.0, -1.0]))
    again = scales(row)
    assert torch.allclose(again[:, 6:12], 2 * found[:, 6:12])
    assert (again[:, 12:] == 0).all()


def test_a_label_network_returns_features_codes_and_labels() -> None:
    torch.manual_seed(0)
    network = LabelNet(nn.Linear(5, 7), 7, 8, 5)
    labels = torch.eye(5)[:3]
    feature, code, logits = network(labels)
    assert torch.equal(feature, network.layers(labels))
    assert torch.equal(code, torch.tanh(network.hash(feature)))
    assert torch.equal(logits, network.predictor(feature))
    assert (code.shape, logits.shape) == ((3, 8), (3, 5))


def made(bits: int = 8, held: Held | None = None) -> nn.Module:
    torch.manual_seed(0)
    return DSPH(DSPHParams()).build(model_spec(held=held or Held()), bits)


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
