"""SHAN: the three steps against a loop over pairs."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from torch import Tensor

from silohash.methods.local.matching.shan import SHAN, Pool, SHANNet, SHANParams
from silohash.testing.inputs import node_data, node_spec

SHARPNESS = 3.0


def pool(layer: Pool, vectors: Tensor) -> Tensor:
    """Return the weighted mean of some vectors ``(N, D)``."""
    return (layer.weigh(torch.tanh(layer.hidden(vectors))).softmax(0) * vectors).sum(0)


def attend(context: Tensor, vectors: Tensor) -> Tensor:
    """Return the mean of some vectors to which a context attends."""
    return (SHARPNESS * F.cosine_similarity(vectors, context.unsqueeze(0), dim=1)).softmax(0) @ vectors


def direct(net: SHANNet, regions: Tensor, words: Tensor, attends: str) -> Tensor:
    """Return the score of one image and one text without padding."""
    affinity = SHARPNESS * net.map_regions(regions) @ net.map_words(words).T
    of_regions, of_words = affinity.softmax(1) @ words, affinity.T.softmax(1) @ regions
    image = pool(net.pool_regions, net.mix_regions(regions, of_regions))
    text = pool(net.pool_words, net.mix_words(words, of_words))
    near_image, near_text = attend(image, words), attend(text, regions)
    steps = [
        torch.cosine_similarity(image, near_image, dim=0),
        torch.cosine_similarity(text, near_text, dim=0),
        torch.cosine_similarity(image + near_image, text + near_text, dim=0),
    ]
    if attends != "i2t":
        steps.append(torch.cosine_similarity(words, of_words, dim=1).mean())
    if attends != "t2i":
        steps.append(torch.cosine_similarity(regions, of_regions, dim=1).mean())
    return torch.stack(steps).sum()


@pytest.mark.parametrize("attends", ["t2i", "i2t", "full"])
def test_scores_are_those_of_a_loop_over_pairs(attends: str) -> None:
    torch.manual_seed(0)
    params = SHANParams.model_validate({"attends": attends, "inverse_temperature": SHARPNESS})
    net, data = SHAN(params).build(node_spec(), 16), node_data(10)
    assert isinstance(net, SHANNet)
    images, texts = net.encoded(data.image, "image"), net.encoded(data.text, "text")
    found = net.score(images, texts)
    assert found.shape == (10, 10)
    for i in (0, 7):
        for j in (1, 9):
            expected = direct(net, images.values[i][images.mask[i]], texts.values[j][texts.mask[j]], attends)
            torch.testing.assert_close(found[i, j], expected, atol=1e-5, rtol=1e-4)


def test_gates_mix_vectors_and_contexts() -> None:
    torch.manual_seed(0)
    net = SHAN(SHANParams()).build(node_spec(), 16)
    assert isinstance(net, SHANNet)
    gate, vector, found = net.mix_words, torch.randn(16), torch.randn(16)
    share = torch.sigmoid(gate.of_vector.weight @ vector + gate.of_vector.bias + gate.of_context.weight @ found)
    torch.testing.assert_close(gate(vector, found), share * vector + (1 - share) * found)
