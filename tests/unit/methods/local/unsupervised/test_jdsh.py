"""JDSH: the joint similarity, its thresholds and the losses against explicit loops in float64."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from silohash.methods.local.unsupervised.base import CodePair, Inputs, inputs_of
from silohash.methods.local.unsupervised.jdsh import (
    CARD,
    JDSH,
    Distribution,
    JDSHParams,
    cross_similarity,
    distribution_of,
    fitted_distribution,
    joint_similarity,
    sharpened,
)
from silohash.testing.inputs import lacking, silo_data
from tests.unit.methods.federated.helpers import draw
from tests.unit.methods.local.helpers import cosine, ready, trained

WEIGHTS = {"image": 0.5, "text": 0.2, "cross": 0.4}


def fit(**values: float) -> Distribution:
    return Distribution(*(torch.tensor(values[name], dtype=torch.float64) for name in Distribution._fields))


def unit(count: int, width: int, seed: int) -> Tensor:
    return torch.nn.functional.normalize(draw(count, width, seed=seed), dim=1)


def loops(image: Tensor, text: Tensor) -> np.ndarray:
    """Return the joint similarity of complete items, pair by pair."""
    count = len(image)
    one, other = (
        torch.tensor([[2 * cosine(values[i], values[j]) - 1 for j in range(count)] for i in range(count)])
        for values in (image, text)
    )
    return np.array(
        [
            [
                (
                    WEIGHTS["image"] * float(one[i, j])
                    + WEIGHTS["text"] * float(other[i, j])
                    + WEIGHTS["cross"] * (cosine(one[i], other[j]) + cosine(one[j], other[i])) / 2
                )
                / sum(WEIGHTS.values())
                for j in range(count)
            ]
            for i in range(count)
        ]
    )


def test_joint_similarity_against_loops() -> None:
    image, text = unit(6, 5, 0), unit(6, 4, 1)
    found, known = joint_similarity(Inputs({"image": image, "text": text}, None), WEIGHTS)
    assert known is None
    assert found.numpy() == pytest.approx(loops(image, text), abs=1e-6)
    assert torch.allclose(found, found.T)


def test_cross_similarity_is_symmetric() -> None:
    found = cross_similarity(draw(4, 4), draw(4, 4, seed=1))
    assert torch.allclose(found, found.T)


def test_items_that_lack_a_modality_are_compared_by_the_other_one() -> None:
    image, text = unit(5, 5, 0), unit(5, 4, 1)
    has = {"image": torch.tensor([1, 1, 1, 1, 0]) > 0, "text": torch.tensor([1, 1, 0, 0, 1]) > 0}
    inputs = Inputs({"image": image * has["image"].unsqueeze(1), "text": text * has["text"].unsqueeze(1)}, has)  # type: ignore[dict-item]
    found, known = joint_similarity(inputs, WEIGHTS)
    assert known is not None
    assert float(found[0, 2]) == pytest.approx(2 * cosine(image[0], image[2]) - 1)
    assert float(found[1, 4]) == pytest.approx(2 * cosine(text[1], text[4]) - 1)
    assert float(known[2, 4]) == float(found[2, 4]) == 0.0
    # The relations of items with both modalities are those to the items that have them.
    one, other = (2 * values @ values.T - 1 for values in (image, text))
    one, other = one * torch.outer(has["image"], has["image"]), other * torch.outer(has["text"], has["text"])
    cross = (cosine(one[0], other[1]) + cosine(one[1], other[0])) / 2
    parts = 0.5 * float(one[0, 1]) + 0.2 * float(other[0, 1]) + 0.4 * cross
    assert float(found[0, 1]) == pytest.approx(parts / 1.1)


def test_one_modality_has_its_own_similarity() -> None:
    image = unit(4, 5, 0)
    found, known = joint_similarity(Inputs({"image": image}, None), WEIGHTS)
    assert known is None
    assert torch.allclose(found, 2 * image @ image.T - 1)


def test_distribution_of_known_values() -> None:
    values = torch.tensor([-1.0, 0.0, 0.001, 0.002, 1.0, 1.0], dtype=torch.float64)
    mode, below, above, smallest, largest = (float(value) for value in distribution_of(values))
    assert mode == pytest.approx(0.005)  # the center of the bin from 0 to 0.01
    lower = [(value - 0.005) ** 2 for value in (-1.0, 0.0, 0.001, 0.002)]
    assert below == pytest.approx(math.sqrt(np.mean(lower)))
    assert above == pytest.approx(0.995)
    assert (smallest, largest) == (-1.0, 1.0)


@pytest.mark.parametrize("values", [[0.25] * 7, [0.25], []])
def test_thresholds_of_constant_similarities_are_finite(values: list[float]) -> None:
    found = distribution_of(torch.tensor(values, dtype=torch.float64))
    assert float(found.mode) == (0.25 if values else 0.0)
    assert float(found.below) == float(found.above) == 0.0
    result = sharpened(torch.full((2, 2), 0.25), found, 0.2, 0.2, 1.4)
    assert bool(result.isfinite().all())


def test_sharpened_against_the_formula() -> None:
    stats = fit(mode=0.0, below=0.2, above=0.1, smallest=-0.9, largest=0.8)
    values = torch.tensor([[-0.7, -0.4, -0.1], [0.3, 0.4, 0.6]], dtype=torch.float64)
    expected = [
        1.4 * (1 + 0.1 * math.exp(-0.2)) * -0.7,
        1.4 * -0.4,  # the threshold itself
        1.4 * -0.1,
        1.4 * 0.3,
        1.4 * 0.4,  # the threshold itself
        1.4 * (1 + 0.3 * math.exp(-0.2)) * 0.6,
    ]
    assert sharpened(values, stats, 0.1, 0.3, 1.4).flatten().tolist() == pytest.approx(expected)


def test_each_silo_fits_its_own_thresholds_to_different_items() -> None:
    data = silo_data(20)
    found = fitted_distribution(data, WEIGHTS, 64)
    values, _ = joint_similarity(inputs_of(data.batch(torch.arange(20))), WEIGHTS)
    different = values[~torch.eye(20, dtype=torch.bool)]
    assert float(found.largest) == pytest.approx(float(different.max()), abs=1e-5)
    assert float(found.smallest) == pytest.approx(float(different.min()), abs=1e-5)
    assert found == fitted_distribution(data, WEIGHTS, 64)
    assert float(found.mode) != float(fitted_distribution(silo_data(10), WEIGHTS, 64).mode)
    assert float(fitted_distribution(data, WEIGHTS, 4).mode) != float(found.mode)
    _, state = ready(JDSH(JDSHParams()), data)
    assert set(Distribution._fields) <= state.buffers.keys()


@pytest.mark.parametrize("case", ["one item", "no pairs"])
def test_thresholds_of_silos_with_little_are_finite(case: str) -> None:
    assert all(bool(value.isfinite()) for value in fitted_distribution(lacking(case), WEIGHTS, 32))


def test_losses_against_loops() -> None:
    data, chosen, count = silo_data(9), JDSH(JDSHParams(within_weight=0.5)), 9
    _, state = ready(chosen, data)
    batch, pair = data.batch(torch.arange(count)), CodePair(draw(count, 4), draw(count, 4, seed=1))
    target, _ = chosen._target(batch, state.buffers)
    terms = chosen.losses(pair, batch, state.buffers)

    def gap(one: Tensor, other: Tensor, i: int, j: int) -> float:
        return (cosine(one[i], other[j]) - float(target[i, j])) ** 2

    pairs = [(i, j) for i in range(count) for j in range(count)]
    expected = {
        "between": np.mean([gap(*pair, i, j) + (cosine(pair.image[j], pair.text[i]) - float(target[i, j])) ** 2
                            for i, j in pairs]),
        "pair": 1 - np.mean([cosine(pair.image[i], pair.text[i]) for i in range(count)]),
        "within_images": np.mean([gap(pair.image, pair.image, i, j) for i, j in pairs]),
        "within_texts": np.mean([gap(pair.text, pair.text, i, j) for i, j in pairs]),
    }  # fmt: skip
    assert {name: float(value) for name, (_, value) in terms.items()} == {
        name: pytest.approx(float(value), abs=1e-5) for name, value in expected.items()
    }
    assert [weight for weight, _ in terms.values()] == [1.0, 1.0, 0.5, 0.5]


def test_labels_do_not_matter() -> None:
    data = silo_data(40)
    given, removed = (trained("jdsh", part, epochs=2) for part in (data, replace(data, labels=None, federation=None)))
    assert given.terms == removed.terms
    assert all(np.array_equal(array, removed.update.params[name]) for name, array in given.update.params.items())


def test_the_card_names_the_paper() -> None:
    assert (CARD.key, CARD.year, CARD.supervised) == ("jdsh", 2020, False)
    assert not JDSH.traits.needs_labels
