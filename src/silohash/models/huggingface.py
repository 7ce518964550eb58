"""Hugging Face backbones that give one vector per item, frozen or fine-tuned; or those of its tokens as well, frozen.

They give fixed features (`frozen`), or are fine-tuned as towers (`settings`, `build` and `weights`).
A backbone is built from its stored config alone, so that workers and finished runs do not need the model's folder. The
published weights are read once, when a run starts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from silohash.base import errors
from silohash.base.files import digest_json
from silohash.base.types import Arrays, Modality
from silohash.features.base import Featurizer
from silohash.features.image import PixelFeatures
from silohash.features.model_folder import find_model, first_line, folder_digest, needing_transformers, sentence_rule
from silohash.features.network import Network
from silohash.features.preprocess import PicturePreparation, read_preparation
from silohash.features.word_pieces import LONGEST, PADDING, TokenFeatures, WordPieces, read_word_pieces

Pooling = Literal["auto", "projection", "pooler", "cls", "mean", "tokens"]

OTHER_HALF: dict[Modality, tuple[str, ...]] = {
    "image": ("text_model", "text_projection", "logit_scale", "logit_bias"),
    "text": ("vision_model", "visual_projection", "logit_scale", "logit_bias"),
}
"""Parts that a model of both modalities does not need for one modality."""

PROJECTIONS = ("visual_projection", "text_projection")
"""Parts of a CLIP model that project its vectors."""

UNMASKED = ("siglip", "siglip2")
"""Models whose texts are padded to a fixed length without an attention mask."""

CLASS_TOKENS = ("cls_token", "class_embedding")
NEEDLESS_CONFIG = ("id2label", "label2id", "architectures", "transformers_version", "dtype", "torch_dtype")

TOKENS = 32
"""Number of word pieces per text with the pooling ``tokens``, by default."""

CHUNK_ITEMS = 64
"""Number of items per forward pass without gradients, which bounds memory."""


def frozen(
    modality: Modality, *, model: str = "", pooling: Pooling = "auto", length: int = 0, download: bool = False
) -> Network:
    """Return a frozen published backbone.

    The model is a downloaded or saved folder, or a name in the local cache of Hugging Face; one that is not there may be
    downloaded if ``download`` says so. Texts are truncated after ``length`` word pieces; at 0, these are `TOKENS` with
    tokens, and otherwise as many as the model reads.

    Raises:
        UserError: If the model does not exist or cannot be read, or if the length is out of range.
    """
    _check_length(length, modality)
    folder = find_model(model, f"features.{modality}", download=download)
    length = length or (TOKENS if pooling == "tokens" and modality == "text" else 0)
    parts = ["huggingface", folder_digest(folder, modality), modality, pooling, *([length] if length else ())]
    preparation: PicturePreparation | None = None
    pieces: WordPieces | None = None
    if modality == "image":
        preparation = read_preparation(folder)
        backbone, width = read_backbone(folder, torch.zeros(1, 3, *preparation.shape), modality, pooling)
    else:
        how, unit_length, most = _rule(folder, pooling)
        pieces = read_word_pieces(folder, min(length or LONGEST, most))
        sample = torch.zeros(1, pieces.most if how == "tokens" else 3, dtype=torch.int32)
        backbone, width = read_backbone(folder, sample, modality, how, unit_length=unit_length, padding=pieces.padding)
    tokens = width // int(backbone.config["projection_dim"]) - 1 if backbone.pooling == "tokens" else 0
    padded = tokens > 0 or backbone.config["model_type"] in UNMASKED
    return Network(
        model, digest_json(parts), width, lambda: backbone, preparation, pieces, tokens=tokens, padded=padded
    )


class Cells(nn.Module):
    """The last feature map of a published image network, without the tokens before its cells, ``(B, cells * width)``."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network: Any = network.vision_model if hasattr(network, "vision_model") else network

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the cells of square pictures row by row, each with its vector."""
        return self.cells(pixels).flatten(1)

    def cells(self, pixels: Tensor) -> Tensor:
        """Return the same as ``(B, cells, width)``."""
        hidden: Tensor = self.network(pixel_values=pixels).last_hidden_state
        hidden = hidden.flatten(2).mT if hidden.ndim > 3 else hidden
        return hidden[:, -(math.isqrt(hidden.shape[1]) ** 2) :]


def maps(*, model: str, size: int, download: bool) -> Network:
    """Return what gives the last feature map of whole pictures, resized to a square of ``size`` pixels, or its own.

    Raises:
        UserError: If the model does not exist or cannot be read, or does not support the size.
    """
    if type(size) is not int or not (size == 0 or 8 <= size <= 2_048):
        raise errors.OutOfRange(
            f"[features.image] size is {size!r}; it must be 8 to 2048 pixels, or 0 for the size of the model."
        )
    folder = find_model(model, "features.image", download=download)
    given = read_preparation(folder)
    side = size or given.shape[0]
    sample = torch.zeros(1, 3, side, side)
    cells = Cells(read_backbone(folder, sample, "image", "auto")[0].network).eval()
    with torch.inference_mode():
        count, width = cells.cells(sample).shape[1:]
    key = digest_json(["huggingface", folder_digest(folder, "image"), "cells", side])
    return Network(model, key, count * width, lambda: cells, replace(given, resize=(side, side), crop=()), tokens=count)


def _rule(folder: Path, pooling: Pooling) -> tuple[Pooling, bool, int]:
    """Return a text model's pooling, whether its vectors have unit length, and the number of word pieces that it reads."""
    rule = sentence_rule(folder) if pooling == "auto" else None
    return (rule.pooling, rule.unit_length, rule.most_pieces or LONGEST) if rule else (pooling, False, LONGEST)


