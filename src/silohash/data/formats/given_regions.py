"""Regions of pictures that a user's folder gives: features of a detector, and the places of its boxes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from silohash.base.files import read_npy
from silohash.base.types import Rows, UserError
from silohash.data.regions import WHOLE, Regions, relative_boxes

BOXES, SIZES = "boxes.npy", "sizes.npy"
"""Files with the boxes of the regions, and with the width and height of the pictures if boxes are in pixels."""

WRITE_AGAIN = "Write it with numpy.save."


def given_regions(features: np.ndarray, path: Path, files: Sequence[str]) -> Regions:
    """Return the regions of the rows of a folder's metadata.

    The features stay mapped from their file, so that only the regions that are needed are read. There is one entry per row,
    one per different ``file_name`` in the order in which they first occur, or one for every group of equally many rows.

    Args:
        features: ``(M, R, D)`` real numbers.
        path: The file that holds them. `BOXES` and `SIZES` are beside it. Without boxes, each region is the whole picture.
        files: ``file_name`` of each row; empty if there is none.

    Raises:
        UserError: If the number of entries does not fit the rows, or boxes or sizes do not fit the features.
    """
    pictures, regions = features.shape[:2]
    numbers = _picture_of_rows(pictures, path, files)
    boxes = np.broadcast_to(np.array(WHOLE, np.float32), (pictures, regions, 4))
    if (path.parent / BOXES).is_file():
        boxes = _fitting(path.parent / BOXES, (pictures, regions, 4)).astype(np.float32)
        if (path.parent / SIZES).is_file():
            boxes = relative_boxes(boxes, _fitting(path.parent / SIZES, (pictures, 2)))
        elif boxes.max(initial=0.0) > 1:
            raise UserError(
                f"{path.parent / BOXES} has values up to {boxes.max():g}. Give shares of the width and height of the "
                f"picture, or the width and height of each picture in pixels in {SIZES}."
            )
    return Regions(features, np.ascontiguousarray(boxes), numbers)


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
    raise UserError(
        f"{path} has regions of {pictures:,} pictures, and the metadata has {rows:,} rows with {len(named):,} different "
        "values of file_name. Give one entry per row, or one per picture in the order in which the rows first name it."
    )


def _fitting(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """Return the content of a file, after checking its shape."""
    values = read_npy(path, remedy=WRITE_AGAIN)
    if values.shape != shape or values.dtype.kind not in "fiu" or not np.isfinite(values).all():
        raise UserError(
            f"{path} holds {values.dtype} of shape {values.shape}. It must hold finite numbers of shape {shape}."
        )
    return values
