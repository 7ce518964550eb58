"""A joint model like MMCA: the regions of a picture and the words of a text attend to each other in one Transformer layer.

SAEM's vectors of the picture and of the text give a first cosine. After the joint layer, the vectors of both parts give a
second one, which is added with a weight.

==========  ==========================  ==============================================================
paper       code                        meaning
==========  ==========================  ==============================================================
i_0, c_0    ``extra[WHOLE]``            vectors of an image and of a text alone
i_1, c_1    `JointNet._score`           vectors of the two parts of a pair
alpha       ``joint_weight``            weight of their cosine
==========  ==========================  ==============================================================
"""

from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import MethodCard
from silohash.methods.local.matching import saem
from silohash.methods.local.matching.attention import mean_over
from silohash.methods.local.matching.base import WHOLE, Matching, by_texts, check_divisor, towers_of
from silohash.models.matching_net import MatchingNet
from silohash.models.nodes import Nodes
from silohash.models.specs import ModelSpec, TowerSpec

CARD = MethodCard(
    key="joint_attention",
    title="Multi-Modality Cross Attention Network for Image and Sentence Matching",
    authors="Xi Wei, Tianzhu Zhang, Yan Li, Yongdong Zhang, Feng Wu",
    venue="CVPR",
    year=2020,
    link="https://doi.org/10.1109/CVPR42600.2020.01095",
    summary="Let regions and words attend to each other in one Transformer layer per pair. Our form. Scores pairs.",
    differs_from_paper=(
        "This is our own form of the idea, not a reproduction: the weight of the second cosine, the width and depth of the"
        " joint layer and the learning rate are our choices, because no public source that we know states them.",
        "The vectors of an image and of a text alone are those of SAEM, with learned word vectors instead of BERT.",
        "A learned vector tells regions from words in the joint layer.",
        "Texts of the same picture in a batch are not wrong partners of each other.",
        "All wrong partners of a batch count in the first epochs, except in the preset paper.",
    ),
)


class JointParams(saem.VectorParams):
    """Parameters of the joint model."""

    joint_weight: float = Field(default=0.3, gt=0)
    """Weight of the cosine after the joint layer (alpha), positive. That of the items alone has the weight 1."""
    channels: int = Field(default=256, ge=1)
    """Number of channels per convolution over words, at least 1."""


class JointRegions(saem.RegionTransformer):
    """Encode a picture as its regions, and as the mean of its regions after a Transformer layer."""

    def forward(self, regions: Tensor) -> Nodes:
        """Return the regions, with the vector of the whole ``(B, D)`` of length 1."""
        nodes: Nodes = self.encoder(regions)
        whole = mean_over(saem.mixed(self.layer, nodes.values, nodes.mask), nodes.mask.unsqueeze(2), 1)
        return replace(nodes, extra={WHOLE: F.normalize(whole, dim=1)})


class JointWords(saem.WordConvolutions):
    """Encode a text as its words, and as one vector from convolutions."""

    def __init__(self, spec: TowerSpec, params: JointParams) -> None:
        super().__init__(spec, params)
        self.project = nn.Linear(self.words.width, spec.hidden)

    def forward(self, words: Tensor) -> Nodes:
        """Return the words, with the vector of the whole ``(B, D)`` of length 1."""
        vectors, mask = self.vectors(words)
        whole = F.normalize(self.convolutions(vectors, mask), dim=1)
        return Nodes(self.project(vectors).float() * mask.unsqueeze(2), mask, extra={WHOLE: whole})


class JointNet(MatchingNet):
    """Cosines of items alone and of the two parts of pairs."""

    def __init__(self, image: JointRegions, text: JointWords, width: int, params: JointParams) -> None:
        super().__init__(image, text)
        self.joint_weight = params.joint_weight
        self.kinds = nn.Parameter(0.02 * torch.randn(2, width))
        self.layer = saem.transformer_layer(width, params.heads, params.inner_width, params.transformer_dropout)
        self.convolutions = saem.Convolutions(width, params.channels, width, 0.0)

    def score(self, images: Nodes, texts: Nodes) -> Tensor:
        """Return the scores of images and texts, ``(len(images), len(texts))``."""
        joint = by_texts(partial(self._score, images), texts)
        return images.extra[WHOLE] @ texts.extra[WHOLE].T + self.joint_weight * joint

    def _score(self, images: Nodes, texts: Nodes) -> Tensor:
        shape, regions = (len(texts), len(images)), images.mask.shape[1]
        parts = images.values + self.kinds[0], texts.values + self.kinds[1]
        # Queries, keys and values belong to an item, so they are computed once per item rather than per pair.
        projections = pairs(*(saem.projected(self.layer, part) for part in parts))
        mask = pairs(images.mask, texts.mask)
        nodes = saem.mixed_after_projection(self.layer, pairs(*parts), projections, mask)
        image = mean_over(nodes[:, :regions], mask[:, :regions].unsqueeze(2), 1)
        text = self.convolutions(nodes[:, regions:], mask[:, regions:])
        return F.cosine_similarity(image, text, dim=1).view(shape)


def pairs(images: Tensor, texts: Tensor) -> Tensor:
    """Return what belongs to the nodes of each pair of a text and an image, ``(T * I, R + W, ...)``, regions first."""
    shape, rest = (len(texts), len(images)), (-1,) * (images.ndim - 1)
    parts = [images.unsqueeze(0).expand(*shape, *rest), texts.unsqueeze(1).expand(*shape, *rest)]
    return torch.cat(parts, 2).flatten(0, 1)


class JointAttention(Matching[JointParams]):
    """Regions and words in one Transformer layer per pair."""

    def network(self, spec: ModelSpec) -> MatchingNet:
        """Build the encoders and the joint layer."""
        image, text = towers_of(spec, CARD.key)
        check_divisor("heads", self.params.heads, image.hidden)
        return JointNet(JointRegions(image, self.params), JointWords(text, self.params), image.hidden, self.params)
