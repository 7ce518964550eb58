"""The input of a search: what is read, what is refused, and what is searched for it."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from silohash.base.errors import (
    DamagedFile,
    EmptyInput,
    MissingFile,
    NoEffect,
    OneInputNeeded,
    OutOfRange,
    UnknownName,
    UnreadablePicture,
    UserError,
    WrongShape,
    WrongType,
)
from silohash.search.composed import Composed
from silohash.search.inputs import modality_named, read_input, target_named, vector_in
from tests.served import npy
from tests.unit.data.pictures.icc import ADOBE_RGB, rgb_profile

PIXELS = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)


def test_at_most_one_input_is_read():
    assert read_input()[0] is None
    with pytest.raises(OneInputNeeded, match="given"):
        read_input("parrot", vector=[1.0])
    with pytest.raises(OneInputNeeded):
        read_input("parrot", image=PIXELS, vector=[1.0])
    for image in (None, PIXELS):
        with pytest.raises(EmptyInput):
            read_input(" \n", image)


def test_a_text_and_an_image_are_one_query():
    value, modality = read_input("parrot", PIXELS, text_weight=0.25, region=(0, 0, 0.4, 0.5))
    assert isinstance(value, Composed)
    assert (value.text, value.text_weight, value.picture.size, modality) == ("parrot", 0.25, (2, 2), "image")
    assert np.array_equal(np.asarray(read_input(image=PIXELS, region="0,0,0.4,0.5")[0]), PIXELS[:2, :2])
    for weight in (-0.1, 1.1, float("nan"), "1"):
        with pytest.raises(OutOfRange):
            read_input("parrot", PIXELS, text_weight=weight)
    with pytest.raises(NoEffect):
        read_input("parrot", region="0,0,1,1")


def test_a_text_is_passed_on_as_it_is():
    assert read_input(" two parrots") == (" two parrots", "text")


def test_images_come_from_files_pillow_and_pixels(tmp_path):
    path = tmp_path / "picture.png"
    Image.fromarray(PIXELS).save(path)
    for image in (path, str(path), Image.fromarray(PIXELS), PIXELS):
        value, modality = read_input(image=image)
        assert modality == "image"
        assert value.mode == "RGB"
        assert (np.asarray(value) == PIXELS).all()
    gray, _ = read_input(image=PIXELS[:, :, 0])
    assert gray.mode == "L"


def test_other_modes_are_converted_as_files_are():
    picture = Image.new("RGBA", (3, 2), (255, 0, 0, 0))
    content = io.BytesIO()
    picture.save(content, "PNG")
    value, _ = read_input(image=picture)
    assert value.mode == "RGB"
    assert (np.asarray(value) == 255).all(), "transparent pixels are white"
    assert read_input(image=Image.new("F", (3, 2), 1.0))[0].mode == "RGB"


@pytest.mark.parametrize(
    ("image", "kind", "says"),
    [
        (PIXELS.astype(np.float32), WrongShape, "float32"),
        (PIXELS[:, :, :2], WrongShape, None),
        (PIXELS[0, 0], WrongShape, r"\(3,\)"),
        (PIXELS[:0], WrongShape, None),
        (7, WrongType, "type int"),
    ],
)
def test_images_that_are_refused(image, kind: type[UserError], says: str | None):
    with pytest.raises(kind, match=says):
        read_input(image=image)


def test_files_that_are_refused(tmp_path):
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"not a picture")
    for given, kind, says in (
        ({"image": tmp_path / "none.png"}, MissingFile, r"none.png"),
        ({"image": broken}, UnreadablePicture, None),
        ({"image": "/dev/null"}, UnreadablePicture, "regular"),
        ({"vector": tmp_path / "none.npy"}, MissingFile, r"none.npy"),
        ({"vector": broken}, DamagedFile, r"broken\.png.*numpy\.save"),
    ):
        with pytest.raises(kind, match=says):
            read_input(**given)


def test_vectors_come_from_files_and_numbers(tmp_path):
    np.save(tmp_path / "v.npy", np.array([1.5, 2.5]))
    for vector in (tmp_path / "v.npy", str(tmp_path / "v.npy"), [1.5, 2.5], np.array([1.5, 2.5])):
        value, modality = read_input(vector=vector, vector_modality="text")
        assert modality == "text"
        assert value.tolist() == [1.5, 2.5]
    assert read_input(vector=[1.0])[1] == "image"
    for wrong in (["a"], [[1.0], [1.0, 2.0]], {1.0: 2.0}, 3.0):
        with pytest.raises(UserError, match="The numbers of the vector"):
            read_input(vector=wrong)


def test_vectors_come_from_tensors():
    torch = pytest.importorskip("torch")
    value, _ = read_input(vector=torch.tensor([1.5, 2.5], dtype=torch.bfloat16, requires_grad=True))
    assert value.tolist() == [1.5, 2.5]


def test_vectors_come_from_the_content_of_files():
    assert vector_in(npy(np.array([1.5, 2.5]))).tolist() == [1.5, 2.5]
    for content, says in (
        (b"", "EOF"),
        (npy(np.arange(4.0))[:-1], "for which the file is too short"),
        (b"\x93NUMPY\x01\x00\xa0\x0f" + b"-" * 4000 + b"1", "is damaged or has another format"),
        (npy(np.array(["a"])), "holds values of type <U1"),
    ):
        with pytest.raises(UserError, match=rf"The file of the vector .*{says}.* with numpy\.save"):
            vector_in(content)


def test_modalities_by_name():
    assert (modality_named("image"), modality_named("text")) == ("image", "text")
    with pytest.raises(UnknownName, match="sound"):
        modality_named("sound")


def test_what_is_found_is_named():
    assert [target_named(name) for name in ("item", "image", "text")] == ["item", "image", "text"]
    with pytest.raises(UnknownName, match="sounds"):
        target_named("sounds")


def test_pictures_of_pillow_mean_what_they_declare(tmp_path):
    ramp = np.arange(4096).reshape(64, 64)
    for name, pixels in (("a.png", ramp.astype(np.uint16)), ("a.tif", (ramp * 1000 - 9).astype(np.int32))):
        Image.fromarray(pixels).save(tmp_path / name)
        from_file, _ = read_input(image=tmp_path / name)
        assert np.array_equal(np.asarray(read_input(image=Image.fromarray(pixels))[0]), np.asarray(from_file))
        assert np.asarray(from_file).max() == 255
    profiled = Image.new("RGB", (4, 4), (60, 180, 90))
    profiled.info["icc_profile"] = rgb_profile(ADOBE_RGB, 2.2)
    assert read_input(image=profiled)[0].getpixel((0, 0))[0] < 30
    assert read_input(image=Image.new("YCbCr", (3, 2)))[0].mode == "RGB"


def test_a_file_of_another_kind_is_named(tmp_path):
    (tmp_path / "holiday.jpg").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n")
    with pytest.raises(UnreadablePicture, match=r"holiday\.jpg.*it is PostScript, not PNG, JPEG, WebP"):
        read_input(image=tmp_path / "holiday.jpg")
