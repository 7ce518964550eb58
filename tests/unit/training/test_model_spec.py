"""The towers of a run: their kinds, scales and widths."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

from silohash.base.errors import UnsuitableFeatures
from silohash.features.given import GivenFeatures
from silohash.features.image import PixelFeatures
from silohash.features.nodes.regions import RegionFeatures
from silohash.features.text import BagOfWords
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.models.towers import HashNet
from silohash.run.config.sections import ModelConfig
from silohash.training.model_spec import input_scale, networks_of, tower_spec

WIDTHS = {"image": [12], "text": [32, 24]}


def test_only_bags_of_words_are_scaled() -> None:
    assert input_scale(GivenFeatures("image", 16)) == 1.0
    assert input_scale(BagOfWords(buckets=64)) == 2.0


def test_vectors_of_tokens_have_a_tower_of_their_own() -> None:
    features: Any = SimpleNamespace(shape=(4, 10))
    spec = tower_spec("text", features, ModelConfig())
    assert (spec.kind, spec.shape, spec.scale) == ("tokens", (4, 10), 1.0)


def test_each_tower_has_its_own_widths() -> None:
    model = ModelConfig(hidden=16, widths=WIDTHS)
    towers = {m: tower_spec(m, GivenFeatures(m, 7), model) for m in ("image", "text")}
    assert {m: (tower.layers, tower.hidden) for m, tower in towers.items()} == {"image": ((), 12), "text": ((32,), 24)}
    assert tower_spec("image", GivenFeatures("image", 7), ModelConfig(hidden=16)).hidden == 16
    net = HashNet(ModelSpec(towers, classes=0), 8)
    shapes = {
        m: [tuple(layer.weight.shape) for layer in net.tower(m).modules() if isinstance(layer, nn.Linear)]
        for m in towers
    }
    assert shapes == {"image": [(12, 7), (8, 12)], "text": [(32, 7), (24, 32), (8, 24)]}


def test_towers_without_layers_of_widths_refuse_them() -> None:
    pixels, regions = PixelFeatures(), RegionFeatures(3, GivenFeatures("image", 8))
    for features, widths in ((pixels, [16, 16]), (regions, [16])):
        with pytest.raises(UnsuitableFeatures, match=r"model\.widths\.image"):
            tower_spec("image", features, ModelConfig(widths={"image": widths}))
    assert tower_spec("image", pixels, ModelConfig(widths={"image": [24]})).hidden == 24


def test_a_network_that_another_machine_has_read_is_not_read_again() -> None:
    model = ModelConfig(image={"backbone": "cnnf", "weights": "not here.mat"})
    spec = tower_spec("image", PixelFeatures(), model, {"kind": "cnnf", "width": 6})
    assert (spec.kind, spec.settings) == ("network", {"kind": "cnnf", "width": 6})
    text = TowerSpec("mlp", (5,))
    assert networks_of(ModelSpec({"image": spec, "text": text}, classes=0)) == {"image": spec}
