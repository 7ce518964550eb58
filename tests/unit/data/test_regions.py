"""Regions of pictures: rows, padding, boxes and digests."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.base.types import UserError
from silohash.data.archive import Pictures
from silohash.data.regions import Regions, relative_boxes


def regions(picture: list[int]) -> Regions:
    """Return two pictures with up to three regions of width 2. The second picture has one region."""
    features = np.arange(12, dtype=np.float16).reshape(2, 3, 2) + 1
    boxes = np.tile(np.array([0.1, 0.2, 0.5, 0.6], np.float32), (2, 3, 1))
    boxes[1, 1:] = 0.0
    return Regions(features, boxes, np.array(picture))


def test_items_of_one_picture_share_its_regions() -> None:
    held = regions([0, 1, 0])
    assert (len(held), held.shape) == (3, (3, 2))
    found = held.of(np.array([2, 0]))
    assert (found.shape, found.dtype) == ((2, 3, 6), np.float32)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(found[0, 1], [3, 4, 0.1, 0.2, 0.5, 0.6], rtol=1e-6)


def test_regions_are_not_pictures() -> None:
    assert not isinstance(regions([0, 1, 0]), Pictures)


def test_padding_and_items_without_a_picture_are_zero() -> None:
    found = regions([1, -1]).of(np.arange(2))
    assert found[0, 0, 0] == 7
    assert not found[0, 1:].any()
    assert not found[1].any()


def test_digest_depends_on_regions_and_items() -> None:
    assert regions([0, 1]).digest() == regions([0, 1]).digest() != regions([1, 0]).digest()


def test_boxes_are_shares_of_the_picture() -> None:
    found = relative_boxes(np.array([[[10.0, 5.0, 30.0, 80.0]]]), np.array([[20, 40]]))
    np.testing.assert_allclose(found, [[[0.5, 0.125, 1.0, 1.0]]])
    assert found.dtype == np.float32


@pytest.mark.parametrize(
    ("features", "boxes"),
    [
        (np.zeros((2, 3), np.float32), np.zeros((2, 3, 4), np.float32)),
        (np.zeros((2, 3, 5), np.int64), np.zeros((2, 3, 4), np.float32)),
        (np.zeros((2, 3, 5), np.float32), np.zeros((2, 2, 4), np.float32)),
    ],
)
def test_other_shapes_are_refused(features: np.ndarray, boxes: np.ndarray) -> None:
    with pytest.raises(UserError, match="They need real numbers"):
        Regions(features, boxes, np.zeros(1, np.int64))
