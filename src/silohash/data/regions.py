"""Regions of pictures: a feature vector and a box each, as image-text matching takes them, also from a user's folder."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from silohash.base.errors import LengthsDiffer, OutOfRange, WrongShape
from silohash.base.files import digest_arrays, read_npy
from silohash.base.types import Rows

WHOLE = (0.0, 0.0, 1.0, 1.0)
"""Box of a region whose place is unknown, in shares of the picture's width and height."""


@dataclass(frozen=True)
class Joined:
    """Arrays ``(m, R, D)`` of several files as one, of which only the rows that are needed are read, and their digest."""

    parts: tuple[np.ndarray, ...]
    digest: str

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of all rows, ``(M, R, D)``."""
        return sum(map(len, self.parts)), *self.parts[0].shape[1:]

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The type in which all values can be held."""
        return np.result_type(*self.parts)

    def __getitem__(self, rows: Rows) -> np.ndarray:
        """Return some rows, ``(n, R, D)``; zeros for the row -1."""
        found, start = np.zeros((len(rows), *self.shape[1:]), self.dtype), 0
        for part in self.parts:
            here = (rows >= start) & (rows < start + len(part))
            found[here] = part[rows[here] - start]
            start += len(part)
        return found


@dataclass(frozen=True)
class Regions:
    """The regions of the items' pictures. Items of the same picture share its regions, which are stored once.

    Attributes:
        features: ``(M, R, D)`` real numbers, usually mapped from a file.
        boxes: ``(M, R, 4)`` float32, x1, y1, x2, y2 as shares of the picture's width and height. A region with
            x2 <= x1 is padding.
        pictures: ``(N,)`` int64, the picture of each item, as a position in ``features``; -1 for an item without a picture.
    """

    features: np.ndarray | Joined
    boxes: npt.NDArray[np.float32]
    pictures: Rows

    def __post_init__(self) -> None:
        shape, kind = self.features.shape, self.features.dtype.kind
        if len(shape) != 3 or kind != "f" or self.boxes.shape != (*shape[:2], 4):
            raise WrongShape(
                f"Regions have features of shape {shape} ({self.features.dtype}) and boxes of shape "
                f"{self.boxes.shape}. They need real numbers (pictures, regions, width) and (pictures, regions, 4)."
            )

    def __len__(self) -> int:
        return len(self.pictures)

    @property
    def shape(self) -> tuple[int, int]:
        """The number of regions per picture and the width of a feature vector, ``(R, D)``."""
        return int(self.features.shape[1]), int(self.features.shape[2])

    def of(self, rows: Rows) -> npt.NDArray[np.float32]:
        """Return the features of the regions of some items with their boxes, ``(n, R, D + 4)`` float32.

        Regions that are padding, and those of items without a picture, are zero.
        """
        places = self.pictures[rows]
        held = np.concatenate([self.features[places].astype(np.float32), self.boxes[places]], axis=2)
        there = (held[:, :, -2] > held[:, :, -4]) & (places >= 0)[:, None]
        held[~there] = 0.0
        return held

    def taken(self, rows: Rows | Sequence[int]) -> Self:
        """Return the regions of some items."""
        return replace(self, pictures=self.pictures[rows])

    def digest(self) -> str:
        """Return a digest of all regions and of the items that they belong to."""
        features = np.array(self.features.digest) if isinstance(self.features, Joined) else self.features
        return digest_arrays({"features": features, "boxes": self.boxes, "picture": self.pictures})


def relative_boxes(boxes: npt.NDArray[np.floating], sizes: npt.NDArray[np.integer]) -> npt.NDArray[np.float32]:
    """Return boxes as shares of the size of their picture, clipped to it, ``(M, R, 4)`` float32.

    Boxes ``(M, R, 4)`` are x1, y1, x2, y2 in pixels, sizes ``(M, 2)`` width and height.

    Example:
        >>> relative_boxes(np.array([[[0.0, 5.0, 10.0, 30.0]]]), np.array([[20, 20]])).tolist()
        [[[0.0, 0.25, 0.5, 1.0]]]
    """
    sides = np.tile(sizes.astype(np.float64), 2)[:, None, :]
    return np.clip(boxes / sides, 0.0, 1.0).astype(np.float32)


