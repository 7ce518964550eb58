"""Image preprocessing of published networks: resizing, cropping and scaling as in ``preprocessor_config.json``.

The preprocessing uses only Pillow and NumPy, so that threads can run it in parallel. Pixels stay uint8 until they are on
the device.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from silohash.base.errors import MissingFile, UnsupportedNetwork
from silohash.base.files import read_json
from silohash.base.forms import reading
from silohash.features.model_folder import COPY_AGAIN

FILES = ("preprocessor_config.json", "processor_config.json")
KNOWN = {"do_convert_rgb", "do_resize", "do_center_crop", "do_rescale", "do_normalize"}
REFUSED = {"rescale_offset", "include_top"}
WHOLE_FROM_PIXELS = 384
"""ConvNeXt's rule: at this size or above, the whole picture is resized; below it, the picture is resized and cropped."""


@dataclass(frozen=True)
class PicturePreparation:
    """The steps from a picture to the input of a network.

    Attributes:
        resize: ``(height, width)`` after resizing, ``(side,)`` for the length of the shorter side after resizing, or
            empty for no resizing.
        crop: ``(height, width)`` of the center crop, or empty for no crop.
        resample: Pillow's number of the resampling filter.
        rescale: Factor by which the pixel values are multiplied.
        mean: Mean per channel, which is subtracted after rescaling.
        deviation: Standard deviation per channel, by which the result is divided.
    """

    resize: tuple[int, ...]
    crop: tuple[int, ...]
    resample: int = int(Image.Resampling.BICUBIC)
    rescale: float = 1 / 255
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    deviation: tuple[float, ...] = (1.0, 1.0, 1.0)

    @property
    def shape(self) -> tuple[int, int]:
        """The height and the width of the result."""
        height, width = self.crop or self.resize
        return height, width

    @property
    def smallest_pixels(self) -> int:
        """The smallest side in pixels at which pictures may be decoded without being enlarged later."""
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
        """Return the factor of uint8 pixels and the offset that is added to the product, ``(3, 1, 1)`` float32 each."""
        mean, deviation = np.array(self.mean), np.array(self.deviation)
        factor, offset = self.rescale / deviation, -mean / deviation
        return np.float32(factor).reshape(3, 1, 1), np.float32(offset).reshape(3, 1, 1)

    def _size(self, picture: Image.Image) -> tuple[int, int]:
        if len(self.resize) == 2:
            return self.resize[1], self.resize[0]
        side, (width, height) = self.resize[0], picture.size
        longer = int(side * max(width, height) / min(width, height))
        return (side, longer) if width <= height else (longer, side)


def read_preparation(folder: Path) -> PicturePreparation:
    """Return the image preprocessing that a model's folder specifies.

    Raises:
        UserError: If the folder does not specify it, or if it is not supported.
    """
    for name in FILES:
        if (folder / name).is_file():
            content = read_json(folder / name, dict[str, Any], remedy=COPY_AGAIN)
            value = content.get("image_processor", content if name == FILES[0] else None)
            if isinstance(value, Mapping):
                with reading(folder / name, remedy=COPY_AGAIN):
                    return preparation_of(value, folder / name)
    raise MissingFile(
        f"{folder / FILES[0]} is missing, which specifies how pictures are resized and scaled. "
        "Copy it from the source of the model."
    )


def preparation_of(value: Mapping[str, Any], where: Path) -> PicturePreparation:
    """Return the preprocessing that an image processor's settings specify.

    Raises:
        UserError: If it is not supported.
    """
    for name, setting in value.items():
        if setting and (name in REFUSED or (name.startswith("do_") and name not in KNOWN)):
            raise UnsupportedNetwork(f"{where} requires {name}, which is not supported. Choose another model.")
    resize, crop = _sizes(value, where)
    if len(crop or resize) != 2:
        raise UnsupportedNetwork(
            f"{where} leaves pictures at different sizes, which is not supported. Choose another model."
        )
    centered = value.get("do_normalize", True) and "image_mean" in value
    return PicturePreparation(
        resize=resize,
        crop=crop,
        resample=int(value.get("resample", Image.Resampling.BILINEAR)),
        rescale=float(value.get("rescale_factor") or 1 / 255) if value.get("do_rescale", True) else 1.0,
        mean=_channels(value["image_mean"]) if centered else (0.0, 0.0, 0.0),
        deviation=_channels(value["image_std"]) if centered else (1.0, 1.0, 1.0),
    )


def _sizes(value: Mapping[str, Any], where: Path) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the size after resizing and the size of the crop, see `PicturePreparation`."""
    cropped = bool(value.get("do_center_crop"))
    kind = str(value.get("image_processor_type") or value.get("feature_extractor_type") or "")
    convnext = kind.startswith("ConvNext")
    resize = _resize(value, where, shorter=convnext or cropped)
    if convnext and len(resize) == 1:
        side, share = resize[0], float(value.get("crop_pct") or 224 / 256)
        return ((side, side), ()) if side >= WHOLE_FROM_PIXELS else ((int(side / share),), (side, side))
    return resize, _pair(value.get("crop_size")) if cropped else ()


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
        raise UnsupportedNetwork(f"{where} has the size {size!r}, which is not supported. Choose another model.")
    return pair


def _pair(size: object) -> tuple[int, ...]:
    if isinstance(size, int):
        return (size, size)
    if isinstance(size, Mapping) and set(size) == {"height", "width"}:
        return (int(size["height"]), int(size["width"]))
    return ()


def _channels(value: Any) -> tuple[float, ...]:  # noqa: ANN401  a number or a list of them
    return (float(value),) * 3 if isinstance(value, int | float) else tuple(float(number) for number in value)
