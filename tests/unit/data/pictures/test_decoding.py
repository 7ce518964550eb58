"""Picture files of every mode become plain RGB."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from silohash.data.archive import Pictures
from silohash.data.pictures.decoding import GreyPictures, decode


def written(picture: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, kind, **options)
    return stream.getvalue()


def corner(content: bytes) -> tuple[int, ...]:
    picture = decode(content)
    assert picture.mode == "RGB"
    return picture.getpixel((0, 0))


def test_transparency_lies_on_white_paper():
    assert corner(written(Image.new("RGBA", (3, 3), (255, 0, 0, 0)))) == (255, 255, 255)
    assert corner(written(Image.new("RGBA", (3, 3), (255, 0, 0, 255)))) == (255, 0, 0)
    assert corner(written(Image.new("LA", (3, 3), (0, 0)))) == (255, 255, 255)
    palette = Image.new("P", (3, 3), 1)
    palette.putpalette([0, 0, 0, 0, 0, 255])
    assert corner(written(palette)) == (0, 0, 255)
    assert corner(written(palette, transparency=1)) == (255, 255, 255)


def test_grey_and_deep_and_printing_colours():
    assert corner(written(Image.new("L", (3, 3), 77))) == (77, 77, 77)
    assert corner(written(Image.new("1", (3, 3), 1))) == (255, 255, 255)
    deep = Image.fromarray(np.full((3, 3), 0x8080, dtype=np.uint16))
    assert corner(written(deep)) == (128, 128, 128)
    floats = Image.fromarray(np.array([[5.0, 6.0], [7.0, 9.0]], dtype=np.float32))
    assert corner(written(floats, "TIFF")) == (0, 0, 0)
    assert decode(written(floats, "TIFF")).getpixel((1, 1)) == (255, 255, 255)
    assert corner(written(Image.new("CMYK", (8, 8), (0, 0, 0, 255)), "TIFF")) == (0, 0, 0)


def test_a_picture_is_turned_as_its_camera_says():
    picture = Image.new("RGB", (4, 2))
    exif = Image.Exif()
    exif[0x0112] = 6
    assert decode(written(picture, "JPEG", exif=exif)).size == (2, 4)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "WEBP"])
def test_a_truncated_file_is_found_wherever_it_ends(kind):
    noise = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    content = written(Image.fromarray(noise), kind)
    decode(content, at_least_pixels=64)
    for share in (0.0, 0.1, 0.5, 0.9):
        part = content[: int(share * len(content))]
        with pytest.raises(ValueError, match=r"."):
            decode(part, at_least_pixels=64)
        with pytest.raises(ValueError, match=r"."):
            decode(part)


def test_pictures_in_memory():
    pixels = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
    pictures = GreyPictures(pixels)
    assert isinstance(pictures, Pictures)
    assert len(pictures) == 2
    assert np.asarray(pictures.picture(1)).tolist() == pixels[1].tolist()
    assert pictures.digest() != GreyPictures(pixels + 1).digest()
    assert GreyPictures(pixels, "known").digest() == "known"


def test_a_jpeg_is_decoded_smaller_where_that_is_enough():
    content = written(Image.new("RGB", (320, 240)), "JPEG")
    assert decode(content).size == (320, 240)
    assert decode(content, at_least_pixels=60).size == (80, 60)
    assert decode(content, at_least_pixels=200).size == (320, 240)
