"""The towers: shapes, scale, groups, which modalities run."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from silohash.base.errors import UnsuitableFeatures
from silohash.base.types import Outputs, PairBatch
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.models.towers import (
    Adapted,
    AnchorKernel,
    Dropout,
    HashNet,
    batch_of,
    conv,
    gaussian_kernel,
    group_of,
    hash_layers,
    layers_of,
    outputs_over,
    standardized,
    tokens,
)
from tests.runs import model_spec, silo_data

MEAN, DEVIATION = torch.tensor([100.0]).reshape(1, 1, 1), torch.tensor([4.0]).reshape(1, 1, 1)


@pytest.mark.parametrize("hidden", [6, 8])
def test_vectors_of_items_and_tokens_are_mapped_alike_unless_they_have_the_width(hidden: int) -> None:
    torch.manual_seed(0)
    network, values = tokens(TowerSpec("tokens", (5, 6), hidden=hidden, dropout=0.5)).eval(), torch.randn(2, 5, 6)
    expected = values if hidden == 6 else network[0](values.reshape(10, 6)).reshape(2, 5, 8)
    torch.testing.assert_close(network(values), expected)
    assert isinstance(network[-1], nn.Dropout)
    assert network[-1].p == 0.5


@pytest.mark.parametrize("shape", [(1, 32, 32), (3, 64, 48), (1, 16, 16), (3, 33, 17)])
def test_conv_takes_small_pictures(shape: tuple[int, int, int]) -> None:
    network = conv(TowerSpec("conv", shape, hidden=12))
    assert network(torch.zeros(2, *shape)).shape == (2, 12)


@pytest.mark.parametrize("shape", [(1, 4, 4), (1, 65, 65), (1, 32, 4)])
def test_conv_refuses_other_sizes(shape: tuple[int, int, int]) -> None:
    with pytest.raises(UnsuitableFeatures, match=r"features\.image\.size"):
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


class Doubling(nn.Module):
    """Codes are twice the text and minus the image; remembers in which mode it ran."""

    modalities = ("image", "text")
    bits = 8

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.modes: list[bool] = []

    def forward(self, batch: PairBatch, modalities: object = None) -> Outputs:
        self.modes.append(self.training)
        code = {}
        if batch.image is not None:
            code["image"] = -batch.image
        if batch.text is not None:
            code["text"] = 2 * batch.text * self.weight
        return Outputs(feature={}, logit={}, code=code)


def test_integer_pixels_are_standardized_and_floats_are_not() -> None:
    pixels = torch.tensor([[[[108, 96]]]], dtype=torch.uint8)
    assert standardized(pixels, MEAN, DEVIATION).flatten().tolist() == [2.0, -1.0]
    assert pixels.flatten().tolist() == [108, 96]
    assert standardized(pixels, None, DEVIATION).flatten().tolist() == [108.0, 96.0]
    assert standardized(pixels, MEAN, None).dtype == torch.float32
    vectors = torch.tensor([[108.0]])
    assert standardized(vectors, MEAN, DEVIATION) is vectors


def test_batches_of_one_modality() -> None:
    pixels = torch.tensor([[[[104]]], [[[100]]]], dtype=torch.uint8)
    image = batch_of(pixels, "image", {"pixel_mean": MEAN, "pixel_deviation": DEVIATION})
    assert image.image.flatten().tolist() == [1.0, 0.0]
    assert (image.text, image.labels) == (None, None)
    assert (image.row.tolist(), image.has_image.tolist(), image.has_text.tolist()) == ([0, 1], [True] * 2, [False] * 2)
    words = torch.tensor([[1, 2, -1]], dtype=torch.int32)
    text = batch_of(words, "text", {})
    assert text.text is words
    assert text.image is None
    assert (text.has_image.tolist(), text.has_text.tolist()) == ([False], [True])


def test_rows_without_a_modality_are_zero_and_the_mode_is_restored() -> None:
    batches = [
        PairBatch(
            row=torch.arange(2), image=torch.ones(2, 1), text=torch.full((2, 1), 3.0), labels=None,
            has_image=torch.tensor([True, False]), has_text=torch.tensor([False, True]),
        )
    ] * 2  # fmt: skip
    for training in (True, False):
        model = Doubling().train(training)
        found = outputs_over(model, batches)
        assert found["image"].flatten().tolist() == [-1.0, 0.0, -1.0, 0.0]
        assert found["text"].flatten().tolist() == [0.0, 6.0, 0.0, 6.0]
        assert not found["text"].requires_grad
        assert model.modes == [False, False]
        assert model.training is training
    assert outputs_over(Doubling(), batches, part="logit") == {}


@pytest.mark.parametrize(("adapts", "training", "shifted"), [(True, True, 1), (False, True, 0), (False, False, 1)])
def test_outputs_are_adapted_in_search_and_on_request_in_training(adapts: bool, training: bool, shifted: int) -> None:
    def shift(outputs: Outputs, extras: dict[str, torch.Tensor]) -> Outputs:
        return Outputs(feature={}, logit={}, code={m: code + extras["by"] for m, code in outputs.code.items()})

    method = SimpleNamespace(adapts_training=adapts, adapt_outputs=shift)
    model = Adapted(Doubling(), method, {"by": np.array(1.0, np.float32)}).train(training)
    assert (model.modalities, model.bits) == (("image", "text"), 8)
    found = model(batch_of(torch.ones(1, 1), "text", {})).code["text"]
    assert found.item() == 2.0 + shifted


@pytest.mark.parametrize(("size", "convolutions", "flattened"), [(16, 1, 32 * 16), (20, 2, 64 * 9), (64, 3, 128 * 16)])
def test_maps_are_halved_until_four_pixels_are_left(size: int, convolutions: int, flattened: int) -> None:
    layers = list(conv(TowerSpec(kind="conv", shape=(1, size, size), hidden=8)))
    assert sum(isinstance(layer, nn.Conv2d) for layer in layers) == convolutions
    (linear,) = (layer for layer in layers if isinstance(layer, nn.Linear))
    assert linear.in_features == flattened


def test_hash_layers_are_the_second_part_of_a_name() -> None:
    names = ["image.hash.weight", "image.backbone.0.weight", "text.hash.bias", "hash.weight", "fusion"]
    assert hash_layers(names) == ["image.hash.weight", "text.hash.bias"]


def test_layers_are_tensors_of_one_place() -> None:
    assert layers_of(["image.hash.weight", "image.hash.bias", "image.backbone.0.weight"]) == {
        "image.hash": ["image.hash.weight", "image.hash.bias"],
        "image.backbone.0": ["image.backbone.0.weight"],
    }


@pytest.mark.parametrize(
    ("height", "width", "flattened"), [(16, 20, 64 * 2 * 3), (20, 16, 64 * 3 * 2), (17, 16, 64 * 3 * 2)]
)
def test_maps_need_not_be_square(height: int, width: int, flattened: int) -> None:
    layers = list(conv(TowerSpec(kind="conv", shape=(2, height, width), hidden=8, dropout=0.25)))
    (linear,) = (layer for layer in layers if isinstance(layer, nn.Linear))
    assert (linear.in_features, linear.out_features) == (flattened, 8)
    first, second = (layer for layer in layers if isinstance(layer, nn.Conv2d))
    assert (first.in_channels, first.out_channels, first.kernel_size) == (2, 32, (5, 5))
    assert (first.stride, first.padding) == ((4, 4), (2, 2))
    assert (second.out_channels, second.kernel_size, second.stride, second.padding) == (64, (3, 3), (2, 2), (1, 1))
    assert layers[-1].p == 0.25


def test_sizes_at_the_bounds() -> None:
    for shape in ((1, 16, 64), (1, 64, 16)):
        assert conv(TowerSpec("conv", shape, hidden=4))(torch.zeros(1, *shape)).shape == (1, 4)
    for shape in ((1, 15, 16), (1, 64, 65)):
        with pytest.raises(UnsuitableFeatures):
            conv(TowerSpec("conv", shape))


def test_a_class_head_classifies_the_outputs_and_leaves_the_towers_as_they_are() -> None:
    torch.manual_seed(0)
    plain = HashNet(model_spec(), 8).eval()
    torch.manual_seed(0)
    model = HashNet(replace(model_spec(), class_head=True), 8).eval()
    batch = silo_data(3).batch(torch.arange(3))
    outputs = model(batch)
    assert torch.equal(outputs.logit["text"], plain(batch).logit["text"])
    assert plain(batch).class_logit == {}
    expected = model.get_submodule("text.classifier")(outputs.logit["text"])
    assert torch.equal(outputs.class_logit["text"], expected)
    assert expected.shape == (3, model_spec().classes)


def test_the_kernel_has_no_factor_of_two() -> None:
    generator = torch.Generator().manual_seed(0)
    vectors, anchors = (torch.randn(n, 4, generator=generator, dtype=torch.float64) for n in (5, 3))
    found = gaussian_kernel(vectors, anchors, torch.tensor(2.5))
    for i in range(5):
        for j in range(3):
            squared = sum((float(vectors[i, d]) - float(anchors[j, d])) ** 2 for d in range(4))
            assert found[i, j].item() == pytest.approx(math.exp(-squared / 2.5))


def test_an_input_is_as_similar_to_itself_as_can_be() -> None:
    vectors = 1e3 * torch.randn(6, 7, generator=torch.Generator().manual_seed(0))
    found = gaussian_kernel(vectors, vectors, torch.tensor(1e-6))
    assert (found <= 1.0).all()


def test_features_are_the_similarities_of_flattened_inputs() -> None:
    tower = AnchorKernel(TowerSpec("kernel", (2, 2, 1), hidden=3))
    assert dict(tower.named_parameters()) == {}
    assert {name: tuple(b.shape) for name, b in tower.named_buffers()} == {"anchors": (3, 4), "width": ()}
    tower.anchors[1] = 1.0
    found = tower(torch.ones(5, 2, 2, 1))
    assert found.shape == (5, 3)
    assert found[0].tolist() == pytest.approx([math.exp(-4.0), 1.0, math.exp(-4.0)])


def test_the_buffers_are_part_of_the_model() -> None:
    model = HashNet(ModelSpec({"text": TowerSpec("kernel", (6,), hidden=3)}, 2), 8)
    assert set(model.state_dict()) == {
        "text.backbone.anchors", "text.backbone.width", "text.hash.weight", "text.hash.bias",
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["mlp", "linear"])
def test_projections_are_features_before_dropout(kind: str) -> None:
    tower = TowerSpec(kind, (16,), hidden=16, dropout=0.5, scale=2.0)
    model = HashNet(ModelSpec({"image": tower}, classes=0), 8)
    batch = silo_data(20, text=False).batch(torch.arange(20))
    outputs = model.train()(batch)
    still = model.eval()(batch)
    assert torch.equal(outputs.projection["image"], still.projection["image"])
    assert torch.equal(still.projection["image"], still.feature["image"])
    dropped = outputs.feature["image"] == 0
    assert bool((dropped & (outputs.projection["image"] != 0)).any()) == (kind == "mlp")
    torch.testing.assert_close(
        outputs.feature["image"][~dropped], (2.0 if kind == "mlp" else 1.0) * outputs.projection["image"][~dropped]
    )
    assert torch.equal(outputs.logit["image"], model.image.hash(outputs.feature["image"]))


@pytest.mark.parametrize("p", [0.0, 0.1, 0.3, 0.5, 0.75])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_equals_that_of_pytorch_bit_by_bit(p, dtype):
    values = torch.randn(7, 33, dtype=dtype)
    found = []
    for layer in (nn.Dropout(p), Dropout(p)):
        given = values.clone().requires_grad_()
        torch.manual_seed(5)
        first = layer(given)
        (first * layer(given)).sum().backward()
        found.append((first.detach(), given.grad, torch.rand(())))
    for theirs, ours in zip(*found, strict=True):
        assert torch.equal(theirs, ours)
    assert (found[1][0] == 0).float().mean() == pytest.approx(p, abs=0.15)


def test_passes_its_input_on_when_a_model_is_evaluated():
    values = torch.randn(3, 4)
    assert Dropout(0.5).eval()(values) is values
