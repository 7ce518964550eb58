"""VSE++: one vector per image and one per text, trained with the hardest wrong partner of each batch.

The vector of an image is the mean of its regions, and that of a text is the mean of the states of a GRU.

==========  ==========================  =====================================================
paper       code                        meaning
==========  ==========================  =====================================================
f(i)        `Pooled`                    vector of an image, length 1
g(c)        `Pooled`                    vector of a text, length 1
s(i, c)     `VectorNet`                 their cosine
alpha       ``margin``                  margin of the hinge loss
==========  ==========================  =====================================================

Equations (4) and (6) are `silohash.methods.local.matching.base.max_violation`.
"""

from torch import Tensor, nn

from silohash.base.types import MethodCard
from silohash.methods.local.matching.attention import mean_over
from silohash.methods.local.matching.base import Matching, VectorNet, one_node, towers_of
from silohash.models.matching_net import MatchingNet
from silohash.models.nodes import Nodes, RegionEncoder, WordEncoder
from silohash.models.specs import ModelSpec

CARD = MethodCard(
    key="vsepp",
    title="VSE++: Improving Visual-Semantic Embeddings with Hard Negatives",
    authors="Fartash Faghri, David J. Fleet, Jamie Ryan Kiros, Sanja Fidler",
    venue="British Machine Vision Conference",
    year=2018,
    link="https://arxiv.org/abs/1707.05612",
    summary="Compare one vector per image with one per text, and learn from the hardest wrong partner. Scores pairs.",
    differs_from_paper=(
        "The vector of an image is the mean of its given regions. The paper fine-tunes a convolutional network.",
        "The vector of a text is the mean state of a GRU in both directions. The paper takes the last state of one.",
        "Texts of the same picture in a batch are not wrong partners of each other.",
        "All wrong partners of a batch count in the first epochs, except in the preset paper.",
    ),
)


class Pooled(nn.Module):
    """Encode an item as the mean of its nodes, scaled to length 1: a single node."""

    def __init__(self, encoder: RegionEncoder | WordEncoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, inputs: Tensor) -> Nodes:
        """Return one node per item."""
        nodes = self.encoder(inputs)
        return one_node(mean_over(nodes.values, nodes.mask.unsqueeze(2), 1), nodes.mask)


class VSEpp(Matching):
    """One vector per item, compared by the cosine."""

    def network(self, spec: ModelSpec) -> MatchingNet:
        """Build the encoders."""
        image, text = towers_of(spec, "vsepp")
        words = WordEncoder(text, word_width=self.params.word_width, normalize=False)
        return VectorNet(Pooled(RegionEncoder(image, normalize=False)), Pooled(words))
