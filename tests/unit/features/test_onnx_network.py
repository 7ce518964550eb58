"""Pretrained networks of the cache: queries are prepared and encoded from the files alone."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from silohash.base.errors import DamagedFile, QueryUnsuitable
from silohash.base.files import digest_bytes
from silohash.features.onnx_network import OnnxNetwork, cached_network, store_network, weights_name
from silohash.features.preprocess import PicturePreparation
from silohash.run.model.onnx_graph import without_weights

OLD = 1_700_000_000_000_000_000
PICTURE = Image.new("RGB", (4, 4), (10, 20, 30))


SIDE = 64
"""Large enough that the weights leave the ONNX file."""

PREPARATION = PicturePreparation(resize=(SIDE, SIDE), crop=())

FACTORS = (np.arange(3 * SIDE * SIDE, dtype=np.float32) % 7).reshape(3, SIDE, SIDE)


def weighted_mean(factors: np.ndarray = FACTORS) -> bytes:
    """Return a network whose vector is the weighted mean of each channel."""
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["inputs"], ["numbers"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["numbers", "factors"], ["weighted"]),
            helper.make_node("ReduceMean", ["weighted"], ["outputs"], axes=[2, 3], keepdims=0),
        ],
        "mean",
        [helper.make_tensor_value_info("inputs", TensorProto.UINT8, ["items", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("outputs", TensorProto.FLOAT, ["items", 3])],
        [numpy_helper.from_array(factors, "factors")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SILOHASH_CACHE", str(tmp_path))
    return tmp_path / "onnx"


def stored(key: str = "abc", factors: np.ndarray = FACTORS) -> OnnxNetwork:
    graph, weights = without_weights(weighted_mean(factors), weights_name(key))
    record = OnnxNetwork(key, "mean", 3, digest_bytes(graph), digest_bytes(weights), PREPARATION)
    store_network(record, graph, weights)
    return found(key)


def found(key: str = "abc") -> OnnxNetwork:
    network = cached_network(key)
    assert network is not None
    return network


def test_a_picture_is_encoded_from_the_cache() -> None:
    assert cached_network("abc") is None
    network = stored()
    assert (network.key, network.name, network.width, network.preparation) == ("abc", "mean", 3, PREPARATION)
    pictures = [Image.new("RGB", (4, 4), (10, 20, 30)), Image.new("L", (5, 3), 7)]
    expected = np.array([[10, 20, 30], [7, 7, 7]]) * FACTORS.mean(axis=(1, 2))
    vectors = network.vectors(pictures)
    np.testing.assert_allclose(vectors, expected, rtol=1e-5)
    for _ in range(2):
        np.testing.assert_array_equal(found().vectors(pictures), vectors)
        with pytest.raises(QueryUnsuitable):
            network.vectors(["words"])


def test_networks_have_keys_of_their_own_and_need_all_files(cache: Path) -> None:
    for name in ("abc.onnx", "abc.weights", "abc.json"):
        stored()
        assert cached_network("other") is None
        (cache / name).unlink()
        assert cached_network("abc") is None


def test_unchanged_files_are_read_once(cache: Path, read: list[str]) -> None:
    """Never on the machine that wrote them, and once where they were copied to, unless they change."""
    stored()
    found().vectors([PICTURE])
    assert read == []
    for name in ("abc.onnx", "abc.weights"):
        os.utime(cache / name, ns=(OLD, OLD))
    for _ in range(2):
        found().vectors([PICTURE])
        assert read == ["abc.onnx", "abc.weights"]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "longer": lambda content: content + b"0",
    "one bit": lambda content: content[:100] + bytes([content[100] ^ 1]) + content[101:],
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["abc.onnx", "abc.weights"])
def test_damaged_files_are_named(cache: Path, name: str, damage: str) -> None:
    stored()
    found().vectors([PICTURE])
    path = cache / name
    before = path.stat()
    with path.open("r+b") as stream:  # in place, as a failing disk or a copy that was interrupted
        content = DAMAGES[damage](stream.read())
        stream.seek(0)
        stream.write(content)
        stream.truncate()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    for _ in range(2):
        with pytest.raises(DamagedFile, match=re.escape(name)):
            found().vectors([PICTURE])


def test_weights_of_another_network_are_refused(cache: Path) -> None:
    stored()
    stored("other", FACTORS + 1)
    (cache / "other.weights").replace(cache / "abc.weights")
    os.utime(cache / "abc.weights", ns=(OLD, OLD))  # both may have been written within the resolution of their times
    with pytest.raises(DamagedFile, match=r"abc\.weights"):
        found().vectors([PICTURE])
    stored()
    (cache / "abc.json").write_bytes((cache / "other.json").read_bytes())
    with pytest.raises(DamagedFile, match=r"abc\.json.*records"):
        cached_network("abc")


@pytest.mark.parametrize("content", ["{}", "[]", "", '{"key": "abc", "name": "mean", "width": 3, "graph": "0"}'])
def test_damaged_records_are_named(cache: Path, content: str) -> None:
    stored()
    (cache / "abc.json").write_text(content)
    with pytest.raises(DamagedFile, match=r"abc\.json"):
        cached_network("abc")
