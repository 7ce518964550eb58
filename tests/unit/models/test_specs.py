"""Specs as JSON values: what is written is read, with its defaults."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from silohash.base.forms import of_json, of_value
from silohash.models.specs import ModelSpec, TowerSpec


def test_round_trip() -> None:
    towers = {
        "text": TowerSpec("mlp", (5,), 8, 0.2, 3.0),
        "image": TowerSpec("network", (3, 32, 32), settings={"kind": "cnnf", "width": 4096}),
    }
    for head in (False, True):
        spec = ModelSpec(towers, classes=7, class_head=head)
        read = of_json(json.dumps(spec.to_json()), ModelSpec)
        assert read == spec
        assert read.towers["image"].shape == (3, 32, 32)


def test_a_coarser_level_is_stored_only_if_there_is_one() -> None:
    spec = ModelSpec({"text": TowerSpec("mlp", (5,), 8)}, classes=7)
    assert "coarse_classes" not in spec.to_json()
    levels = ModelSpec(spec.towers, classes=7, coarse_classes=3)
    assert levels.to_json()["coarse_classes"] == 3
    assert of_json(json.dumps(levels.to_json()), ModelSpec) == levels


def test_further_layers_are_stored_only_if_there_are_any() -> None:
    spec = ModelSpec(
        {"text": TowerSpec("mlp", (5,), 8), "image": TowerSpec("mlp", (5,), 8, layers=(16, 12))}, classes=7
    )
    value = spec.to_json()
    assert "layers" not in value["towers"]["text"]
    assert of_json(json.dumps(value), ModelSpec) == spec


def test_one_modality_and_defaults() -> None:
    value = {"towers": {"text": {"kind": "mlp", "shape": [9]}}, "classes": 2}
    read = of_value(value, ModelSpec)
    assert read == ModelSpec({"text": TowerSpec("mlp", (9,), 512, 0.0, 1.0, {})}, 2, class_head=False)


def test_settings_of_a_tower_are_kept_as_they_are() -> None:
    settings = {"kind": "huggingface", "freeze": True, "layers": [1, 2], "model": None}
    spec = ModelSpec({"text": TowerSpec("network", (32,), settings=settings)}, classes=3)
    value = spec.to_json()
    assert value["towers"]["text"]["settings"] == settings
    assert of_json(json.dumps(value), ModelSpec).towers["text"].settings == settings


def test_values_of_other_types_and_names() -> None:
    towers = {"image": {"kind": "conv", "shape": [1, 8, 8], "scale": 0.5}}
    read = of_value({"towers": towers, "classes": 4}, ModelSpec)
    assert read.towers["image"] == TowerSpec("conv", (1, 8, 8), scale=0.5)
    with pytest.raises(ValidationError, match="audio"):
        of_value({"towers": {"audio": towers["image"]}, "classes": 4}, ModelSpec)


def test_specs_are_frozen_and_towers_do_not_share_settings() -> None:
    first, second = TowerSpec("mlp", (9,)), TowerSpec("mlp", (9,))
    assert first.settings == {}
    assert first.settings is not second.settings
    with pytest.raises(AttributeError):
        first.hidden = 1024  # type: ignore[misc]
    with pytest.raises(AttributeError):
        ModelSpec({"text": first}, 2).classes = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hidden": 0}, "hidden is 0"), ({"shape": (0,)}, r"shape is \(0,\)"), ({"shape": (3, -1)}, "sizes are at least 1"),
        ({"layers": (5, 0)}, r"layers are \(5, 0\)"),
        ({"dropout": 1.0}, "dropout is 1.0"), ({"dropout": -0.1}, "dropout is -0.1"),
        ({"dropout": float("nan")}, "dropout is nan"), ({"scale": float("nan")}, "scale is nan"),
        ({"scale": float("inf")}, "scale is inf"),
    ],
)  # fmt: skip
def test_numbers_that_no_tower_has(change: dict[str, Any], says: str) -> None:
    TowerSpec("mlp", (1,), hidden=1, dropout=0.0)
    with pytest.raises(ValueError, match=says):
        TowerSpec(**{"kind": "mlp", "shape": (3,), **change})
