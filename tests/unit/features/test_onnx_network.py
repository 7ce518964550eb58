"""Pretrained networks of the cache: queries are prepared and encoded from the files alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from PIL import Image

from silohash.features.onnx_network import NetworkRecord, cached_network, store_network
from silohash.features.preprocess import PicturePreparation
from silohash.files import digest_bytes
from silohash.types import UserError

PREPARATION = PicturePreparation(resize=(2, 2), crop=())


def mean_of_pixels() -> bytes:
    """Return a network whose vector is the mean of each channel."""
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["inputs"], ["numbers"], to=TensorProto.FLOAT),
            helper.make_node("ReduceMean", ["numbers"], ["outputs"], axes=[2, 3], keepdims=0),
        ],
        "mean",
        [helper.make_tensor_value_info("inputs", TensorProto.UINT8, ["items", 3, 2, 2])],
        [helper.make_tensor_value_info("outputs", TensorProto.FLOAT, ["items", 3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SILOHASH_CACHE", str(tmp_path))
    return tmp_path / "networks"


def stored(key: str = "abc") -> None:
    content = mean_of_pixels()
    store_network(NetworkRecord(key, "mean", 3, digest_bytes(content), PREPARATION), content)


def test_a_picture_is_encoded_from_the_cache() -> None:
    assert cached_network("abc") is None
    stored()
    network = cached_network("abc")
    assert network is not None
    assert (network.key, network.name, network.width, network.modality) == ("abc", "mean", 3, "image")
    assert network.smallest_pixels == 2
    assert network.record.preparation == PREPARATION
    pictures = [Image.new("RGB", (4, 4), (10, 20, 30)), Image.new("L", (5, 3), 7)]
    prepared = network.prepare(pictures)
    assert (prepared["inputs"].shape, prepared["inputs"].dtype) == ((2, 3, 2, 2), np.uint8)
    np.testing.assert_array_equal(network.embed(prepared), [[10, 20, 30], [7, 7, 7]])
    with pytest.raises(UserError, match="trained on pictures"):
        network.prepare(["words"])


def test_networks_have_keys_of_their_own_and_need_both_files(cache: Path) -> None:
    stored()
    assert cached_network("other") is None
    (cache / "abc.onnx").unlink()
    assert cached_network("abc") is None


def test_damaged_files_are_named(cache: Path) -> None:
    stored()
    (cache / "abc.onnx").write_bytes(b"damaged")
    network = cached_network("abc")
    assert network is not None
    with pytest.raises(UserError, match=r"abc\.onnx is damaged: .* Remove it"):
        network.embed(network.prepare([Image.new("RGB", (4, 4))]))
    (cache / "abc.json").write_text("{}")
    with pytest.raises(UserError, match=r"abc\.json is damaged"):
        cached_network("abc")
