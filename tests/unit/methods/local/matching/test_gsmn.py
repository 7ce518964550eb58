"""Graph matching: scores and gradients against explicit contexts, and what changes them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from silohash.base.errors import NoEffect, OutOfRange
from silohash.methods.local.matching.attention import fragments, products_are_fewer
from silohash.methods.local.matching.gsmn import (
    GSMN,
    NARROWEST,
    EdgeSums,
    GraphMatching,
    GSMNNet,
    GSMNParams,
    ImageStructure,
    Propagation,
    TextStructure,
    own_weights,
    polar,
    word_edges,
)
from silohash.models.nodes import Nodes, window_edges
from silohash.testing.inputs import node_data, node_spec
from tests.unit.methods.local.matching.direct import IMAGES, TEXTS, block_cosines, boxes_of, contexts, drawn

BLOCKS, SHARPNESS = 4, 5.0


def matching(**changed: Any) -> GraphMatching:
    settings: dict[str, Any] = {"blocks": BLOCKS, "kernels": 3, "kernel_width": 2, "inverse_temperature": SHARPNESS}
    torch.manual_seed(0)
    return GraphMatching(GSMNParams(**{**settings, **changed})).double()


def scores(model: GraphMatching, images: tuple[Tensor, Tensor], texts: tuple[Tensor, Tensor], **changed: Any) -> Tensor:
    boxes = changed.pop("boxes", boxes_of(IMAGES))
    found: Tensor = model(Nodes(*images, boxes), Nodes(*texts), **changed)
    return found


def direct_scores(model: GraphMatching, images: Tensor, texts: Tensor) -> Tensor:
    """Return the scores pair by pair, from contexts."""
    rows = []
    boxes = boxes_of(IMAGES)
    for image, count in enumerate(IMAGES):
        there = torch.ones(1, count, dtype=torch.bool)
        near = model.regions.edges(boxes[image : image + 1, :count], there)
        row = []
        for text, words in enumerate(TEXTS):
            region, word = images[image, :count], texts[text, :words]
            blocks = model.params.blocks
            of_words = block_cosines(word, contexts(word, region, SHARPNESS), blocks)
            of_regions = block_cosines(region, contexts(region, word, SHARPNESS), blocks)
            said = torch.ones(1, words, dtype=torch.bool)
            edges = word_edges(word.unsqueeze(0), said, SHARPNESS)
            score = model.words(of_words[None, :, None], edges, said) + model.regions(
                of_regions[None, None], near, there
            )
            row.append(score.squeeze())
        rows.append(torch.stack(row))
    return torch.stack(rows)


@pytest.mark.parametrize("blocks", [BLOCKS, 8])
@pytest.mark.parametrize("convolution", ["linear", "tanh"])
def test_scores_and_gradients_are_those_of_explicit_contexts(blocks: int, convolution: str) -> None:
    model, images, texts = matching(blocks=blocks, convolution=convolution), drawn(IMAGES, 0), drawn(TEXTS, 1)
    # With 8 blocks, contexts have fewer numbers than the inner products of all blocks, and are computed.
    assert products_are_fewer(fragments(*texts, blocks), fragments(*images, blocks)) == (blocks == BLOCKS)
    found, expected = scores(model, images, texts), direct_scores(model, images[0], texts[0])
    assert torch.allclose(found, expected, atol=1e-8)
    inputs = [images[0], texts[0], *model.parameters()]
    weights = torch.linspace(-1, 2, found.numel(), dtype=torch.float64).view_as(found)
    one, other = (torch.autograd.grad((part * weights).sum(), inputs) for part in (found, expected))
    for name, first, second in zip(["images", "texts", *dict(model.named_parameters())], one, other, strict=True):
        assert torch.allclose(first, second, atol=1e-7), name
        assert second.abs().max() > 0, name


def test_scores_in_float32_are_within_1e_5() -> None:
    model, images, texts = matching(), drawn(IMAGES, 0), drawn(TEXTS, 1)
    expected = direct_scores(model, images[0], texts[0])
    single = [(values.float(), mask) for values, mask in (images, texts)]
    found = scores(model.float(), *single, boxes=boxes_of(IMAGES).float())
    assert torch.allclose(found.double(), expected, atol=1e-5)


def test_padding_changes_no_score() -> None:
    model, images, texts = matching(), drawn(IMAGES, 0), drawn(TEXTS, 1)
    expected = scores(model, images, texts)
    boxes = torch.cat([boxes_of(IMAGES), torch.zeros(len(IMAGES), 2, 4, dtype=torch.float64)], 1)
    more = scores(model, drawn(IMAGES, 0, most=max(IMAGES) + 2), drawn(TEXTS, 1, most=9), boxes=boxes)
    assert torch.allclose(more, expected, atol=1e-10)


def test_the_order_of_regions_changes_no_score() -> None:
    model, images, texts = matching(), drawn(IMAGES, 0), drawn(TEXTS, 1)
    turned = [values.flip(1) for values in images]
    found = scores(model, (turned[0], turned[1]), texts, boxes=boxes_of(IMAGES).flip(1))
    assert torch.allclose(found, scores(model, images, texts), atol=1e-10)
    assert not torch.allclose(scores(model, (turned[0], turned[1]), texts), found, atol=1e-6)


def test_propagation_changes_the_scores_and_so_do_missing_edges() -> None:
    images, texts = drawn(IMAGES, 0), drawn(TEXTS, 1)
    own = torch.eye(max(TEXTS), dtype=torch.bool).expand(len(TEXTS), -1, -1)
    dense = scores(matching(), images, texts)
    sparse = scores(matching(), images, texts, neighbors=own)
    alone = scores(matching(propagation="self"), images, texts)
    assert not torch.allclose(dense, sparse, atol=1e-6)
    assert not torch.allclose(sparse, alone, atol=1e-6)
    assert torch.allclose(scores(matching(propagation="self"), images, texts, neighbors=own), alone, atol=1e-12)


@pytest.mark.parametrize("blocks", [1, 8])
def test_one_image_and_one_word_have_a_score(blocks: int) -> None:
    found: Tensor = matching(blocks=blocks)(Nodes(*drawn((1,), 0), boxes_of((1,))), Nodes(*drawn((1,), 1)))
    assert found.shape == (1, 1)
    assert bool(found.isfinite())


def test_sparse_graphs_take_the_edges_of_the_texts_or_a_window() -> None:
    torch.manual_seed(0)
    net = GSMN(GSMNParams(graph="sparse", blocks=4)).build(node_spec(), 16)
    assert isinstance(net, GSMNNet)
    data = node_data(4)
    images, texts = net.encoded(data.image, "image"), net.encoded(data.text, "text")
    edges = torch.eye(texts.mask.shape[1], dtype=torch.bool) & texts.mask.unsqueeze(1)
    torch.testing.assert_close(net.score(images, texts), net.matching(images, texts, window_edges(texts.mask)))
    torch.testing.assert_close(net.score(images, replace(texts, edges=edges)), net.matching(images, texts, edges))
    dense = GSMN(GSMNParams(blocks=4)).build(node_spec(), 16)
    dense.load_state_dict(net.state_dict())
    torch.testing.assert_close(dense.score(images, replace(texts, edges=edges)), net.matching(images, texts))


def test_only_sparse_graphs_take_parses() -> None:
    spec = node_spec()
    parsed = replace(spec, towers={**spec.towers, "text": replace(spec.towers["text"], shape=(2, 9))})
    GSMN(GSMNParams(graph="sparse", blocks=4)).build(parsed, 16)
    with pytest.raises(NoEffect, match=r"features\.text\.parses"):
        GSMN(GSMNParams(graph="dense", blocks=4)).build(parsed, 16)


def test_blocks_divide_the_width() -> None:
    with pytest.raises(OutOfRange, match=r"local\.blocks.*5.*16"):
        GSMN(GSMNParams(blocks=5)).build(node_spec(), 16)


def preset(name: str) -> dict[str, Any]:
    return {key: value for key, value in GSMN.presets[name].items() if key != "easy_epochs"}


@pytest.mark.parametrize("form", [*map(preset, GSMN.presets), {"propagation": "self"}])
def test_places_of_regions_count_in_every_preset_but_not_without_neighbors_and_kernels(form: dict[str, Any]) -> None:
    model, images, texts = matching(**form), drawn(IMAGES, 0), drawn(TEXTS, 1)
    found = scores(model, images, texts)
    elsewhere = boxes_of(IMAGES)
    elsewhere[0] = elsewhere[0, [2, 0, 3, 1]]
    apart = (scores(model, images, texts, boxes=elsewhere) - found)[0].abs().max()
    means = torch.autograd.grad((found * torch.linspace(-1, 2, found.numel()).view_as(found)).sum(), model.regions.near)
    if form == {"propagation": "self"}:  # all of a region's weights lead to itself, and sum to 1
        assert apart < 1e-12
        assert means[0].abs().max() < 1e-12
    else:
        assert apart > 1e-4
        assert means[0].abs().max() > 1e-4


def test_presets_are_the_form_of_the_paper_and_that_of_the_authors() -> None:
    paper, code = (GSMN(GSMNParams(**GSMN.presets[name])).build(node_spec(), 16) for name in ("paper", "authors_code"))
    assert isinstance(paper, GSMNNet)
    assert isinstance(code, GSMNNet)
    assert paper.matching.regions.bias.shape == (8 * 32,)
    assert not hasattr(code.matching.regions, "bias")
    regions = code.matching.regions.edges(boxes_of((3,)).float(), torch.ones(1, 3, dtype=torch.bool))[0]
    assert regions.sum(0).diagonal().tolist() == pytest.approx([3.0] * 3)
    assert (regions.diagonal(dim1=1, dim2=2).diag_embed() == regions).all()


KERNELS, WIDTH = 4, 2


def params(**changed: Any) -> GSMNParams:
    return GSMNParams(blocks=BLOCKS, kernels=KERNELS, kernel_width=WIDTH, **changed)


def image_layer(propagation: Propagation = "neighbors", edge_sums: EdgeSums = "neighbors") -> ImageStructure:
    torch.manual_seed(0)
    return ImageStructure(params(propagation=propagation, edge_sums=edge_sums)).double()


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


@pytest.mark.parametrize("sums", ["neighbors", "kernels"])
def test_edges_between_regions_are_those_of_a_loop(sums: EdgeSums) -> None:
    boxes, mask, layer = boxes_of(IMAGES), image_mask(), image_layer(edge_sums=sums)
    distance, angle = polar(boxes)
    found = layer.edges(boxes, mask)
    of_kernels = torch.zeros_like(found)
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
                if sums == "neighbors":
                    assert found[image, kernel, i, :count].tolist() == pytest.approx(
                        [w / sum(weights) for w in weights]
                    )
                else:
                    of_kernels[image, kernel, i, :count] = torch.tensor(weights)
    if sums == "kernels":
        assert torch.allclose(found * of_kernels.sum(1, keepdim=True), of_kernels)
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
    layer = TextStructure(params(convolution="tanh")).double()
    values, mask = drawn(TEXTS, 1)
    edges = word_edges(values, mask, 3.0)
    generator = torch.Generator().manual_seed(4)
    cosines = torch.rand((len(TEXTS), max(TEXTS), 2, BLOCKS), generator=generator, dtype=torch.float64)
    found = layer(cosines, edges, mask)
    for text, count in enumerate(TEXTS):
        for image in range(2):
            nodes = [sum(edges[text, i, j] * cosines[text, j, image] for j in range(count)) for i in range(count)]
            expected = torch.stack([layer.score(layer.kernels(node).tanh()) for node in nodes]).mean()
            assert torch.allclose(found[text, image], expected)


def test_own_weights_are_the_sums_of_rows() -> None:
    weights = torch.tensor([[0.25, 0.5], [1.0, 0.0]])
    assert own_weights(weights).tolist() == [[0.75, 0.0], [0.0, 1.0]]
