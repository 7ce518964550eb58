"""Towers that are trained on from published networks: which kinds there are, and how a run starts from their weights.

The published weights are read once, when a run is prepared, and are part of the initial global model from then on: a tower
is built again (in a worker, to encode) of what its spec holds, without the user's files.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from silohash.features.base import Featuriser
from silohash.features.image import PixelFeatures
from silohash.registry import suggestion
from silohash.types import Arrays, Modality, UserError

if TYPE_CHECKING:
    from silohash.models.towers import TowerSpec

BACKBONES: Mapping[str, str] = {
    "cnnf": "silohash.models.cnnf_tower",
    "huggingface": "silohash.models.huggingface_tower",
}
"""Every kind of published network as a module with three functions:

``settings(modality, featuriser, **options)`` reads the user's files and returns a JSON value that the network can be built
of; its keyword-only parameters are the kind's options in ``[model]``. The value holds ``width``, and for pictures ``factor``
and ``offset``, by which pixels from 0 to 255 come to the network's own scale (a number a channel).

``build(settings)`` returns the network, ``(B, ...) -> (B, width)``, with any weights.

``weights(settings)`` reads the user's files and returns the published weights by the names in the network's state.
"""

COMMON_OPTIONS: Mapping[str, Any] = {"backbone": "", "freeze": False}


class PublishedTower(nn.Module):
    """A published network behind standardised inputs, and what brings its vectors to the width of features.

    A frozen network stays as it was published: it takes no gradient, is always in evaluation mode, and silos do not send it.

    Args:
        spec: a spec of the kind ``network``.
    """

    def __init__(self, spec: TowerSpec) -> None:
        super().__init__()
        settings = spec.settings
        self.network: nn.Module = _kind(settings["kind"]).build(settings)
        self.frozen = bool(settings["freeze"])
        same = settings["width"] == spec.hidden
        self.head = nn.Sequential(
            *(() if same else (nn.Linear(settings["width"], spec.hidden), nn.ReLU())), nn.Dropout(spec.dropout)
        )
        self.fixed_buffers: tuple[str, ...] = ()
        if self.frozen:
            self.network.requires_grad_(requires_grad=False)
            self.fixed_buffers = tuple(f"network.{name}" for name in self.network.state_dict())
        for name in ("factor", "offset"):
            values = torch.tensor(settings.get(name, []), dtype=torch.float32).reshape(-1, 1, 1)
            self.register_buffer(name, values, persistent=False)

    def train(self, mode: bool = True) -> PublishedTower:
        """Sets the mode; a frozen network stays in evaluation mode."""
        super().train(mode)
        if self.frozen:
            self.network.eval()
        return self

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns features, ``(B, hidden)``, of standardised pictures or of word pieces."""
        factor, offset = self.get_buffer("factor"), self.get_buffer("offset")
        features: Tensor = self.head(self.network(inputs * factor + offset if len(factor) else inputs))
        return features


def network_settings(modality: Modality, featuriser: Featuriser, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of a tower that is trained on from a published network, as a JSON value.

    Args:
        modality: the modality.
        featuriser: what gives the tower its inputs, fitted.
        options: the table ``[model] image`` or ``text``: ``backbone``, ``freeze`` and the kind's own options.

    Raises:
        UserError: if there is no such kind or option, the files are not there, or the featuriser does not fit the network.
    """
    where, kind = f"model.{modality}", options.get("backbone", "")
    if kind not in BACKBONES:
        raise UserError(
            f'[{where}] there is no backbone "{kind}"{suggestion(str(kind), BACKBONES)}; there are: '
            f"{', '.join(BACKBONES)}."
        )
    if not isinstance(options.get("freeze", False), bool):
        raise UserError(f"[{where}] freeze is {options['freeze']!r}; it must be true or false.")
    parameters = inspect.signature(_kind(kind).settings).parameters.values()
    known = [*COMMON_OPTIONS, *(p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY)]
    for name in options:
        if name not in known:
            raise UserError(
                f'[{where}] the backbone "{kind}" takes no option "{name}"{suggestion(name, known)}; it takes: '
                f"{', '.join(known)}."
            )
    own = {name: value for name, value in options.items() if name not in COMMON_OPTIONS}
    settings: dict[str, Any] = _kind(kind).settings(modality, featuriser, **own)
    settings |= {"kind": kind, "freeze": options.get("freeze", False)}
    if isinstance(featuriser, PixelFeatures):  # undoes the standardising, then does the network's own
        factor, offset = np.array(settings["factor"]), np.array(settings["offset"])
        settings["offset"] = (featuriser.mean * factor + offset).tolist()
        settings["factor"] = (featuriser.deviation * factor).tolist()
    return settings


def published_weights(towers: Mapping[Modality, TowerSpec]) -> Arrays:
    """Reads the published weights of all towers that have some, named ``modality/name``.

    Raises:
        UserError: if the user's files are gone.
    """
    found: Arrays = {}
    for modality, spec in towers.items():
        if spec.kind == "network":
            weights: Arrays = _kind(spec.settings["kind"]).weights(spec.settings)
            found |= {f"{modality}/{name}": array for name, array in weights.items()}
    return found


@torch.no_grad()
def install_published(model: nn.Module, published: Arrays) -> None:
    """Gives a model's published networks their weights.

    Args:
        model: has its towers' networks under names as ``image.backbone.network``.
        published: what `published_weights` gave.
    """
    for prefix, module in model.named_modules():
        modality = prefix.partition(".")[0]
        if isinstance(module, PublishedTower):
            start = f"{modality}/"
            state = {n.removeprefix(start): a for n, a in published.items() if n.startswith(start)}
            if state:
                module.network.load_state_dict({name: torch.from_numpy(np.array(a)) for name, a in state.items()})


def _kind(name: str) -> ModuleType:
    return importlib.import_module(BACKBONES[name])
