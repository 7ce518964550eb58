"""PFAN: the cells that a region covers, and the vectors of places against loops."""

from __future__ import annotations

import torch

from silohash.methods.local.matching.pfan import MOST_CELLS, PFAN, SIDE, PFANParams, PlacedRegions, covered
from silohash.methods.local.matching.scan import SCANNet
from silohash.testing.inputs import node_data, node_spec


def test_regions_cover_shares_of_cells() -> None:
    half, whole = [0.0, 0.0, 1.5 / SIDE, 1 / SIDE], [0.0, 0.0, 1.0, 1.0]
    found = covered(torch.tensor([half, whole, [0.0, 0.0, 0.0, 0.0]]))
    assert found[0, :3].tolist() == [1.0, 0.5, 0.0]
    assert found[0, SIDE:].abs().max() == 0
    assert torch.allclose(found[1], torch.ones(SIDE * SIDE))
    assert found[2].abs().max() == 0
    below = covered(torch.tensor([0.0, 1 / SIDE, 1 / SIDE, 2 / SIDE]))
    assert below.nonzero().flatten().tolist() == [SIDE]


def test_places_are_weighted_means_of_vectors_of_cells() -> None:
    torch.manual_seed(0)
    encoder = PlacedRegions(node_spec().towers["image"], 6)
    features = torch.randn(1, 2, encoder.ask.in_features)
    boxes = torch.tensor([[[0.0, 0.0, 1.5 / SIDE, 1 / SIDE], [0.2, 0.1, 0.9, 0.7]]])
    found = encoder.places(features, boxes)
    for region in range(2):
        shares = covered(boxes[0, region])
        order = shares.topk(MOST_CELLS).indices.tolist()
        rows = [cell + 1 if shares[cell] > 0 else 0 for cell in order]
        vectors = encoder.cells.weight[rows]
        attended = (vectors @ torch.tanh(encoder.ask(features[0, region]))).softmax(0)
        weights = (shares[order] * attended).softmax(0)
        assert torch.allclose(found[0, region], weights @ vectors, atol=1e-6)


def test_the_place_of_a_region_changes_its_vector() -> None:
    torch.manual_seed(0)
    net = PFAN(PFANParams(direction="i2t", place_width=6)).build(node_spec(), 16)
    assert isinstance(net, SCANNet)
    assert net.params.direction == "i2t"
    image = node_data(3).image
    assert image is not None
    moved = image.clone()
    moved[0, 0, -4:] = torch.tensor([0.0, 0.0, 0.1, 0.1])
    before, after = net.encoded(image, "image"), net.encoded(moved, "image")
    assert not torch.allclose(before.values[0, 0], after.values[0, 0], atol=1e-4)
    assert torch.equal(before.values[1:], after.values[1:])
    torch.testing.assert_close(after.values.norm(dim=2), after.mask.float())
