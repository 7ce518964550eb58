"""JDSH: codes of a batch reproduce a joint similarity whose extremes are weighted more strongly, without labels.

It is a weighted sum of those of images, of texts, and of images compared with texts by their relations to the batch.
Similarities far below or above the mode of their distribution in the silo, which are surely those of dissimilar and similar
pairs, are moved further from zero.

===============  ============================  ====================================================================
paper and code   code here                     meaning
===============  ============================  ====================================================================
S_V, S_T         2 cosine - 1                  similarities of the images and of the texts, ``(B, B)``
C                `cross_similarity`            cosines of the rows of S_V with those of S_T, ``(B, B)``
S~               `joint_similarity`            weighted mean of S_V, S_T and (C + C^T) / 2, ``(B, B)``
S                `sharpened`                   similarity that the codes reproduce, ``(B, B)``
a, b, c          ``image_weight``,             weights of the three parts of S~
                 ``text_weight``,
                 ``cross_weight``
l_1, l_2         ``low_weight``,               strength of the change of low and high similarities
                 ``high_weight``
loc, scale       `Distribution`                mode of S~, and deviations below and above it
s_min, s_max     `Distribution`                smallest and largest value of S~
mu               ``scale``                     factor on S
===============  ============================  ====================================================================

`JDSH.losses` returns the mean squared distances of the cosines of codes from S, between the modalities with weight 1
and within each with weight 0.1, and the distance of the mean cosine of the two codes of an item from 1.
"""

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from silohash.base import seeds
from silohash.base.types import MODALITIES, MethodCard, PairBatch, Terms
from silohash.methods.local.base import MethodParams, SiloData, SiloState
from silohash.methods.local.losses import cosines, mean_where
from silohash.methods.local.unsupervised import base

CARD = MethodCard(
    key="jdsh",
    title="Joint-modal Distribution-based Similarity Hashing for Large-scale Unsupervised Deep Cross-modal Retrieval",
    authors="Song Liu, Shengsheng Qian, Yang Guan, Jiawei Zhan, Long Ying",
    venue="SIGIR",
    year=2020,
    link="https://doi.org/10.1145/3397271.3401086",
    summary="Reproduce a joint similarity, sharpened at the ends of its distribution, by the cosines of codes.",
    differs_from_paper=(
        "The equations are those of the authors' code.",
        "Each silo fits the thresholds to at most 2,000 of its items: the mode of a histogram of their similarities, the "
        "deviations below and above it, and the extremes. The authors' code holds numbers for each data set.",
        "Items are compared by the inputs of the towers: the vectors that features.image and features.text give. The "
        "authors compare images by a pretrained network.",
        "The default weights are those of the authors for NUS-WIDE. For MIRFlickr-25K they are 0.5, 0.1 and 0.4, with l1 = "
        "0.1.",
        "Both towers are those of the run. The authors' image network has a single layer.",
        "The steepness of the tanh depends on the number of local epochs in all rounds, and so grows with the federated "
        "training.",
        "An item that lacks a modality has the code of its other one in its place. The similarity is the weighted mean of "
        "the parts that are defined for both items, and items without any are not compared.",
        "The optimizer is that of the run. The authors use SGD with momentum 0.9, learning rate 0.01, weight decay 0.0005, "
        "and batches of 32.",
    ),
)

BINS = 200
"""Number of bins of the histogram whose highest one is the mode."""
MOST_FITTED = 2000
"""Number of items to which thresholds are fitted at most."""


class JDSHParams(MethodParams):
    """Parameters of JDSH."""

    image_weight: float = Field(default=0.4, gt=0)
    """Weight of the similarity of images, greater than 0. The three weights are divided by their sum."""
    text_weight: float = Field(default=0.3, gt=0)
    """Weight of the similarity of texts, greater than 0."""
    cross_weight: float = Field(default=0.3, ge=0)
    """Weight of the similarity of images to texts by their relations to the batch, at least 0."""
    low_weight: float = Field(default=0.2, ge=0)
    """Strength of the change of similarities below the lower threshold (l1), at least 0."""
    high_weight: float = Field(default=0.2, ge=0)
    """Strength of the change of similarities above the upper threshold (l2), at least 0."""
    scale: float = Field(default=1.4, gt=0)
    """Factor on the similarity (mu), greater than 0."""
    within_weight: float = Field(default=0.1, ge=0)
    """Weight of the loss within each modality, at least 0. That between the modalities is 1."""
    fit_batch: int = Field(default=32, ge=2)
    """Number of items per batch when thresholds are fitted, at least 2. It should be that of the training."""
    anneal: bool = True
    """Make the tanh of the codes steeper with the epochs."""


class Distribution(NamedTuple):
    """Statistics of the joint similarities of different items, each a scalar.

    Attributes:
        mode: Center of the highest bin of the histogram.
        below: Root mean square distance of smaller values from the mode.
        above: Root mean square distance of larger values from the mode.
        smallest: Smallest value.
        largest: Largest value.
    """

    mode: Tensor
    below: Tensor
    above: Tensor
    smallest: Tensor
    largest: Tensor


