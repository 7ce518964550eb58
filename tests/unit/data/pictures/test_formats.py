"""Picture files are told by their content, within one limit, and whatever else a name promises is refused by name."""

from __future__ import annotations

import io
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, TiffImagePlugin

import silohash
from silohash.base.errors import OutOfRange
from silohash.data.pictures import formats
from silohash.data.pictures.formats import FORMATS, HEIC, MAX_PIXELS, format_of, most_pixels, open_picture
from silohash.data.pictures.reading import decode
from tests.unit.data.pictures.tiffs import tiff

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 32 32\n%%EndComments\n0 0 32 32 rectfill\nshowpage\n%%EOF\n"


def written(picture: Image.Image, kind: str, **options: object) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, kind, **options)
    return stream.getvalue()


def noise(width: int = 30, height: int = 20) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


@pytest.mark.parametrize("form", [form for form in FORMATS if form is not HEIC], ids=lambda form: form.name)
def test_each_format_is_told_by_its_content(form: formats.Format) -> None:
    content = written(noise(), form.plugin)
    assert format_of(content) is form
    assert open_picture(content).size == decode(content).size == (30, 20)


def test_a_photograph_of_a_telephone_with_two_pictures_is_a_jpeg() -> None:
    content = written(noise(), "MPO", save_all=True, append_images=[noise()])
    assert Image.open(io.BytesIO(content)).format == "MPO"
    found = format_of(content)
    assert (found.name, found.suffixes[0]) == ("JPEG", ".jpg")
    assert decode(content).size == (30, 20)


def test_codestreams_and_large_tiffs_are_read() -> None:
    assert open_picture(written(noise(), "JPEG2000", no_jp2=True)).format == "JPEG2000"
    assert open_picture(written(noise(), "TIFF", big_tiff=True)).size == (30, 20)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (EPS, "PostScript"),
        (b"\xc5\xd0\xd3\xc6" + bytes(28) + EPS, "PostScript"),
        (b"%PDF-1.7 ...", "a PDF document"),
        (b"8BPS\0\x01" + bytes(30), "a Photoshop document"),
        (b'<?xml version="1.0"?>\n<!-- drawn -->\n<svg xmlns="http://www.w3.org/2000/svg"/>', "an SVG drawing"),
        (b"\n<!DOCTYPE html><html>", "an HTML page"),
        (b"\xd7\xcd\xc6\x9a" + bytes(40), "a Windows metafile"),
        (b"\x01\0\0\0" + bytes(36) + b" EMF" + bytes(40), "a Windows metafile"),
        (b"icns" + bytes(12), "an icon"),
        (written(noise(16, 16), "ICO"), "an icon"),
        (b"SIMPLE  =                    T", "FITS"),
        (b"GRIB" + bytes(12), "GRIB"),
        (b"BUFR" + bytes(12), "BUFR"),
        (b"\x89HDF\r\n\x1a\n", "HDF5"),
        (bytes(128) + b"DICM", "DICOM"),
        (b"\xff\x0a" + bytes(12), "JPEG XL"),
        (written(noise(), "PPM"), "Netpbm"),
        (b"\0\0\0\x18ftypisom" + bytes(12), "a film"),
        (b"PK\x03\x04" + bytes(12), "a zip archive"),
    ],
)
def test_other_files_are_refused_by_name(content: bytes, kind: str) -> None:
    expected = f"it is {kind}, not PNG, JPEG, WebP, GIF, BMP, TIFF, JPEG 2000, AVIF or HEIC"
    with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"):
        decode(content)


def test_a_file_of_a_known_format_that_cannot_be_opened_is_named() -> None:
    with pytest.raises(ValueError, match="it is a TIFF file that is damaged or of a kind that cannot be decoded"):
        open_picture(tiff(np.zeros((4, 4, 3), np.float32)))


