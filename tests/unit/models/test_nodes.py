"""Items as sets of nodes: padding, joining, the parts of inputs, and edges."""

from __future__ import annotations

import math

import pytest
import torch

from silohash.models.nodes import (
    INITIAL_WORD,
    Nodes,
    RegionEncoder,
    WordEncoder,
    edges_of_heads,
    split_regions,
    split_words,
    window_edges,
)
from silohash.models.specs import TowerSpec
from silohash.testing.inputs import PLACES, WORDS, node_data, node_spec


def nodes(counts: list[int], most: int) -> Nodes:
    """Return items with some nodes each, all tensors filled."""
    mask = torch.arange(most) < torch.tensor(counts)[:, None]
    values = torch.randn(len(counts), most, 3) * mask[:, :, None]
    edges = mask[:, :, None] & mask[:, None]
    return Nodes(values, mask, torch.rand(len(counts), most, 4), edges, {"size": torch.tensor(counts)})


def test_taken_items_keep_all_tensors() -> None:
    held = nodes([2, 1, 3], 3)
    taken = held.take(torch.tensor([2, 0]))
    assert len(taken) == 2
    assert taken.extra["size"].tolist() == [3, 2]
    for name in ("values", "mask", "boxes", "edges"):
        torch.testing.assert_close(getattr(taken, name), getattr(held, name)[[2, 0]])


def test_joined_items_are_padded_and_trimmed_again() -> None:
    first, second = nodes([2, 1], 2), nodes([4], 5)
    joined = Nodes.joined([first, second])
    assert joined.values.shape == (3, 5, 3)
    assert joined.edges is not None
    assert joined.edges.shape == (3, 5, 5)
    assert joined.mask.sum(1).tolist() == [2, 1, 4]
    trimmed = joined.take(slice(0, 2)).trimmed()
    for name in ("values", "mask", "boxes", "edges"):
        torch.testing.assert_close(getattr(trimmed, name), getattr(first, name))
    assert joined.trimmed().mask.shape == (3, 4)
    assert nodes([0], 3).trimmed().mask.shape == (1, 1)


def test_parts_that_do_not_exist_stay_missing() -> None:
    bare = Nodes(torch.zeros(1, 2, 3), torch.ones(1, 2, dtype=torch.bool))
    joined = Nodes.joined([bare, bare.resized(4)]).trimmed()
    assert (joined.boxes, joined.edges, joined.mask.shape) == (None, None, (2, 2))


def test_regions_without_a_box_are_padding() -> None:
    regions = torch.tensor([[[5.0, 6.0, 0.1, 0.2, 0.3, 0.4], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]], dtype=torch.float16)
    values, boxes, mask = split_regions(regions)
    assert values.tolist() == [[[5.0, 6.0], [0.0, 0.0]]]
    assert (values.dtype, boxes.dtype, tuple(boxes.shape)) == (torch.float32, torch.float32, (1, 2, 4))
    assert mask.tolist() == [[True, False]]


def test_words_may_have_heads() -> None:
    plain = torch.tensor([[0, 5, 1, -1], [0, 1, -1, -1]], dtype=torch.int32)
    numbers, none = split_words(plain)
    assert (numbers.tolist(), numbers.dtype, none) == ([[0, 5, 1], [0, 1, -1]], torch.int64, None)
    numbers, heads = split_words(torch.stack([plain, plain + 1], dim=1))
    assert heads is not None
    assert (numbers.tolist(), heads.tolist()) == ([[0, 5, 1], [0, 1, -1]], [[1, 6, 2], [1, 2, 0]])


@pytest.mark.parametrize("texts", [0, 3])
def test_texts_without_words_keep_two_places(texts: int) -> None:
    assert split_words(torch.full((texts, 5), -1))[0].tolist() == [[-1, -1]] * texts


def test_heads_are_neighbors_in_both_directions() -> None:
    mask = torch.tensor([[True, True, True, False]])
    found = edges_of_heads(torch.tensor([[-1, 2, -1, -1]]), mask)[0]
    assert found.int().tolist() == [[1, 0, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0]]


def test_texts_without_a_parse_have_the_edges_of_a_window() -> None:
    mask = torch.ones(2, 5, dtype=torch.bool)
    mask[0, 4] = False
    found = edges_of_heads(torch.tensor([[-2] * 5, [-1, 4, -1, -1, -1]]), mask)
    assert torch.equal(found[0], window_edges(mask)[0])
    assert found[1].sum() == 5 + 2
    assert found[1, 1, 4]


def test_words_within_the_window_are_neighbors() -> None:
    mask = torch.tensor([[True, True, True, False]])
    assert window_edges(mask, 1)[0].int().tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0]]


@pytest.fixture
def image() -> RegionEncoder:
    torch.manual_seed(0)
    return RegionEncoder(node_spec().towers["image"])


@pytest.fixture
def text() -> WordEncoder:
    torch.manual_seed(0)
    return WordEncoder(node_spec().towers["text"], word_width=6)


def test_regions_have_length_one_and_padding_is_zero(image: RegionEncoder) -> None:
    data = node_data(5)
    nodes = image(data.image.half())
    torch.testing.assert_close(nodes.values.norm(dim=2), nodes.mask.float())
    torch.testing.assert_close(nodes.boxes, data.image.half()[..., -4:].float())
    plain = RegionEncoder(node_spec().towers["image"], normalize=False)
    features = data.image[..., :-4]
    expected = (features @ plain.project.weight.T + plain.project.bias) * nodes.mask.unsqueeze(2)
    torch.testing.assert_close(plain(data.image).values, expected)


def test_initial_weights_are_those_of_the_paper(image: RegionEncoder, text: WordEncoder) -> None:
    bound = math.sqrt(6 / sum(image.project.weight.shape))
    assert 0.9 * bound < float(image.project.weight.detach().abs().max()) <= bound
    assert not image.project.bias.any()
    assert 0.9 * INITIAL_WORD < float(text.words.weight.detach().abs().max()) <= INITIAL_WORD


def test_words_are_the_mean_of_both_directions(text: WordEncoder) -> None:
    numbers = node_data(4).text
    nodes = text(numbers)
    for item in range(4):
        word = [int(number) for number in numbers[item] if number >= 0]
        vectors = text.words.weight[word].unsqueeze(0)
        states = text.gru(vectors)[0][0]
        mean = (states[:, :16] + states[:, 16:]) / 2
        torch.testing.assert_close(nodes.values[item, : len(word)], mean / mean.norm(dim=1, keepdim=True))
        assert not nodes.values[item, len(word) :].any()
    assert nodes.mask.shape[1] == int((numbers >= 0).sum(1).max())


def test_a_text_without_words_has_no_nodes(text: WordEncoder) -> None:
    nodes = text(torch.full((2, PLACES), -1, dtype=torch.int32))
    assert not nodes.mask.any()
    assert not nodes.values.any()


def test_heads_become_edges(text: WordEncoder) -> None:
    numbers = torch.tensor([[0, 4, 1, -1]])
    nodes = text(torch.stack([numbers, torch.tensor([[-1, 0, -1, -1]])], dim=1))
    assert nodes.edges.int().tolist() == [[[1, 1, 0], [1, 1, 0], [0, 0, 1]]]
    assert text(numbers).edges is None


def test_dropout_acts_in_training_only() -> None:
    spec = TowerSpec("words", (PLACES,), hidden=16, dropout=0.5, settings={"words": WORDS})
    text, numbers = WordEncoder(spec), node_data(3).text
    assert not torch.equal(text(numbers).values, text(numbers).values)
    text.eval()
    torch.testing.assert_close(text(numbers).values, text(numbers).values)
