"""VSRN: reasoning and captions against loops, and the vectors of items."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from silohash.methods.local.base import SiloState
from silohash.methods.local.matching.vsrn import VSRN, Relation, VSRNNet, VSRNParams, caption_loss, last_states
from silohash.testing.inputs import node_data, node_spec


def test_regions_receive_from_the_regions_of_their_picture() -> None:
    torch.manual_seed(0)
    relation = Relation(4)
    values, mask = torch.randn(2, 3, 4), torch.tensor([[True, True, True], [True, True, False]])
    torch.testing.assert_close(relation(values, mask), values * mask.unsqueeze(2))
    nn.init.constant_(relation.factor, 0.5)
    found = relation(values, mask)
    for item, count in ((0, 3), (1, 2)):
        own = values[item, :count]
        received = relation.ask(own) @ relation.answer(own).T / count @ relation.value(own)
        torch.testing.assert_close(found[item, :count], own + 0.5 * relation.out(received))
    assert found[1, 2].abs().max() == 0


def test_the_last_state_is_that_after_the_last_vector() -> None:
    torch.manual_seed(0)
    gru = nn.GRU(3, 4, batch_first=True)
    values, mask = torch.randn(2, 3, 3), torch.tensor([[True, True, True], [True, False, False]])
    found = last_states(gru, values, mask)
    torch.testing.assert_close(found[0], gru(values[:1])[0][0, -1])
    torch.testing.assert_close(found[1], gru(values[1:, :1])[0][0, 0])


def test_the_loss_of_a_caption_is_the_mean_over_its_words() -> None:
    logits = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    numbers = torch.tensor([[4, 2, -1], [-1, -1, -1]])
    expected = -(logits[0, 0].log_softmax(0)[4] + logits[0, 1].log_softmax(0)[2]) / 2
    found = caption_loss(logits, numbers)
    torch.testing.assert_close(found[0], expected)
    assert found[1] == 0


@pytest.mark.parametrize("weight", [0.0, 2.0])
def test_captions_are_generated_if_they_have_a_weight(weight: float) -> None:
    torch.manual_seed(0)
    method = VSRN(VSRNParams(caption_weight=weight, word_width=6))
    net, data, state = method.build(node_spec(), 16), node_data(5), SiloState()
    assert isinstance(net, VSRNNet)
    method.init_state(net, data, state)
    batch = data.batch(torch.arange(5))
    terms = method.terms(method.steps(net)[0], net.train()(batch), batch, state)
    assert hasattr(net, "captions") == bool(weight)
    if weight:
        assert terms["caption"][0] == weight
        images = net.encoded(data.image, "image").values[:, 0]
        alone = net.captions(images[:1], data.text[:1].long())
        torch.testing.assert_close(net.captions(images, data.text.long())[:1], alone)
        torch.testing.assert_close(terms["caption"][1], net.captions(images, data.text.long()).sum())
    else:
        assert terms.keys() == {"hinge", "codes"}
