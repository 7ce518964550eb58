"""The structure of a run's model: one tower per modality, for the vectors of its featurizer and the table ``[model]``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from silohash.base.errors import UnsuitableFeatures
from silohash.base.types import Arrays, Modality
from silohash.features.base import Featurizer
from silohash.features.nodes.regions import RegionFeatures
from silohash.features.nodes.word_ids import WordSequences
from silohash.features.text import BagOfWords
from silohash.features.word_pieces import TokenFeatures
from silohash.models.backbones import network_settings
from silohash.models.specs import ModelSpec, TowerKind, TowerSpec
from silohash.run.config.load import ResolvedConfig
from silohash.run.config.sections import ModelConfig


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
    modality: Modality, featurizer: Featurizer, model: ModelConfig, network: Mapping[str, Any] | None = None
) -> TowerSpec:
    """Return the specification of the tower for a modality's vectors.

    The settings of a published network are those given, if another machine has read its files, or those of its files here.

    Raises:
        UserError: If the vectors require a published network and none is configured, its files do not match, or the tower
            cannot have the configured widths.
    """
    backbone = model.of(modality)
    if isinstance(featurizer, TokenFeatures) and not backbone:
        raise UnsuitableFeatures(
            'features.text kind "tokens" requires a text tower that is fine-tuned from a published network. Set '
            'model.text = { backbone = "huggingface", model = ... }, or another kind of features.'
        )
    kind = "network" if backbone else tower_kind(featurizer)
    *layers, hidden = model.widths.get(modality, (model.hidden,))
    if (layers and kind not in LAYERED) or (modality in model.widths and kind in {"regions", "words"}):
        raise UnsuitableFeatures(
            f'model.widths.{modality} has {len(layers) + 1} widths, and a tower of the kind "{kind}" does not take them. '
            "Remove it, and set model.hidden."
        )
    if backbone and network is None:
        network = network_settings(modality, featurizer, backbone)
    of_words = featurizer.tower if isinstance(featurizer, WordSequences) else {}
    return TowerSpec(
        kind=kind,
        shape=tuple(featurizer.shape),
        hidden=hidden,
        dropout=model.dropout,
        scale=input_scale(featurizer),
        settings=network or of_words,
        layers=tuple(layers),
    )


def model_spec(
    featurizers: Mapping[Modality, Featurizer],
    resolved: ResolvedConfig,
    labels: int,
    arrays: Arrays,
    networks: Mapping[Modality, Mapping[str, Any]] | None = None,
) -> ModelSpec:
    """Return the structure of a model, given the number of labels, the inputs, if they are here, and known networks."""
    model, known = resolved.config.model, networks or {}
    return ModelSpec(
        towers={m: tower_spec(m, featurizer, model, known.get(m)) for m, featurizer in featurizers.items()},
        classes=labels if resolved.needs_labels else 0,
        class_head=resolved.federated.traits.class_head,
        coarse_classes=arrays["coarse_labels"].shape[1] if "coarse_labels" in arrays else 0,
    )


def networks_of(spec: ModelSpec) -> dict[Modality, TowerSpec]:
    """Return the towers that are published networks."""
    return {modality: tower for modality, tower in spec.towers.items() if tower.kind == "network"}
