"""Hashing by continuation (HashNet): codes are trained through a tanh that becomes steeper, and approaches the sign.

The likelihood of a pair's similarity is a sigmoid of the inner product of its codes. Similar pairs, which are rare, have as
much weight as dissimilar ones.

=========  ==================  ==================================================================
paper      code                meaning
=========  ==================  ==================================================================
z          ``outputs.code``    outputs of the network, ``(B, K)``
beta       `sharpness`         factor inside the tanh, which grows with the number of epochs
g          `torch.tanh`        relaxed codes ``tanh(beta z)``
s          `similarity`        1 where two items share a label
w          `pair_weights`      number of pairs over the number of pairs of the same kind
alpha      ``scale / K``       factor on inner products in the sigmoid
=========  ==================  ==================================================================

The objective is `pair_likelihood` with the weights of `pair_weights`, and the continuation is `sharpness`. The class is
`HashNetMethod`, because `silohash.models.towers.HashNet` is the network of all local methods.
"""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import MethodCard, Modality, Terms
from silohash.methods.local.base import MethodParams, SiloData, SiloState, TowerMethod, labels_of
from silohash.methods.local.losses import mean_of_pairs, mean_similarity, pair_likelihood, pair_weights, similarity

CARD = MethodCard(
    key="hashnet",
    title="HashNet: Deep Learning to Hash by Continuation",
    authors="Zhangjie Cao, Mingsheng Long, Jianmin Wang, Philip S. Yu",
    venue="ICCV",
    year=2017,
    link="https://arxiv.org/abs/1702.00758",
    summary="Fit the inner products of codes to shared labels, through a tanh that becomes steeper with every epoch.",
    supervised=True,
    differs_from_paper=(
        "The network is that of the run.",
        "Texts, which the paper does not have, train a tower of their own with the same loss. Codes of images and texts "
        "are not compared in training, so a search across modalities does not work.",
        "The steepness follows the local epochs of all rounds, so that it is the same in all silos. In the authors' code "
        "beta^2 grows by 0.005 per step, which is about 0.2 per epoch for 10,000 training items in batches of 256.",
        "Pairs are those of one batch, without those of an item with itself. The authors' code takes pairs across two "
        "batches.",
        "Pairs are weighted by the share of similar pairs among the silo's items, from 5 to 95 %.",
    ),
)


class HashNetParams(MethodParams):
    """Parameters of HashNet."""

    scale: float = Field(default=10.0, gt=0)
    """Logit of the similarity of two items with equal codes (alpha times K in the paper), positive."""
    growth: float = Field(default=0.2, ge=0)
    """Growth of the squared steepness of the tanh (beta^2) per local epoch, at least 0. At 0 the steepness remains 1."""
    stage_epochs: int = Field(default=1, ge=1)
    """Number of local epochs between two changes of the steepness, at least 1."""
    class_balance: bool = True
    """Give similar and dissimilar pairs the same total weight, regardless of how many there are of each. A silo of which
    less than 5 % or more than 95 % of the pairs are similar has the weights of that limit."""

    without_effect: ClassVar = {"stage_epochs": {"growth": (0.0,)}}


def sharpness(epochs: int, *, growth: float, stage: int) -> float:
    """Return the steepness of the tanh (beta) after some local epochs: (1 + growth * epochs)^0.5, changed once per stage.

    Example:
        >>> [sharpness(epochs, growth=0.6, stage=5) for epochs in (0, 4, 5)]
        [1.0, 1.0, 2.0]
    """
    return float((1.0 + growth * (epochs - epochs % stage)) ** 0.5)


class HashNetMethod(TowerMethod[HashNetParams]):
    """Hashing by continuation, for each modality separately."""

    presets: ClassVar = {"recommended": {}, "paper": {"stage_epochs": 5}}
    relaxation = "identity"

    def init_state(self, model: nn.Module, data: SiloData, state: SiloState) -> None:
        """Store the share of similar pairs."""
        state.buffers = {"share": mean_similarity(labels_of(data), graded=False)}

    def tower_terms(self, modality: Modality, codes: Tensor, rows: Tensor, labels: Tensor, state: SiloState) -> Terms:
        """Return the likelihood of the pairs of one network. Source: the objective."""
        params = self.params
        codes = torch.tanh(sharpness(state.epochs, growth=params.growth, stage=params.stage_epochs) * codes)
        similar = similarity(labels, labels, graded=False)
        likelihood = pair_likelihood(codes, codes, similar, scale=params.scale / codes.shape[1])
        if params.class_balance:
            # The weight of the paper, all pairs over those of the same kind, is twice that of `pair_weights`.
            likelihood = likelihood * 2.0 * pair_weights(similar, float(state.buffers["share"]))
        return {"likelihood": (1.0, mean_of_pairs(likelihood))}
