"""Embedded color profiles are applied, except damaged ones and those that mean sRGB."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from PIL import Image, ImageCms

from silohash.data.pictures import profiles
from silohash.data.pictures.profiles import PROFILE, jpeg2000_profile, to_srgb
from silohash.data.pictures.reading import RULE, decode
from tests.unit.data.pictures.icc import (
    ADOBE_RGB,
    SRGB,
    cmyk_profile,
    converted,
    gray_profile,
    rgb_profile,
    srgb_to_linear,
)
from tests.unit.data.pictures.tiffs import tiff

ADOBE = rgb_profile(ADOBE_RGB, 2.2)
COLORS = np.random.default_rng(0).integers(40, 216, (16, 16, 3), dtype=np.uint8)
EXPECTED = converted(COLORS, ADOBE_RGB, 2.2)


def written(picture: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, kind, **options)
    return stream.getvalue()


def pixels(content: bytes) -> np.ndarray:
    return np.asarray(decode(content)).astype(int)


def close(found: np.ndarray, expected: np.ndarray, levels: float = 2) -> bool:
    return float(np.abs(found - expected).max()) <= levels


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("PNG", {}),
        ("TIFF", {}),
        ("WEBP", {"lossless": True}),
        ("JPEG", {"quality": 100, "subsampling": 0}),
        ("AVIF", {"quality": 100, "subsampling": "4:4:4"}),
    ],
)
def test_colors_are_converted_whatever_the_format(kind: str, options: dict[str, object]) -> None:
    patch = Image.new("RGB", (16, 16), (60, 180, 90))
    expected = converted(np.array([60, 180, 90]), ADOBE_RGB, 2.2)
    assert np.abs(expected - (60, 180, 90)).max() > 50, "the profile matters"
    found = decode(written(patch, kind, icc_profile=ADOBE, **options))
    assert close(np.asarray(found)[8, 8], expected, 3)
    assert PROFILE not in found.info
    assert RULE in found.info


def test_every_color_is_converted() -> None:
    assert close(pixels(written(Image.fromarray(COLORS), icc_profile=ADOBE)), EXPECTED)


def test_opacity_is_kept() -> None:
    alpha = Image.fromarray(np.where(np.arange(256).reshape(16, 16) < 128, 0, 255).astype(np.uint8))
    picture = Image.fromarray(COLORS)
    picture.putalpha(alpha)
    found = pixels(written(picture, icc_profile=ADOBE))
    assert (found[:8] == 255).all()
    assert close(found[8:], EXPECTED[8:])


def test_palettes_are_converted() -> None:
    palette = Image.fromarray(COLORS).quantize(16)
    expected = converted(np.asarray(palette.convert("RGB")), ADOBE_RGB, 2.2)
    assert close(pixels(written(palette, icc_profile=ADOBE)), expected)
    found = pixels(written(palette, icc_profile=ADOBE, transparency=0))
    clear = np.asarray(palette) == 0
    assert (found[clear] == 255).all()
    assert close(found[~clear], expected[~clear])


def test_grays_are_converted() -> None:
    ramp = Image.fromarray(np.arange(256, dtype=np.uint8)[None])
    found = pixels(written(ramp, icc_profile=gray_profile(1.0)))
    linear = np.arange(256)[:, None] / 255
    expected = 255 * np.where(linear <= 0.0031308, linear * 12.92, 1.055 * linear ** (1 / 2.4) - 0.055)
    assert close(found[0], expected)
    assert (found[..., 0] == found[..., 2]).all()
    with_alpha = ramp.convert("LA")
    assert np.array_equal(pixels(written(with_alpha, icc_profile=gray_profile(1.0))), found)
    neutral = pixels(written(ramp, icc_profile=ADOBE))
    assert close(neutral[0], converted(np.repeat(np.arange(256)[:, None], 3, axis=1), ADOBE_RGB, 2.2)), "RGB for gray"


def test_inks_are_converted_by_their_press() -> None:
    lab = ImageCms.createProfile("LAB")
    srgb = ImageCms.createProfile("sRGB")
    to_rgb = ImageCms.buildTransform(lab, srgb, "LAB", "RGB")
    for inks, lightness in (((0, 0, 0, 0), 100), ((255, 0, 0, 0), 80), ((0, 0, 0, 255), 60), ((255, 255, 0, 255), 20)):
        expected = np.asarray(to_rgb.apply(Image.new("LAB", (1, 1), (round(lightness * 2.55), 128, 128))))[0, 0]
        picture = Image.new("CMYK", (8, 8), inks)
        for kind in ("TIFF", "JPEG"):
            found = pixels(written(picture, kind, icc_profile=cmyk_profile()))[4, 4]
            assert close(found, expected.astype(int), 4), (inks, kind)
            plain = pixels(written(picture, kind))[4, 4]
            assert close(plain, np.asarray(picture.convert("RGB"))[4, 4].astype(int), 4), "without a profile as before"


def test_colors_of_16_bits_are_converted() -> None:
    deep = COLORS.astype(np.uint16) * 257
    assert close(pixels(tiff(deep, {34675: ("B", tuple(ADOBE))})), EXPECTED)


@pytest.mark.parametrize(
    "profile",
    [
        pytest.param(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes(), id="sRGB of Little CMS"),
        pytest.param(rgb_profile(SRGB, srgb_to_linear), id="sRGB with a table"),
        pytest.param(ADOBE[:300], id="cut off"),
        pytest.param(ADOBE.replace(b"curv", b"????"), id="damaged curves"),
        pytest.param(b"not a profile", id="words"),
        pytest.param(b"\0" * 200, id="zeros"),
        pytest.param(cmyk_profile(), id="of another color space"),
        pytest.param(gray_profile(1.0), id="of gray"),
    ],
)
def test_pixels_do_not_change_where_the_profile_is_srgb_or_useless(profile: bytes) -> None:
    found = decode(written(Image.fromarray(COLORS), icc_profile=profile))
    assert np.array_equal(np.asarray(found), COLORS)
    assert not {PROFILE, RULE} & set(found.info)


def test_a_profile_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    profiles._conversion.cache_clear()
    for _ in range(3):
        decode(written(Image.fromarray(COLORS), icc_profile=ADOBE))
    assert profiles._conversion.cache_info().misses == 1


def test_a_picture_in_black_and_white_is_left_alone() -> None:
    picture = Image.new("1", (4, 4), 1)
    picture.info[PROFILE] = ADOBE
    assert to_srgb(picture) is picture


def test_the_profile_of_a_jpeg_2000_file_is_found() -> None:
    content = written(Image.fromarray(COLORS), "JPEG2000")
    assert jpeg2000_profile(content) is None
    place = content.index(b"colr") - 4
    (length,) = struct.unpack_from(">I", content, place)
    box = struct.pack(">I", len(ADOBE) + 11) + b"colr\x02\0\0" + ADOBE
    header = content.index(b"jp2h") - 4
    (outer,) = struct.unpack_from(">I", content, header)
    changed = bytearray(content[:place] + box + content[place + length :])
    changed[header : header + 4] = struct.pack(">I", outer - length + len(box))
    assert jpeg2000_profile(bytes(changed)) == ADOBE
    assert close(pixels(bytes(changed)), EXPECTED, 3)
