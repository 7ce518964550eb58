"""The two-tower hash net: a network a modality, each ending in ``bits`` real outputs whose signs are the code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from silohash.models.backbones import PublishedTower
from silohash.types import MODALITIES, Modality, Outputs, PairBatch, UserError

TowerKind = Literal["mlp", "conv", "network"]


@dataclass(frozen=True)
class TowerSpec:
    """How one modality's network is built.

    Attributes:
        kind: ``mlp`` for vectors, ``conv`` for pictures of at most 64 pixels, ``network`` for a published network.
        shape: of one input, ``(D,)`` or ``(c, h, w)``, or ``(L,)`` word pieces.
        hidden: width of the feature before the hash layer.
        dropout: share of the feature that is dropped in training.
        scale: inputs are multiplied by it, so that sparse unit-length texts and standardised features start alike.
        settings: what a published network is built of, a JSON value (`silohash.models.backbones`).
    """

    kind: TowerKind
    shape: tuple[int, ...]
    hidden: int = 512
    dropout: float = 0.0
    scale: float = 1.0
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelSpec:
    """What the model must fit: a tower a modality, how many labels there are, and whether towers also predict them."""

    towers: Mapping[Modality, TowerSpec]
    classes: int
    class_head: bool = False

    def to_json(self) -> dict[str, Any]:
        """Returns the spec as a JSON value."""
        towers = {name: asdict(spec) for name, spec in self.towers.items()}
        return {"towers": towers, "classes": self.classes, "class_head": self.class_head}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> ModelSpec:
        """Reads what `to_json` gave."""
        towers = {
            modality: TowerSpec(**{**value["towers"][modality], "shape": tuple(value["towers"][modality]["shape"])})
            for modality in MODALITIES
            if modality in value["towers"]
        }
        return ModelSpec(towers=towers, classes=int(value["classes"]), class_head=bool(value.get("class_head")))


def mlp(spec: TowerSpec) -> nn.Module:
    """Returns one hidden layer, ``(B, D) -> (B, hidden)``."""
    return nn.Sequential(nn.Linear(spec.shape[0], spec.hidden), nn.ReLU(), nn.Dropout(spec.dropout))


def conv(spec: TowerSpec) -> nn.Module:
    """Returns a small convolutional network, ``(B, c, h, w) -> (B, hidden)``, for pictures of 16 to 64 pixels.

    The first layer looks at patches of 5 x 5 in steps of 4, which costs a fifth of what three layers of steps of 2 cost;
    each further layer halves the picture, down to 4 x 4. No batch statistics: those of silos with different classes do not
    mix.

    Raises:
        UserError: if the pictures are too small or too large.
    """
    channels, height, width = spec.shape
    if not 16 <= min(height, width) <= max(height, width) <= 64:
        raise UserError(
            f"The convolutional tower takes pictures of 16 to 64 pixels, and these have {max(height, width)}. "
            "Set features.image.size."
        )
    layers: list[nn.Module] = [nn.Conv2d(channels, 32, 5, stride=4, padding=2), nn.ReLU()]
    height, width, maps = -(-height // 4), -(-width // 4), 32
    while max(height, width) > 4:
        layers += [nn.Conv2d(maps, 2 * maps, 3, stride=2, padding=1), nn.ReLU()]
        height, width, maps = (height + 1) // 2, (width + 1) // 2, 2 * maps
    layers += [nn.Flatten(), nn.Linear(maps * height * width, spec.hidden), nn.ReLU(), nn.Dropout(spec.dropout)]
    return nn.Sequential(*layers)


class Tower(nn.Module):
    """One modality's network: scaled input, backbone, hash layer."""

    def __init__(self, spec: TowerSpec, bits: int) -> None:
        super().__init__()
        self.scale = spec.scale
        self.backbone = {"mlp": mlp, "conv": conv, "network": PublishedTower}[spec.kind](spec)
        self.hash = nn.Linear(spec.hidden, bits)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the feature ``(B, H)`` and the hash layer's outputs ``(B, K)``."""
        feature = self.backbone(inputs * self.scale if self.scale != 1.0 else inputs)
        return feature, self.hash(feature)


class HashNet(nn.Module):
    """A tower a modality. Parameters are named ``image.…`` and ``text.…``, which are the parameter groups.

    Args:
        spec: what the towers must fit.
        bits: code length K.
        relaxation: how outputs become relaxed codes: ``identity`` or ``tanh``.
    """

    def __init__(self, spec: ModelSpec, bits: int, *, relaxation: Literal["identity", "tanh"] = "identity") -> None:
        super().__init__()
        self.bits = bits
        self.relaxation = relaxation
        self.modalities: tuple[Modality, ...] = tuple(m for m in MODALITIES if m in spec.towers)
        for modality in self.modalities:
            self.add_module(modality, Tower(spec.towers[modality], bits))
        if spec.class_head:  # made last: the towers start alike with it and without it
            for modality in self.modalities:
                self.get_submodule(modality).add_module("classifier", nn.Linear(bits, spec.classes))

    def forward(self, batch: PairBatch, modalities: Sequence[Modality] | None = None) -> Outputs:
        """Runs the towers of the modalities that the batch holds (or of those asked for); all outputs are float32."""
        feature: dict[Modality, Tensor] = {}
        logit: dict[Modality, Tensor] = {}
        code: dict[Modality, Tensor] = {}
        class_logit: dict[Modality, Tensor] = {}
        for modality in modalities or self.modalities:
            values = batch.values(modality)
            if values is None or modality not in self.modalities:
                continue
            tower = self.get_submodule(modality)
            hidden, outputs = tower(values)
            feature[modality], logit[modality] = hidden.float(), outputs.float()
            if hasattr(tower, "classifier"):
                class_logit[modality] = tower.get_submodule("classifier")(logit[modality]).float()
            code[modality] = torch.tanh(logit[modality]) if self.relaxation == "tanh" else logit[modality]
        return Outputs(feature=feature, logit=logit, code=code, class_logit=class_logit)


def hash_layers(names: Iterable[str]) -> list[str]:
    """Returns which names are parameters of a tower's last layer, ``(H) -> (K)``: what silos must share to agree on bits."""
    return [name for name in names if name.split(".")[1:2] == ["hash"]]


def group_of(name: str) -> str:
    """Returns the parameter group of a parameter: the first part of its name (``image`` of ``image.hash.weight``)."""
    return name.partition(".")[0]
