"""The contract of a local method: what one silo optimises on its own pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from silohash.models.towers import ModelSpec
from silohash.types import Modality, Outputs, PairBatch, Step, Terms


class MethodParams(BaseModel):
    """A method's own parameters; unknown names are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


@dataclass(frozen=True)
class SiloData:
    """One silo's own training pairs, as tensors on the device.

    Attributes:
        name: the silo's name.
        image: ``(n, D)`` or ``(n, c, h, w)``, or None without pictures; uint8 pictures are scaled in `batch`.
        text: ``(n, V)``, or None without texts.
        labels: ``(n, C)`` float multi-hot, or None.
        has_image: ``(n,)`` bool.
        has_text: ``(n,)`` bool.
        pixel_mean: ``(c, 1, 1)`` by which pictures are centred, in the unit of the pixels.
        pixel_deviation: ``(c, 1, 1)`` by which they are divided.
    """

    name: str
    image: Tensor | None
    text: Tensor | None
    labels: Tensor | None
    has_image: Tensor
    has_text: Tensor
    pixel_mean: Tensor | None = None
    pixel_deviation: Tensor | None = None

    def __len__(self) -> int:
        """Returns how many pairs there are."""
        return len(self.has_image)

    def has(self, modality: Modality) -> Tensor:
        """Returns which rows have the modality, ``(n,)`` bool."""
        return self.has_image if modality == "image" else self.has_text

    def count(self, modality: Modality) -> int:
        """Returns how many rows have the modality."""
        return int(self.has(modality).sum())

    def class_counts(self) -> Tensor:
        """Returns how many rows have each label, ``(C,)``; empty without labels."""
        return self.has_image.new_zeros(0, dtype=torch.float32) if self.labels is None else self.labels.sum(0)

    def batch(self, rows: Tensor) -> PairBatch:
        """Returns the pairs at ``rows (B,)`` int64."""
        image = None if self.image is None else self.image.index_select(0, rows)
        if image is not None and not image.is_floating_point():
            image = image.float()
            if self.pixel_mean is not None and self.pixel_deviation is not None:
                image = image.sub_(self.pixel_mean).div_(self.pixel_deviation)
        return PairBatch(
            row=rows,
            image=image,
            text=None if self.text is None else self.text.index_select(0, rows),
            labels=None if self.labels is None else self.labels.index_select(0, rows),
            has_image=self.has_image.index_select(0, rows),
            has_text=self.has_text.index_select(0, rows),
        )

    def take(self, rows: Tensor) -> SiloData:
        """Returns the same silo with some of its rows."""

        def some(values: Tensor | None) -> Tensor | None:
            """Returns the rows of a column that may be missing."""
            return None if values is None else values.index_select(0, rows)

        return replace(
            self,
            image=some(self.image),
            text=some(self.text),
            labels=some(self.labels),
            has_image=self.has_image.index_select(0, rows),
            has_text=self.has_text.index_select(0, rows),
        )


@dataclass
class SiloState:
    """What a silo keeps: named tensors that live as long as a round, and those that survive it.

    Attributes:
        buffers: a local method's working tensors, made anew at the start of a phase.
        kept: what survives the round (and is in the checkpoint): a personal model, learned mixing weights.
    """

    buffers: dict[str, Tensor] = field(default_factory=dict)
    kept: dict[str, Tensor] = field(default_factory=dict)


class LocalMethod(Protocol):
    """What a silo optimises. One paper, one file, one class.

    A method wires pure formulas together; it never loops over data, calls ``backward`` or steps an optimiser: the loop in
    ``runtime/silo.py`` does.
    """

    Params: ClassVar[type[MethodParams]]
    presets: ClassVar[Mapping[str, Mapping[str, Any]]]
    needs_labels: ClassVar[bool]

    def __init__(self, params: Any) -> None:  # noqa: ANN401  the class's own Params
        """Takes the method's own parameters."""
        ...

    def build(self, spec: ModelSpec, bits: int) -> nn.Module:
        """Builds the network."""
        ...

    def steps(self, model: nn.Module) -> Sequence[Step]:
        """Returns the optimiser steps that a batch takes, in order."""
        ...

    def init_state(self, model: nn.Module, data: SiloData, state: SiloState) -> None:
        """Makes the working tensors at the start of a phase, from the model as it stands."""
        ...

    def terms(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> Terms:
        """Returns the loss of one step as named terms."""
        ...

    def record(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> None:
        """Writes what a step leaves in the working tensors; called after the optimiser's step."""
        ...

    def end_epoch(self, model: nn.Module, data: SiloData, state: SiloState) -> None:
        """Updates the working tensors after a pass over the data."""
        ...

    def warnings(self, terms: Mapping[str, float]) -> list[str]:
        """Returns what is wrong, given an epoch's mean terms (a collapse, for example)."""
        ...


Part: TypeAlias = Literal["feature", "logit", "code"]
"""Which of a model's `Outputs`."""


def signs(values: Tensor) -> Tensor:
    """Returns the signs with ``sign(0) = +1``, in the values' type.

    Example:
        >>> signs(torch.tensor([-0.5, 0.0, 2.0]))
        tensor([-1.,  1.,  1.])
    """
    return torch.where(values >= 0, 1.0, -1.0).to(values.dtype)


@torch.no_grad()
def outputs_of(model: nn.Module, data: SiloData, *, part: Part = "code", batch: int = 1024) -> dict[Modality, Tensor]:
    """Runs every tower over all rows in evaluation mode.

    Returns:
        The features ``(n, H)``, the hash layer's outputs or the relaxed codes ``(n, K)`` a modality; rows without the
        modality are zero.
    """
    training = model.training
    model.eval()
    parts: dict[Modality, list[Tensor]] = {}
    for start in range(0, len(data), batch):
        rows = torch.arange(start, min(start + batch, len(data)), device=data.has_image.device)
        pairs = data.batch(rows)
        for modality, values in getattr(model(pairs), part).items():
            parts.setdefault(modality, []).append(values.float() * pairs.has(modality).unsqueeze(1))
    model.train(training)
    return {modality: torch.cat(values) for modality, values in parts.items()}
