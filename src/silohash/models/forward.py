"""Running a model, for training and encoding alike: batches, outputs that the federated method adapts, many rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from silohash.types import Arrays, Modality, Outputs, PairBatch

Part: TypeAlias = Literal["feature", "logit", "code"]
"""Which of a model's `Outputs`."""


class OutputAdapter(Protocol):
    """The part of a federated method that changes a model's outputs."""

    @property
    def adapts_training(self) -> bool:
        """Whether the local method is trained on adapted outputs."""
        ...

    def adapt_outputs(self, outputs: Outputs, extras: Mapping[str, Tensor]) -> Outputs:
        """Return the adapted outputs."""
        ...


class Adapted(nn.Module):
    """A model whose outputs pass through a federated method's `adapt_outputs`.

    Args:
        model: the towers.
        method: adapts the outputs.
        extras: what the server sends beside the parameters.
    """

    def __init__(self, model: nn.Module, method: OutputAdapter, extras: Arrays) -> None:
        super().__init__()
        self.model = model
        self.method = method
        device = next(model.parameters()).device
        self.extras = {name: torch.from_numpy(np.array(array)).to(device) for name, array in extras.items()}

    @property
    def modalities(self) -> tuple[Modality, ...]:
        """The modalities of the model."""
        return self.model.modalities  # type: ignore[return-value]

    def forward(self, batch: PairBatch, modalities: Sequence[Modality] | None = None) -> Outputs:
        """Run the model and adapt its outputs."""
        outputs: Outputs = self.model(batch, modalities)
        if self.training and not self.method.adapts_training:
            return outputs
        return self.method.adapt_outputs(outputs, self.extras)


def standardized(image: Tensor, mean: Tensor | None, deviation: Tensor | None) -> Tensor:
    """Return images as floats, with integer pixels standardized.

    Args:
        image: ``(B, D)`` or ``(B, c, h, w)``; floats are returned unchanged.
        mean: ``(c, 1, 1)``, subtracted from integer pixels; None to leave their scale.
        deviation: ``(c, 1, 1)``, by which integer pixels are divided; None to leave their scale.
    """
    if image.is_floating_point():
        return image
    image = image.float()
    return image if mean is None or deviation is None else image.sub_(mean).div_(deviation)


def batch_of(values: Tensor, modality: Modality, pixels: Mapping[str, Tensor]) -> PairBatch:
    """Return a featurizer's vectors as a batch of items that have only one modality.

    Args:
        values: ``(B, *shape)``.
        modality: the modality of the vectors.
        pixels: ``pixel_mean`` and ``pixel_deviation`` (`silohash.features.vectors`), or empty.
    """
    present = torch.ones(values.shape[0], dtype=torch.bool, device=values.device)
    absent = torch.zeros_like(present)
    is_image = modality == "image"
    return PairBatch(
        row=torch.arange(values.shape[0], device=values.device),
        image=standardized(values, pixels.get("pixel_mean"), pixels.get("pixel_deviation")) if is_image else None,
        text=None if is_image else values,
        labels=None,
        has_image=present if is_image else absent,
        has_text=absent if is_image else present,
    )


@torch.no_grad()
def outputs_over(model: nn.Module, batches: Iterable[PairBatch], *, part: Part = "code") -> dict[Modality, Tensor]:
    """Run a model over batches in evaluation mode.

    Returns:
        For each modality ``(n, H)`` features, or ``(n, K)`` hash-layer outputs or relaxed codes; rows without the
        modality are zero.
    """
    training = model.training
    model.eval()
    parts: dict[Modality, list[Tensor]] = {}
    for batch in batches:
        for modality, values in getattr(model(batch), part).items():
            parts.setdefault(modality, []).append(values.float() * batch.has(modality).unsqueeze(1))
    model.train(training)
    return {modality: torch.cat(values) for modality, values in parts.items()}
