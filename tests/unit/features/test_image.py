from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from silohash.features.base import add_statistics
from silohash.features.cache import PixelCache
from silohash.features.image import PixelFeatures
from silohash.types import UserError
from tests.archives import DrawnPictures, drawn_pictures

ALL = np.arange(90)


@pytest.mark.parametrize("colour", [True, False])
@pytest.mark.parametrize("channels", [1, 3])
def test_shape_and_type(colour, channels):
    pixels = PixelFeatures(16, channels, cache=None).transform(drawn_pictures(5, colour=colour), np.array([4, 0]))
    assert pixels.shape == (2, channels, 16, 16)
    assert pixels.dtype == np.uint8


def test_pictures_of_the_right_size_are_left_alone():
    drawn = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    found = PixelFeatures(16, 3, cache=None).transform(DrawnPictures([drawn]), np.array([0]))
    np.testing.assert_array_equal(found[0], drawn.transpose(2, 0, 1))


def test_resizing_is_antialiased():
    stripes = np.tile(np.array([0, 255], np.uint8), (128, 64))
    found = PixelFeatures(16, 1, cache=None).transform(DrawnPictures([stripes]), np.array([0]))
    inner = found[0, 0, :, 2:-2].astype(int)
    assert np.abs(inner - 127).max() <= 4, "every output pixel sees as much black as white"


def test_the_whole_picture_is_squeezed_in():
    wide = np.zeros((8, 64), np.uint8)
    wide[:, 56:] = 255
    found = PixelFeatures(8, 1, cache=None).transform(DrawnPictures([wide]), np.array([0]))[0, 0]
    assert (found[:, 7] > 200).all()
    assert (found[:, :6] < 30).all()


@pytest.mark.parametrize("cached", [True, False])
def test_silos_sums_are_those_of_pooled_pixels(tmp_path, cached):
    pictures = drawn_pictures(90)
    features = PixelFeatures(12, 3, cache=PixelCache(tmp_path) if cached else None)
    parts = [features.statistics(pictures, rows) for rows in (ALL[:20], ALL[20:21], ALL[21:])]
    pooled = features.statistics(pictures, ALL)
    for name, total in add_statistics(parts).items():
        np.testing.assert_array_equal(total, pooled[name])
        assert total.dtype == np.int64
    fitted = features.fitted(pooled)
    pixels = features.transform(pictures, ALL).astype(np.float64)
    np.testing.assert_allclose(fitted.mean, pixels.mean(axis=(0, 2, 3)))
    np.testing.assert_allclose(fitted.deviation, pixels.std(axis=(0, 2, 3)))


def test_a_channel_that_never_varies_divides_by_one():
    grey = DrawnPictures([np.full((8, 8), 7, np.uint8)] * 3)
    features = PixelFeatures(8, 1, cache=None)
    assert features.fitted(features.statistics(grey, np.arange(3))).deviation == [1.0]


def test_a_query_is_encoded_as_the_archive_is(tmp_path):
    pictures = drawn_pictures(90)
    features = PixelFeatures(16, 3, cache=PixelCache(tmp_path))
    every = features.transform(pictures, ALL)
    for row in (0, 89):
        np.testing.assert_array_equal(features.encode_one(pictures.picture(row))[0], every[row])
        np.testing.assert_array_equal(features.encode_one(pictures.drawn[row])[0], every[row])


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "LA", "P", "1", "CMYK"])
def test_queries_of_any_mode(mode):
    white = Image.new("RGB", (20, 30), "white").convert(mode)
    found = PixelFeatures(16, 3, cache=None).encode_one(white)
    assert found.min() >= 250


def test_transparency_lies_over_white():
    clear = Image.new("RGBA", (20, 20), (0, 0, 0, 0))
    assert PixelFeatures(16, 1, cache=None).encode_one(clear).min() == 255


def test_pictures_are_turned_as_their_camera_says():
    upright = np.zeros((16, 16, 3), np.uint8)
    upright[:8] = 255
    turned = Image.fromarray(upright)
    turned.getexif()[0x0112] = 3
    np.testing.assert_array_equal(
        PixelFeatures(16, 3, cache=None).encode_one(turned)[0], upright.transpose(2, 0, 1)[:, ::-1, ::-1]
    )


@pytest.mark.parametrize("value", ["two parrots", np.zeros(512, np.float32), np.zeros((4, 4, 7), np.uint8)])
def test_queries_that_are_no_pictures(value):
    with pytest.raises(UserError, match=r"Pass a picture file\.$"):
        PixelFeatures(16, 3, cache=None).encode_one(value)


def test_a_column_without_pictures():
    with pytest.raises(UserError, match=r"does not (have|hold) any"):
        PixelFeatures(cache=None).transform(np.zeros((3, 4), np.float32), np.arange(3))


@pytest.mark.parametrize("cached", [True, False])
def test_a_missing_picture_is_named_only_when_asked_for(tmp_path, cached):
    pictures = DrawnPictures([*drawn_pictures(89).drawn, None])
    features = PixelFeatures(8, 3, cache=PixelCache(tmp_path) if cached else None)
    assert features.transform(pictures, ALL[:89]).any(axis=(1, 2, 3)).all()
    with pytest.raises(UserError, match="picture in row 89 cannot be decoded"):
        features.transform(pictures, ALL)


@pytest.mark.parametrize("settings", [{"size": 4}, {"size": 32.0}, {"size": True}, {"channels": 2}, {"channels": "L"}])
def test_settings_out_of_range(settings):
    with pytest.raises(UserError, match=r"\[features\] (size|channels) is"):
        PixelFeatures(**settings)
