"""Uploaded pictures: what is read equals what a search reads, and everything else is refused with a status of 4xx."""

from __future__ import annotations

import io
import random
import struct
import zipfile
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from silohash.base.errors import UploadRefused
from silohash.data.glyphs.archive import fit
from silohash.data.pictures import formats
from silohash.data.pictures.reading import decode
from silohash.service.web import uploads
from silohash.service.web.uploads import MOST_FRAMES, MOST_SCANS, read_drawing, read_picture

FORMATS = [form.plugin for form in formats.FORMATS if form is not formats.HEIC]


def picture() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8))


def encoded(form: str, drawn: Image.Image | None = None, **options: Any) -> bytes:
    content = io.BytesIO()
    (drawn or picture()).save(content, form, **options)
    return content.getvalue()


def refusal(content: bytes) -> UploadRefused:
    with pytest.raises(UploadRefused) as caught:
        read_picture(content)
    assert 400 <= caught.value.status < 500
    return caught.value


@pytest.mark.parametrize("form", FORMATS)
def test_a_picture_is_decoded_as_a_search_decodes_it(form: str) -> None:
    content = encoded(form)
    assert np.array_equal(np.asarray(read_picture(content)), np.asarray(decode(content)))


def test_variants_of_formats_are_accepted() -> None:
    for content in (
        encoded("GIF", save_all=True, append_images=[picture().rotate(90)], duration=20),
        encoded("PNG", Image.new("RGBA", (4, 4), (0, 0, 0, 0))),
        encoded("JPEG", progressive=True),
        encoded("WEBP", lossless=True),
        encoded("JPEG") + b"\0\0\0\x18ftypmp42 a film of a telephone",
        encoded("PNG") + b"\0" * 7,
    ):
        assert read_picture(content).mode == "RGB"


def test_sizes_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    content = encoded("PNG")
    for name, most in {"MOST_BYTES": len(content), "MOST_PIXELS": 600, "LONGEST_SIDE": 30}.items():
        monkeypatch.setattr(uploads, name, most - 1)
        assert refusal(content).status == 413
        monkeypatch.setattr(uploads, name, most)
    assert read_picture(content).size == (30, 20)
    assert "empty" in str(refusal(b""))


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def bomb(width: int, height: int) -> bytes:
    """A PNG file of a few bytes that declares many pixels."""
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + png_chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + png_chunk(b"IEND", b"")


@pytest.mark.parametrize(("width", "height"), [(8_000, 8_000), (60_000, 60_000), (30_000, 10), (2**31 - 1, 2**31 - 1)])
def test_bombs_are_refused_before_they_are_decoded(width: int, height: int) -> None:
    assert refusal(bomb(width, height)).status in {413, 415}


def patched(content: bytes, place: int, form: str, *values: int) -> bytes:
    """The content with other numbers at a place."""
    return content[:place] + struct.pack(form, *values) + content[place + struct.calcsize(form) :]


