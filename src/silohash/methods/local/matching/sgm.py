"""SGM: the objects and relations of a picture's scene graph are matched with the words and the relation of a text.

A relation joins a region with one of the regions nearest to it, and its predicate is their relative place and size. Each
word of a text is compared with the object most like it, and the text as a whole with the relation most like it.

==========  ==============================  ==============================================================
paper       code                            meaning
==========  ==============================  ==============================================================
o           ``values`` of `SceneGraph`      objects, length 1
r^v         ``extra[RELATIONS]``            relations of a picture, length 1
w           ``values`` of `Sentence`        words, length 1
r^t         ``extra[RELATIONS]``            relation of a text, length 1
rho         ``relation_weight``             weight of the relations in the score
==========  ==============================  ==============================================================
"""

from dataclasses import replace

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import MethodCard
from silohash.features.nodes.regions import BOX
from silohash.methods.local.matching.attention import affinities, chunked, fragments, mean_over
from silohash.methods.local.matching.base import Matching, MatchingParams, towers_of
from silohash.models.matching_net import MatchingNet
from silohash.models.nodes import Nodes, WordEncoder, split_regions
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.models.towers import Dropout

RELATIONS = "relations"
"""Name of the relations of an item in `Nodes.extra`, ``(B, M, D)``, zero for padding."""

PLACES = 5
"""Number of values that describe the relative place and size of two regions."""

SMALLEST = 1e-3
"""Sides of boxes are at least this share of the picture."""

CARD = MethodCard(
    key="sgm",
    title="Cross-modal Scene Graph Matching for Relationship-aware Image-Text Retrieval",
    authors="Sijin Wang, Ruiping Wang, Ziwei Yao, Shiguang Shan, Xilin Chen",
    venue="WACV",
    year=2020,
    link="https://arxiv.org/abs/1910.05134",
    summary="Match words with objects, and texts with relations of near objects. Scores pairs.",
    differs_from_paper=(
        "The relations of a picture join each region with the regions nearest to it, and their predicate is the relative "
        "place and size. In the paper, a detector finds the relations and their predicates.",
        "The relation of a text is the text as a whole, as the authors' code has it for a text without parsed relations.",
        "Labels of objects are part of the given features. The paper joins GloVe vectors of detected labels.",
        "The relations of a picture with a single region count 0.",
        "Texts of the same picture in a batch are not wrong partners of each other.",
        "All wrong partners of a batch count in the first epochs, except in the preset paper.",
    ),
)


class SGMParams(MatchingParams):
    """Parameters of SGM."""

    neighbors: int = Field(default=4, ge=1)
    """Number of nearest regions that each region has a relation with, at least 1."""
    relation_weight: float = Field(default=1.0, ge=0)
    """Weight of the relations in the score (rho), at least 0. At 0 only words and objects count."""


