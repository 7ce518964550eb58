"""Hugging Face backbones as towers that are fine-tuned."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from silohash.base.types import Arrays, Modality, UserError
from silohash.features.base import Featurizer
from silohash.features.image import PixelFeatures
from silohash.features.model_folder import find_model, folder_digest, sentence_rule
from silohash.features.preprocess import read_preparation
from silohash.features.tokens import TokenFeatures
from silohash.features.word_pieces import read_word_pieces
from silohash.models.huggingface import Backbone, Pooling, read_backbone


def settings(
    modality: Modality, featurizer: Featurizer, *, model: str = "", pooling: Pooling = "auto", download: bool = False
) -> dict[str, Any]:
    """Return the structure of a backbone and the folder of its weights.

    Args:
        modality: The modality.
        featurizer: ``pixels`` in color, of the model's input size; or ``tokens`` of the same model.
        model: The folder, or the name of a model in the local cache of Hugging Face.
        pooling: As for frozen backbones.
        download: Whether a model that is not in the cache may be downloaded.

    Raises:
        UserError: If the model does not exist, or does not support the featurizer's output.
    """
    if pooling == "tokens":
        raise UserError(
            f'[model.{modality}] pooling = "tokens" is for frozen features ([features.{modality}]). Remove it.'
        )
    folder = find_model(model, f"model.{modality}", download=download)
    made: dict[str, Any] = {"source": str(folder.resolve()), "digest": folder_digest(folder, modality)}
    if modality == "image":
        if not isinstance(featurizer, PixelFeatures) or featurizer.channels != 3:
            raise UserError(
                '[model.image] a backbone needs color pictures. Set features.image = { kind = "pixels", channels = 3, '
                "size = ... }."
            )
        factor, offset = read_preparation(folder).affine()
        made |= {"factor": factor.reshape(-1).tolist(), "offset": offset.reshape(-1).tolist()}
        made |= {"padding": 0, "unit_length": False}
        sample, how = torch.zeros(1, *featurizer.shape), pooling
    else:
        if (
            not isinstance(featurizer, TokenFeatures)
            or featurizer.pieces.tokenizer != read_word_pieces(folder).tokenizer
        ):
            raise UserError(
                '[model.text] a backbone needs the word pieces of its tokenizer. Set features.text = { kind = "tokens", '
                f'model = "{model}" }}.'
            )
        rule = sentence_rule(folder) if pooling == "auto" else None
        made |= {"padding": featurizer.pieces.padding, "unit_length": rule is not None and rule.unit_length}
        sample, how = torch.zeros(1, 3, dtype=torch.int32), rule.pooling if rule else pooling
    backbone, width = read_backbone(
        folder, sample, modality, how, unit_length=made["unit_length"], padding=made["padding"]
    )
    return {**made, "modality": modality, "config": backbone.config, "pooling": backbone.pooling, "width": width}


def build(about: Mapping[str, Any]) -> Backbone:
    """Return the network that the settings describe, with random weights."""
    return Backbone(
        about["config"], about["modality"], about["pooling"],
        unit_length=about["unit_length"], padding=about["padding"],
    )  # fmt: skip


def weights(about: Mapping[str, Any]) -> Arrays:
    """Return the published weights by their names in the network that `build` returns.

    Raises:
        UserError: If the folder no longer exists, or if its files have changed since the settings were created.
    """
    modality: Modality = about["modality"]
    folder = find_model(about["source"], f"model.{modality}", download=False)
    if folder_digest(folder, modality) != about["digest"]:
        raise UserError(f"The model in {folder} changed while the run was prepared. Run the command again.")
    sample = torch.zeros(1, 3, dtype=torch.int32)
    if modality == "image":
        sample = torch.zeros(1, 3, *read_preparation(Path(folder)).shape)
    backbone, _ = read_backbone(
        folder, sample, modality, about["pooling"], unit_length=about["unit_length"], padding=about["padding"]
    )
    return {name: tensor.numpy() for name, tensor in backbone.state_dict().items()}