def webp_of(width: int, height: int, frames: int) -> bytes:
    """An animation on a large canvas, whose frames have four pixels."""
    frame = encoded("WEBP", Image.new("RGB", (2, 2)), lossless=True)[12:]
    frame = bytes(6) + bytes([1, 0, 0, 1, 0, 0]) + bytes([1, 0, 0, 0]) + frame
    canvas = bytes([2, 0, 0, 0]) + struct.pack("<I", width - 1)[:3] + struct.pack("<I", height - 1)[:3]
    chunks = [(b"VP8X", canvas), (b"ANIM", struct.pack("<IH", 0, 0)), *([(b"ANMF", frame)] * frames)]
    body = b"WEBP" + b"".join(kind + struct.pack("<I", len(data)) + data for kind, data in chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


GIF = encoded("GIF", Image.new("P", (4, 4)))
JPEG, BMP = encoded("JPEG"), encoded("BMP")


@pytest.mark.parametrize("side", [8_000, 16_383])
@pytest.mark.parametrize("form", ["GIF screen", "GIF frame", "WEBP", "JPEG", "BMP"])
def test_bombs_of_other_formats_are_refused_before_they_are_decoded(form: str, side: int) -> None:
    content = {
        "GIF screen": patched(GIF, 6, "<HH", side, side),
        "GIF frame": patched(GIF, GIF.index(b"\x2c") + 5, "<HH", side, side),
        "WEBP": webp_of(side, side, 1),
        "JPEG": patched(JPEG, JPEG.index(b"\xff\xc0") + 5, ">HH", side, side),
        "BMP": patched(BMP, 18, "<ii", side, side),
    }[form]
    assert len(content) < 5_000
    error = refusal(content)
    assert error.status == 413
    assert "Send at most 50,000,000 pixels" in str(error)


def animation(form: str, frames: int) -> bytes:
    if form == "WEBP":
        return webp_of(4, 4, frames)
    if form == "PNG":
        control = png_chunk(b"acTL", struct.pack(">II", frames, 0))
        return encoded("PNG")[:33] + control + encoded("PNG")[33:]
    image = GIF[GIF.index(b"\x2c") : -1]
    return GIF[: GIF.index(b"\x2c")] + image * frames + b"\x3b"


@pytest.mark.parametrize("form", ["GIF", "WEBP", "PNG"])
def test_animations_with_too_many_frames_are_refused(form: str) -> None:
    assert read_picture(animation(form, MOST_FRAMES)).mode == "RGB"
    error = refusal(animation(form, MOST_FRAMES + 1))
    assert (error.status, MOST_FRAMES) == (413, 1_000)
    assert "has 1,001 frames" in str(error)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("form", FORMATS)
def test_truncated_pictures_are_refused(form: str, share: float) -> None:
    content = encoded(form)
    error = refusal(content[: int(share * len(content))])
    assert "is damaged" in str(error) or "is not a picture that can be read" in str(error)
    assert error.status in {415, 422}


def test_a_bomb_in_a_text_chunk_is_refused_or_ignored() -> None:
    content = encoded("PNG")
    chunk = png_chunk(b"zTXt", b"a\0\0" + zlib.compress(b"a" * 100_000_000, 9))
    try:
        assert read_picture(content[:33] + chunk + content[33:]).size == (30, 20)
    except UploadRefused as error:
        assert error.status in {415, 422}  # noqa: PT017


def zipped() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("run.js", "alert(1)")
    return content.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(encoded("JPEG") + zipped(), id="JPEG and ZIP"),
        pytest.param(encoded("PNG") + zipped(), id="PNG and ZIP"),
        pytest.param(encoded("BMP") + zipped(), id="BMP and ZIP"),
        *(pytest.param(encoded(form) + b"<HTML><body>", id=f"{form} and HTML") for form in FORMATS),
        pytest.param(encoded("JPEG", comment=b"%PDF-1.4 "), id="JPEG and PDF"),
        pytest.param(encoded("JPEG", comment=b"<?PHP system('ls') ?>"), id="JPEG and PHP"),
        pytest.param(encoded("GIF", comment=b"<script>alert(1)</script>"), id="GIF and HTML"),
        pytest.param(encoded("GIF") + b"/*", id="behind a GIF"),
        pytest.param(encoded("WEBP") + b"MZ a program", id="behind a WebP"),
        pytest.param(encoded("PNG") + b"\x7fELF", id="behind a PNG"),
        pytest.param(encoded("JPEG") + b"\xff\xda" * MOST_SCANS, id="too many scans"),
    ],
)
def test_files_of_two_kinds_are_refused(content: bytes) -> None:
    assert "again as PNG or JPEG" in str(refusal(content))


