"""The towers: shapes, scale, groups, which modalities run."""

from __future__ import annotations

import pytest
import torch

from silohash.models.specs import ModelSpec, TowerSpec
from silohash.models.towers import HashNet, batch_of, conv, group_of, outputs_over, standardized
from silohash.types import UserError
from tests.runs import model_spec, silo_data


@pytest.mark.parametrize("shape", [(1, 32, 32), (3, 64, 48), (1, 16, 16), (3, 33, 17)])
def test_conv_takes_small_pictures(shape: tuple[int, int, int]) -> None:
    network = conv(TowerSpec("conv", shape, hidden=12))
    assert network(torch.zeros(2, *shape)).shape == (2, 12)


@pytest.mark.parametrize("shape", [(1, 4, 4), (1, 65, 65), (1, 32, 4)])
def test_conv_refuses_other_sizes(shape: tuple[int, int, int]) -> None:
    with pytest.raises(UserError, match=r"features\.image\.size"):
        conv(TowerSpec("conv", shape))


@pytest.mark.parametrize(("image", "text"), [(True, True), (True, False), (False, True)])
def test_outputs_of_the_modalities_that_are_there(image: bool, text: bool) -> None:
    model = HashNet(model_spec(image=image, text=text), 24)
    batch = silo_data(5).batch(torch.arange(5))
    there = [name for name, given in (("image", image), ("text", text)) if given]
    outputs = model(batch)
    assert list(model.modalities) == list(outputs.code) == there
    assert all(outputs.code[name].shape == (5, 24) for name in there)
    assert all(outputs.feature[name].shape == (5, 16) for name in there)
    assert set(model(batch, ("text",)).code) == set(there) & {"text"}
    assert {group_of(name) for name in model.state_dict()} == set(there)


def test_batch_without_a_modality_leaves_its_tower_out() -> None:
    outputs = HashNet(model_spec(), 8)(silo_data(5, text=False).batch(torch.arange(5)))
    assert list(outputs.code) == ["image"]


def test_relaxation() -> None:
    torch.manual_seed(0)
    plain = HashNet(model_spec(), 8).eval()
    torch.manual_seed(0)
    relaxed = HashNet(model_spec(), 8, relaxation="tanh").eval()
    batch = silo_data(5).batch(torch.arange(5))
    assert torch.equal(plain(batch).code["image"], plain(batch).logit["image"])
    assert torch.equal(relaxed(batch).code["image"], torch.tanh(plain(batch).logit["image"]))


def test_inputs_are_scaled() -> None:
    torch.manual_seed(0)
    plain = HashNet(ModelSpec({"text": TowerSpec("mlp", (16,), 8)}, 0), 8).eval()
    torch.manual_seed(0)
    louder = HashNet(ModelSpec({"text": TowerSpec("mlp", (16,), 8, scale=3.0)}, 0), 8).eval()
    data = silo_data(5)
    batch, loud = data.batch(torch.arange(5)), louder(data.batch(torch.arange(5))).logit["text"]
    batch.text.mul_(3.0)
    assert torch.allclose(plain(batch).logit["text"], loud)


def test_pixels_are_standardized_and_floats_are_not() -> None:
    pixels = torch.tensor([[[[0, 255]]], [[[51, 102]]]], dtype=torch.uint8)
    mean, deviation = torch.tensor([[[51.0]]]), torch.tensor([[[2.0]]])
    batch = batch_of(pixels, "image", {"pixel_mean": mean, "pixel_deviation": deviation})
    assert batch.image.flatten().tolist() == [-25.5, 102.0, 0.0, 25.5]
    assert batch.text is None
    assert batch.has_image.tolist() == [True, True]
    assert batch.has_text.tolist() == [False, False]
    floats = torch.tensor([[0.5, 2.0]])
    assert standardized(floats, mean, deviation) is floats
    assert batch_of(floats, "text", {}).text is floats


def test_outputs_over_batches_are_those_of_all_rows_and_keep_the_mode() -> None:
    model, data = HashNet(model_spec(dropout=0.5), 8).train(), silo_data(7)
    parts = outputs_over(model, [data.batch(torch.arange(3)), data.batch(torch.arange(3, 7))], part="logit")
    assert model.training
    whole = model.eval()(data.batch(torch.arange(7))).logit
    for modality in ("image", "text"):
        torch.testing.assert_close(parts[modality], whole[modality])