BOXES, SIZES = "boxes.npy", "sizes.npy"
"""Files with the boxes of the regions, and with the width and height of the pictures if boxes are in pixels."""

WRITE_AGAIN = "Write it with numpy.save."


def given_regions(features: np.ndarray, path: Path, files: Sequence[str]) -> Regions:
    """Return the regions of the rows of a folder's metadata.

    The features ``(M, R, D)`` stay mapped from their file, so that only the regions that are needed are read. There is one
    entry per row, one per different ``file_name`` in the order in which they first occur, or one for every group of equally
    many rows. `BOXES` and `SIZES` are beside the file. Without boxes, each region is the whole picture.

    Raises:
        UserError: If the number of entries does not fit the rows, or boxes or sizes do not fit the features.
    """
    pictures, regions = features.shape[:2]
    numbers = _picture_of_rows(pictures, path, files)
    boxes = np.tile(np.array(WHOLE, np.float32), (pictures, regions, 1))
    if (path.parent / BOXES).is_file():
        found = fitting(read_npy(path.parent / BOXES, remedy=WRITE_AGAIN), path.parent / BOXES, (pictures, regions, 4))
        sizes = path.parent / SIZES if (path.parent / SIZES).is_file() else None
        held = None if sizes is None else fitting(read_npy(sizes, remedy=WRITE_AGAIN), sizes, (pictures, 2))
        boxes = boxes_of_pictures(found, held, path.parent / BOXES, SIZES)
    return Regions(features, boxes, numbers)


def boxes_of_pictures(
    boxes: np.ndarray, sizes: np.ndarray | None, path: Path, sizes_name: str
) -> npt.NDArray[np.float32]:
    """Return boxes ``(M, R, 4)`` as shares, from pixels if there are ``sizes (M, 2)``, width and height.

    Raises:
        UserError: If there are no sizes, and boxes of the file ``path`` are not shares. It names the file of the sizes.
    """
    if sizes is not None:
        return relative_boxes(boxes, sizes)
    if boxes.max(initial=0.0) > 1 or boxes.min(initial=0.0) < 0:
        raise OutOfRange(
            f"{path} has values from {boxes.min():g} to {boxes.max():g}. Give shares of the width and height of the "
            f"picture, from 0 to 1, or the width and height of each picture in pixels in {sizes_name}."
        )
    return boxes.astype(np.float32)


def _picture_of_rows(pictures: int, path: Path, files: Sequence[str]) -> Rows:
    """Return the entry of each row, ``(N,)``."""
    rows, named = len(files), list(dict.fromkeys(files))
    if pictures == rows:
        return np.arange(rows)
    if pictures == len(named):
        place = {name: number for number, name in enumerate(named)}
        return np.array([place[name] for name in files], np.int64)
    if rows % pictures == 0 and not any(files):
        return np.arange(rows) // (rows // pictures)
    raise LengthsDiffer(
        f"{path} has regions of {pictures:,} pictures, and the metadata has {rows:,} rows with {len(named):,} different "
        "values of file_name. Give one entry per row, or one per picture in the order in which the rows first name it."
    )


def fitting(values: np.ndarray, path: Path, *shapes: tuple[int, ...]) -> np.ndarray:
    """Return the content of a file, after checking that it is finite numbers of one of some shapes.

    Raises:
        UserError: If it is not.
    """
    if values.shape not in shapes or values.dtype.kind not in "fiu" or not np.isfinite(values).all():
        raise WrongShape(
            f"{path} holds {values.dtype} of shape {values.shape}. It must hold finite numbers of shape "
            f"{' or '.join(map(str, dict.fromkeys(shapes)))}."
        )
    return values
