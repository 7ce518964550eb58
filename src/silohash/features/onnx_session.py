"""Run a network from an ONNX file with onnxruntime, which needs no torch and starts fast."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

BATCH_ROWS = 1024
INPUT, OUTPUT = "inputs", "outputs"
"""Names of the input and the output of every network that silohash writes."""


def open_session(content: bytes) -> Any:  # noqa: ANN401  a class of onnxruntime, which has no types
    """Return a session of onnxruntime on the CPU. It uses as many threads as ``OMP_NUM_THREADS`` says."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    threads = os.environ.get("OMP_NUM_THREADS", "")
    options.intra_op_num_threads = int(threads) if threads.isdecimal() else 0
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def run_session(session: Any, values: npt.NDArray[np.generic]) -> npt.NDArray[np.float32]:  # noqa: ANN401
    """Return the outputs of a session for vectors ``(n, *shape)``, at least one, in batches."""
    batches = (values[start : start + BATCH_ROWS] for start in range(0, len(values), BATCH_ROWS))
    return np.concatenate([session.run([OUTPUT], {INPUT: np.ascontiguousarray(batch)})[0] for batch in batches])
