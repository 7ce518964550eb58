"""Towers with one learned vector per class, such as its proxy or the weights of its classifier.

A vector is a parameter of a single class (`silohash.methods.local.base.class_group`). Silos weigh it by their number of
items of the class when they average parameters, so silos without any do not change it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from silohash.base.types import Modality, Outputs, PairBatch
from silohash.methods.local.base import class_group
from silohash.models.towers import HashNet

CLASS_VECTORS = "class_vectors"
"""Name of the vectors among the extra outputs, ``(C, K)``."""


class ClassVectorNet(HashNet):
    """Towers with class vectors, which a subclass adds after them."""

    classes = 0

    def add_vectors(self, rows: Iterable[Tensor]) -> None:
        """Add the initial vector ``(K,)`` of each class."""
        for number, row in enumerate(rows):
            self.register_parameter(class_group(number), nn.Parameter(row.clone()))
            self.classes = number + 1

    def forward(self, batch: PairBatch, modalities: Sequence[Modality] | None = None) -> Outputs:
        """Return the outputs of the towers. For items with labels, the extra outputs contain the class vectors."""
        outputs = super().forward(batch, modalities)
        if batch.labels is None:
            return outputs
        rows: list[Tensor] = [self.get_parameter(class_group(number)) for number in range(self.classes)]
        return replace(outputs, extra={**outputs.extra, CLASS_VECTORS: torch.stack(rows)})
