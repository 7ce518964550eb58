"""CNN-F as a network of features: what it sees of a picture, what it makes of it, and by what the cache finds it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from silohash.base.types import UserError
from silohash.features.network import make_network, network_options
from silohash.models import cnnf_features
from silohash.models.cnnf import CNNF


def drawn(width: int = 300, height: int = 150, mode: str = "RGB") -> Image.Image:
    """Returns a picture whose left half is bright."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, : width // 2] = (200, 100, 50)
    return Image.fromarray(pixels).convert(mode)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "imagenet-vgg-f.mat"
    path.write_bytes(b"stands for the user's own file")
    return path


def test_the_whole_picture_is_squeezed_into_the_square(weights: Path) -> None:
    made = cnnf_features.cnnf("image", weights=str(weights)).prepare(iter([drawn(), drawn(mode="L")]))
    assert {name: (array.shape, array.dtype.name) for name, array in made.items()} == {
        "pixels": ((2, 3, 224, 224), "uint8")
    }
    assert made["pixels"][0, :, 100, 20].tolist() == [200, 100, 50]
    assert made["pixels"][0, :, 100, 200].tolist() == [0, 0, 0]
    assert len(set(made["pixels"][1, :, 100, 20].tolist())) == 1
    assert cnnf_features.cnnf("image", weights=str(weights)).prepare([])["pixels"].shape == (0, 3, 224, 224)


def test_the_vectors_are_those_of_the_network(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Path, str, str]] = []
    net = CNNF(maps=(3, 4), width=5).eval()

    def load(path: Path, *, lrn: str, orientation: str) -> CNNF:
        asked.append((path, lrn, orientation))
        return net

    monkeypatch.setattr(cnnf_features, "load_cnnf", load)
    network = make_network("cnnf", "image", {"weights": str(weights), "lrn": "legacy-port"})
    batch = network.prepare([drawn(), drawn(100, 400)])
    vectors = network.embed(batch, "cpu", half=False)
    with torch.no_grad():
        np.testing.assert_array_equal(vectors, net(torch.from_numpy(batch["pixels"])).numpy())
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(network.embed(batch, "cpu", half=True), vectors)
    assert asked == [(weights, "legacy-port", "normal")]


def test_the_key_follows_all_that_decides_the_vectors(weights: Path) -> None:
    def key(**options: str) -> str:
        return make_network("cnnf", "image", {"weights": str(weights), **options}).key

    before = key()
    other = {before, key(lrn="legacy-port"), key(orientation="legacy-port")}
    moved = weights.rename(weights.with_name("elsewhere.mat"))
    assert key(weights=str(moved)) == before
    moved.write_bytes(b"other weights")
    assert len({*other, key(weights=str(moved))}) == 4


def test_its_options_have_defaults() -> None:
    assert network_options("cnnf") == {"weights": "", "lrn": "matconvnet", "orientation": "normal"}


def test_it_takes_pictures_only_and_needs_weights(weights: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="supports pictures only"):
        make_network("cnnf", "text", {"weights": str(weights)})
    with pytest.raises(UserError, match=r"weights is not set.*imagenet-vgg-f\.mat"):
        make_network("cnnf", "image", {})
    with pytest.raises(UserError, match="does not exist"):
        make_network("cnnf", "image", {"weights": str(tmp_path / "nowhere.mat")})
    with pytest.raises(UserError, match="this is a text"):
        make_network("cnnf", "image", {"weights": str(weights)}).prepare(["a harbour"])