def _check_length(length: int, modality: Modality) -> None:
    if type(length) is not int or length < 0 or length in {1, 2}:
        raise errors.OutOfRange(
            f"[features] length is {length!r}; it must be an integer of at least 3, or 0 for the default."
        )
    if length and modality == "image":
        raise errors.NoEffect(
            f"[features] length is {length}, and pictures have no length. Remove it from features.image."
        )


def settings(
    modality: Modality, featurizer: Featurizer, *, model: str = "", pooling: Pooling = "auto", download: bool = False
) -> dict[str, Any]:
    """Return the structure of a backbone and the folder of its weights.

    The featurizer must be ``pixels`` in color, of the model's input size, or ``tokens`` of the same model. The other options
    are those of `frozen`.

    Raises:
        UserError: If the model does not exist, or does not support the featurizer's output.
    """
    if pooling == "tokens":
        raise errors.NoEffect(
            f'[model.{modality}] pooling = "tokens" is for frozen features ([features.{modality}]). Remove it.'
        )
    how: Pooling = pooling
    folder = find_model(model, f"model.{modality}", download=download)
    made: dict[str, Any] = {"source": str(folder.resolve()), "digest": folder_digest(folder, modality)}
    if modality == "image":
        if not isinstance(featurizer, PixelFeatures) or featurizer.channels != 3:
            raise errors.UnsuitableFeatures(
                '[model.image] a backbone needs color pictures. Set features.image = { kind = "pixels", channels = 3, '
                "size = ... }."
            )
        factor, offset = read_preparation(folder).affine()
        made |= {"factor": factor.reshape(-1).tolist(), "offset": offset.reshape(-1).tolist()}
        made |= {"padding": 0, "unit_length": False}
        sample = torch.zeros(1, *featurizer.shape)
    else:
        if (
            not isinstance(featurizer, TokenFeatures)
            or featurizer.pieces.tokenizer != read_word_pieces(folder).tokenizer
        ):
            raise errors.UnsuitableFeatures(
                '[model.text] a backbone needs the word pieces of its tokenizer. Set features.text = { kind = "tokens", '
                f'model = "{model}" }}.'
            )
        how, unit_length, _ = _rule(folder, pooling)
        made |= {"padding": featurizer.pieces.padding, "unit_length": unit_length}
        sample = torch.zeros(1, 3, dtype=torch.int32)
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
        raise errors.NetworkChanged(f"The model in {folder} changed while the run was prepared. Run the command again.")
    sample = torch.zeros(1, 3, dtype=torch.int32)
    if modality == "image":
        sample = torch.zeros(1, 3, *read_preparation(folder).shape)
    backbone, _ = read_backbone(
        folder, sample, modality, about["pooling"], unit_length=about["unit_length"], padding=about["padding"]
    )
    return {name: tensor.numpy() for name, tensor in backbone.state_dict().items()}


