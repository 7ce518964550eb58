"""The pairs of a batch and stored items: their labels, the likelihood against explicit loops in float64, the collapse."""

from __future__ import annotations

import math

import pytest
import torch

from silohash.methods.local.base import SiloState
from silohash.methods.local.losses import mean_similarity
from silohash.methods.local.stored_pairs import collapse_warnings, labels_and_share, stored_likelihood
from tests.runs import silo_data
from tests.unit.methods.federated.helpers import draw, hot


@pytest.mark.parametrize("graded", [False, True])
def test_labels_and_the_share_of_similar_pairs(graded: bool) -> None:
    data = silo_data(9)
    found = labels_and_share(data, graded=graded)
    assert set(found) == {"labels", "share"}
    assert torch.equal(found["labels"], data.labels)
    assert torch.equal(found["share"], mean_similarity(data.labels, graded=graded))


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("balanced", [True, False])
def test_the_likelihood_of_stored_pairs_equals_loops(graded: bool, balanced: bool) -> None:
    labels, share = hot(12, 5), 0.3
    rows, anchors = torch.tensor([4, 0, 7]), torch.tensor([1, 2, 7, 11])
    codes, stored = draw(3, 8), draw(4, 8, seed=1)
    state = SiloState({"labels": labels, "share": torch.tensor(share, dtype=torch.float64)})
    found = stored_likelihood(codes, stored, rows, anchors, state, graded=graded, balanced=balanced)
    assert found.shape == (3, 4)
    for i, row in enumerate(rows.tolist()):
        for j, anchor in enumerate(anchors.tolist()):
            shared = float(labels[row] @ labels[anchor])
            lengths = math.sqrt(float(labels[row].sum()) * float(labels[anchor].sum()))
            similar = shared / lengths if graded else float(shared > 0)
            theta = 0.5 * float(codes[i] @ stored[j])
            weight = similar * 0.5 / share + (1 - similar) * 0.5 / (1 - share) if balanced else 1.0
            expected = weight * (math.log1p(math.exp(theta)) - similar * theta)
            assert float(found[i, j]) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize(
    ("terms", "balanced", "warned"),
    [
        ({"likelihood": math.log(2) + 0.9e-4}, False, True),
        ({"likelihood": math.log(2) - 0.9e-4}, False, True),
        ({"likelihood": math.log(2) + 1.1e-4}, False, False),
        ({"likelihood": math.log(2) - 1.1e-4}, False, False),
        ({"likelihood": math.log(2)}, True, False),
        ({}, False, False),
    ],
)
def test_a_collapse_is_a_likelihood_of_ln_2(terms: dict[str, float], balanced: bool, warned: bool) -> None:
    found = collapse_warnings(terms, balanced=balanced, remedy="Raise the learning rate.")
    expected = "The codes have collapsed: the likelihood per pair is ln 2, as if every output were zero."
    assert found == ([f"{expected} Raise the learning rate."] if warned else [])
