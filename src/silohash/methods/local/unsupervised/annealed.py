"""What DJSRH and JDSH share: a tanh that becomes steeper with the epochs, and the cosines of the codes of a batch."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from torch import Tensor, nn

from silohash.base.types import Outputs, PairBatch, Step, Terms
from silohash.methods.local.base import LocalMethod, SiloData, SiloState
from silohash.methods.local.unsupervised.base import CodePair, code_pair, refuse_networks, with_inputs
from silohash.models.specs import ModelSpec
from silohash.models.towers import HashNet


class CosineMatrices(NamedTuple):
    """Cosines of the codes of a batch, each ``(B, B)``.

    Attributes:
        images: Within images.
        texts: Within texts.
        between: Images to texts.
    """

    images: Tensor
    texts: Tensor
    between: Tensor


def cosine_matrices(pair: CodePair) -> CosineMatrices:
    """Return the cosines of the codes of a batch."""
    image, text = F.normalize(pair.image, dim=1), F.normalize(pair.text, dim=1)
    return CosineMatrices(image @ image.T, text @ text.T, image @ text.T)


def mean_over(values: Tensor, known: Tensor | None) -> Tensor:
    """Return the mean of the values of the pairs that can be compared, a scalar; 0 if there are none.

    Args:
        values: ``(B, B)``.
        known: ``(B, B)``, 1 for the pairs that can be compared, else 0; None if all can.
    """
    return values.mean() if known is None else (values * known).sum() / known.sum().clamp(min=1.0)


def steepness(epochs: int) -> float:
    """Return the factor on the outputs before the tanh after some local epochs: (1 + epochs)^0.5.

    Args:
        epochs: Number of finished local epochs, over all rounds.
    """
    return math.sqrt(1.0 + epochs)


class AnnealedMethod(LocalMethod, ABC):
    """A method whose loss compares the codes of a batch with the similarity of its inputs.

    A subclass sets ``key``, ``Params`` and ``presets``, and implements `losses`. Its parameters have the switch ``anneal``.
    """

    key: ClassVar[str]

    @abstractmethod
    def losses(self, pair: CodePair, batch: PairBatch, buffers: Mapping[str, Tensor]) -> Terms:
        """Return the terms of the loss.

        Args:
            pair: Relaxed codes in (-1, 1).
            batch: Their items, each with at least one modality.
            buffers: Working tensors of the silo.
        """

    def build(self, spec: ModelSpec, bits: int) -> nn.Module:
        """Build towers without an activation after the hash layer. The loss applies the tanh.

        Raises:
            UserError: If a tower is a published network, whose inputs cannot be compared.
        """
        refuse_networks(spec, self.key)
        return HashNet(spec, bits)

    def init_state(self, model: nn.Module, data: SiloData, state: SiloState) -> None:
        """Store the number of finished epochs."""
        state.buffers = {"epochs": torch.tensor(state.epochs_before)}

    def terms(self, step: Step, outputs: Outputs, batch: PairBatch, state: SiloState) -> Terms:
        """Return the loss of a batch with the tanh of the epoch."""
        batch, codes = with_inputs(batch, outputs.code)
        if not codes:
            return {}
        factor = steepness(int(state.buffers["epochs"])) if self.params.anneal else 1.0
        relaxed = {modality: torch.tanh(factor * code) for modality, code in codes.items()}
        return self.losses(code_pair(relaxed, batch), batch, state.buffers)

    def end_epoch(self, model: nn.Module, data: SiloData, state: SiloState) -> None:
        """Count the epoch."""
        state.buffers["epochs"] = state.buffers["epochs"] + 1
