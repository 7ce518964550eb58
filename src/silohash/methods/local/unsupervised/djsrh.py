"""DJSRH: codes of a batch reconstruct a joint affinity of the inputs of both modalities, without labels.

The affinity joins the cosines of images and of texts. Two items are also alike if they resemble the same items of the batch.
The tanh of the codes becomes steeper with the epochs, so that real-valued codes approach binary ones.

==========  ===========================  ==================================================================
paper       code                         meaning
==========  ===========================  ==================================================================
F~_I, F~_T  `inputs_of`                  inputs, scaled to length 1
S_I, S_T    2 cosine - 1                 similarities of the images and of the texts, ``(B, B)``
S~          `affinity`                   their weighted mean, ``(B, B)``
S           `joint_affinity`             affinity that the codes reconstruct, ``(B, B)``
B_I, B_T    ``pair``                     relaxed codes, ``(B, K)``
alpha       `steepness`                  factor on the outputs before the tanh
beta        1 - ``text_weight``          weight of images in S~
eta         ``second_order_weight``      weight of the similarities to the same items
mu          ``scale``                    factor on S
lambda_1    ``within_weight``            weight of the loss within images
lambda_2    ``within_weight``            weight of the loss within texts
==========  ===========================  ==================================================================

`DJSRH.losses` returns the mean squared errors of the reconstruction: between the modalities with weight 1, and within
each with weight lambda.
"""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field
from torch import Tensor

from silohash.base.types import MethodCard, PairBatch, Terms
from silohash.methods.local.base import MethodParams
from silohash.methods.local.losses import mean_where
from silohash.methods.local.unsupervised import base

CARD = MethodCard(
    key="djsrh",
    title="Deep Joint-Semantics Reconstructing Hashing for Large-Scale Unsupervised Cross-Modal Retrieval",
    authors="Shupeng Su, Zhisheng Zhong, Chao Zhang",
    venue="ICCV",
    year=2019,
    link="https://doi.org/10.1109/ICCV.2019.00312",
    summary="Reconstruct a joint affinity of images and texts by the cosines of codes, without labels.",
    differs_from_paper=(
        "Items are compared by the inputs of the towers: the vectors that features.image and features.text give. The paper "
        "compares images by a pretrained network, and fine-tunes a copy of it.",
        "Both towers are those of the run. The constants are those of the authors' code.",
        "The steepness of the tanh depends on the number of local epochs in all rounds, and so grows with the federated "
        "training.",
        "The second-order similarity is divided by the number of items in the batch. The last batch of an epoch, which the "
        "authors' code leaves out, is kept.",
        "An item that lacks a modality has the code of its other one in its place. Items without a common modality are not "
        "compared.",
        "The optimizer is that of the run. The authors use SGD with momentum 0.9, learning rates of 0.001 to 0.01, weight "
        "decay 0.0005, and batches of 32.",
    ),
)


class DJSRHParams(MethodParams):
    """Parameters of DJSRH."""

    text_weight: float = Field(default=0.4, gt=0, lt=1)
    """Weight of the similarity of texts in the affinity (1 - beta in the paper), between 0 and 1. That of images is the
    rest. The authors choose 0.7 for Wikipedia, 0.1 for MIRFlickr-25K and 0.4 for NUS-WIDE."""
    second_order_weight: float = Field(default=0.4, ge=0, le=1)
    """Weight of the similarities to the same items of the batch (eta in the paper), from 0 to 1."""
    scale: float = Field(default=1.5, gt=0)
    """Factor on the affinity (mu in the paper), greater than 0."""
    within_weight: float = Field(default=0.1, ge=0)
    """Weight of the reconstruction within each modality (lambda in the paper), at least 0. That between the modalities
    is 1. The authors choose 0.3 for Wikipedia."""
    anneal: bool = True
    """Make the tanh of the codes steeper with the epochs."""


def joint_affinity(similarity: Tensor, second_order_weight: float, scale: float) -> Tensor:
    """Return S = mu ((1 - eta) S~ + eta S~ S~^T / B), ``(B, B)``.

    Source: Su et al., the joint-semantics affinity matrix.
    """
    second_order = similarity @ similarity.T / len(similarity)
    return scale * ((1.0 - second_order_weight) * similarity + second_order_weight * second_order)


class DJSRH(base.AnnealedMethod):
    """Joint-semantics reconstructing hashing, for one or two modalities."""

    Params = DJSRHParams
    params: DJSRHParams
    key: ClassVar[str] = CARD.key

    def losses(self, pair: base.CodePair, batch: PairBatch, buffers: Mapping[str, Tensor]) -> Terms:
        """Return the reconstruction between the modalities, within images and within texts."""
        target = self._target(batch)
        within_images, within_texts, between = base.cosine_matrices(pair)
        gaps = {
            "between": (1.0, between),
            "within_images": (self.params.within_weight, within_images),
            "within_texts": (self.params.within_weight, within_texts),
        }
        return {
            name: (weight, mean_where((cosines - target.values).square(), target.known))
            for name, (weight, cosines) in gaps.items()
        }

    def _target(self, batch: PairBatch) -> base.Similarity:
        inputs = base.inputs_of(batch)
        cosines, known = base.affinity(inputs, inputs, self.params.text_weight)
        similarity = 2.0 * cosines - 1.0
        if known is not None:
            similarity = similarity * known
        return base.Similarity(joint_affinity(similarity, self.params.second_order_weight, self.params.scale), known)
