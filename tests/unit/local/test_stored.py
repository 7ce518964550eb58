"""Stored outputs: all items at the start, those of a batch after a step, and what replaces a missing partner."""

from __future__ import annotations

from dataclasses import replace

import torch

from silohash.local.base import SiloState, outputs_of
from silohash.local.stored import joint_codes, partner_outputs, store_all, store_batch, stored_modalities
from silohash.models.towers import HashNet
from silohash.types import Outputs
from tests.runs import model_spec, silo_data


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
    store_batch("text", outputs, data.batch(torch.tensor([3, 1])), state)
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
