"""The input of a search: a text, an image or a vector, read and checked."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, Union

import numpy as np
import numpy.typing as npt

from silohash.base import errors
from silohash.base.arrays import as_array, given
from silohash.base.files import npy_in, read_bytes, read_npy
from silohash.base.forms import MALFORMED, damaged, detail
from silohash.base.types import MODALITIES, TARGETS, Modality, Target
from silohash.search.composed import TEXT_WEIGHT, Composed, RegionLike, cropped

if TYPE_CHECKING:
    from PIL import Image

    from silohash.features.base import Value

ImageLike: TypeAlias = Union["Path | str", "Image.Image", npt.NDArray[np.uint8]]
"""A picture: the path of a file, a Pillow image, or ``(height, width)`` or ``(height, width, 3)`` uint8 pixels."""

VectorLike: TypeAlias = Path | str | npt.ArrayLike
"""A feature vector: the path of a ``.npy`` file, or the numbers."""

SAVED = "Save the vector with numpy.save."


def read_input(
    text: str | None = None,
    image: ImageLike | None = None,
    vector: VectorLike | None = None,
    vector_modality: str = "image",
    *,
    text_weight: float = TEXT_WEIGHT,
    region: RegionLike | None = None,
) -> tuple[Value | Composed | None, Modality]:
    """Return the value to search for, and its modality. A vector, for runs on given features, needs to be told its own.

    Raises:
        UserError: Unless one of text, image and vector is given and can be read, or text and image together, or none.
    """
    _check_given(text, image, vector, region)
    if not (isinstance(text_weight, float | int) and 0 <= text_weight <= 1):
        raise errors.OutOfRange(f"text_weight is {text_weight!r}. Use a number from 0 to 1.")
    if image is not None:
        picture = read_picture(image) if region is None else cropped(read_picture(image), region)
        return picture if text is None else Composed(picture, text, text_weight), "image"
    if text is not None:
        return text, "text"
    return None if vector is None else _read_vector(vector), modality_named(vector_modality)


def _check_given(text: object, image: object, vector: object, region: object) -> None:
    """Check that the parts of a query are one of those that `read_input` reads."""
    given = [name for name, value in (("text", text), ("image", image), ("vector", vector)) if value is not None]
    if len(given) > 1 and given != ["text", "image"]:
        were = f"{' and '.join(given)} were given"
        raise errors.OneInputNeeded(f"Search for one of text, image and vector, or for a text with an image; {were}.")
    if text is not None:
        checked_text(text)
    if region is not None and image is None:
        raise errors.NoEffect("region is a part of an image. Add an image, or leave the region out.")


def checked_text(text: object) -> str:
    """Return a text that has words.

    Raises:
        UserError: If it is not a str, or is empty.
    """
    if not isinstance(text, str):
        raise errors.WrongType(f"The text is of type {type(text).__name__}. Give the words to search for as a str.")
    if not text.strip():
        raise errors.EmptyInput("The text is empty. Give the words to search for.")
    return text


def several(names: str | Iterable[str]) -> list[str]:
    """Return names as a list. A single string is one name.

    Example:
        >>> several("mAP@all"), several(("P@1", "P@5"))
        (['mAP@all'], ['P@1', 'P@5'])
    """
    return [names] if isinstance(names, str) else list(names)


def modality_named(name: str) -> Modality:
    """Return the modality with a name.

    Raises:
        UserError: If there is no such modality.
    """
    if name not in MODALITIES:
        raise errors.UnknownName(f'"{name}" is not a modality. Use image or text.')
    return name


def target_named(name: str) -> Target:
    """Return what a search finds, by its name.

    Raises:
        UserError: If there is no such target.
    """
    if name not in TARGETS:
        raise errors.UnknownName(f'"{name}" cannot be found. Use item, image or text.')
    return name


def read_picture(image: ImageLike) -> Image.Image:
    """Return an image that was given as a path, a Pillow image or uint8 pixels.

    Raises:
        UserError: If it cannot be read.
    """
    if isinstance(image, np.ndarray):
        return _from_pixels(image)
    if not isinstance(image, str | Path):
        return _from_pillow(image)
    from silohash.data.pictures.reading import decode

    try:
        return decode(read_bytes(Path(image)))
    except FileNotFoundError as error:
        raise errors.MissingFile(f'The file "{image}" does not exist. Check its path.') from error
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else "") or error
        raise errors.UnreadablePicture(
            f'"{image}" cannot be read as an image ({reason}). Give a PNG or JPEG file.'
        ) from error


def _from_pillow(image: object) -> Image.Image:
    """Return a Pillow image in mode ``L`` or ``RGB``, converted in the same way as a file of its mode."""
    from PIL import Image

    from silohash.data.pictures.profiles import PROFILE
    from silohash.data.pictures.reading import to_rgb

    if not isinstance(image, Image.Image):
        raise errors.WrongType(
            f"The image is of type {type(image).__name__}. Give a path, a Pillow image or uint8 pixels."
        )
    if image.mode in {"L", "RGB"} and PROFILE not in image.info:
        return image
    try:
        image.load()
        return to_rgb(image)
    except (OSError, ValueError) as error:
        raise errors.UnreadablePicture(
            f"The image of mode {image.mode} cannot be converted to RGB ({error}). Convert it first."
        ) from error


def _from_pixels(pixels: npt.NDArray[np.uint8]) -> Image.Image:
    from PIL import Image

    is_image = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)
    if pixels.dtype != np.uint8 or not is_image or not pixels.size:
        raise errors.WrongShape(
            f"The pixels have type {pixels.dtype} and shape {pixels.shape}. "
            "Give uint8 of shape (height, width) or (height, width, 3)."
        )
    return Image.fromarray(pixels)


def _read_vector(vector: VectorLike | None) -> Value:
    if not isinstance(vector, str | Path):
        return as_array(given("numbers of the vector", vector), "Give a vector of numbers.")
    if not Path(vector).exists():
        raise errors.MissingFile(f'The file "{vector}" does not exist. Check its path.')
    return _numbers(read_npy(Path(vector), remedy=SAVED), f'"{vector}"')


def vector_in(content: bytes) -> np.ndarray:
    """Return the feature vector in the content of an ``.npy`` file.

    Raises:
        UserError: If the content is not that of such a file with numbers.
    """
    try:
        found = npy_in(content)
    except MALFORMED as error:
        raise damaged("The file of the vector", detail(error), SAVED) from error
    return _numbers(found, "The file of the vector")


def _numbers(found: np.ndarray, where: str) -> np.ndarray:
    """Return an array after checking that it holds numbers."""
    if found.dtype.kind not in "fiub":
        raise errors.WrongType(f"{where} holds values of type {found.dtype}. Save a vector of numbers with numpy.save.")
    return found
