"""The towers as onnxruntime runs them: batches, threads, and files that are read once."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from silohash.encode import onnx_towers as module
from silohash.encode.onnx_towers import OnnxTowers, open_session, run_session
from tests.linear import BITS, MATRIX, expected


@pytest.fixture(scope="module")
def content() -> bytes:
    """The network of `tests.linear` as a file, written without torch."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["inputs", "matrix"], ["outputs"])],
        "linear",
        [helper.make_tensor_value_info("inputs", TensorProto.FLOAT, ["items", 3])],
        [helper.make_tensor_value_info("outputs", TensorProto.FLOAT, ["items", BITS])],
        [numpy_helper.from_array(MATRIX, "matrix")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 8, 9])
def test_batches_hold_every_row_once(content: bytes, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_ROWS", 4)
    values = np.random.default_rng(rows).normal(size=(rows, 3)).astype(np.float32)
    session = open_session(content)
    outputs = run_session(session, values)
    assert outputs.dtype == np.float32
    assert outputs.shape == (rows, BITS)
    np.testing.assert_allclose(outputs, expected(values), rtol=1e-5, atol=1e-6)
    backwards = np.asfortranarray(values)[::-1]
    np.testing.assert_allclose(run_session(session, backwards), expected(values)[::-1], rtol=1e-5, atol=1e-6)


def test_a_file_is_read_when_its_modality_is_first_encoded(content: bytes) -> None:
    read: list[str] = []

    def file(modality: str) -> bytes:
        """Return the same network for every modality."""
        read.append(modality)
        return content

    towers = OnnxTowers(file)
    assert read == []
    values = np.ones((2, 3), np.float32)
    for modality in ("text", "text", "image"):
        np.testing.assert_allclose(towers.outputs(values, modality), expected(values), rtol=1e-5, atol=1e-6)  # type: ignore[arg-type]
    assert read == ["text", "image"]


@pytest.mark.parametrize(("given", "threads"), [("3", 3), ("", 0), ("many", 0)])
def test_the_number_of_threads_is_that_of_the_environment(
    content: bytes, given: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert open_session(content).get_session_options().intra_op_num_threads == threads
