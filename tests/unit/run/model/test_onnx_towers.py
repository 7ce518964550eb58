"""The towers as onnxruntime runs them, from files that are read once."""

from __future__ import annotations

import numpy as np

from silohash.run.model.onnx_towers import OnnxTowers
from tests.linear import expected, linear_onnx


def test_a_file_is_read_when_its_modality_is_first_encoded() -> None:
    content = linear_onnx()
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
