from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from silohash.base.errors import (
    ArchiveUnsuitable,
    OutOfRange,
    QueryUnsuitable,
    UnreadablePicture,
    UnsuitableFeatures,
    UserError,
    WrongChoice,
)
from silohash.data.pictures.reading import PictureFiles
from silohash.features import image
from silohash.features.base import add_statistics
from silohash.features.cache import PixelCache
from silohash.features.image import PixelFeatures, query_picture
from tests.archives import DrawnPictures, drawn_pictures

ALL = np.arange(90)


@pytest.mark.parametrize("color", [True, False])
@pytest.mark.parametrize("channels", [1, 3])
def test_shape_and_type(color, channels):
    pixels = PixelFeatures(16, channels, cache=None).transform(drawn_pictures(5, color=color), np.array([4, 0]))
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
    gray = DrawnPictures([np.full((8, 8), 7, np.uint8)] * 3)
    features = PixelFeatures(8, 1, cache=None)
    assert features.fitted(features.statistics(gray, np.arange(3))).deviation == [1.0]


def test_a_query_is_encoded_as_the_archive_is(tmp_path):
    pictures = drawn_pictures(90)
    features = PixelFeatures(16, 3, cache=PixelCache(tmp_path))
    every = features.transform(pictures, ALL)
    for row in (0, 89):
        np.testing.assert_array_equal(features.encode_one(pictures.picture(row))[0], every[row])
        np.testing.assert_array_equal(features.encode_one(pictures.drawn[row])[0], every[row])


def test_pixels_that_another_pillow_decoded_are_not_used(tmp_path, monkeypatch):
    pictures = drawn_pictures(90)
    features = PixelFeatures(16, 3, cache=PixelCache(tmp_path))
    before = features.transform(pictures, ALL)
    monkeypatch.setattr(PixelFeatures, "_draw", lambda self, picture: np.full(self.shape, 9, np.uint8))
    np.testing.assert_array_equal(features.transform(pictures, ALL), before)
    monkeypatch.setattr(image, "pillow_version", "99.0.0")
    assert (features.transform(pictures, ALL) == 9).all()


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
    with pytest.raises(ArchiveUnsuitable):
        PixelFeatures(cache=None).transform(np.zeros((3, 4), np.float32), np.arange(3))


@pytest.mark.parametrize("cached", [True, False])
def test_a_missing_picture_is_named_only_when_asked_for(tmp_path, cached):
    pictures = DrawnPictures([*drawn_pictures(89).drawn, None])
    features = PixelFeatures(8, 3, cache=PixelCache(tmp_path) if cached else None)
    assert features.transform(pictures, ALL[:89]).any(axis=(1, 2, 3)).all()
    with pytest.raises(UnreadablePicture, match="89"):
        features.transform(pictures, ALL)


@pytest.mark.parametrize("settings", [{"size": 4}, {"size": 32.0}, {"size": True}, {"channels": 2}, {"channels": "L"}])
def test_settings_out_of_range(settings):
    with pytest.raises(UserError, match=r"\[features\] (size|channels) "):
        PixelFeatures(**settings)


def test_defaults_and_bounds():
    features = PixelFeatures(cache=None)
    assert (features.size, features.channels, features.shape) == (32, 3, (3, 32, 32))
    assert PixelFeatures.options == {"size": 32, "channels": None, "cache": True}
    assert [PixelFeatures(size, cache=None).size for size in (8, 512)] == [8, 512]
    for size in (7, 513):
        with pytest.raises(OutOfRange, match=str(size)):
            PixelFeatures(size, cache=None)
    with pytest.raises(WrongChoice, match="True"):
        PixelFeatures(channels=True, cache=None)


@pytest.mark.parametrize(
    ("drawn", "channels"),
    [
        (drawn_pictures(1, color=False).drawn, 1),
        (drawn_pictures(1).drawn, 3),
        ([None, *drawn_pictures(1, color=False).drawn], 1),
        ([None] * 64 + drawn_pictures(1, color=False).drawn, 3),
        ([None] * 63 + drawn_pictures(1, color=False).drawn, 1),
        ([], 3),
    ],
)
def test_the_first_readable_picture_decides_about_color(drawn, channels):
    options = {"size": 16, "channels": None, "cache": False}
    features = PixelFeatures.make("pixels", "image", DrawnPictures(drawn), options)
    assert (features.channels, features.size, features.cache) == (channels, 16, None)
    assert PixelFeatures.make("pixels", "image", DrawnPictures(drawn), {**options, "channels": 3}).channels == 3


def test_only_pictures_are_taken():
    with pytest.raises(UnsuitableFeatures, match="pixels"):
        PixelFeatures.make("pixels", "image", np.zeros((3, 4), np.float32), dict(PixelFeatures.options))


@pytest.mark.parametrize(("rows", "total", "cached"), [(63, 63, 0), (64, 64, 1), (64, 512, 1), (64, 513, 0)])
def test_few_pictures_are_decoded_without_the_cache(rows, total, cached):
    calls = []

    class Unwritable:
        def decoded(self, key, shape, draw):
            calls.append(shape)

    pictures = DrawnPictures([np.full((8, 8), 7, np.uint8)] * total)
    pixels = PixelFeatures(8, 1, cache=Unwritable()).transform(pictures, np.arange(rows))
    assert (pixels == 7).all()
    assert calls == [(total, 1, 8, 8)] * cached


def test_sums_are_those_of_every_pixel():
    pictures = DrawnPictures([np.full((8, 8), 3, np.uint8), np.full((8, 8), 255, np.uint8)])
    found = PixelFeatures(8, 1, cache=None).statistics(pictures, np.arange(2))
    expected = {"count": [128], "sum": [64 * 258], "sum_squares": [64 * (9 + 255**2)]}
    assert {name: sums.tolist() for name, sums in found.items()} == expected


def test_the_state_holds_sums_mean_and_deviation():
    features = PixelFeatures(8, 1, cache=None)
    assert features.state() == ({}, {"kind": "pixels", "modality": "image", "size": 8, "channels": 1, "rule": 2})
    drawn = DrawnPictures([np.full((8, 8), 3, np.uint8), np.full((8, 8), 5, np.uint8)])
    arrays, about = features.fitted(features.statistics(drawn, np.arange(2))).state()
    assert (arrays["mean"].tolist(), arrays["deviation"].tolist()) == ([4.0], [1.0])
    again = PixelFeatures.from_state(arrays, about)
    assert again.shape == (1, 8, 8)
    assert again.summed.keys() == {"count", "sum", "sum_squares"}
    assert PixelFeatures.from_state({}, about).summed is None


@pytest.mark.parametrize(
    "value", [np.zeros((4,), np.uint8), np.zeros((0, 4), np.uint8), np.zeros((1, 4, 4, 3), np.uint8)]
)
def test_arrays_that_are_not_pictures(value):
    with pytest.raises(QueryUnsuitable, match="an array that is not a picture"):
        query_picture(value)


def test_the_cache_is_not_part_of_the_description():
    assert repr(PixelFeatures(8, 1)) == "PixelFeatures(size=8, channels=1, summed=None)"


def test_deep_queries_are_decoded_as_files_are(tmp_path):
    deep = Image.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8) * 60)
    deep.save(tmp_path / "a.png")
    features = PixelFeatures(8, 1, cache=None)
    from_file = features.transform(PictureFiles(tmp_path, ["a.png"]), np.arange(1))
    np.testing.assert_array_equal(features.encode_one(deep), from_file)
    assert from_file.max() == 255
