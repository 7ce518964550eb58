"""CNN-F features of pictures (4096 numbers), which earlier hashing papers use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from silohash.base.files import digest_file, digest_json
from silohash.base.types import Arrays, Modality, UserError
from silohash.features.base import Value
from silohash.features.preprocess import PicturePreparation
from silohash.models.cnnf import CNNF, SIDE_PIXELS, WIDTH, Normalization, Orientation, load_cnnf, weights_file

PREPROCESSING = "RGB, 224 x 224 bicubic without crop, 0 to 255, mean picture subtracted"


def cnnf(
    modality: Modality,
    *,
    weights: str = "",
    lrn: Normalization = "matconvnet",
    orientation: Orientation = "normal",
) -> FrozenCNNF:
    """Return CNN-F up to the layer ``fc7``, with the user's weights.

    Args:
        modality: Must be ``image``.
        weights: The user's ``imagenet-vgg-f.mat``.
        lrn: ``matconvnet``, with which the weights were trained, or ``legacy-port``, which ports of hashing papers use.
        orientation: ``normal``, or ``legacy-port`` for pictures whose width and height are swapped.

    Raises:
        UserError: If the modality is not ``image``, or if the weights do not exist.
    """
    if modality != "image":
        raise UserError(f'[features.{modality}] kind "cnnf" supports pictures only. Choose another kind.')
    path = weights_file(weights, '[features.image] kind "cnnf"')
    return FrozenCNNF(path, lrn, orientation, digest_file(path))


@dataclass(frozen=True)
class FrozenCNNF:
    """CNN-F with fixed weights, which are loaded on first use.

    Attributes:
        path: File of the weights.
        lrn: The normalization.
        orientation: The orientation of the pictures.
        digest: Digest of the weights.
    """

    path: Path
    lrn: Normalization
    orientation: Orientation
    digest: str

    modality: ClassVar[Modality] = "image"
    name: ClassVar[str] = "CNN-F"
    width: ClassVar[int] = WIDTH
    smallest_pixels: ClassVar[int] = SIDE_PIXELS

    @property
    def key(self) -> str:
        """A digest of everything that affects the vectors."""
        return digest_json(["cnnf", self.digest, "fc7", self.lrn, self.orientation, PREPROCESSING])

    def prepare(self, values: Iterable[Value]) -> Arrays:
        """Return ``pixels (n, 3, 224, 224)`` uint8, with each whole picture resized to a square.

        Raises:
            UserError: If a value is not a picture.
        """
        drawn = [_pixels(value) for value in values]
        return {"pixels": np.stack(drawn) if drawn else np.zeros((0, 3, SIDE_PIXELS, SIDE_PIXELS), np.uint8)}

    def embed(self, batch: Arrays, device: str, *, half: bool) -> npt.NDArray[np.float32]:
        """Return ``fc7`` after its ReLU, ``(n, 4096)`` float32. On a GPU, ``half`` computes in bfloat16."""
        kind = torch.device(device).type
        with torch.inference_mode(), torch.autocast(kind, torch.bfloat16, enabled=half and kind == "cuda"):
            pixels = torch.from_numpy(np.ascontiguousarray(batch["pixels"])).to(device)
            found: npt.NDArray[np.float32] = self._net.to(device)(pixels).float().cpu().numpy()
        return found

    def parts(self) -> tuple[CNNF, PicturePreparation, None]:
        """Return the network with the preprocessing of pictures, which neither scales nor centers pixels."""
        side = (SIDE_PIXELS, SIDE_PIXELS)
        return self._net, PicturePreparation(resize=side, crop=(), rescale=1.0), None

    @cached_property
    def _net(self) -> CNNF:
        return load_cnnf(self.path, lrn=self.lrn, orientation=self.orientation)


def _pixels(value: Value) -> npt.NDArray[np.uint8]:
    if not isinstance(value, Image.Image):
        what = "a text" if isinstance(value, str) else "a vector"
        raise UserError(f"CNN-F takes pictures, and this is {what}. Pass a picture file.")
    squeezed = value.convert("RGB").resize((SIDE_PIXELS, SIDE_PIXELS), Image.Resampling.BICUBIC)
    return np.ascontiguousarray(np.asarray(squeezed, np.uint8).transpose(2, 0, 1))
