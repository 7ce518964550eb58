"""What a model must fit, as values that can be stored: one tower per modality, and the number of labels."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from silohash.base.types import Modality

TowerKind = Literal["mlp", "conv", "network", "linear", "kernel", "tokens", "regions", "words"]


@dataclass(frozen=True)
class TowerSpec:
    """How one modality's network is built.

    Attributes:
        kind: ``mlp`` for vectors, ``conv`` for images of at most 64 pixels, ``network`` for a published network,
            ``linear`` for a hash layer on the inputs, ``kernel`` for one on similarities to anchors, ``tokens`` for the
            vectors of an item and of its tokens, ``regions`` and ``words`` for the nodes of matching methods.
        shape: Shape of one input: ``(D,)``, ``(c, h, w)``, ``(L,)`` for word pieces or words, ``(1 + T, D)`` for an item
            and its tokens, or ``(R, D + 4)`` for regions with their boxes.
        hidden: Width of the feature layer, before the hash layer.
        dropout: Dropout probability on the feature layer during training.
        scale: Factor on the inputs, so that sparse unit-length texts and standardized features start with the same
            norm.
        settings: What a published network is built from, as a JSON value (`silohash.models.backbones`); for ``words``
            their number, and what the given ``vectors`` of words are unless they are the first values of learned ones.
        layers: Widths of the layers before the feature layer; empty for one layer.
    """

    kind: TowerKind
    shape: tuple[int, ...]
    hidden: int = 512
    dropout: float = 0.0
    scale: float = 1.0
    settings: Mapping[str, Any] = field(default_factory=dict)
    layers: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Check the numbers, which can come from a damaged file, and raise `ValueError` if one of them is impossible."""
        if min(self.hidden, *self.shape, *self.layers) < 1:
            sizes = f"hidden is {self.hidden}, layers are {self.layers} and shape is {self.shape}"
            raise ValueError(f"{sizes}, and sizes are at least 1")
        if not 0 <= self.dropout < 1 or not math.isfinite(self.scale):
            raise ValueError(
                f"dropout is {self.dropout} (at least 0, below 1) and scale is {self.scale} (a finite number)"
            )


@dataclass(frozen=True)
class ModelSpec:
    """What a model must fit.

    Attributes:
        towers: One tower per modality.
        classes: The number of labels.
        class_head: Whether the towers also predict the labels.
        coarse_classes: The number of labels of a coarser level; 0 if the local method uses none.
    """

    towers: Mapping[Modality, TowerSpec]
    classes: int
    class_head: bool = False
    coarse_classes: int = 0

    @property
    def scores_pairs(self) -> bool:
        """Whether the model scores pairs of nodes, and its codes only find the items that are scored."""
        return any(tower.kind == "regions" for tower in self.towers.values())

    @property
    def networks(self) -> dict[Modality, TowerSpec]:
        """The towers that are published networks."""
        return {modality: tower for modality, tower in self.towers.items() if tower.kind == "network"}

    def to_json(self) -> dict[str, Any]:
        """Return the spec as a JSON value. A coarser level and further layers are left out if there are none."""
        towers = {
            name: {key: value for key, value in asdict(spec).items() if key != "layers" or value}
            for name, spec in self.towers.items()
        }
        coarse = {"coarse_classes": self.coarse_classes} if self.coarse_classes else {}
        return {"towers": towers, "classes": self.classes, "class_head": self.class_head, **coarse}
