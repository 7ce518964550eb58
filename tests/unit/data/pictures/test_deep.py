"""Pictures of more than 8 bits mean what their files declare; where that is nothing, percentiles set black and white."""

from __future__ import annotations

import io
import random
import struct
from contextlib import suppress

import numpy as np
import pytest
from PIL import Image, ImageCms

from silohash.base.stamps import PICTURE_RULE
from silohash.data.pictures.deep import CEILINGS, ceiling, window
from silohash.data.pictures.reading import PERCENTILES_USED, RULE, decode
from tests.unit.data.pictures.pngs import png
from tests.unit.data.pictures.tiffs import tiff

RAMP = np.arange(4096).reshape(64, 64) * 16
"""0 to 65,520."""

EXPECTED = np.rint(RAMP / 65520 * 255).astype(int)


def gray(content: bytes) -> np.ndarray:
    return np.asarray(decode(content).convert("L")).astype(int)


def colors(content: bytes) -> np.ndarray:
    return np.asarray(decode(content)).astype(int)


def notes_of(content: bytes) -> list[str]:
    notes: list[str] = []
    decode(content, notes=notes)
    return notes


def close(found: np.ndarray, expected: np.ndarray, levels: int = 2) -> bool:
    return int(np.abs(found - expected).max()) <= levels


