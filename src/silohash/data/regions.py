"""Regions of pictures: one feature vector and one box per region, as image-text matching takes them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from silohash.base.files import digest_arrays
from silohash.base.types import Rows, UserError

WHOLE = (0.0, 0.0, 1.0, 1.0)
"""Box of a region whose place is unknown, in shares of the picture's width and height."""


@dataclass(frozen=True)
class Regions:
    """The regions of the items' pictures. Items of the same picture share its regions, which are stored once.

    Attributes:
        features: ``(M, R, D)`` real numbers, usually mapped from a file.
        boxes: ``(M, R, 4)`` float32, x1, y1, x2, y2 as shares of the picture's width and height. A region with
            x2 <= x1 is padding.
        pictures: ``(N,)`` int64, the picture of each item, as a position in ``features``; -1 for an item without a picture.
    """

    features: np.ndarray
    boxes: npt.NDArray[np.float32]
    pictures: Rows

    def __post_init__(self) -> None:
        if (
            self.features.ndim != 3
            or self.features.dtype.kind != "f"
            or self.boxes.shape != (*self.features.shape[:2], 4)
        ):
            raise UserError(
                f"Regions have features of shape {self.features.shape} ({self.features.dtype}) and boxes of shape "
                f"{self.boxes.shape}. They need real numbers (pictures, regions, width) and (pictures, regions, 4)."
            )

    def __len__(self) -> int:
        """Return the number of items."""
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

    def digest(self) -> str:
        """Return a digest of all regions and of the items that they belong to."""
        return digest_arrays({"features": self.features, "boxes": self.boxes, "picture": self.pictures})


def relative_boxes(boxes: npt.NDArray[np.floating], sizes: npt.NDArray[np.integer]) -> npt.NDArray[np.float32]:
    """Return boxes as shares of the size of their picture, clipped to it, ``(M, R, 4)`` float32.

    Args:
        boxes: ``(M, R, 4)``, x1, y1, x2, y2 in pixels.
        sizes: ``(M, 2)``, width and height of each picture in pixels.

    Example:
        >>> relative_boxes(np.array([[[0.0, 5.0, 10.0, 30.0]]]), np.array([[20, 20]])).tolist()
        [[[0.0, 0.25, 0.5, 1.0]]]
    """
    sides = np.tile(sizes.astype(np.float64), 2)[:, None, :]
    return np.clip(boxes / sides, 0.0, 1.0).astype(np.float32)