@pytest.mark.parametrize(
    "content",
    [
        b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
        b"%PDF-1.4",
        b"not a picture",
        b"%!PS-Adobe-3.0 EPSF-3.0",
        zipped(),
        patched(encoded("TIFF"), 4, "<I", 0),
        encoded("ICO", Image.new("RGB", (16, 16))),
        encoded("PDF"),
        encoded("EPS"),
        encoded("PPM"),
        pytest.param(zipped() + encoded("PNG"), id="ZIP and PNG"),
        *(pytest.param(b"<html>" + encoded(form), id=f"HTML and {form}") for form in FORMATS),
    ],
)
def test_other_formats_are_not_supported(content: bytes) -> None:
    error = refusal(content)
    assert error.status == 415
    assert "The file is not a picture that can be read: it is " in str(error)
    assert "Send a PNG or JPEG file." in str(error)


@pytest.mark.parametrize("form", FORMATS)
def test_malformed_files_are_refused_or_read(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MOST_PIXELS", 10**6)
    content = encoded(form)
    generator = random.Random(form)
    for _ in range(60):
        changed = bytearray(content)
        for _ in range(generator.randint(1, 8)):
            changed[generator.randrange(len(changed))] = generator.randrange(256)
        try:
            read_picture(bytes(changed))
        except UploadRefused as error:
            assert 400 <= error.status < 500  # noqa: PT017  both outcomes are right
    for length in range(1, len(content), 1 + len(content) // 20):
        try:
            read_picture(content[:length])
        except UploadRefused as error:
            assert 400 <= error.status < 500  # noqa: PT017


def drawing(background: Any = "white") -> bytes:
    paper = Image.new("RGBA", (200, 160), background)
    ImageDraw.Draw(paper).line([(120, 30), (180, 30), (180, 110)], fill="black", width=9)
    return encoded("PNG", paper)


def test_a_drawing_for_characters_is_fitted_like_a_character() -> None:
    found = np.asarray(read_drawing(drawing(), "glyphs"))
    assert found.shape == (32, 32)
    ink = Image.new("L", (200, 160), 0)
    ImageDraw.Draw(ink).line([(120, 30), (180, 30), (180, 110)], fill=255, width=9)
    assert np.array_equal(found, fit(ink))
    assert np.array_equal(found, np.asarray(read_drawing(drawing((0, 0, 0, 0)), "glyphs"))), "transparent is white"


def test_a_drawing_for_other_archives_is_centered_on_white() -> None:
    pixels = np.asarray(read_drawing(drawing(), "shapes").convert("L"))
    assert pixels.shape == (256, 256)
    rows, columns = (np.flatnonzero((pixels < 128).any(axis=axis)) for axis in (1, 0))
    assert abs(rows[0] - (255 - rows[-1])) <= 1
    assert abs(columns[0] - (255 - columns[-1])) <= 1
    assert rows[0] == 20, "the margin is 8 % of the side"


def test_an_empty_drawing_is_refused() -> None:
    with pytest.raises(UploadRefused, match="The drawing is empty"):
        read_drawing(encoded("PNG", Image.new("L", (50, 50), 240)), "glyphs")


def test_the_limit_is_a_setting_that_the_message_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SILOHASH_MAX_PIXELS", "599")
    error = refusal(encoded("PNG"))
    assert error.status == 413
    assert "The picture has 30 x 20 pixels. Send at most 599 pixels" in str(error)
    assert "set SILOHASH_MAX_PIXELS to a higher number where the service runs" in str(error)
    monkeypatch.setenv("SILOHASH_MAX_PIXELS", "600")
    assert read_picture(encoded("PNG")).size == (30, 20)
    long = encoded("PNG", Image.new("L", (20_001, 1)))
    monkeypatch.delenv("SILOHASH_MAX_PIXELS")
    assert "Send at most 50,000,000 pixels and 20,000 per side" in str(refusal(long))
    monkeypatch.setenv("SILOHASH_MAX_PIXELS", "20001")
    assert read_picture(long).size == (20_001, 1)


def test_a_deep_picture_is_searched_as_a_file_is() -> None:
    content = encoded("PNG", Image.fromarray((np.arange(4096) % 4096).reshape(64, 64).astype(np.uint16)))
    assert np.asarray(read_picture(content)).max() == 255
