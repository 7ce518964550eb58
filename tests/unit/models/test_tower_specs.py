"""The towers of a run: their kinds, scales and widths."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

from silohash.base.errors import UnsuitableFeatures
from silohash.base.types import Modality
from silohash.features.given import GivenFeatures
from silohash.features.image import PixelFeatures
from silohash.features.nodes.regions import RegionFeatures
from silohash.features.text import BagOfWords
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.models.tower_specs import input_scale, tower_spec
from silohash.models.towers import HashNet

WIDTHS = {"image": [12], "text": [32, 24]}


def test_only_bags_of_words_are_scaled() -> None:
    assert input_scale(GivenFeatures("image", 16)) == 1.0
    assert input_scale(BagOfWords(buckets=64)) == 2.0


def test_vectors_of_tokens_have_a_tower_of_their_own() -> None:
    features: Any = SimpleNamespace(shape=(4, 10))
    spec = tower_spec("text", features, widths=[8], dropout=0.0, backbone={})
    assert (spec.kind, spec.shape, spec.scale) == ("tokens", (4, 10), 1.0)


def test_each_tower_has_its_own_widths() -> None:
    modalities: tuple[Modality, ...] = ("image", "text")
    towers = {m: tower_spec(m, GivenFeatures(m, 7), widths=WIDTHS[m], dropout=0.1, backbone={}) for m in modalities}
    assert {m: (tower.layers, tower.hidden) for m, tower in towers.items()} == {"image": ((), 12), "text": ((32,), 24)}
    net = HashNet(ModelSpec(towers, classes=0), 8)
    shapes = {
        m: [tuple(layer.weight.shape) for layer in net.tower(m).modules() if isinstance(layer, nn.Linear)]
        for m in towers
    }
    assert shapes == {"image": [(12, 7), (8, 12)], "text": [(32, 7), (24, 32), (8, 24)]}


def test_towers_without_layers_of_widths_refuse_them() -> None:
    for features in (PixelFeatures(), RegionFeatures(3, GivenFeatures("image", 8))):
        with pytest.raises(UnsuitableFeatures, match=r"model\.widths\.image"):
            tower_spec("image", features, widths=[16, 16], dropout=0.0, backbone={})
        assert tower_spec("image", features, widths=[24], dropout=0.0, backbone={}).hidden == 24


def test_a_network_that_another_machine_has_read_is_not_read_again() -> None:
    backbone, known = {"backbone": "cnnf", "weights": "not here.mat"}, {"kind": "cnnf", "width": 6}
    spec = tower_spec("image", PixelFeatures(), widths=[6], dropout=0.0, backbone=backbone, network=known)
    assert (spec.kind, spec.settings) == ("network", {"kind": "cnnf", "width": 6})
    text = TowerSpec("mlp", (5,))
    assert ModelSpec({"image": spec, "text": text}, classes=0).networks == {"image": spec}
