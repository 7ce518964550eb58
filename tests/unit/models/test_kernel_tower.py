"""The tower of similarities to anchors: the kernel against an explicit loop, its buffers."""

from __future__ import annotations

import math

import pytest
import torch

from silohash.models.kernel_tower import AnchorKernel, gaussian_kernel
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.models.towers import HashNet


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
