"""Networks that score pairs: the score of a batch, of many items, and in blocks."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from silohash.models import matching_net
from silohash.models.matching_net import MatchingNet, nodes_of, scores_of
from silohash.models.nodes import Nodes, RegionEncoder, WordEncoder
from silohash.testing.inputs import node_data, node_spec

BITS = 24


class Nearest(MatchingNet):
    """Score a pair by the most similar word and region."""

    def score(self, images: Nodes, texts: Nodes) -> Tensor:
        similar = torch.einsum("ird,twd->itrw", images.values, texts.values)
        there = images.mask[:, None, :, None] & texts.mask[None, :, None, :]
        return similar.masked_fill(~there, -9.0).amax((2, 3))


@pytest.fixture
def net() -> Nearest:
    torch.manual_seed(0)
    towers = node_spec(dropout=0.5).towers
    net = Nearest(RegionEncoder(towers["image"]), WordEncoder(towers["text"]))
    net.add_codes(towers["image"].hidden, BITS)
    return net


def test_a_batch_has_scores_and_codes(net: Nearest) -> None:
    data = node_data(6)
    outputs = net.eval()(data.batch(torch.arange(6)), net.modalities)
    assert (outputs.feature, outputs.extra) == ({}, {})
    assert {name: tuple(code.shape) for name, code in outputs.code.items()} == {"image": (6, BITS), "text": (6, BITS)}
    expected = net.score(net.encoded(data.image, "image"), net.encoded(data.text, "text"))
    torch.testing.assert_close(outputs.pair_score, expected)
    alone = net(replace(data, text=None).batch(torch.arange(6)))
    assert alone.pair_score is None
    torch.testing.assert_close(alone.code["image"], outputs.code["image"])
    assert net(data.batch(torch.arange(6)), ("text",)).code.keys() == {"text"}


def test_codes_do_not_depend_on_padding(net: Nearest) -> None:
    data = node_data(4)
    nodes = net.encoded(data.image, "image")
    tower = net.codes["image"]
    torch.testing.assert_close(tower(nodes.resized(9)), tower(nodes))
    empty = Nodes(torch.zeros(2, 3, 16), torch.zeros(2, 3, dtype=torch.bool))
    assert tower(empty).isfinite().all()


def test_extra_outputs_are_those_of_the_training(net: Nearest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(net, "extras", lambda images, texts, batch: {"number": torch.tensor(len(images))})
    batch = node_data(3).batch(torch.arange(3))
    assert net.train()(batch).extra["number"] == 3
    assert net.eval()(batch).extra == {}


def test_many_items_are_scored_in_blocks(net: Nearest, monkeypatch: pytest.MonkeyPatch) -> None:
    data = node_data(11)
    images, texts = nodes_of(net, data.image, "image", batch=4), nodes_of(net, data.text, "text", batch=3)
    assert net.training
    whole = net.score(images, texts)
    for most in (2, 5, 64):
        monkeypatch.setattr(matching_net, "SCORED_AT_ONCE", most)
        torch.testing.assert_close(scores_of(net, images, texts), whole)
    torch.testing.assert_close(scores_of(net, images.take(slice(0, 1)), texts.take(slice(3, 4))), whole[:1, 3:4])


def test_a_net_without_a_score_says_so(net: Nearest) -> None:
    with pytest.raises(TypeError, match="abstract method"):
        MatchingNet(net.image, net.text)  # type: ignore[abstract]
