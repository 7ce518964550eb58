"""What matching methods share: the pairs that count, the first epochs, and the towers that they need."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name

from silohash.base.errors import NoEffect, UnsuitableFeatures
from silohash.base.types import Outputs
from silohash.methods.local.base import SiloState
from silohash.methods.local.matching.base import (
    PICTURES,
    SHARPNESS,
    Matching,
    MatchingParams,
    distilled,
    max_violation,
    relaxed,
    towers_of,
)
from silohash.methods.local.matching.vsepp import VSEpp
from silohash.models.matching_net import MatchingNet
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.models.towers import batch_of
from silohash.testing.inputs import node_data, node_spec


class Fixed(Matching):
    """A method whose network is never built."""

    def network(self, spec: ModelSpec) -> MatchingNet:
        raise NotImplementedError


SCORES = torch.randn(6, 6, generator=torch.Generator().manual_seed(0))


def loss(method: Matching, state: SiloState, rows: torch.Tensor | None = None, **data: torch.Tensor) -> float | None:
    """Return the hinge term of a batch with fixed scores."""
    batch = replace(node_data(6), **data).batch(torch.arange(6) if rows is None else rows)
    codes = {"image": SCORES, "text": SCORES.T}
    outputs = Outputs(feature={}, logit=codes, code=codes, pair_score=SCORES)
    terms = method.terms(method.steps(torch.nn.Identity())[0], outputs, batch, state)
    return float(terms["hinge"][1]) if terms else None


def state_of(method: Matching, *, before: int = 5, pictures: torch.Tensor | None = None) -> SiloState:
    state = SiloState(epochs=before)
    method.init_state(torch.nn.Identity(), replace(node_data(6), pictures=pictures), state)
    return state


def test_texts_of_one_picture_are_no_wrong_partners() -> None:
    method, numbers = Fixed(MatchingParams()), torch.tensor([4, 4, 9, 8, 9, 9])
    state = state_of(method, pictures=numbers)
    assert torch.equal(state.buffers[PICTURES], numbers)
    expected = max_violation(SCORES, 0.2, same=numbers[:, None] == numbers)
    assert loss(method, state) == pytest.approx(float(expected))
    turned = torch.tensor([5, 4, 3, 2, 1, 0])
    other = max_violation(SCORES, 0.2, same=numbers[turned][:, None] == numbers[turned])
    assert loss(method, state, turned) == pytest.approx(float(other))


def test_rows_without_a_partner_do_not_count() -> None:
    method = Fixed(MatchingParams())
    has = torch.tensor([True, True, False, True, True, True])
    found = loss(method, state_of(method), has_image=has, has_text=has.flip(0))
    kept = torch.tensor([0, 1, 4, 5])
    assert found == pytest.approx(float(max_violation(SCORES[kept][:, kept], 0.2)))
    only = torch.tensor([True, False, False, False, False, False])
    assert loss(method, state_of(method), has_image=only) is None


def test_all_wrong_partners_count_in_the_first_epochs() -> None:
    method = Fixed(MatchingParams(margin=0.1, easy_epochs=2))
    state = state_of(method, before=1)
    assert loss(method, state) == pytest.approx(float(max_violation(SCORES, 0.1, hardest=False)))
    state.epochs = 2
    assert loss(method, state) == pytest.approx(float(max_violation(SCORES, 0.1)))
    every = Fixed(MatchingParams(margin=0.1, hardest=False))
    assert loss(every, state) == pytest.approx(float(max_violation(SCORES, 0.1, hardest=False)))


def test_other_features_are_refused() -> None:
    image, text = towers_of(node_spec(), "scan")
    assert (image.kind, text.kind) == ("regions", "words")
    with pytest.raises(UnsuitableFeatures, match="scan"):
        towers_of(ModelSpec({"image": TowerSpec("mlp", (4,)), "text": text}, classes=0), "scan")
    parsed = ModelSpec({"image": image, "text": replace(text, shape=(2, *text.shape))}, classes=0)
    with pytest.raises(NoEffect, match="scan"):
        towers_of(parsed, "scan")
    assert towers_of(parsed, "gsmn", with_heads=True)[1].shape == (2, *text.shape)


def plain(scores: torch.Tensor, margin: float, *, hardest: bool, same: torch.Tensor) -> float:
    total, count = 0.0, len(scores)
    for i in range(count):
        for row in (True, False):
            wrong = [
                max(0.0, margin + float(scores[i, j] if row else scores[j, i]) - float(scores[i, i]))
                for j in range(count)
                if i != j and not (same[i, j] if row else same[j, i])
            ]
            total += (max(wrong, default=0.0)) if hardest else sum(wrong)
    return total


@pytest.mark.parametrize("hardest", [True, False])
@pytest.mark.parametrize("pictures", [[0, 1, 2, 3, 4], [0, 1, 0, 2, 1], [7, 7, 7, 7, 7]])
def test_equals_plain_loops(hardest: bool, pictures: list[int]) -> None:
    scores = torch.randn(5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    numbers = torch.tensor(pictures)
    same = numbers[:, None] == numbers
    found = max_violation(scores, 0.3, hardest=hardest, same=same)
    assert float(found) == pytest.approx(plain(scores, 0.3, hardest=hardest, same=same))


def test_the_diagonal_is_right_without_being_named() -> None:
    scores = torch.randn(4, 4, dtype=torch.float64)
    assert float(max_violation(scores, 0.2)) == pytest.approx(
        plain(scores, 0.2, hardest=True, same=torch.zeros(4, 4, dtype=torch.bool))
    )
    assert float(max_violation(torch.ones(1, 1), 0.2)) == 0.0


def standardized(matrix: list[list[float]]) -> list[list[float]]:
    flat = [value for row in matrix for value in row]
    mean = sum(flat) / len(flat)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in flat) / (len(flat) - 1))
    return [[SHARPNESS * (value - mean) / deviation for value in row] for row in matrix]


def entropy(found: list[list[float]], wanted: list[list[float]]) -> float:
    total = 0.0
    for ours, theirs in zip(found, wanted, strict=True):
        weights = [math.exp(value) for value in theirs]
        log_sum = math.log(sum(math.exp(value) for value in ours))
        total += sum(w / sum(weights) * (log_sum - value) for w, value in zip(weights, ours, strict=True))
    return total / len(found)


def test_the_loss_is_the_cross_entropy_of_both_directions() -> None:
    scores, images, texts = (torch.randn(*shape, dtype=torch.float64) for shape in ((5, 5), (5, 8), (5, 8)))
    cosines = [[float(F.cosine_similarity(i.tanh(), t.tanh(), dim=0)) for t in texts] for i in images]
    found, wanted = standardized(cosines), standardized(scores.tolist())
    columns = [list(map(list, zip(*matrix, strict=True))) for matrix in (found, wanted)]
    expected = entropy(found, wanted) + entropy(*columns)
    assert float(distilled(scores, images, texts)) == pytest.approx(expected, rel=1e-9)


def test_the_loss_is_smallest_where_codes_have_the_order_of_the_scores() -> None:
    images, texts = torch.randn(6, 16), torch.randn(6, 16)
    scores = 3 * relaxed(images) @ relaxed(texts).T + 1
    images.requires_grad_()
    loss = distilled(scores, images, texts)
    loss.backward()
    assert images.grad is not None
    assert images.grad.abs().max() < 1e-5
    assert loss < distilled(scores.flip(0), images, texts)


def test_equal_scores_give_a_finite_loss() -> None:
    images = torch.zeros(3, 4, requires_grad=True)
    distilled(torch.ones(3, 3), images, torch.zeros(3, 4)).backward()
    assert images.grad is not None
    assert images.grad.isfinite().all()


def test_codes_do_not_move_the_network_that_scores() -> None:
    net = VSEpp(VSEpp.Params(word_width=7)).build(node_spec(), 16)
    data = node_data(6)
    outputs = net(batch_of(data.image, "image", {}))
    outputs.logit["image"].square().sum().backward()
    moved = {name for name, parameter in net.named_parameters() if parameter.grad is not None}
    assert moved
    assert all(name.startswith("codes.image.") for name in moved)
