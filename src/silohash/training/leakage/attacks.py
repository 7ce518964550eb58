"""Attacks: scores by which an attacker guesses members, because a model fits its own items better, and how well they do.

The measures say how well scores separate members from others, and how well codes give back what they encode.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from scipy.stats import rankdata
from torch import Tensor, nn

from silohash.base.types import Modality, ReadArrays
from silohash.methods.local.base import SiloData, SiloState
from silohash.models.parameters import install
from silohash.models.towers import Adapted
from silohash.run.config.load import ResolvedConfig
from silohash.training.privacy.training import one_of, outputs_of_one

NORMAL_QUANTILE = 1.959963984540054
"""Distance from the mean, in deviations, within which 95 % of normally distributed values lie."""

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % interval, from ``low`` to ``high``."""

    value: float
    low: float
    high: float


def area_under_curve(positive: npt.ArrayLike, negative: npt.ArrayLike) -> Estimate:
    """Return the probability that a positive has a higher score than a negative, counting ties as one half.

    This is the area under the ROC curve. 0.5 means that the scores ``(n,)`` and ``(m,)``, at least one each, do not separate
    them.

    Source: Hanley and McNeil, "The Meaning and Use of the Area under a Receiver Operating Characteristic (ROC) Curve",
        Radiology, 1982, for the interval.

    Example:
        >>> area_under_curve([3.0, 2.0], [1.0, 2.0]).value
        0.875
    """
    above, below = np.asarray(positive, np.float64), np.asarray(negative, np.float64)
    n, m = len(above), len(below)
    ranks = rankdata(np.concatenate([above, below]))
    area = (float(ranks[:n].sum()) - n * (n + 1) / 2) / (n * m)
    pairs = (n - 1) * (area / (2 - area) - area**2) + (m - 1) * (2 * area**2 / (1 + area) - area**2)
    deviation = math.sqrt(max(0.0, area * (1 - area) + pairs) / (n * m))
    found = _within(area, deviation)
    return Estimate(area, max(0.0, found.low), min(1.0, found.high))


def mean_estimate(estimates: Sequence[Estimate]) -> Estimate:
    """Return the mean of independent estimates, with the interval that follows from theirs."""
    deviations = [(each.high - each.low) / 2 / NORMAL_QUANTILE for each in estimates]
    value = math.fsum(each.value for each in estimates) / len(estimates)
    return _within(value, math.sqrt(math.fsum(d * d for d in deviations)) / len(estimates))


def _within(value: float, deviation: float) -> Estimate:
    return Estimate(value, value - NORMAL_QUANTILE * deviation, value + NORMAL_QUANTILE * deviation)


def ridge_predictions(known: Values, targets: Values, unknown: Values) -> Values:
    """Return the targets, ``(m, C)``, that a ridge regression predicts, as an attacker fits it to items of their own.

    The attacker knows the inputs ``(n, D)`` and targets ``(n, C)`` of these items, and the inputs ``(m, D)`` of the others.
    """
    mean, center = known.mean(axis=0), targets.mean(axis=0)
    moved = known - mean
    weights = np.linalg.solve(moved.T @ moved + np.eye(moved.shape[1]), moved.T @ (targets - center))
    return np.asarray((unknown - mean) @ weights + center)


def explained_share(predicted: Values, true: Values) -> Estimate:
    """Return the share of the variance of vectors that predictions explain; 0 for their mean, 1 for the vectors.

    It has an interval over the items ``(n, D)``, whose true vectors are not all equal, and can be negative.
    """
    left = np.square(true - predicted).sum(axis=1)
    all_of_it = np.square(true - true.mean(axis=0)).sum(axis=1).mean()
    shares = 1.0 - left / all_of_it
    return _within(float(shares.mean()), float(shares.std() / math.sqrt(len(shares))))


@dataclass(frozen=True)
class FitScores:
    """How well the model of some parameters fits each item.

    If the loss of an item depends on this item alone, the score is the negative loss. Otherwise it is the cosine of the
    outputs for the picture and for the text, which every cross-modal method increases for its own pairs. With a single
    modality it is the mean size of the relaxed code's values, which training increases as well.

    The parameters of ``model`` are replaced.
    """

    resolved: ResolvedConfig
    model: nn.Module
    extras: ReadArrays

    @torch.no_grad()
    def of(self, params: ReadArrays, items: SiloData) -> Values:
        """Return the scores of items, ``(n,)``."""
        install(self.model, params)
        adapted = Adapted(self.model, self.resolved.federated.adapter, self.extras).eval()
        if self.resolved.local.traits.record_terms:
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
    """Return per item the cosine of two modalities' outputs ``(n, K)``, or the mean size of the relaxed values of one."""
    relaxed = [torch.tanh(values) for values in outputs.values()]
    if len(relaxed) == 1:
        return relaxed[0].abs().mean(1).double().numpy()
    return F.cosine_similarity(relaxed[0], relaxed[1]).double().numpy()


def calibrated(scores: Values, own: int) -> Values:
    """Return the scores, ``(n,)``, under one silo's model minus the mean of those under the models of the other silos.

    Some items fit every model. The other silos' models, which have not seen the item, show how well it fits without having
    been trained on. There is one row of scores ``(J, n)`` per model, at least two.

    Source: Watson et al., "On the Importance of Difficulty Calibration in Membership Inference Attacks", ICLR 2022.
    """
    others = np.arange(len(scores)) != own
    found: Values = scores[own] - scores[others].mean(axis=0)
    return found
