"""The structure of a tower that fits the vectors of a featurizer: its kind, its scale and its widths."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from silohash.base.errors import UnsuitableFeatures
from silohash.base.types import Modality
from silohash.features.base import Featurizer
from silohash.features.nodes.regions import RegionFeatures
from silohash.features.nodes.word_ids import WordSequences
from silohash.features.text import BagOfWords
from silohash.features.word_pieces import TokenFeatures
from silohash.models.backbones import network_settings
from silohash.models.specs import TowerKind, TowerSpec


def input_scale(featurizer: Featurizer) -> float:
    """Return the input scale that gives bag-of-words rows the same norm as standardized features."""
    return math.sqrt(featurizer.shape[0]) / 4 if isinstance(featurizer, BagOfWords) else 1.0


LAYERED: tuple[TowerKind, ...] = ("mlp", "network")
"""Kinds of towers that can have several layers of configured widths."""

KIND_BY_DIMENSIONS: Mapping[int, TowerKind] = {1: "mlp", 2: "tokens", 3: "conv"}
"""Number of dimensions of an item's array -> kind of the tower."""


def tower_kind(featurizer: Featurizer) -> TowerKind:
    """Return the kind of the tower for a featurizer's vectors, if it is trained from scratch."""
    if isinstance(featurizer, RegionFeatures | WordSequences):
        return "regions" if isinstance(featurizer, RegionFeatures) else "words"
    return KIND_BY_DIMENSIONS[len(featurizer.shape)]


def tower_spec(
    modality: Modality,
    featurizer: Featurizer,
    *,
    widths: Sequence[int],
    dropout: float,
    backbone: Mapping[str, Any],
    network: Mapping[str, Any] | None = None,
) -> TowerSpec:
    """Return the specification of the tower for a modality's vectors, which its fitted featurizer makes.

    Widths are those of the tower's layers, from its input to its feature layer; at least one. The backbone is the table of a
    published network (`silohash.models.backbones.network_settings`); empty for a tower that is trained from scratch. Its
    settings are given as the ``network`` if another machine has read its files.

    Raises:
        UserError: If the vectors require a published network and none is configured, its files do not match, or the tower
            cannot have the configured widths.
    """
    if isinstance(featurizer, TokenFeatures) and not backbone:
        raise UnsuitableFeatures(
            'features.text kind "tokens" requires a text tower that is fine-tuned from a published network. Set '
            'model.text = { backbone = "huggingface", model = ... }, or another kind of features.'
        )
    kind = "network" if backbone else tower_kind(featurizer)
    *layers, hidden = widths
    if len(widths) > 1 and kind not in LAYERED:
        raise UnsuitableFeatures(
            f'model.widths.{modality} has {len(widths)} widths, and a tower of the kind "{kind}" has one. '
            "Give one width, or other features."
        )
    if backbone and network is None:
        network = network_settings(modality, featurizer, backbone)
    return TowerSpec(
        kind=kind,
        shape=tuple(featurizer.shape),
        hidden=hidden,
        dropout=dropout,
        scale=input_scale(featurizer),
        settings=network or _of_words(featurizer),
        layers=tuple(layers),
    )


def _of_words(featurizer: Featurizer) -> dict[str, Any]:
    """Return the number of words, and how their vectors are used if not as a start; empty for other features."""
    if not isinstance(featurizer, WordSequences):
        return {}
    how = {} if featurizer.vectors_as == "start" else {"vectors": featurizer.vectors_as}
    return {"words": featurizer.size, **how}