def cross_similarity(images: Tensor, texts: Tensor) -> Tensor:
    """Return the cosines of the relations of images and of texts to the batch, averaged over both directions, ``(B, B)``."""
    cross = cosines(images, texts)
    return (cross + cross.T) / 2.0


def joint_similarity(inputs: base.Inputs, weights: Mapping[str, float]) -> base.Similarity:
    """Return the weighted mean of the similarities of images, of texts and of images to texts, ``(B, B)``."""
    parts = []
    for modality in MODALITIES:
        if modality in inputs.unit:
            unit, mask = inputs.unit[modality], base.defined_for(inputs, inputs, modality)
            values = 2.0 * (unit @ unit.T) - 1.0
            parts.append(base.Part(weights[modality], values if mask is None else values * mask, mask))
    if len(parts) == len(MODALITIES) and weights["cross"]:
        image, text = parts
        both = None if image.defined is None or text.defined is None else image.defined * text.defined
        cross = cross_similarity(image.values, text.values)
        parts.append(base.Part(weights["cross"], cross if both is None else cross * both, both))
    return base.weighted_mean(parts)


def distribution_of(values: Tensor) -> Distribution:
    """Return the statistics of similarities ``(n,)``; all are finite, also for a single or no value."""
    if not len(values):
        values = values.new_zeros(1)
    low, high = float(values.min()), float(values.max())
    # torch.histc widens equal bounds by 1 on both sides, which would move the mode.
    counts = torch.histc(values, BINS, low, high) if high > low else values.new_ones(1)
    mode = low + (float(counts.argmax()) + 0.5) * (high - low) / len(counts)
    gaps = values - mode
    below, above = (mean_where(gaps.square(), side.to(values.dtype)).sqrt() for side in (gaps < 0, gaps > 0))
    return Distribution(values.new_tensor(mode), below, above, values.min(), values.max())


def fitted_distribution(data: SiloData, weights: Mapping[str, float], batch: int) -> Distribution:
    """Return the statistics of the joint similarities of a silo's items, in batches as in training."""
    order = torch.randperm(len(data), generator=seeds.torch_generator(0, "similarity distribution"))[:MOST_FITTED]
    found = []
    for start in range(0, len(order), batch):
        rows = order[start : start + batch].to(data.has_image.device)
        inputs = base.inputs_of(data.batch(rows))
        if inputs.unit:
            values, known = joint_similarity(inputs, weights)
            different = ~torch.eye(len(rows), dtype=torch.bool, device=rows.device)
            found.append(values[different if known is None else different & (known > 0)])
    return distribution_of(torch.cat(found) if found else data.has_image.new_zeros(0, dtype=torch.float32))


def sharpened(values: Tensor, fit: Distribution, low_weight: float, high_weight: float, scale: float) -> Tensor:
    """Return the similarities with those beyond the thresholds moved further from zero, times the scale, ``(B, B)``.

    The lower threshold is two deviations below the mode, and the upper one four deviations above it.
    """
    low, high = fit.mode - 2.0 * fit.below, fit.mode + 4.0 * fit.above
    lower = 1.0 + low_weight * torch.exp(fit.smallest - values)
    upper = 1.0 + high_weight * torch.exp(values - fit.largest)
    factor = torch.where(values < low, lower, torch.where(values > high, upper, 1.0))
    return scale * factor * values


class JDSH(base.AnnealedMethod):
    """Joint-modal distribution-based similarity hashing, for one or two modalities."""

    Params = JDSHParams
    params: JDSHParams
    key: ClassVar[str] = CARD.key

    @property
    def weights(self) -> dict[str, float]:
        """Weights of the parts of the joint similarity."""
        return {part: getattr(self.params, f"{part}_weight") for part in ("image", "text", "cross")}

    def init_state(self, model: nn.Module, data: SiloData, state: SiloState) -> None:
        """Fit the thresholds to the silo's items."""
        state.buffers = fitted_distribution(data, self.weights, self.params.fit_batch)._asdict()

    def losses(self, pair: base.CodePair, batch: PairBatch, buffers: Mapping[str, Tensor]) -> Terms:
        """Return the losses between the modalities, of the two codes of an item, and within each modality."""
        target, known = self._target(batch, buffers)
        within_images, within_texts, between = base.cosine_matrices(pair)
        there_and_back = (between - target).square() + (between.T - target).square()
        return {
            "between": (1.0, mean_where(there_and_back, known)),
            "pair": (1.0, 1.0 - between.diagonal().mean()),
            "within_images": (self.params.within_weight, mean_where((within_images - target).square(), known)),
            "within_texts": (self.params.within_weight, mean_where((within_texts - target).square(), known)),
        }

    def _target(self, batch: PairBatch, buffers: Mapping[str, Tensor]) -> base.Similarity:
        values, known = joint_similarity(base.inputs_of(batch), self.weights)
        fit = Distribution(*(buffers[name] for name in Distribution._fields))
        params = self.params
        return base.Similarity(sharpened(values, fit, params.low_weight, params.high_weight, params.scale), known)
