"""The joint model: the two cosines of a pair, without padding and alone."""

from __future__ import annotations

import pytest
import torch

from silohash.base.errors import OutOfRange
from silohash.methods.local.matching.base import WHOLE
from silohash.methods.local.matching.joint import JointAttention, JointNet, JointParams
from silohash.methods.local.matching.saem import mixed
from silohash.testing.inputs import node_data, node_spec


def built(**params: float) -> JointNet:
    torch.manual_seed(0)
    values = {"channels": 8, "inner_width": 12, "word_width": 5, **params}
    net = JointAttention(JointParams.model_validate(values)).build(node_spec(), 16)
    assert isinstance(net, JointNet)
    return net.eval()


def test_scores_are_the_weighted_cosines_of_a_pair_alone() -> None:
    net, data = built(joint_weight=0.7), node_data(10)
    images, texts = net.encoded(data.image, "image"), net.encoded(data.text, "text")
    found = net.score(images, texts)
    assert found.shape == (10, 10)
    for i in (0, 7):
        for j in (1, 9):
            regions, words = images.values[i][images.mask[i]], texts.values[j][texts.mask[j]]
            pair = torch.cat([regions + net.kinds[0], words + net.kinds[1]]).unsqueeze(0)
            nodes = mixed(net.layer, pair, torch.ones(1, pair.shape[1], dtype=torch.bool))[0]
            image, said = nodes[: len(regions)].mean(0), nodes[len(regions) :]
            text = net.convolutions(said.unsqueeze(0), torch.ones(1, len(words), dtype=torch.bool))[0]
            alone = images.extra[WHOLE][i] @ texts.extra[WHOLE][j]
            expected = alone + 0.7 * torch.cosine_similarity(image, text, dim=0)
            torch.testing.assert_close(found[i, j], expected, atol=1e-5, rtol=1e-4)


def test_the_vectors_of_wholes_have_length_1() -> None:
    net, data = built(), node_data(4)
    for values, modality in ((data.image, "image"), (data.text, "text")):
        whole = net.encoded(values, modality).extra[WHOLE]
        torch.testing.assert_close(whole.norm(dim=1), torch.ones(4))


def test_heads_divide_the_width() -> None:
    with pytest.raises(OutOfRange, match=r"local\.heads.*5.*16"):
        built(heads=5)
