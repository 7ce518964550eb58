"""Towers that fine-tune published networks (`silohash.features.network.NETWORKS`), and how a run starts from their weights.

The published weights are read once, when a run is prepared, and are part of the initial global model from then on. Workers
and encoders rebuild a tower from its spec alone, without the user's files.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from silohash.base.errors import UnknownName, UnknownOption, WrongType
from silohash.base.registry import suggestion
from silohash.base.types import Arrays, Modality
from silohash.features.base import Featurizer
from silohash.features.image import PixelFeatures
from silohash.features.network import NETWORKS, network_module, options_of
from silohash.models.specs import TowerSpec

COMMON_OPTIONS: Mapping[str, Any] = {"backbone": "", "freeze": False}


def rectified_layers(widths: Sequence[int]) -> list[nn.Module]:
    """Return a linear layer with a ReLU for each width after the first, which is that of the inputs."""
    return [layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())]


class PublishedTower(nn.Module):
    """A published network on standardized inputs, followed by layers to the width of the features if that differs.

    A frozen network keeps the published weights: it has no gradients, is always in evaluation mode, and is not sent by
    silos.
    """

    def __init__(self, spec: TowerSpec) -> None:
        super().__init__()
        settings = spec.settings
        self.network: nn.Module = network_module(settings["kind"]).build(settings)
        self.frozen = bool(settings["freeze"])
        same = not spec.layers and settings["width"] == spec.hidden
        widths = () if same else (settings["width"], *spec.layers, spec.hidden)
        self.head = nn.Sequential(*rectified_layers(widths), nn.Dropout(spec.dropout))
        self.fixed_buffers: tuple[str, ...] = ()
        if self.frozen:
            self.network.requires_grad_(requires_grad=False)
            self.fixed_buffers = tuple(f"network.{name}" for name in self.network.state_dict())
        for name in ("factor", "offset"):
            values = torch.tensor(settings.get(name, []), dtype=torch.float32).reshape(-1, 1, 1)
            self.register_buffer(name, values, persistent=False)

    def train(self, mode: bool = True) -> Self:
        """Set the mode. A frozen network stays in evaluation mode."""
        super().train(mode)
        if self.frozen:
            self.network.eval()
        return self

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the features, ``(B, hidden)``, of standardized images or of word pieces."""
        factor, offset = self.get_buffer("factor"), self.get_buffer("offset")
        features: Tensor = self.head(self.network(inputs * factor + offset if len(factor) else inputs))
        return features


def network_settings(modality: Modality, featurizer: Featurizer, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a tower that fine-tunes a published network, as a JSON value.

    The options are the table ``[model] image`` or ``text``, with ``backbone``, ``freeze`` and the options of the kind.

    Raises:
        UserError: If there is no such kind or option, if the files do not exist, or if the featurizer does not match the
            network.
    """
    where, kind = f"model.{modality}", options.get("backbone", "")
    if kind not in NETWORKS:
        raise UnknownName(
            f'[{where}] unknown backbone "{kind}"{suggestion(str(kind), NETWORKS)}. Available: {", ".join(NETWORKS)}.'
        )
    if not isinstance(options.get("freeze", False), bool):
        raise WrongType(f"[{where}] freeze is {options['freeze']!r}; it must be true or false.")
    known = [*COMMON_OPTIONS, *options_of(network_module(kind).settings)]
    for name in options:
        if name not in known:
            raise UnknownOption(
                f'[{where}] the backbone "{kind}" does not have an option "{name}"{suggestion(name, known)}. Its options: '
                f"{', '.join(known)}."
            )
    specific = {name: value for name, value in options.items() if name not in COMMON_OPTIONS}
    settings: dict[str, Any] = network_module(kind).settings(modality, featurizer, **specific)
    settings |= {"kind": kind, "freeze": options.get("freeze", False)}
    # The tower receives standardized pixels, so their standardization is undone before the network's own scaling.
    if isinstance(featurizer, PixelFeatures):
        factor, offset = np.array(settings["factor"]), np.array(settings["offset"])
        settings["offset"] = (featurizer.mean * factor + offset).tolist()
        settings["factor"] = (featurizer.deviation * factor).tolist()
    return settings


def published_weights(towers: Mapping[Modality, TowerSpec]) -> Arrays:
    """Return the published weights of towers that fine-tune a published network, by ``modality/name``.

    Raises:
        UserError: If the user's files no longer exist.
    """
    found: Arrays = {}
    for modality, spec in towers.items():
        weights: Arrays = network_module(spec.settings["kind"]).weights(spec.settings)
        found |= {f"{modality}/{name}": array for name, array in weights.items()}
    return found


@torch.no_grad()
def install_published(model: nn.Module, published: Arrays) -> None:
    """Load the result of `published_weights` into a model's published networks, such as ``image.backbone.network``."""
    for prefix, module in model.named_modules():
        modality = prefix.partition(".")[0]
        if isinstance(module, PublishedTower):
            start = f"{modality}/"
            state = {n.removeprefix(start): a for n, a in published.items() if n.startswith(start)}
            if state:
                module.network.load_state_dict({name: torch.from_numpy(np.array(a)) for name, a in state.items()})
