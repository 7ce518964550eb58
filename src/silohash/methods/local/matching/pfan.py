"""PFAN: the vector of a region includes its place, and words then attend to regions as in SCAN.

The picture is divided into 16 x 16 cells, each with a learned vector. The place of a region is a weighted mean of the
vectors of the cells that it covers most, with weights that depend on what the region shows.

==========  ============================  ==========================================================
paper       code                          meaning
==========  ============================  ==========================================================
q           `covered`                     share of a cell that a region covers
e           ``PlacedRegions.cells``       vectors of cells
gamma       ``attended``                  importance of cells, given the features of the region
p           `PlacedRegions.places`        vector of a region's place
==========  ============================  ==========================================================

The score is that of `silohash.methods.local.matching.scan.SCANNet` with mean pooling.
"""

import torch
import torch.nn.functional as F  # noqa: N812  torch's usual name
from pydantic import Field
from torch import Tensor, nn

from silohash.base.types import MethodCard
from silohash.features.nodes.regions import BOX
from silohash.methods.local.matching.attention import Direction
from silohash.methods.local.matching.base import Matching, MatchingParams, towers_of
from silohash.methods.local.matching.scan import SCANNet, SCANParams
from silohash.models.matching_net import MatchingNet
from silohash.models.nodes import Nodes, WordEncoder, split_regions, xavier_linear
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.models.towers import Dropout

SIDE = 16
"""Number of cells per side of a picture."""

MOST_CELLS = 15
"""Number of cells that describe the place of a region, those that it covers most."""

CARD = MethodCard(
    key="pfan",
    title="Position Focused Attention Network for Image-Text Matching",
    authors="Yaxiong Wang, Hao Yang, Xueming Qian, Lin Ma, Jing Lu, Biao Li, Xin Fan",
    venue="IJCAI",
    year=2019,
    link="https://arxiv.org/abs/1907.09748",
    summary="Add the place of a region to its vector, and match words and regions as in SCAN. Scores pairs.",
    differs_from_paper=(
        "Both softmaxes of the weights of cells are those of the authors' code.",
        "Texts of the same picture in a batch are not wrong partners of each other.",
        "All wrong partners of a batch count in the first epochs, except in the preset paper.",
        "A run trains one direction. The paper also averages the scores of a model of each direction.",
    ),
)


class PFANParams(MatchingParams):
    """Parameters of PFAN."""

    direction: Direction = "t2i"
    """`t2i`: words attend to regions. `i2t`: regions attend to words."""
    inverse_temperature: float | None = Field(default=None, gt=0)
    """Factor on similarities in the softmax of the attention, positive. By default 9 for `t2i` and 4 for `i2t`."""
    place_width: int = Field(default=200, ge=1)
    """Width of the learned vectors of cells, at least 1."""


def covered(boxes: Tensor) -> Tensor:
    """Return the share of each cell that a region ``(..., 4)`` covers, ``(..., 256)`` in [0, 1], row by row from the top."""
    starts = torch.arange(SIDE, device=boxes.device) / SIDE
    ends = starts + 1 / SIDE
    across, down = (
        (torch.minimum(high.unsqueeze(-1), ends) - torch.maximum(low.unsqueeze(-1), starts)).clamp(min=0) * SIDE
        for low, high in ((boxes[..., 0], boxes[..., 2]), (boxes[..., 1], boxes[..., 3]))
    )
    return (down.unsqueeze(-1) * across.unsqueeze(-2)).flatten(-2)


class PlacedRegions(nn.Module):
    """Map each region and its place to a vector of length 1, ``(B, R, D + 4) -> Nodes`` of width ``hidden``."""

    def __init__(self, spec: TowerSpec, width: int) -> None:
        super().__init__()
        features = spec.shape[1] - BOX
        self.dropout = Dropout(spec.dropout)
        self.cells = nn.Embedding(SIDE * SIDE + 1, width, padding_idx=0)
        self.ask = nn.Linear(features, width)
        self.project = xavier_linear(features + width, spec.hidden)

    def forward(self, regions: Tensor) -> Nodes:
        """Return the nodes of some pictures."""
        features, boxes, mask = split_regions(regions)
        features = self.dropout(features)
        values = self.project(torch.cat([features, self.places(features, boxes)], -1))
        return Nodes(F.normalize(values.float(), dim=2) * mask.unsqueeze(2), mask, boxes)

    def places(self, features: Tensor, boxes: Tensor) -> Tensor:
        """Return the vectors of the places of regions ``(B, R, D)`` with boxes ``(B, R, 4)``, ``(B, R, width)``.

        Source: Wang et al., section 3.2, with the second softmax of the authors' code.
        """
        shares, cells = covered(boxes).topk(MOST_CELLS, dim=-1)
        vectors = self.cells(torch.where(shares > 0, cells + 1, 0))
        attended = (torch.tanh(self.ask(features)).unsqueeze(2) * vectors).sum(-1).softmax(-1)
        weights = (shares * attended).softmax(-1)
        found: Tensor = (weights.unsqueeze(-1) * vectors).sum(2)
        return found


class PFAN(Matching[PFANParams]):
    """Cross attention between words and regions with places."""

    def network(self, spec: ModelSpec) -> MatchingNet:
        """Build the encoders."""
        image, text = towers_of(spec, CARD.key)
        given = self.params
        attention = SCANParams(direction=given.direction, inverse_temperature=given.inverse_temperature)
        words = WordEncoder(text, word_width=given.word_width)
        return SCANNet(PlacedRegions(image, given.place_width), words, attention)
