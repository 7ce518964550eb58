"""Read the files with regions of pictures that a packed set has: grid cells, or boxes that people drew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from silohash.data.pictures.reading import read_array
from silohash.data.regions import Regions, relative_boxes
from silohash.types import Rows

REGION_OPTIONS = ("regions", "boxes")
"""Values of the option ``image`` that mean regions: the cells of a grid, or the boxes that people drew."""


def read_regions(file: Callable[[str], Path], option: str, pictures: Rows) -> Regions:
    """Return the regions of the items' pictures. Those of a grid are mapped into memory.

    A picture without boxes has its grid in place of them.

    Args:
        file: Function that returns the path of a file of the set.
        option: One of `REGION_OPTIONS`.
        pictures: ``(N,)``, row of each item's picture in the files.

    Raises:
        UserError: If a file is missing or damaged.
    """
    features = read_array(file("features/regions_grid36.npy"), mapped=True)
    sizes = read_array(file("features/image_sizes.npy"))
    boxes = relative_boxes(read_array(file("features/regions_grid36_boxes.npy")), sizes)
    if option == "regions":
        return Regions(features, boxes, pictures)
    number = read_array(file("features/regions_human_index.npy"))[:, :2]
    drawn = relative_boxes(read_array(file("features/regions_human_boxes.npy"))[:, None], sizes[number[:, 0]])[:, 0]
    count = np.bincount(number[:, 0], minlength=len(features))
    most = max(features.shape[1], int(count.max()))
    held = np.zeros((len(features), most, features.shape[2]), features.dtype)
    places = np.zeros((len(features), most, 4), np.float32)
    grid = np.flatnonzero(count == 0)
    held[grid, : features.shape[1]], places[grid, : features.shape[1]] = features[grid], boxes[grid]
    held[number[:, 0], number[:, 1]] = read_array(file("features/regions_human.npy"))
    places[number[:, 0], number[:, 1]] = drawn
    return Regions(held, places, pictures)
