"""Sessions of onnxruntime: batches and threads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from silohash.features import onnx_session as module
from silohash.features.onnx_session import open_session, run_session
from tests.linear import BITS, expected, linear_onnx


@pytest.fixture(scope="module")
def content() -> bytes:
    return linear_onnx()


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


@pytest.mark.parametrize(("given", "threads"), [("3", 3), ("", 0), ("many", 0)])
def test_the_number_of_threads_is_that_of_the_environment(
    content: bytes, given: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert open_session(content).get_session_options().intra_op_num_threads == threads


def test_threads_sleep_while_they_wait_for_work(content: bytes) -> None:
    options = open_session(content).get_session_options()
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


def test_a_session_for_few_items_starts_without_preparations_and_gives_the_same(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "linear.onnx").write_bytes(content)
    values = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)
    for source in (content, tmp_path / "linear.onnx"):
        session = open_session(source, few_items=True)
        np.testing.assert_allclose(run_session(session, values), expected(values), rtol=1e-5, atol=1e-6)
        assert session.get_session_options().graph_optimization_level.name == "ORT_DISABLE_ALL"
        assert session.get_session_options().get_session_config_entry("session.disable_prepacking") == "1"
    usual = open_session(content).get_session_options()
    assert usual.graph_optimization_level.name == "ORT_ENABLE_ALL"
