"""A network whose outputs are computed by hand, and an encoder that runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from silohash.base.types import MODALITIES, Modality, Outputs, PairBatch
from silohash.data.archive import Archive, ArchiveCard
from silohash.features.given import GivenFeatures
from silohash.models.towers import Adapted
from silohash.run.model.encoder import Encoder
from silohash.run.model.torch_towers import TorchTowers

BITS = 8
MATRIX = np.random.default_rng(0).normal(size=(3, BITS)).astype(np.float32)
"""The only parameters of `Linear`: vectors of three numbers become eight outputs."""


class Linear(nn.Module):
    """A network without a bias, which also counts the rows of each batch and drops outputs during training."""

    bits = BITS
    modalities: tuple[Modality, ...] = ("image", "text")

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.from_numpy(MATRIX))
        self.dropout = nn.Dropout(0.5)
        self.sizes: list[int] = []

    def forward(self, batch: PairBatch, modalities: Sequence[Modality] | None = None) -> Outputs:
        given = {name: batch.values(name) for name in modalities or self.modalities}
        self.sizes.append(len(batch.row))
        code: dict[Modality, Tensor] = {
            name: self.dropout(values.flatten(1) @ self.matrix) for name, values in given.items() if values is not None
        }
        return Outputs(feature=code, logit=code, code=code, class_logit={})


class Shifted:
    """Add the extra ``shift`` to every output."""

    adapts_training = False

    def adapt_outputs(self, outputs: Outputs, extras: Mapping[str, Tensor]) -> Outputs:
        return replace(outputs, code={name: values + extras["shift"] for name, values in outputs.code.items()})


def given(modality: Modality) -> GivenFeatures:
    """Return a featurizer for three columns, each with mean 0 and variance 1."""
    sums = {"count": np.full(3, 4.0), "sum": np.zeros(3), "sum_squares": np.full(3, 4.0)}
    return GivenFeatures(modality, 3, sums)


def encoder_of(shift: float = 0.0, modalities: Sequence[Modality] = MODALITIES) -> Encoder:
    model = Adapted(Linear().train(), Shifted(), {"shift": np.full(BITS, shift, np.float32)})
    featurizers = {name: given(name) for name in modalities}
    towers = TorchTowers(model, featurizers, torch.device("cpu"))
    return Encoder(towers, featurizers, bits=BITS, digest="abc")


def archive(rows: int = 5) -> Archive:
    values = np.random.default_rng(1).normal(size=(2, rows, 3)).astype(np.float32)
    everything = np.arange(rows)
    return Archive(
        ids=np.array([f"item-{row}" for row in range(rows)]), image=values[0], text=values[1], labels=None, label_names=(),
        splits={"query": everything[:1], "database": everything[1:], "train": everything[1:]},
        card=ArchiveCard(name="toy", source="this test", license="CC0"),
    )  # fmt: skip


def expected(values: np.ndarray, shift: float = 0.0) -> np.ndarray:
    """Return the outputs of `Linear` for some vectors, with explicit loops in float64."""
    outputs = np.full((len(values), BITS), shift)
    for row, vector in enumerate(values):
        for bit in range(BITS):
            for column in range(3):
                outputs[row, bit] += float(vector[column]) * float(MATRIX[column, bit])
    return outputs


def linear_onnx() -> bytes:
    """Return `Linear` as an ONNX file, written without torch."""
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
