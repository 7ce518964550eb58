"""How a published network wants its pictures: resized, cropped, scaled, as its ``preprocessor_config.json`` says.

Done with Pillow and numpy alone, so that threads do it side by side, and pictures stay uint8 until they are on the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from silohash.files import read_json
from silohash.types import UserError

FILES = ("preprocessor_config.json", "processor_config.json")
KNOWN = {"do_convert_rgb", "do_resize", "do_center_crop", "do_rescale", "do_normalize"}
REFUSED = {"rescale_offset", "include_top"}
WHOLE_FROM_PIXELS = 384
"""ConvNeXt's rule: from this size on the whole picture is squeezed, below it is enlarged and cropped."""


@dataclass(frozen=True)
class PicturePreparation:
    """From a picture to the pixels that a network sees.

    Attributes:
        resize: ``(height, width)`` to which pictures are squeezed, or ``(side,)`` to which their shorter side is brought,
            or empty.
        crop: ``(height, width)`` of the middle that is kept, or empty.
        resample: Pillow's number of the filter.
        rescale: by which pixels are multiplied.
        mean: by which they are centred afterwards, a channel.
        deviation: by which they are divided.
    """

    resize: tuple[int, ...]
    crop: tuple[int, ...]
    resample: int = int(Image.Resampling.BICUBIC)
    rescale: float = 1 / 255
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    deviation: tuple[float, ...] = (1.0, 1.0, 1.0)

    @property
    def shape(self) -> tuple[int, int]:
        """The height and the width of every picture afterwards."""
        height, width = self.crop or self.resize
        return height, width

    @property
    def smallest_pixels(self) -> int:
        """To which side a picture may be decoded and not be enlarged afterwards."""
        return max(self.resize or self.crop)

    def draw(self, picture: Image.Image) -> npt.NDArray[np.uint8]:
        """Return one picture's pixels, ``(3, height, width)`` uint8."""
        picture = picture.convert("RGB")
        if self.resize:
            picture = picture.resize(self._size(picture), Image.Resampling(self.resample))
        if self.crop:
            height, width = self.crop
            left, top = (picture.width - width) // 2, (picture.height - height) // 2
            picture = picture.crop((left, top, left + width, top + height))
        return np.ascontiguousarray(np.asarray(picture, np.uint8).transpose(2, 0, 1))

    def affine(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Return by what uint8 pixels are multiplied and what is added then, ``(3, 1, 1)`` float32 each."""
        mean, deviation = np.array(self.mean), np.array(self.deviation)
        factor, offset = self.rescale / deviation, -mean / deviation
        return np.float32(factor).reshape(3, 1, 1), np.float32(offset).reshape(3, 1, 1)

    def to_json(self) -> dict[str, Any]:
        """Return the preparation as a JSON value."""
        return asdict(self)

    def _size(self, picture: Image.Image) -> tuple[int, int]:
        if len(self.resize) == 2:
            return self.resize[1], self.resize[0]
        side, (width, height) = self.resize[0], picture.size
        longer = int(side * max(width, height) / min(width, height))
        return (side, longer) if width <= height else (longer, side)


def read_preparation(folder: Path) -> PicturePreparation:
    """Read how a model's folder wants its pictures.

    Raises:
        UserError: if the folder does not say, or asks for what is not done here.
    """
    for name in FILES:
        if (folder / name).is_file():
            content = read_json(folder / name)
            value = content.get("image_processor", content if name == FILES[0] else None)
            if isinstance(value, Mapping):
                return preparation_of(value, folder / name)
    raise UserError(
        f"{folder / FILES[0]} is missing; it says how the model's pictures are resized and scaled. "
        "Put it there from where the model came."
    )


def preparation_of(value: Mapping[str, Any], where: Path) -> PicturePreparation:
    """Return the preparation that an image processor's settings ask for.

    Raises:
        UserError: if they ask for what is not done here.
    """
    kind = str(value.get("image_processor_type") or value.get("feature_extractor_type") or "")
    for name, asked in value.items():
        if asked and (name in REFUSED or (name.startswith("do_") and name not in KNOWN)):
            raise UserError(f"{where} asks for {name}, which silohash does not do. Choose another model.")
    convnext = kind.startswith("ConvNext")
    resize = _resize(value, where, shorter=convnext or bool(value.get("do_center_crop")))
    crop = _pair(value.get("crop_size")) if value.get("do_center_crop") else ()
    if convnext and len(resize) == 1:
        resize, crop = _convnext(resize[0], float(value.get("crop_pct") or 224 / 256))
    if len(crop or resize) != 2:
        raise UserError(
            f"{where} leaves pictures of different sizes, which silohash does not do. Choose another model."
        )
    scaled, centred = value.get("do_rescale", True), value.get("do_normalize", True) and "image_mean" in value
    return PicturePreparation(
        resize=resize,
        crop=crop,
        resample=int(value.get("resample", Image.Resampling.BILINEAR)),
        rescale=float(value.get("rescale_factor") or 1 / 255) if scaled else 1.0,
        mean=_channels(value["image_mean"]) if centred else (0.0, 0.0, 0.0),
        deviation=_channels(value["image_std"]) if centred else (1.0, 1.0, 1.0),
    )


def _resize(value: Mapping[str, Any], where: Path, *, shorter: bool) -> tuple[int, ...]:
    if not value.get("do_resize", True):
        return ()
    size = value.get("size")
    if isinstance(size, Mapping) and set(size) == {"shortest_edge"}:
        return (int(size["shortest_edge"]),)
    if isinstance(size, int) and shorter:
        return (size,)
    pair = _pair(size)
    if not pair:
        raise UserError(f"{where} has the size {size!r}, which silohash does not know. Choose another model.")
    return pair


def _pair(size: object) -> tuple[int, ...]:
    if isinstance(size, int):
        return (size, size)
    if isinstance(size, Mapping) and set(size) == {"height", "width"}:
        return (int(size["height"]), int(size["width"]))
    return ()


def _convnext(side: int, share: float) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if side >= WHOLE_FROM_PIXELS:
        return (side, side), ()
    return (int(side / share),), (side, side)


def _channels(value: Any) -> tuple[float, ...]:  # noqa: ANN401  a number or a list of them
    return (float(value),) * 3 if isinstance(value, int | float) else tuple(float(number) for number in value)
