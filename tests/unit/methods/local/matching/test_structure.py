"""Matching of structure: edges and convolutions against explicit loops, and what travels along the edges."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from silohash.methods.local.matching.structure import (
    NARROWEST,
    ImageStructure,
    Propagation,
    TextStructure,
    own_weights,
    polar,
    word_edges,
)
from tests.unit.methods.local.matching.direct import IMAGES, TEXTS, boxes_of, drawn

BLOCKS, KERNELS, WIDTH = 3, 4, 2


def image_layer(propagation: Propagation = "neighbors") -> ImageStructure:
    torch.manual_seed(0)
    return ImageStructure(BLOCKS, KERNELS, WIDTH, propagation).double()


def image_mask() -> Tensor:
    return drawn(IMAGES, 0)[1]


def image_cosines(seed: int = 3) -> Tensor:
    """Return cosines of the regions with two texts, ``(2, I, R, P)``."""
    shape = (2, len(IMAGES), max(IMAGES), BLOCKS)
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_distances_and_angles_are_those_of_centers() -> None:
    boxes = torch.tensor([[[0.0, 0.0, 0.2, 0.2], [0.3, 0.1, 0.5, 0.1]]])
    distance, angle = polar(boxes)
    assert distance[0, 0, 1].item() == pytest.approx(0.3)
    assert angle[0, 0, 1].item() == pytest.approx(0.0)
    assert angle[0, 1, 0].item() == pytest.approx(math.pi)
    below = torch.tensor([[[0.0, 0.0, 0.2, 0.2], [0.0, 0.4, 0.2, 0.6]]])
    assert polar(below)[1][0, 0, 1].item() == pytest.approx(math.pi / 2)
    assert distance.diagonal(dim1=1, dim2=2).abs().max() == 0


def test_edges_between_regions_are_those_of_a_loop() -> None:
    boxes, mask, layer = boxes_of(IMAGES), image_mask(), image_layer()
    distance, angle = polar(boxes)
    found = layer.edges(boxes, mask)
    for image, count in enumerate(IMAGES):
        for kernel in range(KERNELS):
            near_width = math.log1p(math.exp(layer.near_width[kernel].item())) + NARROWEST
            turned_width = math.log1p(math.exp(layer.turned_width[kernel].item())) + NARROWEST
            for i in range(count):
                weights = []
                for j in range(count):
                    apart = abs(angle[image, i, j].item() - layer.turned[kernel].item())
                    apart = min(apart, abs(2 * math.pi - apart))
                    near = (distance[image, i, j].item() - layer.near[kernel].item()) / near_width
                    weights.append(math.exp(-0.5 * near**2) * math.exp(-0.5 * (apart / turned_width) ** 2))
                expected = [weight / sum(weights) for weight in weights]
                assert found[image, kernel, i, :count].tolist() == pytest.approx(expected)
    assert found[:, :, :, ~mask[1]][1].abs().max() == 0


def test_moving_all_boxes_changes_no_edge() -> None:
    boxes, mask, layer = boxes_of(IMAGES), image_mask(), image_layer()
    before = boxes.clone()
    assert torch.allclose(layer.edges(boxes + 0.25, mask), layer.edges(boxes, mask), atol=1e-12)
    assert torch.equal(boxes, before)


def test_equal_boxes_give_finite_gradients() -> None:
    boxes = torch.full((1, 3, 4), 0.5, dtype=torch.float64).requires_grad_()
    layer = image_layer()
    edges = layer.edges(boxes, torch.ones(1, 3, dtype=torch.bool))
    assert torch.allclose(edges, torch.full_like(edges, 1 / 3))
    (edges * torch.arange(3)).sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in layer.parameters())
    assert layer.near.grad is not None


def convolved(layer: ImageStructure, cosines: Tensor, edges: Tensor, count: int) -> Tensor:
    """Return the mean score of one image's regions, from the sum over neighbors before the linear maps."""
    scores = []
    for i in range(count):
        parts = []
        for kernel in range(KERNELS):
            near = sum(edges[kernel, i, j] * cosines[j] for j in range(count))
            parts.append(layer.kernels.weight[kernel * WIDTH : (kernel + 1) * WIDTH] @ near)
        scores.append(layer.score(torch.cat(parts)))
    return torch.stack(scores).mean()