def nearest(boxes: Tensor, mask: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the regions nearest to each region by their centers, ``(B, R, K)`` int64, and which of them are there.

    K is smaller than ``count`` if there are fewer others.
    """
    centers = (boxes[..., :2] + boxes[..., 2:]) / 2
    distances = (centers.unsqueeze(1) - centers.unsqueeze(2)).square().sum(-1)
    itself = torch.eye(mask.shape[1], dtype=torch.bool, device=mask.device)
    others = mask.unsqueeze(1) & ~itself
    found = distances.masked_fill(~others, float("inf")).topk(min(count, mask.shape[1] - 1), largest=False)
    return found.indices, found.values.isfinite() & mask.unsqueeze(2)


def relative_places(subjects: Tensor, objects: Tensor) -> Tensor:
    """Return the place and size of object boxes ``(..., 4)`` relative to those of their subjects, ``(..., 5)``.

    The values are the steps between the centers, the logarithms of the ratios of the sides, and the share of their union
    that both boxes cover.
    """
    subject, other = ((b[..., 2:] - b[..., :2]).clamp(min=SMALLEST) for b in (subjects, objects))
    steps = (objects[..., :2] + objects[..., 2:] - subjects[..., :2] - subjects[..., 2:]) / 2
    shared = torch.minimum(subjects[..., 2:], objects[..., 2:]) - torch.maximum(subjects[..., :2], objects[..., :2])
    both = shared.clamp(min=0).prod(-1, keepdim=True)
    union = subject.prod(-1, keepdim=True) + other.prod(-1, keepdim=True) - both
    return torch.cat([steps, (other / subject).log(), both / union], -1)


class SceneGraph(nn.Module):
    """Encode a picture as its objects and relations."""

    def __init__(self, spec: TowerSpec, neighbors: int) -> None:
        super().__init__()
        self.neighbors = neighbors
        self.dropout = Dropout(spec.dropout)
        self.enter = nn.Linear(spec.shape[1] - BOX, spec.hidden)
        self.predicate = nn.Linear(PLACES, spec.hidden)
        self.objects = nn.Linear(spec.hidden, spec.hidden)
        self.relations = nn.Linear(3 * spec.hidden, spec.hidden)

    def forward(self, regions: Tensor) -> Nodes:
        """Return the objects, with the relations ``(B, R K, D)``."""
        features, boxes, mask = split_regions(regions)
        values = torch.relu(self.enter(self.dropout(features)))
        objects = F.normalize(self.objects(values).float(), dim=2) * mask.unsqueeze(2)
        near, there = nearest(boxes, mask, self.neighbors)
        rows = torch.arange(len(values), device=values.device)[:, None, None]
        ends = [of[rows, near] for of in (values, boxes)]
        predicates = torch.relu(self.predicate(relative_places(boxes.unsqueeze(2).expand_as(ends[1]), ends[1])))
        parts = [values.unsqueeze(2).expand_as(ends[0]), predicates, ends[0]]
        relations = F.normalize(self.relations(torch.cat(parts, 3)).float(), dim=3) * there.unsqueeze(3)
        return Nodes(objects, mask, boxes, extra={RELATIONS: relations.flatten(1, 2)})


class Sentence(nn.Module):
    """Encode a text as its words and as one relation, the mean state of a second GRU at its words."""

    def __init__(self, spec: TowerSpec, word_width: int) -> None:
        super().__init__()
        self.words = WordEncoder(spec, word_width=word_width)
        self.whole = WordEncoder(spec, word_width=word_width, normalize=False)

    def forward(self, words: Tensor) -> Nodes:
        """Return the words, with the relation ``(B, 1, D)``."""
        nodes: Nodes = self.words(words)
        whole: Nodes = self.whole(words)
        return replace(nodes, extra={RELATIONS: F.normalize(whole.values.sum(1, keepdim=True), dim=2)})


class SGMNet(MatchingNet):
    """Scores of objects and relations."""

    def __init__(self, image: SceneGraph, text: Sentence, relation_weight: float) -> None:
        super().__init__(image, text)
        self.relation_weight = relation_weight

    def score(self, images: Nodes, texts: Nodes) -> Tensor:
        """Return the scores of images and texts. Source: Wang et al., section 3.4, with the text as the query."""
        words, objects = fragments(texts.values, texts.mask), fragments(images.values, images.mask)

        def best(rows: Tensor, columns: slice) -> Tensor:
            """Return the mean over words of the largest inner product with an object, ``(T, I)``."""
            some, others = words.take(rows), objects.take(columns)
            found = affinities(some, others)[0].masked_fill(~others.mask, -1.0).amax(3)
            return mean_over(found, some.mask.unsqueeze(2), 1)

        scores = chunked(best, words, objects).T
        if not self.relation_weight or not images.extra[RELATIONS].shape[1]:
            return scores
        relations = images.extra[RELATIONS]
        there = relations.any(2).unsqueeze(2)
        found = (relations @ texts.extra[RELATIONS][:, 0].T).masked_fill(~there, -1.0).amax(1)
        return scores + self.relation_weight * found * there.any(1)


class SGM(Matching[SGMParams]):
    """Objects and relations of scene graphs."""

    def network(self, spec: ModelSpec) -> MatchingNet:
        """Build the encoders."""
        image, text = towers_of(spec, CARD.key)
        words = Sentence(text, self.params.word_width)
        return SGMNet(SceneGraph(image, self.params.neighbors), words, self.params.relation_weight)
