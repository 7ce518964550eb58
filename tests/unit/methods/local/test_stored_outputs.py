"""The pairs of a batch and stored items: their labels, the likelihood against explicit loops in float64, the collapse."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from silohash.base.types import Outputs
from silohash.methods.local.base import SiloState, outputs_of, store_all
from silohash.methods.local.image.dpsh import DPSH, DPSHParams
from silohash.methods.local.losses import mean_similarity
from silohash.methods.local.stored_outputs import (
    draw_anchors,
    drawn_rows,
    joint_codes,
    partner_outputs,
    store_batch,
    stored_modalities,
)
from silohash.models.towers import HashNet
from tests.runs import model_spec, silo_data
from tests.unit.methods.federated.helpers import draw, hot


@pytest.mark.parametrize("graded", [False, True])
def test_labels_and_the_share_of_similar_pairs(graded: bool) -> None:
    data, state = silo_data(9), SiloState()
    DPSH(DPSHParams(similarity="graded" if graded else "any")).init_state(HashNet(model_spec(), 8), data, state)
    assert set(state.buffers) == {"labels", "share", "image", "text", "has_image", "has_text", "anchors"}
    assert torch.equal(state.buffers["labels"], data.labels)
    assert torch.equal(state.buffers["share"], mean_similarity(data.labels, graded=graded))


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("balanced", [True, False])
def test_the_likelihood_of_stored_pairs_equals_loops(graded: bool, balanced: bool) -> None:
    labels, share = hot(12, 5), 0.3
    rows, anchors = torch.tensor([4, 0, 7]), torch.tensor([1, 2, 7, 11])
    codes, stored = draw(3, 8), draw(4, 8, seed=1)
    state = SiloState({"labels": labels, "share": torch.tensor(share, dtype=torch.float64)})
    method = DPSH(DPSHParams(similarity="graded" if graded else "any", class_balance=balanced))
    found = method.likelihood(codes, stored, rows, anchors, state)
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
    found = DPSH(DPSHParams(class_balance=balanced)).warnings(terms)
    expected = "The codes have collapsed: the likelihood per pair is ln 2, as if every output were zero."
    assert found == ([f"{expected} Raise the learning rate, or use the preset recommended."] if warned else [])


def stored(*, image: torch.Tensor, text: torch.Tensor, has_text: torch.Tensor) -> SiloState:
    return SiloState({"image": image, "text": text, "has_image": torch.ones(len(image)).bool(), "has_text": has_text})


def test_all_items_are_stored_as_the_model_encodes_them() -> None:
    torch.manual_seed(0)
    data, state = silo_data(9), SiloState({"labels": torch.ones(1)})
    model = HashNet(model_spec(), 8)
    store_all(model, data, state)
    for modality, codes in outputs_of(model, data).items():
        assert torch.equal(state.buffers[modality], codes)
        assert torch.equal(state.buffers[f"has_{modality}"], data.has(modality))
    assert stored_modalities(state) == ("image", "text")
    assert "labels" in state.buffers


def test_a_batch_replaces_its_rows_and_items_without_the_modality_are_zero() -> None:
    data = replace(silo_data(4), has_text=torch.tensor([True, False, True, True]))
    state = stored(image=torch.zeros(4, 2), text=torch.ones(4, 2), has_text=data.has_text)
    codes = torch.tensor([[2.0, 3.0], [4.0, 5.0]], requires_grad=True)
    outputs = Outputs(feature={}, logit={}, code={"text": codes})
    store_batch(outputs, data.batch(torch.tensor([3, 1])), state)
    assert state.buffers["text"].tolist() == [[1, 1], [0, 0], [1, 1], [2, 3]]
    assert not state.buffers["text"].requires_grad


def test_the_joint_code_is_the_sign_of_the_sum() -> None:
    image, text = torch.tensor([[1.0, -1.0, 0.5]]), torch.tensor([[-2.0, 1.0, 0.5]])
    state = stored(image=image, text=text, has_text=torch.ones(1).bool())
    assert joint_codes(state).tolist() == [[-1, 1, 1]]
    assert joint_codes(SiloState({"text": text})).tolist() == [[-1, 1, 1]]
    assert joint_codes(SiloState({"image": image})).tolist() == [[1, -1, 1]]


def test_a_missing_partner_is_replaced_by_the_item_itself() -> None:
    image, text = torch.arange(6.0).reshape(3, 2), -torch.arange(6.0).reshape(3, 2)
    state = stored(image=image, text=text, has_text=torch.tensor([True, False, True]))
    assert partner_outputs(state, "image", torch.tensor([0, 1, 2])).tolist() == [[0, -1], [2, 3], [-4, -5]]
    assert partner_outputs(state, "image", torch.tensor([2])).tolist() == [[-4, -5]]
    assert partner_outputs(state, "text", torch.tensor([2, 1])).tolist() == [[4, 5], [2, 3]]
    alone = SiloState({"image": image, "has_image": torch.ones(3).bool()})
    assert partner_outputs(alone, "image", torch.tensor([1])).tolist() == [[2, 3]]


@pytest.mark.parametrize(("count", "most"), [(5, 5), (5, 6), (0, 3), (40, 6)])
def test_drawn_rows_are_different_and_ascending(count: int, most: int) -> None:
    torch.manual_seed(0)
    found = drawn_rows(count, most, torch.device("cpu")).tolist()
    assert len(found) == min(count, most)
    assert sorted(set(found)) == found
    assert set(found) <= set(range(count))
    if most < count:
        assert drawn_rows(count, most, torch.device("cpu")).tolist() != found


def test_anchors_are_drawn_from_all_items_of_the_silo() -> None:
    state = SiloState({"labels": torch.ones(1)})
    draw_anchors(silo_data(5), state, 9)
    assert state.buffers["anchors"].tolist() == [0, 1, 2, 3, 4]
    draw_anchors(silo_data(5), state, 2)
    assert len(state.buffers["anchors"].unique()) == len(state.buffers["anchors"]) == 2
    assert "labels" in state.buffers
