"""Frozen backbones: what they are keyed by, what they see, and what they give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("transformers")

from silohash.base.types import UserError
from silohash.models.huggingface_features import huggingface
from tests import backbones


def test_pictures_are_prepared_as_the_folder_says(tmp_path: Path) -> None:
    network = huggingface("image", model=str(backbones.vit(tmp_path / "vit")))
    assert (network.modality, network.width, network.smallest_pixels) == ("image", backbones.WIDTH, backbones.SIDE)
    batch = network.prepare([Image.new("RGB", (50, 40), "red"), Image.new("L", (32, 32), 7)])
    assert list(batch) == ["pixels"]
    assert (batch["pixels"].shape, batch["pixels"].dtype) == ((2, 3, backbones.SIDE, backbones.SIDE), np.uint8)
    assert (batch["pixels"][0, 0] == 255).all()
    assert (batch["pixels"][1] == 7).all()
    vectors = network.embed(batch, "cpu", half=False)
    assert (vectors.shape, vectors.dtype) == ((2, backbones.WIDTH), np.float32)
    alone = network.embed({"pixels": batch["pixels"][1:]}, "cpu", half=False)
    np.testing.assert_allclose(alone[0], vectors[1], rtol=1e-4, atol=1e-5)


def test_padding_changes_no_vector(tmp_path: Path) -> None:
    network = huggingface("text", model=str(backbones.bert(tmp_path / "bert")))
    assert (network.modality, network.smallest_pixels) == ("text", 0)
    both = network.prepare(["two parrots", "the red tree on a violin"])
    assert both["ids"].shape == (2, 8)
    vectors = network.embed(both, "cpu", half=False)
    alone = network.embed(network.prepare(["two parrots"]), "cpu", half=False)
    assert network.prepare(["two parrots"])["ids"].shape == (1, 4)
    np.testing.assert_allclose(vectors[0], alone[0], rtol=1e-4, atol=1e-5)


def test_a_sentence_encoder_has_unit_length_and_its_limit(tmp_path: Path) -> None:
    network = huggingface("text", model=str(backbones.sentence_encoder(tmp_path / "sentences")))
    batch = network.prepare(["two parrots on the red tree on a violin"])
    assert batch["ids"].shape == (1, 6)
    assert np.linalg.norm(network.embed(batch, "cpu", half=False)) == pytest.approx(1.0, rel=1e-5)


def test_the_key_tells_networks_apart(tmp_path: Path) -> None:
    folder = str(backbones.clip(tmp_path / "clip"))
    other = str(backbones.clip(tmp_path / "other", seed=1))
    keys = [huggingface(modality, model=path).key for modality in ("image", "text") for path in (folder, other)]
    vit = str(backbones.vit(tmp_path / "vit"))
    keys += [huggingface("image", model=vit, pooling=pooling).key for pooling in ("cls", "mean")]
    assert len(set(keys)) == 6
    assert huggingface("image", model=folder).key == keys[0]


def test_a_value_of_the_other_modality(tmp_path: Path) -> None:
    network = huggingface("image", model=str(backbones.vit(tmp_path / "vit")))
    with pytest.raises(UserError, match="needs pictures, and this is a text"):
        network.prepare(["a parrot"])
    with pytest.raises(UserError, match="needs pictures, and this is a vector"):
        network.prepare([np.zeros(3)])
