"""A backbone as a tower: its settings describe it, and its weights must be those that the settings were made with."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

from silohash.base.types import UserError
from silohash.features import featurizer
from silohash.models import huggingface_tower
from tests import backbones


def pixels(folder: Path, **options: object):
    column = backbones.jpegs(folder / "pictures", 2)
    return featurizer("image", column, {"kind": "pixels", "size": backbones.SIDE, "channels": 3, **options})


def tokens(model: Path, length: int = 8):
    return featurizer("text", backbones.sentences(4), {"kind": "tokens", "model": str(model), "length": length})


def test_settings_of_pictures(tmp_path: Path) -> None:
    folder = backbones.vit(tmp_path / "vit")
    about = huggingface_tower.settings("image", pixels(tmp_path), model=str(folder))
    assert json.loads(json.dumps(about)) == about
    assert (about["modality"], about["width"], about["pooling"]) == ("image", backbones.WIDTH, about["pooling"])
    assert (about["padding"], about["unit_length"]) == (0, False)
    # The tiny preprocessor has mean (0.5, 0.4, 0.3) and deviation (0.5, 0.25, 0.2) of pixels divided by 255.
    np.testing.assert_allclose(about["factor"], [1 / 255 / 0.5, 1 / 255 / 0.25, 1 / 255 / 0.2], rtol=1e-6)
    np.testing.assert_allclose(about["offset"], [-1.0, -1.6, -1.5], rtol=1e-6)


def test_settings_of_texts_follow_the_folder(tmp_path: Path) -> None:
    folder = backbones.sentence_encoder(tmp_path / "sentences")
    about = huggingface_tower.settings("text", tokens(folder), model=str(folder))
    assert (about["pooling"], about["unit_length"], about["padding"]) == ("mean", True, 0)
    named = huggingface_tower.settings("text", tokens(folder), model=str(folder), pooling="cls")
    assert (named["pooling"], named["unit_length"]) == ("cls", False)
    assert "factor" not in about


def test_the_network_is_built_from_its_settings_and_filled_with_its_weights(tmp_path: Path) -> None:
    folder = backbones.bert(tmp_path / "bert")
    about = huggingface_tower.settings("text", tokens(folder), model=str(folder))
    network = huggingface_tower.build(about)
    weights = huggingface_tower.weights(about)
    assert set(weights) == set(network.state_dict())
    network.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    network.eval()
    with torch.no_grad():
        vectors = network(torch.tensor([[2, 5, 3, -1]], dtype=torch.int32))
    assert vectors.shape == (1, about["width"])


@pytest.mark.parametrize("options", [{"channels": 1}, None])
def test_pictures_that_do_not_fit(tmp_path: Path, options: dict[str, object] | None) -> None:
    folder = backbones.vit(tmp_path / "vit")
    given = pixels(tmp_path, **options) if options else tokens(backbones.bert(tmp_path / "bert"))
    with pytest.raises(UserError, match=r"\[model\.image\] a backbone needs color pictures"):
        huggingface_tower.settings("image", given, model=str(folder))


def test_texts_that_do_not_fit(tmp_path: Path) -> None:
    bert, clip = backbones.bert(tmp_path / "bert"), backbones.clip(tmp_path / "clip")
    for given in (pixels(tmp_path), tokens(clip)):
        with pytest.raises(UserError, match=r"\[model\.text\] a backbone needs the word pieces of its tokenizer"):
            huggingface_tower.settings("text", given, model=str(bert))


def test_tokens_are_for_frozen_features(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r'\[model\.image\] pooling = "tokens" is for frozen features'):
        huggingface_tower.settings("image", pixels(tmp_path), model=str(tmp_path / "clip"), pooling="tokens")


def test_weights_that_changed_are_refused(tmp_path: Path) -> None:
    folder = backbones.vit(tmp_path / "vit")
    about = huggingface_tower.settings("image", pixels(tmp_path), model=str(folder))
    assert huggingface_tower.weights(about)
    backbones.vit(folder, seed=1)
    with pytest.raises(UserError, match="changed while the run was prepared"):
        huggingface_tower.weights(about)
