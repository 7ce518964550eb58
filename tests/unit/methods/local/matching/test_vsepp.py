"""VSE++: cosines of the means of regions and of states."""

from __future__ import annotations

import torch

from silohash.methods.local.matching.base import VectorNet
from silohash.methods.local.matching.vsepp import VSEpp
from silohash.testing.inputs import node_data, node_spec


def test_scores_are_cosines_of_means() -> None:
    torch.manual_seed(0)
    net = VSEpp(VSEpp.Params(word_width=7)).build(node_spec(), 16)
    assert isinstance(net, VectorNet)
    assert net.text.encoder.words.weight.shape[1] == 7
    data = node_data(4)
    images, texts = net.encoded(data.image, "image"), net.encoded(data.text, "text")
    regions, words = net.image.encoder(data.image), net.text.encoder(data.text)
    scores = net.score(images, texts)
    for i in range(4):
        for j in range(4):
            one = regions.values[i][regions.mask[i]].mean(0)
            other = words.values[j][words.mask[j]].mean(0)
            torch.testing.assert_close(scores[i, j], torch.cosine_similarity(one, other, dim=0))
    assert images.values.shape == (4, 1, 16)
    assert images.mask.all()
