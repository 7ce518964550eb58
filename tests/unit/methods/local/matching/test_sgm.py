"""SGM: relations of near regions, their places, and scores against loops over pairs."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name

from silohash.methods.local.matching.sgm import RELATIONS, SGM, SGMNet, SGMParams, nearest, relative_places
from silohash.testing.inputs import node_data, node_spec


def built(**values: object) -> SGMNet:
    torch.manual_seed(0)
    net = SGM(SGMParams.model_validate({"word_width": 7, **values})).build(node_spec(), 16)
    assert isinstance(net, SGMNet)
    return net.eval()


def test_relations_join_a_region_with_the_nearest_others() -> None:
    boxes = torch.tensor([[[0, 0, 0.1, 0.1], [0.8, 0.8, 1, 1], [0.1, 0, 0.3, 0.1], [0, 0, 0, 0]]])
    mask = torch.tensor([[True, True, True, False]])
    near, there = nearest(boxes, mask, 2)
    assert near[0, 0].tolist() == [2, 1]
    assert near[0, 1].tolist() == [2, 0]
    assert there.tolist() == [[[True, True], [True, True], [True, True], [False, False]]]
    near, there = nearest(boxes[:, :1], mask[:, :1], 2)
    assert near.shape == there.shape == (1, 1, 0)


def test_places_are_relative() -> None:
    one, other = torch.tensor([0.0, 0.0, 0.4, 0.2]), torch.tensor([0.2, 0.0, 0.6, 0.4])
    expected = [0.2, 0.1, 0.0, math.log(2), 0.04 / (0.08 + 0.16 - 0.04)]
    assert relative_places(one, other).tolist() == pytest.approx(expected, abs=1e-6)
    assert relative_places(one, one).tolist() == pytest.approx([0, 0, 0, 0, 1], abs=1e-6)
    assert relative_places(torch.zeros(4), torch.zeros(4)).isfinite().all()


@pytest.mark.parametrize("weight", [0.0, 0.7])
def test_scores_are_those_of_a_loop_over_pairs(weight: float) -> None:
    net, data = built(relation_weight=weight, neighbors=2), node_data(6)
    images, texts = net.encoded(data.image, "image"), net.encoded(data.text, "text")
    found = net.score(images, texts)
    encoder = net.image
    for i in range(6):
        here = images.mask[i]
        raw = torch.relu(encoder.enter(data.image[i, here, :-4]))
        boxes = data.image[i, here, -4:]
        objects = F.normalize(encoder.objects(raw), dim=1)
        relations = []
        for subject in range(len(raw)):
            centers = (boxes[:, :2] + boxes[:, 2:]) / 2
            order = (centers - centers[subject]).norm(dim=1).argsort().tolist()
            for other in [place for place in order if place != subject][:2]:
                predicate = torch.relu(encoder.predicate(relative_places(boxes[subject], boxes[other])))
                relations.append(encoder.relations(torch.cat([raw[subject], predicate, raw[other]])))
        for j in range(6):
            words = texts.values[j][texts.mask[j]]
            expected = (words @ objects.T).amax(1).mean()
            if weight:
                best = (F.normalize(torch.stack(relations), dim=1) @ texts.extra[RELATIONS][j, 0]).max()
                expected = expected + weight * best
            torch.testing.assert_close(found[i, j], expected, atol=1e-5, rtol=1e-4)


def test_a_picture_with_one_region_has_no_relations() -> None:
    net, data = built(), node_data(4)
    single = data.image[:, :1]
    images, texts = net.encoded(single, "image"), net.encoded(data.text, "text")
    assert images.extra[RELATIONS].shape[1] == 0
    padded = torch.cat([single, torch.zeros(4, 2, single.shape[2])], dim=1)
    again = net.encoded(padded, "image")
    torch.testing.assert_close(net.score(images, texts), net.score(again, texts))
