"""Towers that onnxruntime runs, from the ONNX files beside the weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from silohash.base.types import Modality
from silohash.features.onnx_session import open_session, run_session
from silohash.run.model.encoder import Labels


class OnnxTowers:
    """The towers of one model with the federated method's adaptation, run by onnxruntime.

    Args:
        content: Function that returns the content of a modality's file. It is called when the modality is first encoded.
    """

    def __init__(self, content: Callable[[Modality], bytes]) -> None:
        self._content = content
        self._sessions: dict[Modality, Any] = {}

    def outputs(
        self, values: npt.NDArray[np.generic], modality: Modality, labels: Labels | None = None
    ) -> npt.NDArray[np.float32]:
        """Return the real-valued outputs whose signs are the codes, ``(n, bits)`` float32, for ``(n, *shape)``.

        Labels must be None, because models that use them have no ONNX files.

        Raises:
            UserError: If the file of the tower cannot be read.
        """
        assert labels is None  # noqa: S101  see `Encoder.check_without_labels`
        if modality not in self._sessions:
            self._sessions[modality] = open_session(self._content(modality))
        return run_session(self._sessions[modality], values)
