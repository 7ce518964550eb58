"""Attention of words and regions: the factored form against explicit contexts, in scores and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from silohash.methods.local.matching import attention
from silohash.methods.local.matching.attention import (
    Direction,
    affinities,
    attended_cosines,
    chunked,
    context_cosines,
    context_lengths,
    fragments,
    mean_over,
)
from silohash.methods.local.matching.scan import Pooling, SCANNet, SCANParams
from silohash.models.nodes import Nodes
from tests.unit.methods.local.matching.direct import IMAGES, TEXTS, WIDTH, block_cosines, contexts, drawn

SHARPNESS, LSE_SCALE = 4.0, 6.0


def scores(images: tuple[Tensor, Tensor], texts: tuple[Tensor, Tensor], **changed: Any) -> Tensor:
    params = SCANParams(**{"inverse_temperature": SHARPNESS, "lse_scale": LSE_SCALE, **changed})
    return SCANNet(torch.nn.Identity(), torch.nn.Identity(), params).score(Nodes(*images), Nodes(*texts))


def direct_scores(images: Tensor, texts: Tensor, direction: Direction, pooling: Pooling) -> Tensor:
    """Return the scores pair by pair, from contexts."""
    rows = []
    for image, regions in zip(images, IMAGES, strict=True):
        row = []
        for text, words in zip(texts, TEXTS, strict=True):
            queries, keys = (text[:words], image[:regions]) if direction == "t2i" else (image[:regions], text[:words])
            cosines = block_cosines(queries, contexts(queries, keys, SHARPNESS), 1)
            if pooling == "AVG":
                row.append(cosines.mean())
            else:
                row.append((LSE_SCALE * cosines).exp().sum().log() / LSE_SCALE)
        rows.append(torch.stack(row))
    return torch.stack(rows)


def gradients(found: Tensor, *inputs: Tensor) -> list[Tensor]:
    """Return the gradients of a weighted sum of scores, in which every score has another weight."""
    weights = torch.linspace(-1.0, 1.5, found.numel(), dtype=found.dtype).view_as(found)
    return list(torch.autograd.grad((found * weights).sum(), inputs))


@pytest.mark.parametrize("pooling", ["AVG", "LSE"])
@pytest.mark.parametrize("direction", ["t2i", "i2t"])
def test_scores_and_gradients_are_those_of_explicit_contexts(direction: Direction, pooling: Pooling) -> None:
    images, texts = drawn(IMAGES, 0), drawn(TEXTS, 1)
    found = scores(images, texts, direction=direction, pooling=pooling)
    expected = direct_scores(images[0], texts[0], direction, pooling)
    assert found.shape == (len(IMAGES), len(TEXTS))
    assert torch.allclose(found, expected, atol=1e-9)
    for one, other in zip(gradients(found, images[0], texts[0]), gradients(expected, images[0], texts[0]), strict=True):
        assert other.abs().max() > 1e-3
        assert torch.allclose(one, other, atol=1e-8)


@pytest.mark.parametrize("direction", ["t2i", "i2t"])
def test_scores_in_float32_are_within_1e_5(direction: Direction) -> None:
    images, texts = drawn(IMAGES, 0), drawn(TEXTS, 1)
    single = [(values.float().detach(), mask) for values, mask in (images, texts)]
    found = scores(single[0], single[1], direction=direction)
    assert torch.allclose(found.double(), direct_scores(images[0], texts[0], direction, "AVG"), atol=1e-5)


@pytest.mark.parametrize("blocks", [1, 3, 8])
@pytest.mark.parametrize("direction", ["t2i", "i2t"])
def test_each_block_has_a_cosine(direction: Direction, blocks: int) -> None:
    images, texts = drawn(IMAGES, 0), drawn(TEXTS, 1)
    words, regions = fragments(*texts, blocks), fragments(*images, blocks)
    affinity = affinities(words, regions, blocks)
    assert affinity.shape == (blocks, len(TEXTS), max(TEXTS), len(IMAGES), max(IMAGES))
    weights = attention.attention(affinity.sum(0), words.mask, regions.mask, direction, SHARPNESS)
    found = attended_cosines(affinity, weights, words, regions, direction)
    assert torch.allclose(context_cosines(weights, words, regions, direction), found, atol=1e-9)
    for text, count in enumerate(TEXTS):
        for image, places in enumerate(IMAGES):
            word, region = texts[0][text, :count], images[0][image, :places]
            if direction == "t2i":
                part = found[text, :count, image]
                expected = block_cosines(word, contexts(word, region, SHARPNESS), blocks)
            else:
                part = found[text, image, :places]
                expected = block_cosines(region, contexts(region, word, SHARPNESS), blocks)
            assert torch.allclose(part, expected, atol=1e-9)
    unused = ~texts[1] if direction == "t2i" else ~images[1]
    padding = found.permute(0, 1, 3, 2)[unused] if direction == "t2i" else found[:, unused]
    assert padding.abs().max() == 0


@pytest.mark.parametrize("direction", ["t2i", "i2t"])
@pytest.mark.parametrize("pooling", ["AVG", "LSE"])
def test_scores_do_not_depend_on_padding(direction: Direction, pooling: Pooling) -> None:
    settings = {"direction": direction, "pooling": pooling}
    expected = scores(drawn(IMAGES, 0), drawn(TEXTS, 1), **settings)
    more = scores(drawn(IMAGES, 0, most=7), drawn(TEXTS, 1, most=9), **settings)
    assert torch.allclose(more, expected, atol=1e-12)


def test_scores_do_not_depend_on_the_order_of_words_and_regions() -> None:
    images, texts = drawn(IMAGES, 0), drawn(TEXTS, 1)
    turned = [(values.flip(1), mask.flip(1)) for values, mask in (images, texts)]
    assert torch.allclose(scores(turned[0], turned[1]), scores(images, texts), atol=1e-12)


@pytest.mark.parametrize("direction", ["t2i", "i2t"])
def test_one_image_one_text_and_one_word_have_a_score(direction: Direction) -> None:
    images, texts = drawn((1,), 0), drawn((1,), 1)
    found = scores(images, texts, direction=direction)
    assert found.item() == pytest.approx((images[0] * texts[0]).sum().item())


@pytest.mark.parametrize(("name", "gradients"), [("CHUNK", False), ("TRAINING_CHUNK", True)])
def test_chunks_give_the_same_scores(name: str, gradients: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    images, texts = drawn(IMAGES, 0), drawn(TEXTS, 1)
    expected = scores(images, texts)
    for chunk, sides in ((4 * max(TEXTS) * max(IMAGES), {(2, 2), (1, 2)}), (1, {(1, 1)})):
        seen = set()

        def score(rows: Tensor, columns: slice, seen: set[tuple[int, int]] = seen) -> Tensor:
            part = expected.T[rows, columns]
            seen.add((part.shape[0], part.shape[1]))
            return part

        monkeypatch.setattr(attention, name, chunk)
        with torch.set_grad_enabled(gradients):
            assert torch.equal(chunked(score, fragments(*texts), fragments(*images)), expected.T)
            assert seen == sides
            assert torch.allclose(scores(images, texts), expected, atol=1e-12)


def test_texts_of_a_part_have_similar_lengths_while_gradients_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    images, texts = drawn(IMAGES, 0), drawn((5, 1, 3, 4), 1)
    words, widths = fragments(*texts), []

    def score(rows: Tensor, columns: slice) -> Tensor:
        widths.append(words.take(rows).mask.shape[1])
        return rows.unsqueeze(1).expand(-1, len(IMAGES)).float()

    monkeypatch.setattr(attention, "TRAINING_TEXTS", 2)
    found = chunked(score, words, fragments(*images))
    assert widths == [3, 5]
    assert found[:, 0].tolist() == [0, 1, 2, 3]
    with torch.no_grad():
        chunked(score, words, fragments(*images))
    assert widths == [3, 5, 5]


def test_an_item_without_words_or_regions_has_a_finite_score_and_gradient() -> None:
    images, texts = drawn(IMAGES, 0), drawn(TEXTS, 1)
    nothing = (texts[0], torch.zeros_like(texts[1]))
    for pair in ((images, nothing), ((images[0], torch.zeros_like(images[1])), texts)):
        found = scores(*pair)
        assert torch.equal(found, torch.zeros_like(found))
        assert all(part.isfinite().all() for part in gradients(found, images[0], texts[0]))


@pytest.mark.parametrize("direction", ["t2i", "i2t"])
def test_contexts_are_weighted_means_of_keys(direction: Direction) -> None:
    images, texts = drawn(IMAGES, 0), drawn(TEXTS, 1)
    words, regions = fragments(*texts), fragments(*images)
    weights = attention.attention(affinities(words, regions)[0], words.mask, regions.mask, direction, SHARPNESS)
    found = attention.contexts(weights, (regions if direction == "t2i" else words).values, direction)
    word, region = texts[0][0, : TEXTS[0]], images[0][1, : IMAGES[1]]
    if direction == "t2i":
        assert torch.allclose(found[0, : TEXTS[0], 1], contexts(word, region, SHARPNESS), atol=1e-12)
    else:
        assert torch.allclose(found[0, 1, : IMAGES[1]], contexts(region, word, SHARPNESS), atol=1e-12)


def test_contexts_that_cancel_have_a_small_length() -> None:
    squares = torch.tensor([4.0, -1e-9, 0.0])
    assert context_lengths(squares).tolist() == pytest.approx([2.0, 1e-6, 1e-6])


def test_means_leave_padding_out() -> None:
    values = torch.tensor([[1.0, 3.0, 8.0], [5.0, 6.0, 7.0]])
    mask = torch.tensor([[True, True, False], [False, False, False]])
    assert mean_over(values, mask, 1).tolist() == [2.0, 0.0]


def test_lengths_and_inner_products_leave_padding_out() -> None:
    values, mask = drawn(TEXTS, 1)
    found = fragments(values, mask, 2)
    assert found.grams.shape == (len(TEXTS), max(TEXTS), 2, max(TEXTS))
    first = values[0, :, : WIDTH // 2]
    assert torch.allclose(found.grams[0, :, 0], first @ first.T)
    assert torch.allclose(found.lengths[0, :, 0], first.norm(dim=1))
    assert found.grams[1, 1:].abs().max() == 0
