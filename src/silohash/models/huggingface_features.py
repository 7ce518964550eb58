"""Features of pictures and texts from frozen Hugging Face backbones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from silohash.features.base import Value
from silohash.features.device import half_type
from silohash.features.model_folder import find_model, folder_digest, sentence_rule
from silohash.features.preprocess import PicturePreparation, read_preparation
from silohash.features.word_pieces import LONGEST, WordPieces, read_word_pieces
from silohash.files import digest_json
from silohash.models.huggingface import UNMASKED, Backbone, Pooling, read_backbone
from silohash.types import Arrays, Modality, UserError


def huggingface(
    modality: Modality, *, model: str = "", pooling: Pooling = "auto", download: bool = False
) -> FrozenBackbone:
    """Return a frozen published backbone.

    Args:
        modality: The modality.
        model: A downloaded or saved model folder, or the name of a model in the local cache of Hugging Face.
        pooling: ``auto``, ``projection``, ``pooler``, ``cls`` or ``mean``.
        download: Whether a model that is not in the cache may be downloaded.

    Raises:
        UserError: If the model does not exist or cannot be read.
    """
    folder = find_model(model, f"features.{modality}", download=download)
    digest = folder_digest(folder, modality)
    key = digest_json(["huggingface", digest, modality, pooling])
    if modality == "image":
        preparation = read_preparation(folder)
        sample = torch.zeros(1, 3, *preparation.shape)
        backbone, width = read_backbone(folder, sample, modality, pooling)
        return FrozenBackbone(model, key, width, backbone, preparation, None)
    rule = sentence_rule(folder) if pooling == "auto" else None
    pieces = read_word_pieces(folder, (rule.most_pieces if rule else 0) or LONGEST)
    how = rule.pooling if rule else pooling
    backbone, width = read_backbone(
        folder, torch.zeros(1, 3, dtype=torch.int32), modality, how,
        unit_length=rule is not None and rule.unit_length, padding=pieces.padding,
    )  # fmt: skip
    return FrozenBackbone(model, key, width, backbone, None, pieces)


@dataclass(frozen=True, eq=False)
class FrozenBackbone:
    """A published backbone with fixed weights.

    Attributes:
        name: The folder or name that the user gave.
        key: A digest of everything that affects the vectors.
        width: The length of a vector.
        backbone: The network.
        preparation: The preprocessing of pictures, or None for texts.
        pieces: The tokenizer, or None for pictures.
    """

    name: str
    key: str
    width: int
    backbone: Backbone
    preparation: PicturePreparation | None
    pieces: WordPieces | None

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
        padded = self.backbone.config["model_type"] in UNMASKED
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
