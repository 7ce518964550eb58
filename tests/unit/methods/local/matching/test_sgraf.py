"""SGRAF: similarity vectors, reasoning and filtration against loops over pairs."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from torch import Tensor

from silohash.methods.local.matching.base import WHOLE, masked_softmax
from silohash.methods.local.matching.sgraf import (
    SGRAF,
    Filtration,
    Reasoning,
    SGRAFNet,
    SGRAFParams,
)
from silohash.testing.inputs import node_data, node_spec
from tests.unit.methods.local.matching.direct import contexts


def built(module: str) -> SGRAFNet:
    torch.manual_seed(0)
    net = SGRAF(SGRAFParams.model_validate({"module": module, "similarity_width": 6})).build(node_spec(), 16)
    assert isinstance(net, SGRAFNet)
    return net.eval()


def direct(net: SGRAFNet, image: Tensor, text: Tensor, wholes: tuple[Tensor, Tensor]) -> Tensor:
    """Return the score of one image and one text without padding."""
    found = F.normalize(contexts(text, image, net.inverse_temperature), dim=1)
    common = net.common(wholes[1], wholes[0]).unsqueeze(0)
    values = torch.cat([common, net.local(text, found)])
    if isinstance(net.reduce, Reasoning):
        for query, key, out in zip(net.reduce.query, net.reduce.key, net.reduce.out, strict=True):
            values = torch.relu(out((query(values) @ key(values).T).softmax(1) @ values))
        result = values[0]
    else:
        assert isinstance(net.reduce, Filtration)
        weights = torch.sigmoid(net.reduce.weigh(values))
        result = F.normalize((weights / weights.sum() * values).sum(0), dim=0)
    return torch.sigmoid(net.out(result)).squeeze()


@pytest.mark.parametrize("module", ["SGR", "SAF"])
def test_scores_are_those_of_a_loop_over_pairs(module: str) -> None:
    net, data = built(module), node_data(10)
    images, texts = net.encoded(data.image, "image"), net.encoded(data.text, "text")
    found = net.score(images, texts)
    assert found.shape == (10, 10)
    for i in (0, 7):
        for j in (1, 9):
            image, text = images.values[i][images.mask[i]], texts.values[j][texts.mask[j]]
            expected = direct(net, image, text, (images.extra[WHOLE][i], texts.extra[WHOLE][j]))
            torch.testing.assert_close(found[i, j], expected, atol=1e-5, rtol=1e-4)


def test_the_whole_is_a_weighted_mean_of_the_nodes() -> None:
    net, data = built("SGR"), node_data(3)
    nodes = net.image(data.image)
    for item in range(3):
        values = nodes.values[item][nodes.mask[item]]
        inner = torch.tanh(net.image.local(values)) * torch.tanh(net.image.common(values.mean(0)))
        weights = net.image.weigh(inner).softmax(0)
        torch.testing.assert_close(nodes.extra[WHOLE][item], F.normalize((weights * values).sum(0), dim=0))


def test_padding_has_no_weight() -> None:
    weights = masked_softmax(torch.zeros(2, 3), torch.tensor([[True, False, True], [False, False, False]]))
    assert weights.tolist() == [[0.5, 0.0, 0.5], pytest.approx([1 / 3] * 3)]


@pytest.mark.parametrize("module", ["SGR", "SAF"])
def test_similarity_vectors_begin_without_a_part_that_all_pairs_share(module: str) -> None:
    """Such a part remains after the vectors are scaled to length 1, and hides how the pairs differ."""
    net = built(module)
    same = torch.ones(1, 16)
    assert not net.local(same, same).any()
    data = node_data(24)
    images, texts = net.encoded(data.image, "image"), net.encoded(data.text, "text")
    wholes = net.similarities(images, texts)[:, :, 0].flatten(0, 1)
    assert wholes.mean(0).norm() < 0.9