class Backbone(nn.Module):
    """A published network that gives one vector per item, or the vectors of an item and of its tokens one after the other.

    Without a network, it is built from the published config with random weights. The pooling is not ``auto`` (`pooled` and
    `with_tokens`), and vectors of ``unit_length`` have length 1.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        modality: Modality,
        pooling: Pooling,
        *,
        unit_length: bool = False,
        padding: int = 0,
        network: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.config, self.modality, self.pooling = dict(config), modality, pooling
        self.unit_length, self.padding = unit_length, padding
        self.network = _stripped(_built(config) if network is None else network, modality, pooling)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return one row per item, ``(B, width)`` float.

        Inputs are pictures ``(B, 3, h, w)`` on the model's input scale, or ids of word pieces ``(B, L)``, padded with -1.
        """
        if torch.is_grad_enabled() or len(inputs) <= CHUNK_ITEMS:
            return self._vectors(inputs)
        return torch.cat([self._vectors(chunk) for chunk in torch.split(inputs, CHUNK_ITEMS)])

    def _vectors(self, inputs: Tensor) -> Tensor:
        network: Any = self.network
        vectors: Tensor
        mask: Tensor | None = None
        if self.modality == "image":
            arguments = {"pixel_values": inputs}
        else:
            mask = (inputs != PADDING).long()
            arguments = {"input_ids": torch.where(inputs == PADDING, self.padding, inputs).long()}
            if self.config["model_type"] not in UNMASKED:
                arguments["attention_mask"] = mask
        if self.pooling == "tokens":
            vectors = with_tokens(network, arguments, mask)
        elif self.pooling == "projection":
            made = getattr(network, f"get_{self.modality}_features")(**arguments)
            # Since version 5, transformers returns the projected vectors within an object.
            vectors = made.pooler_output if hasattr(made, "pooler_output") else made
        else:
            vectors = pooled(network(**arguments), self.pooling, mask)
        return nn.functional.normalize(vectors, dim=1) if self.unit_length else vectors


def pooled(output: Any, pooling: Pooling, mask: Tensor | None = None) -> Tensor:  # noqa: ANN401  a class of transformers
    """Return one vector per item from a network's last layer, ``(B, width)``.

    The poolings are ``pooler`` for the network's pooled output, ``cls`` for the first token, and ``mean`` for the mean over
    tokens ``(B, L, width)`` or places ``(B, width, h, w)``. The mask ``(B, L)`` is 0 for padding.

    Raises:
        UserError: If the network does not support the pooling.
    """
    hidden: Tensor = output.last_hidden_state
    if pooling == "pooler":
        if not _has_summary(output):
            raise errors.UnsupportedNetwork('The model does not have a pooler. Set pooling = "cls" or "mean".')
        summary: Tensor = output.pooler_output
        return summary.flatten(1)
    if hidden.ndim > 3:
        if pooling == "cls":
            raise errors.UnsupportedNetwork(
                'The model returns feature maps, which do not have a first token. Set pooling = "mean".'
            )
        return hidden.mean(dim=(2, 3))
    if pooling == "cls":
        return hidden[:, 0]
    if mask is None:
        return hidden.mean(dim=1)
    weight = mask.unsqueeze(2).to(hidden.dtype)
    return (hidden * weight).sum(dim=1) / weight.sum(dim=1).clamp_min(1.0)


def with_tokens(network: Any, arguments: Mapping[str, Any], mask: Tensor | None) -> Tensor:  # noqa: ANN401
    """Return the projected vectors of each item and of its tokens in a CLIP model, ``(B, (1 + T) * width)``.

    The tokens of a picture are its patches. Those of a text are its word pieces without the last one, which represents the
    whole text. The tokens that an item lacks (0 in the mask ``(B, T)``) are zero.
    """
    if mask is None:
        hidden = network.vision_model.post_layernorm(network.vision_model(**arguments).last_hidden_state)
        projected: Tensor = network.visual_projection(hidden)
        return projected.flatten(1)
    projected = network.text_projection(network.text_model(**arguments).last_hidden_state)
    last = torch.arange(mask.shape[1], device=mask.device) == mask.sum(1, keepdim=True) - 1
    item = (projected * last.unsqueeze(2)).sum(1, keepdim=True)
    return torch.cat([item, projected * (mask.bool() & ~last).unsqueeze(2)], dim=1).flatten(1)


def read_backbone(
    folder: Path, sample: Tensor, modality: Modality, pooling: Pooling, *, unit_length: bool = False, padding: int = 0
) -> tuple[Backbone, int]:
    """Return a folder's network with its published weights, in evaluation mode and float32, and the length of its rows.

    The sample is any input of `Backbone.forward`; with tokens, it has the length of all inputs. The pooling ``auto`` selects
    the projection for models of both modalities, the mean over word pieces for other text models, and the usual pooling of
    the architecture for other image models.

    Raises:
        UserError: If the folder does not hold a readable model, if weights are missing, or if the model does not support
            the pooling.
    """
    if pooling not in get_args(Pooling):
        raise errors.WrongChoice(f'pooling is "{pooling}"; it must be one of: {", ".join(get_args(Pooling))}.')
    config, network, missing = _published(folder)
    dual = _is_dual(folder, network, modality, pooling)
    with torch.inference_mode(), _explaining(folder, sample):
        chosen: Pooling = "projection" if dual and pooling != "tokens" else pooling
        if chosen == "auto":
            chosen = "mean" if modality == "text" else _natural(network, sample)
        backbone = Backbone(config, modality, chosen, unit_length=unit_length, padding=padding, network=network).eval()
        width = backbone(sample).shape[1]
    lacking = sorted(missing & set(backbone.network.state_dict()))
    if lacking:
        raise errors.UnsupportedNetwork(
            f"{folder} lacks weights of its network ({lacking[0]} and {len(lacking) - 1} more), which would be random. "
            "Choose another pooling, or use the complete model."
        )
    return backbone, width


