"""Specs as JSON values: what is written is read, in the order of modalities, with its defaults."""

from __future__ import annotations

import json

from silohash.models.specs import ModelSpec, TowerSpec


def test_round_trip() -> None:
    towers = {
        "text": TowerSpec("mlp", (5,), 8, 0.2, 3.0),
        "image": TowerSpec("network", (3, 32, 32), settings={"kind": "cnnf", "width": 4096}),
    }
    for head in (False, True):
        spec = ModelSpec(towers, classes=7, class_head=head)
        read = ModelSpec.from_json(json.loads(json.dumps(spec.to_json())))
        assert read == spec
        assert list(read.towers) == ["image", "text"]
        assert read.towers["image"].shape == (3, 32, 32)


def test_one_modality_and_defaults() -> None:
    value = {"towers": {"text": {"kind": "mlp", "shape": [9]}}, "classes": 2}
    read = ModelSpec.from_json(value)
    assert read == ModelSpec({"text": TowerSpec("mlp", (9,), 512, 0.0, 1.0, {})}, 2, class_head=False)
