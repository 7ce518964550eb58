"""Encoders of regions and words: length, padding, initial values, and a GRU that is computed step by step."""

from __future__ import annotations

import math

import pytest
import torch

from silohash.models.node_encoders import INITIAL_WORD, RegionEncoder, WordEncoder
from silohash.models.specs import TowerSpec
from silohash.testing.inputs import PLACES, WORDS, node_data, node_spec


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
