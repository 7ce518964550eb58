"""Packed pictures and picture files are found, decoded and known by their content."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from silohash.base.errors import DamagedFile, MissingFile, ModalityNeeded, UnreadablePicture
from silohash.base.files import digest_bytes
from silohash.data.archive import Pictures
from silohash.data.pictures.reading import (
    GrayPictures,
    PackedPictures,
    PictureContents,
    PictureFiles,
    decode,
    map_npz,
    read_array,
    to_rgb,
)
from tests.unit.data.pictures.pngs import chunk


def written(picture: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, kind, **options)
    return stream.getvalue()


def pack(folder: Path, shades: list[list[int]]) -> None:
    row = 0
    for number, of_shard in enumerate(shades):
        files = [written(Image.new("RGB", (8, 8), (shade,) * 3), "JPEG") for shade in of_shard]
        offsets = np.cumsum([0, *map(len, files)])
        rows = np.arange(row, row + len(files), dtype=np.int32)
        data = np.frombuffer(b"".join(files), dtype=np.uint8)
        np.savez(folder / f"images-{number:03}.npz", data=data, offsets=offsets, row=rows)
        row += len(files)


def test_packed_pictures_are_counted_through_their_files(tmp_path):
    pack(tmp_path, [[0, 50], [100], [150, 200, 250]])
    pictures = PackedPictures(tmp_path)
    assert isinstance(pictures, Pictures)
    assert len(pictures) == 6
    with ThreadPoolExecutor(4) as pool:
        drawn = list(pool.map(pictures.picture, [*range(6)] * 5))
    assert [picture.getpixel((0, 0))[0] for picture in drawn] == [0, 50, 100, 150, 200, 250] * 5
    for row in (-1, 6):
        with pytest.raises(IndexError):
            pictures.picture(row)


def test_the_digest_of_packed_pictures_is_that_of_their_content(tmp_path):
    for name, shades in (("a", [[1], [2]]), ("b", [[1], [2]]), ("c", [[1], [3]])):
        (tmp_path / name).mkdir()
        pack(tmp_path / name, shades)
    digests = [PackedPictures(tmp_path / name).digest() for name in "abc"]
    assert digests[0] == digests[1] != digests[2]


def test_damaged_packed_files_are_named(tmp_path):
    with pytest.raises(MissingFile, match=r"images-000\.npz"):
        PackedPictures(tmp_path)
    np.savez(tmp_path / "images-000.npz", data=np.zeros(9, np.uint8), offsets=np.array([0, 9]))
    with pytest.raises(UnreadablePicture, match="0"):
        PackedPictures(tmp_path).picture(0)
    (tmp_path / "images-000.npz").write_bytes(b"PK nothing")
    with pytest.raises(DamagedFile, match=r"images-000\.npz is damaged"):
        PackedPictures(tmp_path)


def test_pickled_arrays_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([{"an": "object"}], dtype=object))
    with pytest.raises(DamagedFile, match=r"a\.npz"):
        read_array(tmp_path / "a.npz", "x")
    with pytest.raises(MissingFile, match="missing"):
        read_array(tmp_path / "b.npz", "x")


def test_a_file_that_goes_away_is_named_when_it_is_asked_for(tmp_path):
    (tmp_path / "1.png").write_bytes(written(Image.new("L", (5, 4), 9)))
    pictures = PictureFiles(tmp_path, ["1.png", ""])
    digest = pictures.digest()
    assert pictures.picture(0).size == (5, 4)
    with pytest.raises(ModalityNeeded, match="1"):
        pictures.picture(1)
    (tmp_path / "1.png").write_bytes(b"gone")
    with pytest.raises(UnreadablePicture, match=r"1\.png"):
        pictures.picture(0)
    assert pictures.digest() != digest


def test_files_are_known_by_their_content(tmp_path):
    contents = [written(Image.new("RGB", (8, 8), shade), "JPEG") for shade in ("red", "blue")]
    for name, content in zip("ab", contents, strict=True):
        (tmp_path / f"{name}.jpg").write_bytes(content)
    files = PictureFiles(tmp_path, ["a.jpg", "b.jpg"])
    assert files.content(1) == contents[1]
    assert files.content_digest(1) == digest_bytes(contents[1]) != files.content_digest(0)
    known = PictureFiles(tmp_path / "gone", ["a.jpg", "b.jpg"], ["first", "second"])
    assert known.content_digest(1) == "second"
    with pytest.raises(UnreadablePicture):
        known.content(1)
    pack(tmp_path, [[20], [30]])
    packed = PackedPictures(tmp_path)
    assert isinstance(packed, PictureContents)
    assert isinstance(files, PictureContents)
    assert packed.content_digest(1) == digest_bytes(packed.content(1)) != packed.content_digest(0)


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_are_mapped_where_they_lie_uncompressed(tmp_path: Path, save: Callable[..., None]) -> None:
    arrays = {
        "offsets": np.arange(5),
        "data": np.arange(1000, dtype=np.uint8),
        "empty": np.zeros(0, np.uint8),
        "columns": np.asfortranarray(np.arange(12).reshape(3, 4)),
    }
    save(tmp_path / "a.npz", **arrays)
    for name, array in arrays.items():
        mapped = map_npz(tmp_path / "a.npz", name)
        assert mapped.dtype == array.dtype
        assert np.array_equal(mapped, array)
    assert isinstance(map_npz(tmp_path / "a.npz", "data"), np.memmap) == (save is np.savez)
    assert np.array_equal(read_array(tmp_path / "a.npz", "data"), arrays["data"])
    with pytest.raises(DamagedFile, match=r"a\.npz"):
        map_npz(tmp_path / "a.npz", "other")
    shorten(tmp_path / "a.npz")
    with pytest.raises(DamagedFile, match=r"a\.npz"):
        map_npz(tmp_path / "a.npz", "data")
    with pytest.raises(MissingFile, match=r"b\.npz"):
        map_npz(tmp_path / "b.npz", "data")


def test_an_array_of_its_own_file_is_mapped_only_where_asked(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(4))
    read, mapped = read_array(tmp_path / "a.npy"), read_array(tmp_path / "a.npy", mapped=True)
    assert read.tolist() == mapped.tolist() == [0, 1, 2, 3]
    read[0] = 9
    with pytest.raises(ValueError, match="read-only"):
        mapped[0] = 9


def corner(content: bytes) -> tuple[int, ...]:
    picture = decode(content)
    assert picture.mode == "RGB"
    return picture.getpixel((0, 0))


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_a_transparent_gray_of_few_bits(bits):
    most = (1 << bits) - 1
    header = struct.pack(">IIBBBBB", 8 // bits, 1, bits, 0, 0, 0, 0)
    line = b"\0" + bytes([most << (8 - bits)])  # one white pixel, then black ones
    parts = (b"IHDR", header), (b"tRNS", b"\0\0"), (b"IDAT", zlib.compress(line)), (b"IEND", b"")
    content = b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)
    assert (np.asarray(decode(content)) == 255).all()
    clear = content.replace(chunk(b"tRNS", b"\0\0"), chunk(b"tRNS", bytes([0, most])))
    assert np.asarray(decode(clear))[0, :, 0].tolist() == [255] + [0] * (8 // bits - 1)


def test_transparency_lies_on_white_paper():
    assert corner(written(Image.new("RGBA", (3, 3), (255, 0, 0, 0)))) == (255, 255, 255)
    assert corner(written(Image.new("RGBA", (3, 3), (255, 0, 0, 255)))) == (255, 0, 0)
    assert corner(written(Image.new("LA", (3, 3), (0, 0)))) == (255, 255, 255)
    palette = Image.new("P", (3, 3), 1)
    palette.putpalette([0, 0, 0, 0, 0, 255])
    assert corner(written(palette)) == (0, 0, 255)
    assert corner(written(palette, transparency=1)) == (255, 255, 255)


def test_gray_and_deep_and_printing_colors():
    assert corner(written(Image.new("L", (3, 3), 77))) == (77, 77, 77)
    assert corner(written(Image.new("1", (3, 3), 1))) == (255, 255, 255)
    deep = Image.fromarray(np.full((3, 3), 0x8080, dtype=np.uint16))
    assert corner(written(deep)) == (128, 128, 128)
    assert corner(written(Image.fromarray(np.full((3, 3), 0xFFFF, dtype=np.uint16)))) == (255, 255, 255)
    assert corner(written(Image.new("CMYK", (8, 8), (0, 0, 0, 255)), "TIFF")) == (0, 0, 0)


def shades(pixels: np.ndarray) -> list[int]:
    """Returns the first channel of a row of pixels that were written as a TIFF file."""
    return np.asarray(decode(written(Image.fromarray(pixels[None, :]), "TIFF")))[0, :, 0].tolist()


def test_numbers_with_fractions_are_stretched_from_black_to_white():
    assert shades(np.array([5, 6, 7, 8, 10], np.float32)) == [0, 51, 102, 153, 255]
    assert shades(np.array([3, 3], np.float32)) == [3, 3]


def test_whole_numbers_are_stretched_from_black_to_white():
    assert shades(np.array([0, 1, 255], np.int32)) == [0, 1, 255]
    assert shades(np.array([0, 128, 256], np.int32)) == [0, 128, 255]
    assert shades(np.array([-500, 32_750, 66_000], np.int32)) == [0, 128, 255]
    assert shades(np.array([0, 257, 32_896, 65_535], np.uint16)) == [0, 1, 128, 255]


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


def test_why_a_file_cannot_be_decoded(monkeypatch):
    noise = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    content = written(Image.fromarray(noise), "BMP")
    with pytest.raises(ValueError, match=r"^image file is truncated"):
        decode(content[:-100])
    with pytest.raises(ValueError, match=r"^it is not a picture of a known format \(PNG, JPEG.* or HEIC\)$"):
        decode(b"words")

    def fail(*_, **__):
        raise EOFError

    monkeypatch.setattr(Image, "open", fail)
    with pytest.raises(ValueError, match=r"^EOFError$"):
        decode(content)


def test_pictures_in_memory():
    pixels = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
    pictures = GrayPictures(pixels)
    assert isinstance(pictures, Pictures)
    assert len(pictures) == 2
    assert np.asarray(pictures.picture(1)).tolist() == pixels[1].tolist()
    assert pictures.digest() != GrayPictures(pixels + 1).digest()
    assert GrayPictures(pixels, "known").digest() == "known"


def test_a_jpeg_is_decoded_smaller_where_that_is_enough():
    content = written(Image.new("RGB", (320, 240)), "JPEG")
    assert decode(content).size == (320, 240)
    assert decode(content, at_least_pixels=60).size == (80, 60)
    assert decode(content, at_least_pixels=200).size == (320, 240)


def test_a_jpeg_2000_is_decoded_smaller_where_that_is_enough():
    picture = Image.linear_gradient("L").resize((320, 240)).convert("RGB")
    for options in ({}, {"no_jp2": True}, {"tile_size": (64, 64)}):
        content = written(picture, "JPEG2000", **options)
        sizes = [decode(content, at_least_pixels=least).size for least in (0, 30, 60, 61, 200)]
        assert sizes == [(320, 240), (40, 30), (80, 60), (160, 120), (320, 240)]
    whole = written(picture, "JPEG2000", num_resolutions=1)
    assert decode(whole, at_least_pixels=30).size == (320, 240)
    small = decode(content, at_least_pixels=60)
    assert np.abs(np.asarray(small, int) - np.asarray(picture.resize((80, 60), Image.Resampling.BOX), int)).max() <= 2


def test_a_reduced_page_of_a_tiff_is_decoded_where_that_is_enough():
    picture = Image.new("RGB", (320, 240), "red")
    pages = [Image.new("RGB", (320 // n, 240 // n), "red") for n in (2, 4)]
    for page in pages:
        page.encoderinfo = {"tiffinfo": {254: 1}}
    other = Image.new("RGB", (64, 64), "blue")
    content = written(picture, "TIFF", save_all=True, append_images=[*pages, other])
    sizes = [decode(content, at_least_pixels=least).size for least in (0, 30, 60, 61, 120, 121)]
    assert sizes == [(320, 240), (80, 60), (80, 60), (160, 120), (160, 120), (320, 240)]
    unmarked = written(picture, "TIFF", save_all=True, append_images=[other])
    assert decode(unmarked, at_least_pixels=30).size == (320, 240), "another page is another picture"


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_the_first_frame_is_decoded(kind):
    first, second = Image.new("RGB", (8, 8), "red"), Image.new("RGB", (8, 8), "blue")
    content = written(
        first, kind, save_all=True, append_images=[second], **({"lossless": True} if kind == "WEBP" else {})
    )
    for least in (0, 4):
        assert np.abs(np.subtract(decode(content, at_least_pixels=least).getpixel((0, 0)), (255, 0, 0))).max() <= 1


def test_a_picture_in_memory_is_converted_as_its_file():
    deep = Image.fromarray(np.array([[0, 2047, 4095]], np.uint16))
    assert np.array_equal(np.asarray(to_rgb(deep)), np.asarray(decode(written(deep))))
    assert to_rgb(Image.new("LA", (1, 1), (0, 0))).getpixel((0, 0)) == (255, 255, 255)
