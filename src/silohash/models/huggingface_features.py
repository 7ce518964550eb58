"""Features of pictures and texts from frozen Hugging Face backbones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from silohash.base.files import digest_json
from silohash.base.types import Arrays, Modality, UserError
from silohash.features.base import Value
from silohash.features.device import half_type
from silohash.features.model_folder import find_model, folder_digest, sentence_rule
from silohash.features.preprocess import PicturePreparation, read_preparation
from silohash.features.word_pieces import LONGEST, WordPieces, read_word_pieces
from silohash.models.huggingface import UNMASKED, Backbone, Pooling, read_backbone

TOKENS = 32
"""Number of word pieces per text with the pooling ``tokens``, by default."""


def huggingface(
    modality: Modality, *, model: str = "", pooling: Pooling = "auto", length: int = 0, download: bool = False
) -> FrozenBackbone:
    """Return a frozen published backbone.

    Args:
        modality: The modality.
        model: A downloaded or saved model folder, or the name of a model in the local cache of Hugging Face.
        pooling: ``auto``, ``projection``, ``pooler``, ``cls``, ``mean`` or ``tokens``.
        length: Number of word pieces after which a text is truncated. At 0, it is `TOKENS` with tokens, and otherwise the
            number that the model reads.
        download: Whether a model that is not in the cache may be downloaded.

    Raises:
        UserError: If the model does not exist or cannot be read, or if the length is out of range.
    """
    _check_length(length, modality)
    folder = find_model(model, f"features.{modality}", download=download)
    digest = folder_digest(folder, modality)
    length = length or (TOKENS if pooling == "tokens" and modality == "text" else 0)
    key = digest_json(["huggingface", digest, modality, pooling, *([length] if length else ())])
    if modality == "image":
        preparation = read_preparation(folder)
        sample = torch.zeros(1, 3, *preparation.shape)
        backbone, width = read_backbone(folder, sample, modality, pooling)
        return FrozenBackbone(model, key, width, backbone, preparation, None, _tokens(backbone, width))
    return _of_texts(model, folder, key, pooling, length)


def _of_texts(model: str, folder: Path, key: str, pooling: Pooling, length: int) -> FrozenBackbone:
    """Return a folder's backbone of texts. A length of 0 is the number of word pieces that the model reads."""
    rule = sentence_rule(folder) if pooling == "auto" else None
    pieces = read_word_pieces(folder, min(length or LONGEST, (rule.most_pieces if rule else 0) or LONGEST))
    how = rule.pooling if rule else pooling
    backbone, width = read_backbone(
        folder, torch.zeros(1, pieces.most if how == "tokens" else 3, dtype=torch.int32), "text", how,
        unit_length=rule is not None and rule.unit_length, padding=pieces.padding,
    )  # fmt: skip
    return FrozenBackbone(model, key, width, backbone, None, pieces, _tokens(backbone, width))


def _tokens(backbone: Backbone, width: int) -> int:
    """Return the number of tokens in a row of ``width`` numbers, which follow the vector of the item."""
    return width // int(backbone.config["projection_dim"]) - 1 if backbone.pooling == "tokens" else 0


def _check_length(length: int, modality: Modality) -> None:
    if type(length) is not int or length < 0 or length in {1, 2}:
        raise UserError(f"[features] length is {length!r}; it must be an integer of at least 3, or 0 for the default.")
    if length and modality == "image":
        raise UserError(f"[features] length is {length}, and pictures have no length. Remove it from features.image.")


@dataclass(frozen=True, eq=False)
class FrozenBackbone:
    """A published backbone with fixed weights.

    Attributes:
        name: The folder or name that the user gave.
        key: A digest of everything that affects the vectors.
        width: The length of a row.
        backbone: The network.
        preparation: The preprocessing of pictures, or None for texts.
        pieces: The tokenizer, or None for pictures.
        tokens: Number of tokens per item, whose vectors follow that of the item in a row; 0 for one vector per item.
    """

    name: str
    key: str
    width: int
    backbone: Backbone
    preparation: PicturePreparation | None
    pieces: WordPieces | None
    tokens: int = 0

    @property
    def modality(self) -> Modality:
        """The modality of the inputs."""
        return self.backbone.modality

    @property
    def smallest_pixels(self) -> int:
        """The smallest side in pixels at which pictures may be decoded without being enlarged later; 0 for texts."""
        return 0 if self.preparation is None else self.preparation.smallest_pixels

    def prepare(self, values: Iterable[Value]) -> Arrays:
        """Return ``pixels (n, 3, h, w)`` uint8, or ``ids (n, L)`` int32.

        Raises:
            UserError: If a value is of the other modality.
        """
        if self.preparation is not None:
            drawn = [self.preparation.draw(_picture(value)) for value in values]
            return {"pixels": np.stack(drawn)}
        assert self.pieces is not None  # noqa: S101  exactly one of them is set
        padded = self.tokens or self.backbone.config["model_type"] in UNMASKED
        return {"ids": self.pieces.ids([str(value) for value in values], width=self.pieces.most if padded else None)}

    def parts(self) -> tuple[Backbone, PicturePreparation | None, WordPieces | None]:
        """Return the network with the preprocessing of pictures, or with the tokenizer."""
        return self.backbone, self.preparation, self.pieces

    def embed(self, batch: Arrays, device: str, *, half: bool) -> npt.NDArray[np.float32]:
        """Return the vectors, ``(n, width)`` float32. ``half`` computes in 16 bits if that is faster on the device."""
        place = torch.device(device)
        kind = half_type(place) if half else None
        (values,) = batch.values()
        with torch.inference_mode(), torch.autocast(place.type, kind, enabled=kind is not None):
            inputs = torch.from_numpy(values).to(place, non_blocking=True)
            if self.preparation is not None:
                factor, offset = (torch.from_numpy(array).to(place) for array in self.preparation.affine())
                inputs = inputs.float().mul_(factor).add_(offset)
            vectors = self.backbone.to(place)(inputs)
        found: npt.NDArray[np.float32] = vectors.float().cpu().numpy()
        return found


def _picture(value: Value) -> Image.Image:
    if not isinstance(value, Image.Image):
        what = "a text" if isinstance(value, str) else "a vector"
        raise UserError(f"The model needs pictures, and this is {what}. Pass a picture file.")
    return value
