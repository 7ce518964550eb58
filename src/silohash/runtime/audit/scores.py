"""Scores by which an attacker guesses which items a model was trained on: a model fits its own items better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from torch import Tensor, nn

from silohash.config.load import ResolvedConfig
from silohash.local.base import SiloData, SiloState, has_record_terms
from silohash.models.parameters import install
from silohash.models.towers import Adapted
from silohash.runtime.privacy.training import one_of, outputs_of_one
from silohash.types import Modality, ReadArrays

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class FitScores:
    """How well the model of some parameters fits each item.

    If the loss of an item depends on this item alone, the score is the negative loss. Otherwise it is the cosine of the
    outputs for the picture and for the text, which every cross-modal method increases for its own pairs. With a single
    modality it is the mean size of the relaxed code's values, which training increases as well.

    Attributes:
        resolved: the config of the run with its methods.
        model: the network, whose parameters are replaced.
        extras: the arrays that the server sent beside the parameters.
    """

    resolved: ResolvedConfig
    model: nn.Module
    extras: ReadArrays

    @torch.no_grad()
    def of(self, params: ReadArrays, items: SiloData) -> Values:
        """Return the scores of items, ``(n,)``."""
        install(self.model, params)
        adapted = Adapted(self.model, self.resolved.federated, self.extras).eval()
        if has_record_terms(self.resolved.local):
            return self._negative_losses(adapted, items)
        batch = items.batch(torch.arange(len(items)))
        return agreements(adapted(batch).logit)

    def _negative_losses(self, adapted: Adapted, items: SiloData) -> Values:
        local, state = self.resolved.local, SiloState()
        local.init_state(adapted, items, state)
        batch = items.batch(torch.arange(len(items)))
        outputs, steps = adapted(batch), local.steps(self.model)
        found = np.zeros(len(items))
        for place in range(len(items)):
            item = one_of(batch, place)
            for step in steps:
                terms = local.terms(step, outputs_of_one(outputs, place, step), item, state)
                found[place] -= sum(float(weight * value) for weight, value in terms.values())
        return found


def agreements(outputs: Mapping[Modality, Tensor]) -> Values:
    """Return the cosine of the two modalities' outputs per item, or the mean size of the relaxed values of a single one.

    Args:
        outputs: ``(n, K)`` per modality.

    Returns:
        ``(n,)``.
    """
    relaxed = [torch.tanh(values) for values in outputs.values()]
    if len(relaxed) == 1:
        return relaxed[0].abs().mean(1).double().numpy()
    return F.cosine_similarity(relaxed[0], relaxed[1]).double().numpy()


def calibrated(scores: Values, own: int) -> Values:
    """Return the scores under one silo's model minus the mean of those under the models of the other silos.

    Some items fit every model. The other silos' models, which have not seen the item, show how well it fits without having
    been trained on.

    Args:
        scores: ``(J, n)``, one row per model, at least two.
        own: Row of the silo's model.

    Returns:
        ``(n,)``.

    Source: Watson et al., "On the Importance of Difficulty Calibration in Membership Inference Attacks", ICLR 2022.
    """
    others = np.arange(len(scores)) != own
    found: Values = scores[own] - scores[others].mean(axis=0)
    return found
