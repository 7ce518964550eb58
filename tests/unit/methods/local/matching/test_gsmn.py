"""Graph matching: scores and gradients against explicit contexts, and what changes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from silohash.base.types import UserError
from silohash.methods.local.matching.gsmn import GSMN, GraphMatching, GSMNNet, GSMNParams
from silohash.methods.local.matching.structure import word_edges
from silohash.models.nodes import window_edges
from silohash.testing.inputs import node_data, node_spec
from tests.unit.methods.local.matching.direct import IMAGES, TEXTS, block_cosines, boxes_of, contexts, drawn

BLOCKS, SHARPNESS = 4, 5.0


def matching(**changed: Any) -> GraphMatching:
    settings: dict[str, Any] = {"blocks": BLOCKS, "kernels": 3, "width": 2, "inverse_temperature": SHARPNESS}
    torch.manual_seed(0)
    return GraphMatching(**{**settings, "propagation": "neighbors", **changed}).double()


def scores(model: GraphMatching, images: tuple[Tensor, Tensor], texts: tuple[Tensor, Tensor], **changed: Any) -> Tensor:
    boxes = boxes_of(IMAGES)
    found: Tensor = model(*images, changed.pop("boxes", boxes), *texts, **changed)
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
            of_words = block_cosines(word, contexts(word, region, SHARPNESS), BLOCKS)
            of_regions = block_cosines(region, contexts(region, word, SHARPNESS), BLOCKS)
            said = torch.ones(1, words, dtype=torch.bool)
            edges = word_edges(word.unsqueeze(0), said, SHARPNESS)
            score = model.words(of_words[None, :, None], edges, said) + model.regions(
                of_regions[None, None], near, there
            )
            row.append(score.squeeze())
        rows.append(torch.stack(row))
    return torch.stack(rows)


def test_scores_and_gradients_are_those_of_explicit_contexts() -> None:
    model, images, texts = matching(), drawn(IMAGES, 0), drawn(TEXTS, 1)
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
    found: Tensor = matching(blocks=blocks)(*drawn((1,), 0), boxes_of((1,)), *drawn((1,), 1))
    assert found.shape == (1, 1)
    assert bool(found.isfinite())


def test_sparse_graphs_take_the_edges_of_the_texts_or_a_window() -> None:
    torch.manual_seed(0)
    net = GSMN(GSMNParams(graph="sparse", blocks=4)).build(node_spec(), 16)
    assert isinstance(net, GSMNNet)
    data = node_data(4)
    images, texts = net.encoded(data.image, "image"), net.encoded(data.text, "text")
    edges = torch.eye(texts.mask.shape[1], dtype=torch.bool) & texts.mask.unsqueeze(1)
    assert images.boxes is not None
    inputs = (images.values, images.mask, images.boxes, texts.values, texts.mask)
    torch.testing.assert_close(net.score(images, texts), net.matching(*inputs, window_edges(texts.mask)))
    torch.testing.assert_close(net.score(images, replace(texts, edges=edges)), net.matching(*inputs, edges))
    dense = GSMN(GSMNParams(blocks=4)).build(node_spec(), 16)
    dense.load_state_dict(net.state_dict())
    torch.testing.assert_close(dense.score(images, replace(texts, edges=edges)), net.matching(*inputs))


def test_only_sparse_graphs_take_parses() -> None:
    spec = node_spec()
    parsed = replace(spec, towers={**spec.towers, "text": replace(spec.towers["text"], shape=(2, 9))})
    GSMN(GSMNParams(graph="sparse", blocks=4)).build(parsed, 16)
    with pytest.raises(UserError, match=r"features\.text\.parses has no effect"):
        GSMN(GSMNParams(graph="dense", blocks=4)).build(parsed, 16)


def test_blocks_divide_the_width() -> None:
    with pytest.raises(UserError, match=r"local\.blocks is 5, which does not divide model\.hidden = 16"):
        GSMN(GSMNParams(blocks=5)).build(node_spec(), 16)
