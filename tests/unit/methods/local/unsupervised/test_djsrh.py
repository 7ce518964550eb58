"""DJSRH: the affinity and the reconstruction against explicit loops in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from silohash.methods.local.unsupervised.base import CodePair
from silohash.methods.local.unsupervised.djsrh import CARD, DJSRH, DJSRHParams, joint_affinity
from silohash.testing.inputs import lacking, silo_data
from tests.unit.methods.federated.helpers import draw
from tests.unit.methods.local.helpers import cosine, trained

TEXT, SECOND, SCALE, WITHIN = 0.3, 0.25, 1.2, 0.5
PARAMS = DJSRHParams(text_weight=TEXT, second_order_weight=SECOND, scale=SCALE, within_weight=WITHIN)


def affinity_loops(similarity: Tensor) -> list[list[float]]:
    """Return the joint affinity, pair by pair."""
    count = len(similarity)
    return [
        [
            SCALE
            * (
                (1 - SECOND) * float(similarity[i, j])
                + SECOND * sum(float(similarity[i, k] * similarity[j, k]) for k in range(count)) / count
            )
            for j in range(count)
        ]
        for i in range(count)
    ]


def test_joint_affinity_against_loops() -> None:
    similarity = draw(5, 5).tanh()
    assert joint_affinity(similarity, SECOND, SCALE).numpy() == pytest.approx(np.array(affinity_loops(similarity)))


def test_losses_against_loops() -> None:
    data, count = silo_data(9), 9
    assert data.image is not None
    assert data.text is not None
    image, text = data.image.double(), data.text.double()
    similarity = torch.tensor(
        [
            [
                (1 - TEXT) * (2 * cosine(image[i], image[j]) - 1) + TEXT * (2 * cosine(text[i], text[j]) - 1)
                for j in range(count)
            ]
            for i in range(count)
        ],
        dtype=torch.float64,
    )
    wanted, pair = affinity_loops(similarity), CodePair(draw(count, 4), draw(count, 4, seed=1))
    terms = DJSRH(PARAMS).losses(pair, data.batch(torch.arange(count)), {})
    for name, one, other in (("between", *pair), ("within_images", *pair[:1] * 2), ("within_texts", *pair[1:] * 2)):
        expected = np.mean([(cosine(one[i], other[j]) - wanted[i][j]) ** 2 for i in range(count) for j in range(count)])
        assert float(terms[name][1]) == pytest.approx(float(expected), abs=1e-5)
    assert {name: weight for name, (weight, _) in terms.items()} == {
        "between": 1.0, "within_images": WITHIN, "within_texts": WITHIN
    }  # fmt: skip


def test_items_without_a_common_modality_do_not_count() -> None:
    data = lacking("no pairs")
    batch, pair = data.batch(torch.arange(20)), CodePair(draw(20, 4), draw(20, 4, seed=1))
    value = float(DJSRH(PARAMS).losses(pair, batch, {})["between"][1])
    target = DJSRH(PARAMS)._target(batch)
    assert target.known is not None
    assert torch.equal(target.known > 0, data.has_image.unsqueeze(1) == data.has_image)
    gaps = [
        (cosine(pair.image[i], pair.text[j]) - float(target.values[i, j])) ** 2
        for i in range(20)
        for j in range(20)
        if data.has_image[i] == data.has_image[j]
    ]
    assert value == pytest.approx(float(np.mean(gaps)), abs=1e-5)


def test_labels_do_not_matter() -> None:
    data = silo_data(40)
    given, removed = (trained("djsrh", part, epochs=2) for part in (data, replace(data, labels=None, federation=None)))
    assert given.terms == removed.terms
    assert all(np.array_equal(array, removed.update.params[name]) for name, array in given.update.params.items())


def test_the_card_names_the_paper() -> None:
    assert (CARD.key, CARD.year, CARD.supervised) == ("djsrh", 2019, False)
    assert not DJSRH.traits.needs_labels
