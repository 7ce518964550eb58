"""Vectors of an archive's rows, and the statistics that standardize pixels."""

from __future__ import annotations

import numpy as np

from silohash.features import featurizer
from silohash.features.base import add_statistics
from silohash.features.image import PixelFeatures
from silohash.features.vectors import pixel_statistics, vectors
from tests.archives import DrawnPictures, made_up_archive


def test_rows_without_the_modality_are_zero_and_none_means_all_have_it() -> None:
    archive = made_up_archive(20)
    unfitted = featurizer("image", archive.image, {})
    fitted = unfitted.fitted(add_statistics([unfitted.statistics(archive.image, np.arange(20))]))
    rows = np.array([7, 2, 11])
    whole = vectors(archive, fitted, rows)
    np.testing.assert_array_equal(whole, fitted.transform(archive.image, rows))
    some = vectors(archive, fitted, rows, np.array([True, False, True]))
    np.testing.assert_array_equal(some[[0, 2]], whole[[0, 2]])
    assert (some[1] == 0).all()
    assert pixel_statistics({"image": fitted}) == {}


def test_statistics_of_pixels_have_the_shape_of_a_channel() -> None:
    pictures = DrawnPictures([np.full((8, 8, 3), (0, 10, 7), np.uint8), np.full((8, 8, 3), (4, 30, 7), np.uint8)])
    features = PixelFeatures(8, 3, cache=None)
    fitted = features.fitted(features.statistics(pictures, np.arange(2)))
    found = pixel_statistics({"image": fitted})
    assert found["pixel_mean"].tolist() == [[[2.0]], [[20.0]], [[7.0]]]
    assert found["pixel_deviation"].tolist() == [[[2.0]], [[10.0]], [[1.0]]]
    assert {array.dtype.name for array in found.values()} == {"float32"}