@pytest.mark.parametrize("propagation", ["neighbors", "self"])
def test_scores_of_images_are_those_of_a_loop(propagation: Propagation) -> None:
    cosines, mask, layer = image_cosines() * image_mask()[None, :, :, None], image_mask(), image_layer(propagation)
    edges = layer.edges(boxes_of(IMAGES), mask)
    found = layer(cosines, edges, mask)
    expected = [
        [convolved(layer, cosines[text, image], edges[image], count) for image, count in enumerate(IMAGES)]
        for text in range(2)
    ]
    assert torch.allclose(found, torch.stack([torch.stack(row) for row in expected]), atol=1e-12)


@pytest.mark.parametrize("propagation", ["neighbors", "self"])
def test_a_region_changes_others_only_if_cosines_travel(propagation: Propagation) -> None:
    layer, mask = image_layer(propagation), image_mask()
    edges = layer.edges(boxes_of(IMAGES), mask)
    values = torch.eye(max(IMAGES), dtype=torch.float64)
    reached = (edges[0, 0] @ values)[:, 2]
    assert reached[2] > 0
    others = torch.cat([reached[:2], reached[3:]])
    assert bool((others > 0).all()) if propagation == "neighbors" else bool((others == 0).all())
    assert torch.allclose(edges[0].sum(-1), torch.ones(KERNELS, max(IMAGES), dtype=torch.float64))


def test_edges_between_words_are_a_softmax() -> None:
    values, mask = drawn(TEXTS, 1)
    found = word_edges(values, mask, 3.0)
    for text, count in enumerate(TEXTS):
        words = values[text, :count]
        expected = (3.0 * words @ words.T).exp()
        assert torch.allclose(found[text, :count, :count], expected / expected.sum(1, keepdim=True))
    assert found[1, :, 1:].abs().max() == 0


def test_only_neighbors_have_weights_in_a_sparse_graph() -> None:
    values, mask = drawn(TEXTS, 1)
    neighbors = torch.zeros(len(TEXTS), max(TEXTS), max(TEXTS), dtype=torch.bool)
    neighbors[:, range(5), range(5)] = True
    neighbors[0, 0, 2] = neighbors[0, 2, 0] = True
    found = word_edges(values, mask, 3.0, neighbors)
    weights = (3.0 * values[0, 0] @ values[0, [0, 2]].T).exp()
    assert torch.allclose(found[0, 0, [0, 2]], weights / weights.sum())
    assert found[0, 0, [1, 3, 4]].abs().max() == 0
    assert found[0, 1, 1] == 1
    whole = neighbors | True
    assert torch.allclose(word_edges(values, mask, 3.0, whole), word_edges(values, mask, 3.0), atol=1e-12)


def test_scores_of_texts_are_those_of_a_loop() -> None:
    torch.manual_seed(0)
    layer = TextStructure(BLOCKS, 6).double()
    values, mask = drawn(TEXTS, 1)
    edges = word_edges(values, mask, 3.0)
    generator = torch.Generator().manual_seed(4)
    cosines = torch.rand((len(TEXTS), max(TEXTS), 2, BLOCKS), generator=generator, dtype=torch.float64)
    found = layer(cosines, edges, mask)
    for text, count in enumerate(TEXTS):
        for image in range(2):
            nodes = [sum(edges[text, i, j] * cosines[text, j, image] for j in range(count)) for i in range(count)]
            expected = torch.stack([layer.score(layer.kernels(node)) for node in nodes]).mean()
            assert torch.allclose(found[text, image], expected)


def test_own_weights_are_the_sums_of_rows() -> None:
    weights = torch.tensor([[0.25, 0.5], [1.0, 0.0]])
    assert own_weights(weights).tolist() == [[0.75, 0.0], [0.0, 1.0]]
