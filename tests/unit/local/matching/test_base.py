"""What matching methods share: the pairs that count, the first epochs, and the towers that they need."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from silohash.local.base import SiloState
from silohash.local.matching.base import EPOCHS, PICTURES, Matching, MatchingParams, pooled, towers_of
from silohash.local.matching.hinge import max_violation
from silohash.models.matching_net import MatchingNet
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.testing.matching import node_data, node_spec
from silohash.types import Outputs, UserError


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
    state = SiloState(epochs_before=before)
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
    method.end_epoch(torch.nn.Identity(), node_data(6), state)
    assert int(state.buffers[EPOCHS]) == 2
    assert loss(method, state) == pytest.approx(float(max_violation(SCORES, 0.1)))
    every = Fixed(MatchingParams(margin=0.1, hardest=False))
    assert loss(every, state) == pytest.approx(float(max_violation(SCORES, 0.1, hardest=False)))


def test_other_features_are_refused() -> None:
    image, text = towers_of(node_spec(), "scan")
    assert (image.kind, text.kind) == ("regions", "words")
    with pytest.raises(UserError, match=r'local\.name "scan" matches regions with words'):
        towers_of(ModelSpec({"image": TowerSpec("mlp", (4,)), "text": text}, classes=0), "scan")
    parsed = ModelSpec({"image": image, "text": replace(text, shape=(2, *text.shape))}, classes=0)
    with pytest.raises(UserError, match=r'features\.text\.parses has no effect on local\.name "scan"'):
        towers_of(parsed, "scan")
    assert towers_of(parsed, "gsmn", with_heads=True)[1].shape == (2, *text.shape)


def test_pooled_nodes_leave_padding_out() -> None:
    values = torch.tensor([[[2.0], [4.0], [0.0]], [[0.0], [0.0], [0.0]]])
    mask = torch.tensor([[True, True, False], [False, False, False]])
    assert pooled(values, mask).tolist() == [[3.0], [0.0]]
