"""Towers that onnxruntime runs, from the ONNX files beside the weights. They need no torch, and start fast."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from silohash.types import Modality

BATCH_ROWS = 1024
INPUT, OUTPUT = "inputs", "outputs"


class OnnxTowers:
    """The towers of one model with the federated method's adaptation, run by onnxruntime.

    Args:
        content: function that returns the content of a modality's file. It is called when the modality is first encoded.
    """

    def __init__(self, content: Callable[[Modality], bytes]) -> None:
        self._content = content
        self._sessions: dict[Modality, Any] = {}

    def outputs(self, values: npt.NDArray[np.generic], modality: Modality) -> npt.NDArray[np.float32]:
        """Return the real-valued outputs whose signs are the codes, ``(n, bits)`` float32, for ``(n, *shape)``.

        Raises:
            UserError: if the file of the tower cannot be read.
        """
        if modality not in self._sessions:
            self._sessions[modality] = open_session(self._content(modality))
        return run_session(self._sessions[modality], values)


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
