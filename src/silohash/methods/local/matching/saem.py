"""SAEM: a Transformer layer over the regions of a picture, and convolutions over the words of a text, give a vector each.

The score is the cosine of the two vectors. An angular loss supports the hinge loss in the first epochs.

==========  ==========================  ==============================================================
paper       code                        meaning
==========  ==========================  ==============================================================
v           `RegionTransformer`         vector of an image, length 1
t           `WordConvolutions`          vector of a text, length 1
L_ang       `angular_loss`              angular loss of a batch
a(e)        `angular_weight`            its weight in epoch e
==========  ==========================  ==============================================================
"""

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import MethodCard, Outputs, PairBatch, Terms
from silohash.methods.local.base import SiloState
from silohash.methods.local.matching.attention import mean_over
from silohash.methods.local.matching.base import Matching, MatchingParams, VectorNet, check_divisor, one_node, towers_of
from silohash.models.matching_net import MatchingNet
from silohash.models.nodes import Nodes, RegionEncoder, WordTable, split_words
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.models.towers import Dropout

CONVOLUTIONS = (1, 2, 3)
"""Numbers of neighboring words that a convolution sees."""

ANGULAR_EPOCHS = 20
"""Number of epochs in which the angular loss counts."""

CARD = MethodCard(
    key="saem",
    title="Learning Fragment Self-Attention Embeddings for Image-Text Matching",
    authors="Yiling Wu, Shuhui Wang, Guoli Song, Qingming Huang",
    venue="ACM Multimedia",
    year=2019,
    link="https://doi.org/10.1145/3343031.3350940",
    summary="One vector per image from a Transformer over regions, and one per text from convolutions. Scores pairs.",
    differs_from_paper=(
        "Word vectors are learned. The paper takes those of a pretrained BERT.",
        "Padding is left out of the convolutions and of the maximum over words. In the authors' code it is not.",
        "Texts of the same picture in a batch are not wrong partners of each other.",
        "All wrong partners of a batch count in the first epochs, except in the preset paper.",
        "By default, the Transformer layer has 4 heads and an inner width of 1,024. The paper has 16 heads and 2,048.",
    ),
)


class VectorParams(MatchingParams):
    """Parameters of a Transformer layer over regions and convolutions over words."""

    heads: int = Field(default=4, ge=1)
    """Number of attention heads, at least 1. It divides `model.hidden`."""
    inner_width: int = Field(default=1024, ge=1)
    """Width of the hidden layer in each Transformer layer, at least 1."""
    transformer_dropout: float = Field(default=0.1, ge=0, lt=1)
    """Dropout probability in each Transformer layer, at least 0 and below 1."""
    channels: int = Field(default=512, ge=1)
    """Number of channels per convolution over words, at least 1."""


class SAEMParams(VectorParams):
    """Parameters of SAEM."""

    angular_weight: float = Field(default=0.5, ge=0)
    """Weight of the angular loss in the first 5 epochs, at least 0. It falls to a tenth every 5 epochs, and is 0 from epoch
    20 on."""
    angle: float = Field(default=45.0, gt=0, lt=90)
    """Angle of the angular loss in degrees, between 0 and 90."""
    norm_weight: float = Field(default=0.01, ge=0)
    """Weight of the norms of the image encoder's parameters, at least 0. At 0 they do not count."""

    without_effect: ClassVar = {**MatchingParams.without_effect, "angle": {"angular_weight": (0,)}}


class RegionTransformer(nn.Module):
    """Encode a picture as one vector of length 1: the mean of its regions after a Transformer layer."""

    def __init__(self, spec: TowerSpec, params: VectorParams) -> None:
        super().__init__()
        self.encoder = RegionEncoder(spec, normalize=False)
        self.layer = transformer_layer(spec.hidden, params.heads, params.inner_width, params.transformer_dropout)

    def forward(self, regions: Tensor) -> Nodes:
        """Return one node per picture."""
        nodes = self.encoder(regions)
        values = mixed(self.layer, nodes.values, nodes.mask)
        return one_node(mean_over(values, nodes.mask.unsqueeze(2), 1), nodes.mask)


def transformer_layer(width: int, heads: int, inner_width: int, dropout: float) -> nn.TransformerEncoderLayer:
    """Return a Transformer layer like that of BERT, for items of ``width`` numbers per node."""
    return nn.TransformerEncoderLayer(width, heads, inner_width, dropout, activation="gelu", batch_first=True)


def mixed(layer: nn.TransformerEncoderLayer, values: Tensor, mask: Tensor) -> Tensor:
    """Return nodes ``(B, N, D)`` after a Transformer layer, ``(B, N, D)`` float32, zero for padding.

    The nodes of an item without any attend to its padding.
    """
    there = mask | ~mask.any(1, keepdim=True)
    found: Tensor = layer(values, src_key_padding_mask=~there).float() * mask.unsqueeze(2)
    return found


def projected(layer: nn.TransformerEncoderLayer, values: Tensor) -> Tensor:
    """Return the queries, keys and values of nodes ``(B, N, D)`` in a Transformer layer side by side, ``(B, N, 3 D)``."""
    return F.linear(values, layer.self_attn.in_proj_weight, layer.self_attn.in_proj_bias)


