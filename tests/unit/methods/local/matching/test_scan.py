"""SCAN: the values of the paper by direction, and the scores of its formula."""

from __future__ import annotations

import pytest
import torch

from silohash.methods.local.matching.scan import SCAN, SCANNet, SCANParams
from silohash.testing.inputs import node_data, node_spec


@pytest.mark.parametrize(
    ("given", "temperature", "scale"),
    [
        ({"direction": "t2i", "pooling": "LSE"}, 9.0, 6.0),
        ({"direction": "i2t", "pooling": "LSE"}, 4.0, 20.0),
        ({"direction": "i2t", "pooling": "AVG", "inverse_temperature": 2.0}, 2.0, 1.0),
        ({"direction": "t2i", "pooling": "LSE", "lse_scale": 3.0}, 9.0, 3.0),
    ],
)
def test_scores_have_the_values_of_their_direction(given: dict[str, object], temperature: float, scale: float) -> None:
    torch.manual_seed(0)
    params = SCANParams(**given)
    net = SCAN(params).build(node_spec(), 16)
    assert isinstance(net, SCANNet)
    data = node_data(5)
    images, texts = net.encoded(data.image, "image"), net.encoded(data.text, "text")
    explicit = params.model_copy(update={"inverse_temperature": temperature, "lse_scale": scale})
    expected = SCANNet(net.image, net.text, explicit).score(images, texts)
    torch.testing.assert_close(net.score(images, texts), expected)
    torch.testing.assert_close(images.values.norm(dim=2), images.mask.float())
