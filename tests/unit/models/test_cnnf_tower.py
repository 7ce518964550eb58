"""CNN-F as a tower: it starts from the user's weights, sees pixels from 0 to 255, and keeps its mean picture."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from silohash.base.types import UserError
from silohash.data.formats.folder import read_folder
from silohash.features.image import PixelFeatures
from silohash.features.text import BagOfWords
from silohash.models import cnnf, cnnf_tower
from silohash.models.backbones import network_settings
from silohash.models.cnnf import CNNF
from silohash.run.folder import Run
from silohash.run.model.weights import GLOBAL
from tests import runs
from tests.unit.models.test_cnnf import SMALL, small, write_mat


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a narrow CNN-F, which stands for the full one."""
    narrow = partial(CNNF, **SMALL)
    monkeypatch.setattr(cnnf, "CNNF", narrow)
    monkeypatch.setattr(cnnf_tower, "CNNF", narrow)
    monkeypatch.setattr(cnnf_tower, "WIDTH", SMALL["width"])
    return write_mat(tmp_path / "imagenet-vgg-f.mat", small())


def painted_archive(folder: Path, count: int = 24) -> Path:
    runs.write_archive(folder, count=count, image=None, text="words")
    rows = []
    for number, labels in enumerate(runs.labels_of(count)):
        pixels = np.full((9, 12, 3), 40, np.uint8)
        pixels[..., int(np.flatnonzero(labels)[0]) % 3] = 60 + 30 * int(labels.sum())
        Image.fromarray(pixels).save(folder / f"{number}.png")
        words = [runs.WORDS[column] for column in np.flatnonzero(labels)]
        split = "query" if number % 6 == 0 else "train"
        rows.append({"file_name": f"{number}.png", "text": " ".join(words), "labels": "|".join(words), "split": split})
    runs.write_metadata(folder, rows)
    return folder


def train(tmp_path: Path, weights: Path, **options: Any) -> Run:
    return runs.train(
        painted_archive(tmp_path / "archive"), tmp_path / "run",
        model={"image": {"backbone": "cnnf", "weights": str(weights), **options}},
        features={"image": {"size": 224, "channels": 3, "cache": False}, "text": {"buckets": 32}},
        partition={"silos": 2}, federated={"rounds": 1, "local_epochs": 1},
    )  # fmt: skip


@pytest.mark.parametrize("freeze", [False, True])
def test_training_goes_on_from_the_users_weights(tmp_path: Path, weights: Path, *, freeze: bool) -> None:
    run = train(tmp_path, weights, freeze=freeze)
    params = run.model.trained.weights[GLOBAL].params
    start = small().state_dict()
    moved = {
        name for name, tensor in start.items()
        if not np.array_equal(params[f"image.backbone.network.{name}"], tensor.numpy())
    }  # fmt: skip
    assert "mean" not in moved
    assert moved == (set() if freeze else set(start) - {"mean"})
    far = max(float(np.abs(params[f"image.backbone.network.{n}"] - t.numpy()).max()) for n, t in start.items())
    assert far < 0.1
    weights.unlink()
    archive = read_folder(tmp_path / "archive")
    codes = Run(run.folder).model.encoder().codes(archive, np.arange(4), "image")
    assert len(codes) == 4


def test_the_network_sees_pixels_as_they_are(tmp_path: Path, weights: Path) -> None:
    run = train(tmp_path, weights)
    encoder = run.model.trained.encoder()
    seen: list[torch.Tensor] = []
    network = encoder.towers.model.model.image.backbone.network
    network.register_forward_pre_hook(lambda layer, given: seen.append(given[0]))
    archive = read_folder(tmp_path / "archive")
    encoder.codes(archive, np.arange(2), "image")
    pixels = run.model.featurizers["image"].transform(archive.image, np.arange(2))  # type: ignore[arg-type]
    np.testing.assert_allclose(seen[0].numpy(), pixels, atol=1e-2)
    assert seen[0].max() > 60


@pytest.mark.parametrize(
    ("options", "size", "says"),
    [
        ({}, 224, "weights is not set"),
        ({"weights": "nowhere.mat"}, 224, 'the file "nowhere.mat" does not exist'),
        ({"weights": "here.mat"}, 64, "size = 224"),
        ({"weights": "here.mat", "pooling": "mean"}, 224, 'does not have an option "pooling"'),
    ],
)
def test_what_does_not_fit_is_refused(
    options: dict[str, Any], size: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here.mat").write_bytes(b"weights")
    with pytest.raises(UserError, match=says):
        network_settings("image", PixelFeatures(size), {"backbone": "cnnf", **options})


def test_texts_are_refused() -> None:
    with pytest.raises(UserError, match="supports pictures only"):
        network_settings("text", BagOfWords(), {"backbone": "cnnf"})


def test_weights_that_changed_meanwhile_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.mat"
    path.write_bytes(b"one")
    about = {"source": str(path), "digest": "of another file", "lrn": "matconvnet", "orientation": "normal"}
    with pytest.raises(UserError, match="changed while the run was prepared"):
        cnnf_tower.weights(about)