def test_postscript_never_starts_an_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "started"
    for name in ("gs", "gswin64c"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho started >> {mark}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for content in (EPS, b"\xc5\xd0\xd3\xc6" + (30).to_bytes(4, "little") + bytes(22) + EPS):
        for least in (0, 64):
            with pytest.raises(ValueError, match="PostScript"):
                decode(content, at_least_pixels=least)
    assert not mark.exists()


def test_one_function_opens_all_picture_files() -> None:
    root = Path(silohash.__file__).parent
    opening = [path.relative_to(root).as_posix() for path in root.rglob("*.py") if "Image.open(" in path.read_text()]
    assert opening == ["data/pictures/formats.py"]


def heic(brand: bytes = b"heic") -> bytes:
    return b"\0\0\0\x18ftyp" + brand + b"\0\0\0\0mif1heic" + bytes(40)


def test_heic_needs_an_extra_of_its_own(monkeypatch: pytest.MonkeyPatch, repository: Path) -> None:
    monkeypatch.setattr(formats, "installed", lambda package: package != formats.HEIC_PACKAGE)
    for brand in (b"heic", b"heix", b"hevc", b"mif1"):
        with pytest.raises(ValueError, match=r"HEIC.* needs pillow_heif.*pip install 'silohash\[heic\]'"):
            decode(heic(brand))
    lines = (repository / "pyproject.toml").read_text().splitlines()
    assert [line.partition(" = ")[0] for line in lines if "pillow-heif" in line] == ["heic"]


def test_heic_is_read_with_the_extra() -> None:
    package = pytest.importorskip("pillow_heif")
    stream = io.BytesIO()
    package.from_pillow(Image.new("RGB", (64, 48), (200, 100, 50))).save(stream, quality=95)
    content = stream.getvalue()
    assert format_of(content) is HEIC
    assert np.abs(np.asarray(decode(content), int) - (200, 100, 50)).max() <= 4


def test_an_avif_file_is_not_taken_for_heic() -> None:
    content = written(noise(), "AVIF")
    assert format_of(content[:8] + b"mif1" + content[12:]).name == "AVIF"


def test_the_limit_of_pixels_is_a_setting_that_the_message_names(monkeypatch: pytest.MonkeyPatch) -> None:
    content = written(noise(), "PNG")
    monkeypatch.setenv(MAX_PIXELS, "599")
    with pytest.raises(ValueError, match="it has 30 x 20 pixels, more than 599; set SILOHASH_MAX_PIXELS to a higher"):
        decode(content)
    monkeypatch.setenv(MAX_PIXELS, "600")
    assert decode(content).size == (30, 20)
    monkeypatch.delenv(MAX_PIXELS)
    assert most_pixels() == formats.DEFAULT_MAX_PIXELS
    assert most_pixels(7) == 7


@pytest.mark.parametrize("value", ["many", "0", "-5", "1e9"])
def test_a_limit_that_is_not_a_number_is_named(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(MAX_PIXELS, value)
    with pytest.raises(OutOfRange, match=str(value)):
        decode(written(noise(), "PNG"))


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "GIF", "BMP"])
def test_a_picture_above_the_limit_of_pillow_is_read_without_a_warning(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    content = written(noise(), kind)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decode(content).size == (30, 20)
    assert Image.MAX_IMAGE_PIXELS == 100


def test_a_huge_picture_is_refused_whatever_pillow_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    content = bytearray(written(noise(), "BMP"))
    content[18:26] = (30_000).to_bytes(4, "little") * 2
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    with pytest.raises(ValueError, match="it has 30,000 x 30,000 pixels, more than 178,956,970; set SILOHASH_MAX"):
        open_picture(bytes(content))


def test_other_code_keeps_its_own_pillow() -> None:
    kinds, limit = dict(TiffImagePlugin.OPEN_INFO), Image.MAX_IMAGE_PIXELS
    content = tiff(np.zeros((4, 4), np.float64))
    assert open_picture(content).mode == "F"
    assert (kinds, limit) == (TiffImagePlugin.OPEN_INFO, Image.MAX_IMAGE_PIXELS)
    with pytest.raises(Image.UnidentifiedImageError):
        Image.open(io.BytesIO(content))