def mixed_after_projection(
    layer: nn.TransformerEncoderLayer, values: Tensor, projections: Tensor, mask: Tensor
) -> Tensor:
    """Return `mixed` ``(B, N, D)`` for nodes whose queries, keys and values are known from `projected`."""
    attention = layer.self_attn
    there = mask | ~mask.any(1, keepdim=True)
    split = projections.view(*mask.shape, 3, attention.num_heads, -1)
    queries, keys, contents = split.permute(2, 0, 3, 1, 4)
    # Unlike a module, scaled_dot_product_attention drops in evaluation mode as well.
    dropout = attention.dropout if layer.training else 0.0
    found = F.scaled_dot_product_attention(queries, keys, contents, there[:, None, None], dropout)
    values = layer.norm1(values + layer.dropout1(attention.out_proj(found.transpose(1, 2).flatten(2))))
    inner = layer.linear2(layer.dropout(layer.activation(layer.linear1(values))))
    result: Tensor = layer.norm2(values + layer.dropout2(inner)).float() * mask.unsqueeze(2)
    return result


class Convolutions(nn.Module):
    """Encode a sequence as one vector, from the largest outputs of convolutions over 1, 2 and 3 neighbors."""

    def __init__(self, width: int, channels: int, out: int, dropout: float) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(nn.Conv1d(width, channels, size) for size in CONVOLUTIONS)
        self.dropout = Dropout(dropout)
        self.project = nn.Linear(channels * len(CONVOLUTIONS), out)

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """Return one vector per sequence ``(B, W, width)``, which is zero for padding, ``(B, out)`` float32."""
        found = []
        for size, convolution in zip(CONVOLUTIONS, self.convolutions, strict=True):
            values = torch.relu(convolution(F.pad(vectors, (0, 0, 0, size - 1)).mT))
            found.append((values * mask.unsqueeze(1)).amax(2))
        result: Tensor = self.project(self.dropout(torch.cat(found, 1))).float()
        return result


class WordConvolutions(nn.Module):
    """Encode a text as one vector of length 1, from convolutions over its words."""

    def __init__(self, spec: TowerSpec, params: VectorParams) -> None:
        super().__init__()
        self.dropout = Dropout(spec.dropout)
        self.words = WordTable(spec, params.word_width)
        self.convolutions = Convolutions(self.words.width, params.channels, spec.hidden, spec.dropout)

    def vectors(self, words: Tensor) -> tuple[Tensor, Tensor]:
        """Return the vectors of words, ``(B, W, width)``, zero for padding, and which words there are, ``(B, W)`` bool."""
        numbers, _ = split_words(words)
        mask = numbers >= 0
        return self.dropout(self.words(numbers.clamp(min=0))) * mask.unsqueeze(2), mask

    def forward(self, words: Tensor) -> Nodes:
        """Return one node per text."""
        vectors, mask = self.vectors(words)
        return one_node(self.convolutions(vectors, mask), mask)


def angular_loss(anchors: Tensor, partners: Tensor, angle: float) -> Tensor:
    """Return the angular loss of a batch, a scalar: the mean over the anchors of ``log(1 + sum_j exp(f_ij))``.

    ``f_ij = 4 tan(a)^2 (x_i + y_i) . y_j - 2 (1 + tan(a)^2) x_i . y_i`` for the anchor x_i ``(B, D)``, its partner y_i, each
    wrong partner y_j, and the angle a in degrees.

    Source: Wang et al., "Deep Metric Learning with Angular Loss", ICCV 2017, equation (8).
    """
    square = math.tan(math.radians(angle)) ** 2
    wrong = 4 * square * (anchors + partners) @ partners.T
    exponents = wrong - 2 * (1 + square) * (anchors * partners).sum(1, keepdim=True)
    itself = torch.eye(len(anchors), dtype=torch.bool, device=anchors.device)
    # exp(0) is the 1 in the logarithm.
    exponents = torch.where(itself, 0.0, exponents)
    return exponents.logsumexp(1).mean()


def angular_weight(first: float, epoch: int) -> float:
    """Return the weight of the angular loss in an epoch, a tenth every 5 epochs."""
    return first * 0.1 ** (epoch // 5) if epoch < ANGULAR_EPOCHS else 0.0


class SAEMNet(VectorNet):
    """Cosines of one vector per item, with what the additional terms need."""

    def extras(self, images: Nodes, texts: Nodes, batch: PairBatch) -> Mapping[str, Tensor]:
        """Return the vectors ``(B, D)``, and the sum of the norms of the image encoder's parameters, a scalar."""
        norms = [p.norm() for name, p in self.image.named_parameters() if not name.endswith("bias")]
        return {"image": images.values[:, 0], "text": texts.values[:, 0], "norm": torch.stack(norms).sum()}


class SAEM(Matching[SAEMParams]):
    """Self-attention embeddings of regions and words."""

    presets: ClassVar = {"recommended": {}, "paper": {"easy_epochs": 0, "heads": 16, "inner_width": 2048}}

    def network(self, spec: ModelSpec) -> MatchingNet:
        """Build the encoders."""
        image, text = towers_of(spec, CARD.key)
        check_divisor("heads", self.params.heads, image.hidden)
        return SAEMNet(RegionTransformer(image, self.params), WordConvolutions(text, self.params))

    def extra_terms(self, outputs: Outputs, batch: PairBatch, state: SiloState) -> Terms:
        """Return the angular loss in both directions and the norms of the parameters."""
        if not outputs.extra:
            return {}
        both = batch.has_image & batch.has_text
        image, text = (outputs.extra[name][both] for name in ("image", "text"))
        weight = angular_weight(self.params.angular_weight, state.epochs)
        angular = angular_loss(image, text, self.params.angle) + angular_loss(text, image, self.params.angle)
        return {"angular": (weight, angular), "norm": (self.params.norm_weight, outputs.extra["norm"])}