KINDS = {
    "u16": RAMP.astype(np.uint16),
    "u16 of 12 bits": (RAMP // 16).astype(np.uint16),
    "u16 of 10 bits": (RAMP // 64).astype(np.uint16),
    "u16 of 14 bits": (RAMP // 4).astype(np.uint16),
    "u16 around the middle": (RAMP // 16 + 30_000).astype(np.uint16),
    "i8": (RAMP // 256 - 128).astype(np.int8),
    "i16": (RAMP // 2 - 16_000).astype(np.int16),
    "u32": (RAMP * 60_000).astype(np.uint32),
    "i32": (RAMP * 60_000 - 2**31).astype(np.int32),
    "i32 of few values": (RAMP // 64 + 10**9).astype(np.int32),
    "f16": (RAMP / 65520).astype(np.float16),
    "f32": (RAMP / 3).astype(np.float32),
    "f32 of tiny values": (RAMP * 1e-30).astype(np.float32),
    "f64": (RAMP / 65520 - 0.5).astype(np.float64),
}


@pytest.mark.parametrize("values", [pytest.param(values, id=name) for name, values in KINDS.items()])
@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("deflated", [False, True])
def test_ramps_of_every_type_become_ramps(values: np.ndarray, order: str, deflated: bool) -> None:
    content = tiff(values, order=order, deflated=deflated)
    assert close(gray(content), EXPECTED, 3)
    assert close(gray(tiff(values, order=order, deflated=deflated, inverted=True)), 255 - EXPECTED, 3)
    assert notes_of(content) == [PERCENTILES_USED]


def test_a_picture_that_uses_its_range_is_divided_by_257() -> None:
    assert np.array_equal(gray(png(RAMP)), np.rint(RAMP / 257))
    photo = np.clip(np.random.default_rng(0).normal(33_000, 11_000, (64, 64)), 0, 65_535).astype(int)
    for content in (png(photo), *(tiff(photo.astype(np.uint16), order=order) for order in "<>")):
        assert np.array_equal(gray(content), np.rint(photo / 257))


def test_a_few_pixels_do_not_change_the_brightness_of_the_others() -> None:
    for least, most in ((0, 254), (0, 4095), (100, 1000)):
        values = least + RAMP * (most - least) // 65520
        for outlier in (most + 1, 65_535, 0):
            changed = values.copy()
            changed[0, :8] = outlier
            assert close(gray(png(changed))[1:], gray(png(values))[1:])


def test_the_range_never_jumps_as_a_picture_fills_its_type() -> None:
    shown = [gray(png((RAMP * share).astype(int)))[32, 0] for share in np.linspace(0.4, 1, 200)]
    assert np.abs(np.diff(shown)).max() <= 3


@pytest.mark.parametrize("value", [0, 1, 255, 256, 4095, 32_896, 65_535])
def test_a_picture_of_one_value_keeps_its_brightness_and_a_few_others_do_not_change_it(value: int) -> None:
    page = np.full((64, 64), value)
    expected = round(value / next(most for most in CEILINGS if value <= most) * 255)
    assert gray(png(page)).tolist() == np.full((64, 64), expected).tolist()
    page[0, :5] = 65_535 - value
    assert (gray(png(page))[1:] == expected).all()


def test_numbers_of_one_value_do_not_divide_by_zero() -> None:
    for value in (-7.5, 0.0, 0.5, 1.0, 1e30, np.nan, np.inf, -np.inf):
        assert len(np.unique(gray(tiff(np.full((8, 8), value, np.float32))))) == 1
    assert gray(tiff(np.full((8, 8), 0.5, np.float32)))[0, 0] == 128
    for values in (np.full((8, 8), -300, np.int16), np.full((8, 8), 2**32 - 1, np.uint32)):
        assert len(np.unique(gray(tiff(values)))) == 1


def test_what_is_not_a_number_does_not_count_and_is_clipped() -> None:
    values = (RAMP / 65520).astype(np.float32)
    values[5, 5:8] = np.inf, -np.inf, np.nan
    found = gray(tiff(values))
    assert found[5, 5:8].tolist() == [255, 0, 0]
    assert close(np.delete(found, 5, 0), np.delete(EXPECTED, 5, 0))


@pytest.mark.parametrize(
    ("values", "tags"),
    [
        (RAMP // 16, {340: ("H", 0), 341: ("H", 8190)}),
        (RAMP // 16, {341: ("H", 8190)}),
        ((RAMP / 65520).astype(np.float32), {340: ("f", 0.0), 341: ("f", 2.0)}),
        ((RAMP / 65520).astype(np.float64), {340: ("d", 0.0), 341: ("d", 2.0)}),
        ((RAMP // 16 - 1000).astype(np.int16), {340: ("h", -1000), 341: ("h", 7190)}),
    ],
)
@pytest.mark.parametrize("order", "<>")
def test_a_declared_range_is_used(values: np.ndarray, tags: dict[int, tuple[str, object]], order: str) -> None:
    content = tiff(values.astype(np.uint16) if values.dtype == np.int64 else values, tags, order=order)
    assert close(gray(content), EXPECTED / 2, 1)
    assert notes_of(content) == []


def test_a_damaged_range_is_not_used() -> None:
    for low, high in ((0.0, np.inf), (5.0, 5.0), (np.nan, 1.0)):
        values = (RAMP / 65520).astype(np.float32)
        assert close(gray(tiff(values, {340: ("f", low), 341: ("f", high)})), EXPECTED)


def test_bits_that_are_declared_are_used() -> None:
    half = RAMP // 32  # up to 2,047 of 4,095
    assert close(gray(png(half, (b"sBIT", b"\x0c"))), EXPECTED / 2, 1)
    assert close(gray(png(RAMP // 2 // 16 * 16, (b"sBIT", b"\x0c"))), EXPECTED / 2, 1)
    dark, outlier = RAMP // 64 * 16, half.copy()
    outlier[0, :5] = 4096, 65_535, 5000, 40_000, 16
    assert close(gray(png(outlier, (b"sBIT", b"\x0c")))[1:], EXPECTED[1:] / 2, 1), "outliers do not change the others"
    assert gray(png(dark // 16, (b"sBIT", b"\x0c")))[1:].max() == 64
    dark[:] = dark // 16 // 8 * 16
    dark[0, :5] = 65_535
    assert gray(png(dark, (b"sBIT", b"\x0c")))[1:].max() == 8, "stars do not change a dark sky"
    assert gray(png(half, (b"sBIT", b"\x10"))).max() == 8, "all 16 bits count, so it is a dark picture"
    assert notes_of(png(half, (b"sBIT", b"\x0c"))) == []


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("options", [{}, {"deflated": True}])
def test_samples_of_12_bits_are_declared(order: str, options: dict[str, bool]) -> None:
    pairs = (RAMP // 32).reshape(-1, 2)
    data = b"".join(struct.pack(">I", int(first) << 12 | int(second))[1:] for first, second in pairs)
    pixels, tags = np.frombuffer(data, np.uint8).reshape(64, 96), {256: ("L", 64), 258: ("H", 12)}
    assert close(gray(tiff(pixels, tags, order=order, **options)), EXPECTED / 2, 1)
    assert close(gray(tiff(pixels, tags, order=order, inverted=True, **options)), 255 - EXPECTED / 2, 1)


def test_a_color_profile_declares_the_whole_range() -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    content = tiff((RAMP // 32).astype(np.uint16), {34675: ("B", tuple(profile))})
    assert gray(content).max() == 8
    assert notes_of(content) == []


@pytest.mark.parametrize(
    ("values", "nodata"),
    [
        (np.where(RAMP > 60_000, -9999, RAMP / 4).astype(np.int16), "-9999"),
        (np.where(RAMP > 60_000, 0, RAMP + 1).astype(np.uint16), "0"),
        (np.where(RAMP > 60_000, -3.4028234663852886e38, RAMP / 4).astype(np.float32), "-3.4028234663852886e+38"),
        (np.where(RAMP > 60_000, np.nan, RAMP / 4).astype(np.float32), "nan"),
    ],
)
def test_where_there_is_no_data_the_paper_is_white(values: np.ndarray, nodata: str) -> None:
    found = gray(tiff(values, {42113: ("s", nodata)}))
    assert (found[RAMP > 60_000] == 255).all()
    assert close(found[RAMP <= 60_000], np.rint(RAMP[RAMP <= 60_000] / 60_000 * 255), 22)
    assert found[0, 0] <= 1
    assert notes_of(tiff(values, {42113: ("s", "none")})) == [PERCENTILES_USED]


@pytest.mark.parametrize("inverted", [False, True])
def test_where_there_is_no_data_at_8_bits(inverted: bool) -> None:
    values = (RAMP // 512).astype(np.uint8)
    values[:9] = 200
    content = tiff(values, {42113: ("s", "200")}, inverted=inverted)
    found = gray(content)
    assert (found[:9] == 255).all()
    assert np.array_equal(found[9:], 255 - values[9:] if inverted else values[9:])
    assert notes_of(content) == []


def test_where_no_channel_has_data() -> None:
    three = THREE.copy()
    three[:9], three[9, 0] = 7, (7, 7, 8)
    found = colors(tiff(three.astype(np.uint16), {42113: ("s", "7")}))
    assert (found[:9] == 255).all()
    assert close(found[9:], three[9:] / 257, 1)


def test_a_missing_value_that_the_type_cannot_hold_is_nowhere() -> None:
    values = RAMP.astype(np.uint16)
    values[3, 3] = 65_536 - 9999
    assert np.array_equal(gray(tiff(values, {42113: ("s", "-9999")})), gray(tiff(values)))
    deflated = np.stack([values, np.full_like(values, 65_535)], axis=-1)
    for order in "<>":
        assert np.array_equal(gray(tiff(deflated, order=order, deflated=True)), np.rint(values / 257))


def test_transparent_values_are_white_as_at_8_bits() -> None:
    found = gray(png(RAMP, (b"tRNS", struct.pack(">H", 0))))
    assert found[0, 0] == 255
    assert close(found.reshape(-1)[1:], EXPECTED.reshape(-1)[1:])
    three = np.stack([RAMP, RAMP[::-1], RAMP // 2], axis=-1)
    found = colors(png(three, (b"tRNS", struct.pack(">HHH", *three[3, 7]))))
    assert found[3, 7].tolist() == [255, 255, 255]
    assert np.array_equal(np.delete(found, 3, 0), np.delete(np.rint(three / 257), 3, 0))
    transparent = np.stack([RAMP, np.where(RAMP > 60_000, 0, 65_535)], axis=-1)
    for content in (
        png(transparent),
        tiff(transparent.astype(np.uint16)),
        tiff(transparent.astype(np.uint16), order=">"),
    ):
        found = gray(content)
        assert (found[RAMP > 60_000] == 255).all()
        assert np.array_equal(found[RAMP <= 60_000], np.rint(RAMP / 257)[RAMP <= 60_000])


THREE = np.stack([RAMP, RAMP[::-1], RAMP // 2], axis=-1)
FOUR = np.concatenate([THREE, np.full((64, 64, 1), 65_535)], axis=-1)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("options", [{}, {"deflated": True}, {"planes": True}, {"planes": True, "deflated": True}])
def test_colors_of_16_bits(order: str, options: dict[str, bool]) -> None:
    for values in (THREE, FOUR):
        assert close(colors(tiff(values.astype(np.uint16), order=order, **options)), THREE / 257, 1)
        assert close(colors(tiff((values // 16).astype(np.uint16), order=order, **options)), THREE / 257, 3)
    inks = np.concatenate([THREE, RAMP.T[..., None] // 4], axis=-1)
    paper = (65_535 - inks[..., :3]) / 257 * (65_535 - inks[..., 3:]) / 65_535
    for values in (inks, inks // 16):
        content = tiff(values.astype(np.uint16), {262: ("H", 5), 338: ("H", ())}, order=order, **options)
        assert close(colors(content), paper, 4)


def test_colors_of_16_bits_in_png() -> None:
    for values in (THREE, FOUR):
        for interlaced in (False, True):
            assert np.array_equal(colors(png(values, interlaced=interlaced)), np.rint(THREE / 257))
    dark = THREE // 16
    assert close(colors(png(dark)), THREE / 257, 3)
    assert close(colors(png(dark, (b"sBIT", b"\x0c\x0c\x0c"))), THREE / 257, 1)
    assert notes_of(png(dark)) == [PERCENTILES_USED]
    assert notes_of(png(dark, (b"sBIT", b"\x0c\x0c\x0c"))) == []


def test_hues_are_kept() -> None:
    patch = np.full((8, 8, 3), (40_000, 20_000, 10_000))
    assert colors(png(patch))[0, 0].tolist() == [156, 78, 39]
    dim = colors(png(patch // 16))[0, 0]
    assert close(dim / dim.max(), np.array([1, 0.5, 0.25]), 0.01)


def test_the_opacity_has_as_many_bits_as_the_colors() -> None:
    twelve = np.stack([RAMP // 16, np.where(RAMP // 6_000 == 5, 0, 4095)], axis=-1)
    for content in (
        png(twelve, (b"sBIT", b"\x0c\x0c")),
        png(twelve),
        *(tiff(twelve.astype(np.uint16), order=order) for order in "<>"),
    ):
        found = gray(content)
        assert (found[RAMP // 6_000 == 5] == 255).all()
        assert close(found[RAMP // 6_000 != 5], EXPECTED[RAMP // 6_000 != 5], 3)
    assert (gray(png(np.stack([RAMP, RAMP * 0 + 4095], axis=-1))) >= 239).all(), "it is nearly transparent"


@pytest.mark.parametrize("order", "<>")
def test_colors_that_were_multiplied_by_the_opacity(order: str) -> None:
    half = np.stack([RAMP // 2, np.full_like(RAMP, 32_768)], axis=-1).astype(np.uint16)
    content = tiff(half, {338: ("H", 1), 340: ("H", 0), 341: ("H", 65_535)}, order=order)
    assert close(gray(content), EXPECTED / 2 + 127.5)
    three = np.concatenate([THREE // 2, half[..., 1:]], axis=-1).astype(np.uint16)
    for deflated in (False, True):
        with pytest.raises(ValueError, match="opacity is stored in a plane of its own"):
            decode(tiff(three, {338: ("H", 1)}, order=order, planes=True, deflated=deflated))
    assert close(gray(tiff((half // 257).astype(np.uint8), {338: ("H", 1)}, order=order)), EXPECTED / 2 + 127.5, 3)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
@pytest.mark.parametrize("deflated", [False, True])
def test_gray_and_opacity_in_separate_planes_are_refused(kind: type[np.integer], deflated: bool) -> None:
    content = tiff(np.stack([RAMP, RAMP], axis=-1).astype(kind), planes=True, deflated=deflated)
    with pytest.raises(ValueError, match="opacity is stored in a plane of its own"):
        decode(content)


def test_gray_with_opacity_in_white_is_zero() -> None:
    values = np.stack([RAMP, np.full_like(RAMP, 65_535)], axis=-1).astype(np.uint16)
    assert np.array_equal(gray(tiff(values, {262: ("H", 0)})), 255 - np.rint(RAMP / 257))
    unspecified = np.stack([RAMP, np.zeros_like(RAMP)], axis=-1).astype(np.uint16)
    assert np.array_equal(gray(tiff(unspecified, {338: ("H", 0)})), np.rint(RAMP / 257)), (
        "the second sample is no opacity"
    )


@pytest.mark.parametrize("bits", [1, 8])
def test_white_is_zero_at_few_bits_and_8_bits_stay_as_they_are(bits: int) -> None:
    values = np.array([[0, 1, 200, 255]], np.uint8)
    if bits == 8:
        assert gray(tiff(values)).tolist() == [[0, 1, 200, 255]]
        assert gray(tiff(values, inverted=True)).tolist() == [[255, 254, 55, 0]]
        assert RULE not in decode(tiff(values)).info
    else:
        one = {258: ("H", 1), 256: ("L", 8)}
        packed = np.array([[0b11110000]], np.uint8)
        assert gray(tiff(packed, one)).tolist() == [[255] * 4 + [0] * 4]
        assert gray(tiff(packed, one, inverted=True)).tolist() == [[0] * 4 + [255] * 4]


def test_a_picture_that_depends_on_the_rule_says_so() -> None:
    assert decode(png(RAMP)).info[RULE] == decode(png(THREE)).info[RULE] == PICTURE_RULE


def test_a_deep_picture_is_turned_as_its_camera_says() -> None:
    exif = b"Exif\0\0"[6:] + b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"
    assert decode(png(RAMP[:32], (b"eXIf", exif))).size == (32, 64)
    for values in (RAMP[:32], THREE[:32]):
        found = decode(tiff(values.astype(np.uint16), {274: ("H", 6)}))
        assert found.size == (32, 64)


def test_a_deep_jpeg_2000_declares_its_bits() -> None:
    stream = io.BytesIO()
    Image.fromarray((RAMP // 16).astype(np.uint16)).save(stream, "JPEG2000")
    assert close(gray(stream.getvalue()), EXPECTED), "all 16 bits are used, which does not declare anything"
    assert notes_of(stream.getvalue()) == [PERCENTILES_USED]


def test_windows() -> None:
    assert window(np.array([], np.uint16), color=False) == (0, 1)
    assert window(np.array([np.nan, np.inf]), color=False) == (0, 1)
    assert window(np.arange(1001, dtype=np.int32), color=False) == (5, 995)
    assert window(np.arange(1001, dtype=np.int32), color=True) == (0, 995)
    assert window(np.array([0, 65_535], np.uint16), color=False) == (0, 65_535)
    assert [ceiling(value, fractions=False) for value in (0, 256, 70_000, 1e12)] == [255, 1023, 2**24 - 1, 1e12]
    assert [ceiling(value, fractions=True) for value in (0.3, 1, 1.1)] == [1, 1, 255]


@pytest.mark.parametrize(
    "name", ["png gray", "png color", "png opacity", "tiff", "tiff range", "tiff planes", "tiff opacity"]
)
def test_damaged_deep_pictures_are_refused_or_read(name: str) -> None:
    content = {
        "png gray": png(RAMP[:9], (b"sBIT", b"\x0c")),
        "png color": png(THREE[:9]),
        "png opacity": png(FOUR[:9, :, 2:]),
        "tiff": tiff(RAMP[:9].astype(np.float64), order=">"),
        "tiff range": tiff(RAMP[:9].astype(np.uint16), {340: ("H", 5), 341: ("H", 900), 42113: ("s", "-9")}),
        "tiff planes": tiff(THREE[:9].astype(np.uint16), planes=True),
        "tiff opacity": tiff(FOUR[:9, :, 2:].astype(np.uint16)),
    }[name]
    generator = random.Random(name)
    for _ in range(100):
        changed = bytearray(content[: generator.choice([len(content), generator.randrange(len(content))])])
        for _ in range(generator.randint(0, 4)):
            changed[generator.randrange(len(changed))] = generator.randrange(256)
        with suppress(ValueError):
            assert decode(bytes(changed), at_least_pixels=generator.choice([0, 4])).mode == "RGB"
