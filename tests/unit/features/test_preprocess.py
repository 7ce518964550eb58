from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from silohash.base.errors import MissingFile, UnsupportedNetwork
from silohash.base.files import write_json
from silohash.features.preprocess import PicturePreparation, _channels, preparation_of, read_preparation

WHERE = Path("model/preprocessor_config.json")


def picture(width: int, height: int) -> Image.Image:
    rows, columns = np.mgrid[:height, :width]
    noise = np.random.default_rng(0).integers(0, 40, (height, width))
    return Image.fromarray(np.stack([rows * 2 % 200, columns % 200, noise], axis=2).astype(np.uint8))


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("ViT", {"size": {"height": 32, "width": 32}}),
        ("CLIP", {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}),
        ("Bit", {"size": {"shortest_edge": 40}, "crop_size": {"height": 32, "width": 32}}),
        ("ConvNext", {"size": {"shortest_edge": 32}}),
        ("ConvNext", {"size": {"shortest_edge": 384}}),
    ],
)
@pytest.mark.parametrize("size", [(70, 47), (47, 70), (64, 64), (33, 500)])
def test_pixels_are_those_of_the_published_processor(tmp_path, kind, settings, size):
    transformers = pytest.importorskip("transformers")
    name = f"{kind}ImageProcessorPil"  # without Pil before version 5
    processor = getattr(transformers, name, None) or getattr(transformers, name.removesuffix("Pil"))
    processor = processor(**settings)
    processor.save_pretrained(tmp_path)
    preparation = read_preparation(tmp_path)
    expected = processor(picture(*size), return_tensors="np")["pixel_values"][0]
    factor, offset = preparation.affine()
    found = preparation.draw(picture(*size)) * factor + offset
    assert found.shape[1:] == preparation.shape
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_settings_of_older_files():
    older = {"feature_extractor_type": "ConvNextFeatureExtractor", "size": 224, "crop_pct": 0.875, "resample": 3}
    assert preparation_of(older, WHERE).resize == (256,)
    assert preparation_of(older, WHERE).shape == (224, 224)
    assert preparation_of({"feature_extractor_type": "ViTFeatureExtractor", "size": 224}, WHERE).resize == (224, 224)
    clip = {"size": 224, "do_center_crop": True, "crop_size": 224, "image_mean": 0.5, "image_std": [0.25] * 3}
    assert preparation_of(clip, WHERE).resize == (224,)
    assert preparation_of(clip, WHERE).deviation == (0.25, 0.25, 0.25)


@pytest.mark.parametrize("plain", [{"do_normalize": False, "image_mean": 0.5, "image_std": 0.25}, {}])
def test_pixels_are_only_rescaled_where_nothing_is_normalized(plain):
    settings = {"size": {"height": 8, "width": 6}, **plain}
    found = preparation_of(settings, WHERE)
    assert (found.mean, found.deviation, found.rescale) == ((0.0,) * 3, (1.0,) * 3, 1 / 255)
    assert preparation_of({**settings, "do_rescale": False}, WHERE).rescale == 1.0


def test_the_processor_within_a_file_for_both_modalities(tmp_path):
    write_json(tmp_path / "processor_config.json", {"image_processor": {"size": {"height": 8, "width": 6}}})
    assert read_preparation(tmp_path).shape == (8, 6)


def test_gray_pictures_become_color():
    preparation = preparation_of({"size": 8}, WHERE)
    pixels = preparation.draw(Image.new("L", (20, 10), 90))
    assert pixels.shape == (3, 8, 8)
    assert (pixels == 90).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 224, "do_flip_channel_order": True}, "requires do_flip_channel_order"),
        ({"size": 224, "rescale_offset": True}, "requires rescale_offset"),
        ({"size": {"shortest_edge": 224}}, None),
        ({"do_resize": False}, None),
        ({"size": {"longest_edge": 224}}, None),
    ],
)
def test_what_is_not_done_is_refused(settings, message: str | None):
    with pytest.raises(UnsupportedNetwork, match=message):
        preparation_of(settings, WHERE)


def test_a_folder_without_settings(tmp_path):
    with pytest.raises(MissingFile, match=r"preprocessor_config\.json"):
        read_preparation(tmp_path)


def test_one_number_stands_for_all_three_channels() -> None:
    assert _channels(0.5) == (0.5, 0.5, 0.5)
    assert _channels(2) == (2.0, 2.0, 2.0)
    assert _channels([1, 2.5]) == (1.0, 2.5)


def test_defaults_only_rescale() -> None:
    plain = PicturePreparation((8, 6), ())
    assert (plain.resample, plain.rescale) == (3, 1 / 255)
    assert (plain.mean, plain.deviation) == ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


@pytest.mark.parametrize(
    ("resize", "crop", "shape", "smallest"),
    [((8, 6), (), (8, 6), 8), ((9,), (5, 7), (5, 7), 9), ((), (5, 7), (5, 7), 7), ((4, 6), (2, 2), (2, 2), 6)],
)
def test_shapes_and_the_smallest_side_that_is_decoded(resize, crop, shape, smallest) -> None:
    preparation = PicturePreparation(resize, crop)
    assert preparation.shape == shape
    assert preparation.smallest_pixels == smallest


def test_pixels_are_scaled_then_centered() -> None:
    factor, offset = PicturePreparation((8, 8), (), rescale=0.5, mean=(1, 2, 4), deviation=(2, 4, 8)).affine()
    assert factor.ravel().tolist() == [0.25, 0.125, 0.0625]
    assert offset.ravel().tolist() == [-0.5, -0.5, -0.5]
    assert factor.shape == offset.shape == (3, 1, 1)


def test_a_crop_without_resizing_is_the_center() -> None:
    drawn = picture(9, 7)
    found = PicturePreparation((), (3, 5)).draw(drawn)
    assert (found == np.asarray(drawn)[2:5, 2:7].transpose(2, 0, 1)).all()


@pytest.mark.parametrize(("size", "expected"), [(100, (114, 100)), (383, (437, 383)), (384, (384, 384))])
def test_convnext_crops_below_its_largest_size(size, expected) -> None:
    found = preparation_of({"feature_extractor_type": "ConvNextFeatureExtractor", "size": size}, WHERE)
    assert (max(found.resize), found.shape[0]) == expected


def test_settings_of_the_normalization() -> None:
    settings = {"size": 8, "image_mean": [0.1, 0.2, 0.3], "image_std": 0.5, "rescale_factor": 0.25, "resample": 0}
    found = preparation_of(settings, WHERE)
    assert (found.mean, found.deviation) == ((0.1, 0.2, 0.3), (0.5, 0.5, 0.5))
    assert (found.rescale, found.resample) == (0.25, 0)
    assert preparation_of({"size": 8}, WHERE).resample == 2


def test_unsupported_steps_that_are_switched_off_are_ignored() -> None:
    assert preparation_of({"size": 8, "do_flip_channel_order": False, "rescale_offset": False}, WHERE).shape == (8, 8)


def test_a_crop_that_is_not_resized_first() -> None:
    settings = {"do_resize": False, "do_center_crop": True, "crop_size": {"height": 4, "width": 6}}
    found = preparation_of(settings, WHERE)
    assert (found.resize, found.crop) == ((), (4, 6))


def test_a_processor_file_must_name_an_image_processor(tmp_path) -> None:
    write_json(tmp_path / "processor_config.json", {"size": 8})
    with pytest.raises(MissingFile):
        read_preparation(tmp_path)
