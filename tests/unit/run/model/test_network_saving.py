"""Pretrained networks are written to the cache once, and give the vectors of torch there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from silohash.base.types import Modality
from silohash.features import featurizer
from silohash.features.base import Featurizer, add_statistics
from silohash.features.network import NetworkFeatures
from silohash.features.onnx_network import cached_network
from silohash.run.model import network_saving
from silohash.run.model.network_saving import save_networks
from tests import backbones

pytest.importorskip("transformers")

QUERIES: dict[Modality, object] = {
    "image": Image.fromarray(np.random.default_rng(3).integers(0, 256, (40, 50, 3), dtype=np.uint8)),
    "text": "two red parrots on the tree",
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SILOHASH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "onnx"


def fitted(modality: Modality, folder: Path, pictures: Path, **options: str) -> Featurizer:
    column = backbones.jpegs(pictures, 3) if modality == "image" else backbones.sentences(3)
    made = featurizer(modality, column, {"kind": "huggingface", "model": str(folder), "device": "cpu", **options})
    return made.fitted(add_statistics([made.statistics(column, np.arange(3))]))


@pytest.mark.parametrize(
    ("make", "modality", "pooling"),
    [
        (backbones.clip, "image", "auto"),
        (backbones.clip, "text", "auto"),
        (backbones.clip, "image", "tokens"),
        (backbones.clip, "text", "tokens"),
        (backbones.bert, "text", "auto"),
        (backbones.sentence_encoder, "text", "auto"),
        (backbones.resnet, "image", "auto"),
    ],
)
def test_a_query_is_encoded_without_torch(
    make: Callable[[Path], Path], modality: Modality, pooling: str, tmp_path: Path, cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    features = fitted(modality, make(tmp_path / "model"), tmp_path, pooling=pooling)
    assert isinstance(features, NetworkFeatures)
    expected = features.encode_one(QUERIES[modality])  # type: ignore[arg-type]
    heard: list[str] = []
    save_networks({modality: features}, heard.append)
    assert heard == []
    assert {path.name for path in cache.iterdir()} == {f"{features.key}.{end}" for end in ("onnx", "weights", "json")}
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(features.source, "network", lambda: pytest.fail("torch's network is not loaded"))
    found = features.encode_one(QUERIES[modality])  # type: ignore[arg-type]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_a_network_is_written_once(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    features = fitted("text", backbones.bert(tmp_path / "model"), tmp_path)
    save_networks({"text": features}, pytest.fail)
    monkeypatch.setattr(network_saving, "onnx_bytes", lambda *_: pytest.fail("written again"))
    save_networks({"text": features}, pytest.fail)
    assert cached_network(features.key) is not None  # type: ignore[attr-defined]


def test_a_network_with_a_damaged_record_is_written_again(tmp_path: Path, cache: Path) -> None:
    features = fitted("text", backbones.bert(tmp_path / "model"), tmp_path)
    assert isinstance(features, NetworkFeatures)
    save_networks({"text": features}, pytest.fail)
    before = (cache / f"{features.key}.json").read_bytes()
    (cache / f"{features.key}.json").write_text("{}")
    save_networks({"text": features}, pytest.fail)
    assert (cache / f"{features.key}.json").read_bytes() == before


def test_a_network_that_differs_is_left_out(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(network_saving._Vectors):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return super().forward(inputs) + 1.0

    monkeypatch.setattr(network_saving, "_Vectors", Wrong)
    heard: list[str] = []
    features = fitted("text", backbones.bert(tmp_path / "model"), tmp_path)
    save_networks({"text": features}, heard.append)
    assert len(heard) == 1
    assert "Encoding text queries needs torch: " in heard[0]
    assert "differ from those of torch by up to 1" in heard[0]
    assert not cache.exists()


def test_without_the_network_in_the_cache_the_query_needs_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = fitted("text", backbones.bert(tmp_path / "model"), tmp_path)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(Exception, match=r"whose network the cache does not hold, needs torch, .* 'silohash\[train\]'"):
        features.encode_one("two parrots")
