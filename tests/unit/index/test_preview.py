"""Previews: small, in a format that browsers show, and nothing else is accepted as one."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from silohash.index.preview import PREVIEW_PIXELS, make_preview, preview_content, preview_size, preview_url


def opened(content):
    return Image.open(io.BytesIO(content))


def test_the_comment_of_a_file_is_not_part_of_its_preview():
    content = io.BytesIO()
    Image.new("RGB", (100, 100)).save(content, "JPEG", comment=b"secret place")
    assert b"secret" in content.getvalue()
    assert b"secret" not in make_preview(Image.open(content).convert("RGB"))


@pytest.mark.parametrize(
    ("mode", "size", "shown", "form"),
    [
        ("L", (32, 32), (32, 32), "PNG"),
        ("L", (64, 512), (32, 256), "PNG"),
        ("RGB", (640, 480), (256, 192), "JPEG"),
        ("RGB", (256, 257), (255, 256), "JPEG"),
        ("RGB", (64, 64), (64, 64), "JPEG"),
        ("RGBA", (10, 5), (10, 5), "JPEG"),
    ],
)
def test_a_preview_fits_and_keeps_its_proportions(mode, size, shown, form):
    picture = Image.new(mode, size)
    small = opened(make_preview(picture))
    assert (small.size, small.format) == (shown, form)
    assert max(small.size) <= PREVIEW_PIXELS == 256
    assert picture.size == size


def test_a_gray_preview_is_exact():
    pixels = np.arange(32 * 32, dtype=np.uint32).reshape(32, 32).astype(np.uint8)
    assert (np.asarray(opened(make_preview(Image.fromarray(pixels)))) == pixels).all()


def test_a_gray_preview_is_a_jpeg_file_only_if_it_is_large_and_that_saves_bytes():
    random = np.random.default_rng(0).integers(0, 256, (65, 65), np.uint8)
    assert opened(make_preview(Image.fromarray(random))).format == "JPEG"
    assert opened(make_preview(Image.fromarray(random))).mode == "L"
    assert opened(make_preview(Image.fromarray(random[:64, :64]))).format == "PNG"
    assert opened(make_preview(Image.new("L", (256, 256), 200))).format == "PNG"


def test_the_size_of_a_png_preview_is_read_from_its_header():
    assert preview_size(preview_url(make_preview(Image.new("L", (40, 17))))) == (40, 17)
    assert preview_size(preview_url(make_preview(Image.new("RGB", (40, 17))))) is None
    whole = preview_url(make_preview(Image.new("L", (256, 3))))
    header = whole[: len("data:image/png;base64,") + 32]
    assert preview_size(header) == (256, 3)
    for damaged in ("", header[:-1], header[:-4], header[:-1] + "*"):
        assert preview_size(damaged) is None


@pytest.mark.parametrize(("mode", "kind"), [("L", "png"), ("RGB", "jpeg")])
def test_a_preview_travels_as_a_data_url(mode, kind):
    content = make_preview(Image.new(mode, (4, 4)))
    url = preview_url(content)
    assert url.startswith(f"data:image/{kind};base64,")
    assert preview_content(url) == content


def test_other_files_are_not_previews():
    with pytest.raises(ValueError, match="neither a PNG nor a JPEG"):
        preview_url(b"GIF89a")


@pytest.mark.parametrize(
    "url",
    [
        None,
        7,
        "",
        "https://example.org/a.png",
        "data:image/svg+xml;base64,PHN2Zz4=",
        'data:image/png;base64,iVBORw0KGgo=" onerror="alert(1)',
        "data:image/png;base64,/9j/",
        "data:image/png;base64,iVBOR",
        f"data:image/jpeg;base64,{base64.b64encode(b'<script>').decode()}",
    ],
)
def test_urls_that_are_not_previews(url):
    assert preview_content(url) is None


def test_base64_with_foreign_characters_is_not_a_preview() -> None:
    url = preview_url(make_preview(Image.new("L", (8, 8), 200)))
    assert preview_content(url) is not None
    for foreign in ("*", " ", "\n"):
        assert preview_content(url[:-8] + foreign + url[-8:]) is None
