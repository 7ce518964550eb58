"""Regions of pictures that a packed set has: grid cells, boxes that people drew, or the objects of drawn scenes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from silohash.base.types import Rows
from silohash.data.pictures.reading import read_array
from silohash.data.regions import Regions, relative_boxes

REGION_OPTIONS = ("regions", "boxes")
"""Values of the option ``image`` that mean regions: the cells of a grid, or the boxes that people drew."""


SHAPES, COLOURS, SIZES, BOXES = ("square", "circle", "triangle"), ("yellow", "black", "blue"), (10, 20, 30), (0, 1, 2)
"""What an object of a drawn scene can be, and the boxes of the scene in which it can lie."""

SCENE = (400, 100)
"""Width and height of a drawn scene, in pixels."""


def scene_regions(scenes: Sequence[Sequence[Mapping[str, Any]]]) -> Regions:
    """Return the objects of drawn scenes, each as its shape, colour, size and box in the scene, one value per kind.

    Args:
        scenes: For each item, its objects with ``shape``, ``colour``, ``size``, ``box`` and ``bbox`` (x, y, width and
            height in pixels).
    """
    most = max(map(len, scenes))
    kinds: list[tuple[str, tuple[Any, ...]]] = [("shape", SHAPES), ("colour", COLOURS), ("size", SIZES), ("box", BOXES)]
    features = np.zeros((len(scenes), most, sum(len(values) for _, values in kinds)), np.float32)
    boxes = np.zeros((len(scenes), most, 4), np.float32)
    for row, objects in enumerate(scenes):
        for place, thing in enumerate(objects):
            features[row, place] = np.concatenate([np.equal(thing[kind], values) for kind, values in kinds])
            left, top, width, height = thing["bbox"]
            boxes[row, place] = left, top, left + width, top + height
    return Regions(features, relative_boxes(boxes, np.tile(np.array(SCENE), (len(scenes), 1))), np.arange(len(scenes)))


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
