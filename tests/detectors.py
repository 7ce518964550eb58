"""Tiny detectors as ONNX files: they find the same boxes in every picture, whatever its size, and its colors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper


def detector(
    path: Path,
    boxes: Sequence[Sequence[float]],
    scores: Sequence[float],
    labels: Sequence[int] = (),
    *,
    sides: tuple[int | str, int | str] = ("height", "width"),
    batched: bool = True,
    kind: int = TensorProto.FLOAT,
    units: str = "pixels",
) -> Path:
    """Write a detector that finds boxes, given as shares.

    Its outputs are ``boxes``, ``scores``, ``labels`` and ``colors``: the mean of each channel of its input, with the number
    of the box behind it.
    """
    count = len(boxes)
    numbers = np.arange(count, dtype=np.float32)[:, None]
    held = {
        "shares": np.array(boxes, np.float32).reshape(count, 4),
        "given_scores": np.array(scores, np.float32),
        "given_labels": np.array([*labels] or [0] * count, np.int64),
        "numbers": numbers,
        "order": np.array([-1, -2, -1, -2]),
        "row": np.array([1, 3]),
        "ones": np.ones((count, 1), np.float32),
        "unit": np.ones(4, np.float32),
    }
    shape = [*([1] if batched else []), 3, *sides]
    lead = "batch_" if batched else ""
    nodes = [
        helper.make_node("Cast", ["picture"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Shape", ["picture"], ["shape"]),
        helper.make_node("Gather", ["shape", "order"], ["ends"]),
        helper.make_node("Cast", ["ends"], ["sides"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["shares", "sides" if units == "pixels" else "unit"], [f"{lead}boxes"]),
        helper.make_node("Identity", ["given_scores"], [f"{lead}scores"]),
        helper.make_node("Identity", ["given_labels"], ["labels"]),
        helper.make_node("ReduceMean", ["real"], ["means"], axes=[-2, -1], keepdims=0),
        helper.make_node("Reshape", ["means", "row"], ["mean"]),
        helper.make_node("MatMul", ["ones", "mean"], ["colored"]),
        helper.make_node("Concat", ["colored", "numbers"], ["colors"], axis=1),
    ]
    if batched:
        held["first"] = np.array([0])
        nodes += [helper.make_node("Unsqueeze", [f"batch_{n}", "first"], [n]) for n in ("boxes", "scores")]
    kinds = {"boxes": TensorProto.FLOAT, "scores": TensorProto.FLOAT, "labels": TensorProto.INT64, "colors": 1}
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("picture", kind, shape)],
        [helper.make_tensor_value_info(name, of, None) for name, of in kinds.items()],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path
