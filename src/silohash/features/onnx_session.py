"""Run a network from an ONNX file with onnxruntime, which does not need torch and starts fast."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

BATCH_ROWS = 1024
INPUT, OUTPUT = "inputs", "outputs"
"""Names of the input and the output of every network that silohash writes."""


def open_session(source: bytes | Path, *, few_items: bool = False) -> Any:  # noqa: ANN401  onnxruntime has no types
    """Return a session of onnxruntime on the CPU. It uses as many threads as ``OMP_NUM_THREADS`` says.

    Weights that lie in a file beside an ONNX file are mapped, and are not read before they are used. For few items, it
    starts fast instead of running fast: the graph is not optimized and the weights are not rearranged, which takes longer
    than a large network needs for one item.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    threads = os.environ.get("OMP_NUM_THREADS", "")
    options.intra_op_num_threads = int(threads) if threads.isdecimal() else 0
    options.log_severity_level = 3
    # Threads that wait for work would otherwise keep a core busy for milliseconds after each query.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if few_items:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.add_session_config_entry("session.disable_prepacking", "1")
    opened = source if isinstance(source, bytes) else str(source)
    return onnxruntime.InferenceSession(opened, options, providers=["CPUExecutionProvider"])


def run_session(session: Any, values: npt.NDArray[np.generic]) -> npt.NDArray[np.float32]:  # noqa: ANN401
    """Return the outputs of a session for vectors ``(n, *shape)``, at least one, in batches."""
    batches = (values[start : start + BATCH_ROWS] for start in range(0, len(values), BATCH_ROWS))
    return np.concatenate([session.run([OUTPUT], {INPUT: np.ascontiguousarray(batch)})[0] for batch in batches])
