"""SCAN: words attend to regions, or regions to words, and each is compared with what it attends to.

The score of a text and an image is the mean of these cosines, or a smooth maximum of them.

=========  ===========================  ==========================================================
paper      code                         meaning
=========  ===========================  ==========================================================
v_i        ``images.values``            regions of an image, (I, R, d)
e_j        ``texts.values``             words of a text, (T, W, d)
lambda_1   ``inverse_temperature``      factor in the softmax of the attention
lambda_2   ``lse_scale``                factor of the smooth maximum
alpha      ``margin``                   margin of the hinge loss
=========  ===========================  ==========================================================

Equations (1) to (9) are `SCANNet.score`, and (14) is `silohash.methods.local.matching.base.max_violation`.
"""

from typing import ClassVar, Literal, TypeAlias

import torch
from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import MethodCard
from silohash.methods.local.matching import attention
from silohash.methods.local.matching.base import Matching, MatchingParams, towers_of
from silohash.models.matching_net import MatchingNet
from silohash.models.nodes import Nodes, RegionEncoder, WordEncoder
from silohash.models.specs import ModelSpec

CARD = MethodCard(
    key="scan",
    title="Stacked Cross Attention for Image-Text Matching",
    authors="Kuang-Huei Lee, Xi Chen, Gang Hua, Houdong Hu, Xiaodong He",
    venue="European Conference on Computer Vision",
    year=2018,
    link="https://arxiv.org/abs/1803.08024",
    summary="Compare each word with the regions it attends to, or each region with its words. Scores pairs.",
    differs_from_paper=(
        "Similarities below 0 are reduced to a tenth, as in the authors' code. The paper sets them to 0.",
        "Texts of the same picture in a batch are not wrong partners of each other.",
        "All wrong partners of a batch count in the first epochs, except in the preset paper.",
        "A run trains one direction. The paper also averages the scores of a model of each direction.",
    ),
)

Pooling: TypeAlias = Literal["AVG", "LSE"]
"""How the cosines of an item's queries become a score: their mean, or a smooth maximum (log-sum-exp)."""

INVERSE_TEMPERATURES = {"t2i": 9.0, "i2t": 4.0}
LSE_SCALES = {"t2i": 6.0, "i2t": 20.0}
"""Values of the paper on COCO, by direction."""


class SCANParams(MatchingParams):
    """Parameters of SCAN."""

    direction: attention.Direction = "t2i"
    """`t2i`: words attend to regions. `i2t`: regions attend to words."""
    pooling: Pooling = "AVG"
    """Score of an image and a text: `AVG` (mean of the cosines) or `LSE` (smooth maximum)."""
    inverse_temperature: float | None = Field(default=None, gt=0)
    """Factor on similarities in the softmax of the attention (lambda_1 in the paper), positive. By default 9 for `t2i` and 4
    for `i2t`."""
    lse_scale: float | None = Field(default=None, gt=0)
    """Factor of the smooth maximum (lambda_2 in the paper), positive. By default 6 for `t2i` and 20 for `i2t`."""

    without_effect: ClassVar = {**MatchingParams.without_effect, "lse_scale": {"pooling": ("AVG",)}}


def pooled(cosines: Tensor, mask: Tensor, dim: int, pooling: Pooling, scale: float) -> Tensor:
    """Return the score of each text and image, ``(T, I)``, given the cosines of its queries, ``(T, W, I)`` or ``(T, I, R)``.

    The mask has as many dimensions, of which ``dim`` is that of the queries. The scale is that of ``LSE`` (lambda_2).

    Source: Lee et al., section 3.1.
    """
    if pooling == "AVG":
        return attention.mean_over(cosines, mask, dim)
    scaled = (scale * cosines).masked_fill(~mask, torch.finfo(cosines.dtype).min)
    return scaled.logsumexp(dim) / scale


class SCANNet(MatchingNet):
    """Scores by stacked cross attention."""

    def __init__(self, image: nn.Module, text: nn.Module, params: SCANParams) -> None:
        super().__init__(image, text)
        self.params = params

    def score(self, images: Nodes, texts: Nodes) -> Tensor:
        """Return the scores of images and texts, ``(len(images), len(texts))``. Source: Lee et al., section 3.1."""
        given, direction = self.params, self.params.direction
        temperature = given.inverse_temperature or INVERSE_TEMPERATURES[direction]
        scale = given.lse_scale or LSE_SCALES[direction]
        all_words, all_regions = (
            attention.fragments(texts.values, texts.mask),
            attention.fragments(images.values, images.mask),
        )

        def _score(rows: Tensor, columns: slice) -> Tensor:
            words, regions = all_words.take(rows), all_regions.take(columns)
            affinity = attention.affinities(words, regions)
            weights = attention.attention(affinity[0], words.mask, regions.mask, direction, temperature)
            cosines = attention.attended_cosines(affinity, weights, words, regions, direction).squeeze(-1)
            mask, dim = (words.mask.unsqueeze(2), 1) if direction == "t2i" else (regions.mask.unsqueeze(0), 2)
            return pooled(cosines, mask, dim, given.pooling, scale)

        return attention.chunked(_score, all_words, all_regions).T


class SCAN(Matching[SCANParams]):
    """Cross attention between words and regions."""

    def network(self, spec: ModelSpec) -> MatchingNet:
        """Build the encoders."""
        image, text = towers_of(spec, "scan")
        return SCANNet(RegionEncoder(image), WordEncoder(text, word_width=self.params.word_width), self.params)
