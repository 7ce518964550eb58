"""Networks that several local methods train beside the towers: vectors of classes, a label network, and layers.

They are used in training only, unless a method puts such layers into a tower.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from torch import Tensor, nn

from silohash.base.types import Outputs
from silohash.methods.local.base import class_group
from silohash.models.towers import HashNet

CLASS_VECTORS = "class_vectors"
"""Name of the vectors among the extra outputs, ``(C, K)``."""

NEIGHBORS = 5
"""Number of units in a neighborhood of `LocalResponse`, the unit itself included. Odd."""


class NeighborSums(torch.autograd.Function):
    """The sum of each unit and its neighbors, ``(B, D) -> (B, D)``. Units beyond the ends count as 0.

    A unit is a neighbor of its neighbors, so the gradient is summed in the same way. Sums of shifted rows are several times
    as fast as torch's pooling.
    """

    @staticmethod
    def forward(_context: Any, values: Tensor) -> Tensor:  # noqa: ANN401  torch's own type
        """Return the sums."""
        return _neighbor_sums(values)

    @staticmethod
    def backward(_context: Any, *gradients: Tensor) -> Tensor:  # noqa: ANN401  torch's own type
        """Return the gradient of the values, given that of the sums."""
        return _neighbor_sums(gradients[0])


def _neighbor_sums(values: Tensor) -> Tensor:
    units = values.shape[1]
    padded = F.pad(values, (NEIGHBORS // 2, NEIGHBORS // 2))
    sums = padded[:, :units] + padded[:, 1 : 1 + units]
    for shift in range(2, NEIGHBORS):
        sums += padded[:, shift : shift + units]
    return sums


class LocalResponse(nn.Module):
    """Normalization over neighboring units: ``x / (2 + 1e-4 * sum of x^2 over 5 neighbors) ** 0.75``, ``(B, D)``.

    Units beyond the ends count as 0.

    Source: Krizhevsky, Sutskever and Hinton, "ImageNet Classification with Deep Convolutional Neural Networks", NIPS 2012,
        section 3.3.
    """

    def forward(self, values: Tensor) -> Tensor:
        """Return the normalized values, ``(B, D)``."""
        sums: Tensor = NeighborSums.apply(values * values)  # type: ignore[no-untyped-call]
        return values / (sums / NEIGHBORS * 5e-4 + 2.0).pow(0.75)


class MultiScale(nn.Module):
    """A vector beside its averages over windows of several widths and strides, ``(B, D) -> (B, (1 + S) * D)``.

    Each average is multiplied by a learned number that starts at 1, rectified, and stretched to D values by linear
    interpolation. Windows that are wider than D are left out.

    Source: Li et al., "Self-Supervised Adversarial Hashing Networks for Cross-Modal Retrieval", CVPR 2018,
        the text network.
    """

    def __init__(self, inputs: int, windows: Sequence[tuple[int, int]]) -> None:
        super().__init__()
        self.windows = tuple((width, stride) for width, stride in windows if width <= inputs)
        self.outputs = inputs * (1 + len(self.windows))
        self.factors = nn.Parameter(torch.ones(len(self.windows)))

    def forward(self, values: Tensor) -> Tensor:
        """Return the vectors of all scales, one after the other."""
        row, scales = values.unsqueeze(1), [values]
        for number, (width, stride) in enumerate(self.windows):
            pooled = F.relu(F.avg_pool1d(row, width, stride) * self.factors[number])
            scales.append(F.interpolate(pooled, size=values.shape[1], mode="linear").squeeze(1))
        return torch.cat(scales, dim=1)


class LabelNet(nn.Module):
    """A network from labels to features, codes and labels."""

    def __init__(self, layers: nn.Module, hidden: int, bits: int, classes: int) -> None:
        super().__init__()
        self.layers = layers
        self.hash = nn.Linear(hidden, bits)
        self.predictor = nn.Linear(hidden, classes)

    def forward(self, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the features ``(B, H)``, relaxed codes ``(B, K)`` in (-1, 1) and logits of labels ``(B, C)``, float32."""
        feature = self.layers(labels)
        return feature.float(), torch.tanh(self.hash(feature)).float(), self.predictor(feature).float()


class ClassVectorNet(HashNet):
    """Towers with one learned vector per class, such as its proxy or the weights of its classifier.

    A method adds the vectors after the towers. Each is the parameter of a single class (`class_group`).
    """

    classes = 0

    def add_vectors(self, rows: Iterable[Tensor]) -> None:
        """Add the initial vector ``(K,)`` of each class."""
        for number, row in enumerate(rows):
            self.register_parameter(class_group(number), nn.Parameter(row.clone()))
            self.classes = number + 1

    def extras(self, outputs: Outputs) -> dict[str, Tensor]:
        """Return the class vectors."""
        rows: list[Tensor] = [self.get_parameter(class_group(number)) for number in range(self.classes)]
        return {CLASS_VECTORS: torch.stack(rows)}
