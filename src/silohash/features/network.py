"""What a pretrained network must offer to make features, and the table of those that there are."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from silohash.features.base import Value
from silohash.types import Arrays, Modality

NETWORKS: Mapping[str, str] = {
    "cnnf": "silohash.models.cnnf_features:cnnf",
    "huggingface": "silohash.features.huggingface:huggingface",
}
"""Every kind of network as module:function, called as ``function(modality, **options) -> Network``.

The function's keyword-only parameters are the kind's options, with their defaults; it raises `UserError` where the
weights are not there.
"""


class Network(Protocol):
    """A pretrained network that turns pictures or texts into vectors; its weights never change.

    Several threads call `prepare` at once, and one calls `embed`.
    """

    @property
    def modality(self) -> Modality:
        """The modality that it takes."""
        ...

    @property
    def name(self) -> str:
        """What it is called in messages, as ``google/vit-base-patch16-224``."""
        ...

    @property
    def key(self) -> str:
        """A digest of all that decides its vectors: kind, weights, layer or pooling, preprocessing."""
        ...

    @property
    def width(self) -> int:
        """How many numbers a vector has."""
        ...

    @property
    def smallest_pixels(self) -> int:
        """To which side a picture may be decoded and not be enlarged afterwards; 0 for texts."""
        ...

    def prepare(self, values: Iterable[Value]) -> Arrays:
        """Decides what the network sees of some pictures or texts: resizing, cropping, word pieces.

        Args:
            values: pictures (mode ``L`` or ``RGB``) or strings, given one at a time: keep none of them.

        Returns:
            Named arrays, each with a row a value. Pixels are best left uint8: `embed` scales them on the device.
        """
        ...

    def embed(self, batch: Arrays, device: str, *, half: bool) -> npt.NDArray[np.float32]:
        """Returns the vectors of what `prepare` gave, ``(n, width)`` float32.

        Args:
            batch: what `prepare` gave for n values.
            device: as ``cpu`` or ``cuda``.
            half: whether to compute in 16 bits where that is faster.
        """
        ...


def make_network(kind: str, modality: Modality, options: Mapping[str, Any]) -> Network:
    """Returns the network of a kind.

    Raises:
        UserError: if its weights are not there, or it does not take the modality.
    """
    network: Network = _factory(kind)(modality, **options)
    return network


def network_options(kind: str) -> dict[str, Any]:
    """Returns the options that a kind of network takes, with their defaults."""
    parameters = inspect.signature(_factory(kind)).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def _factory(kind: str) -> Any:  # noqa: ANN401  a function of the table
    module, _, function = NETWORKS[kind].partition(":")
    return getattr(importlib.import_module(module), function)
