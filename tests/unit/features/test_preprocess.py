from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from silohash.features.preprocess import _channels, preparation_of, read_preparation
from silohash.files import write_json
from silohash.types import UserError

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
    processor = getattr(transformers, f"{kind}ImageProcessorPil")(**settings)
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


def test_grey_pictures_become_colour():
    preparation = preparation_of({"size": 8}, WHERE)
    pixels = preparation.draw(Image.new("L", (20, 10), 90))
    assert pixels.shape == (3, 8, 8)
    assert (pixels == 90).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 224, "do_flip_channel_order": True}, "requires do_flip_channel_order"),
        ({"size": 224, "rescale_offset": True}, "requires rescale_offset"),
        ({"size": {"shortest_edge": 224}}, "pictures at different sizes"),
        ({"do_resize": False}, "pictures at different sizes"),
        ({"size": {"longest_edge": 224}}, "has the size"),
    ],
)
def test_what_is_not_done_is_refused(settings, message):
    with pytest.raises(UserError, match=message):
        preparation_of(settings, WHERE)


def test_a_folder_without_settings(tmp_path):
    with pytest.raises(UserError, match=r"preprocessor_config\.json is missing"):
        read_preparation(tmp_path)


def test_one_number_stands_for_all_three_channels() -> None:
    assert _channels(0.5) == (0.5, 0.5, 0.5)
    assert _channels(2) == (2.0, 2.0, 2.0)
    assert _channels([1, 2.5]) == (1.0, 2.5)