def _is_dual(folder: Path, network: nn.Module, modality: Modality, pooling: Pooling) -> bool:
    """Return whether a network is of both pictures and texts, after checking that it supports the pooling."""
    dual = hasattr(network, f"get_{modality}_features")
    if pooling == "projection" and not dual:
        raise errors.UnsupportedNetwork(
            f'{folder} is not a model of both pictures and texts, so it does not have a projection. Set pooling = "auto".'
        )
    if pooling == "tokens" and not all(hasattr(network, name) for name in PROJECTIONS):
        raise errors.UnsupportedNetwork(
            f'{folder} is not a CLIP model, so it does not project tokens. Set pooling = "auto".'
        )
    if dual and pooling not in {"auto", "projection", "tokens"}:
        raise errors.UnsupportedNetwork(
            f"{folder} is a model of both pictures and texts, for which only the projection is supported, or the "
            "tokens of CLIP. Remove pooling."
        )
    return dual


def _natural(network: Any, sample: Tensor) -> Pooling:  # noqa: ANN401  a class of transformers
    # A pooler with weights of its own is not used, because published weights are often without it.
    if not _has_dense_pooler(network) and _has_summary(network(pixel_values=sample)):
        return "pooler"
    return "cls" if any(name.endswith(CLASS_TOKENS) for name, _ in network.named_parameters()) else "mean"


def _has_summary(output: Any) -> bool:  # noqa: ANN401  a class of transformers
    return hasattr(output, "pooler_output") and output.pooler_output is not None


def _has_dense_pooler(network: nn.Module) -> bool:
    return hasattr(network, "pooler") and hasattr(network.pooler, "dense")


@contextmanager
def _explaining(folder: Path, sample: Tensor) -> Iterator[None]:
    try:
        yield
    except errors.UserError:
        raise
    # Each network reports unsupported inputs in its own way, with errors of many types.
    except Exception as error:
        what = "word pieces" if sample.ndim == 2 else f"pictures of {sample.shape[-1]} x {sample.shape[-2]} pixels"
        raise errors.UnsupportedNetwork(
            f"The model in {folder} does not support {what} ({first_line(error)}). Choose another model."
        ) from error


def _published(folder: Path) -> tuple[dict[str, Any], nn.Module, set[str]]:
    """Return a folder's config, its network in float32, and the names of missing weights."""
    with needing_transformers(f"The model in {folder}"):
        from transformers import AutoConfig, AutoModel
    try:
        # A published folder can hold code and pickled weights, neither of which may run on the user's machine.
        with _quietly():
            config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            network, about = AutoModel.from_pretrained(
                folder,
                config=config,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
            )
    # An unknown architecture, a damaged file and wrong shapes raise errors of many types.
    except Exception as error:
        raise errors.DamagedFile(
            f"The model in {folder} cannot be read ({first_line(error)}). Restore the folder, or choose another model."
        ) from error
    plain = {name: value for name, value in json.loads(config.to_json_string()).items() if name not in NEEDLESS_CONFIG}
    return plain, network.float().eval(), set(about["missing_keys"])


def _built(config: Mapping[str, Any]) -> nn.Module:
    with needing_transformers(f'A backbone of the kind "{config["model_type"]}"'):
        from transformers import AutoConfig, AutoModel
    rest = {name: value for name, value in config.items() if name != "model_type"}
    with _quietly():
        make: Any = AutoModel.from_config
        network: nn.Module = make(AutoConfig.for_model(config["model_type"], **rest))
    return network.float()


def _stripped(network: nn.Module, modality: Modality, pooling: Pooling) -> nn.Module:
    """Remove the parts that a modality and a pooling do not need, which would otherwise be sent to the silos."""
    if pooling in {"projection", "tokens"}:
        for name in OTHER_HALF[modality]:
            if hasattr(network, name):
                delattr(network, name)
    elif pooling != "pooler" and _has_dense_pooler(network):
        network.pooler = None  # type: ignore[assignment]
    return network


@contextmanager
def _quietly() -> Iterator[None]:
    from transformers import utils

    logging: Any = utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
