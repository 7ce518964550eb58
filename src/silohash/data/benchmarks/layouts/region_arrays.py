"""Arrays of region features with captions, as papers on image-text matching distribute them."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from silohash.base.errors import BadLine, ConflictingOptions, FilesDiffer, MissingContent, MissingFile, WrongShape
from silohash.base.files import digest_json, read_npy
from silohash.base.forms import reading as reading_file
from silohash.base.stamps import file_digests
from silohash.base.types import Rows
from silohash.data.archive import Features
from silohash.data.benchmarks.layouts import reading
from silohash.data.catalogue import check_option
from silohash.data.protocols.contents import Contents
from silohash.data.regions import WHOLE, Joined, Regions, boxes_of_pictures, fitting

CAPTIONS_PER_PICTURE = 5
REGIONS = ("all", "mean", "none")
SPLITS = {"train": "train", "dev": "validation", "test": "query", "testall": "query"}
"""A part's name in the files -> the split that it stands for. Sets with several test parts have them all in ``testall``."""

PARTS = ("train", "dev", "test")
BOXES = ("boxes.npy", "boxes.npz", "ims_bbx.npy")
SIZES = ("sizes.npy", "ims_size.npy")
"""Endings of the files of boxes, and of the width and height of pictures in pixels, after the part's name and ``_``."""

SAVE_SIZES = "Save the width and height of each picture as numbers of shape (pictures, 2) with numpy.save."

BLOCK_PICTURES = 256


class _Part(NamedTuple):
    """One part: its memory-mapped features ``(n, regions, width)``, each picture's captions, and the step between pictures.

    ``step`` is 5 if the features are repeated for every caption, else 1.
    """

    name: str
    features: np.ndarray
    captions: list[list[str]]
    step: int


def read_region_arrays(
    root: Path, *, captions: str = "first", regions: str = "all", parts: Sequence[str] = PARTS
) -> Contents:
    """Read ``{train,dev,test}_ims.npy`` (``(n, 36, 2048)``) with ``{train,dev,test}_caps.txt``, 5 captions per picture.

    Some releases repeat each picture's features for each of its captions. They are recognized by their number of rows,
    and the repeated rows must be equal. No such release includes pictures, so ``image`` is the regions, mapped from the
    disk, or their means, or None. Without a file of boxes, each region is the whole picture.
    """
    check_option("regions", regions, REGIONS)
    found = _read_parts(root, parts)
    pictures = [f"{part.name}-{row}" for part in found for row in range(len(part.captions))]
    items = reading.spread_captions(pictures, [texts for part in found for texts in part.captions], captions)
    part_of = np.array([part.name for part in found for _ in part.captions], np.str_)[items.rows]
    image: Features | Regions | None = None
    if regions == "mean":
        image = np.concatenate([_means(part) for part in found])[items.rows]
    elif regions == "all":
        image = _regions(root, found, items.rows)
    return Contents(
        ids=items.ids,
        image=image,
        text=items.text,
        labels=None,
        label_names=(),
        stated={SPLITS[part.name]: np.flatnonzero(part_of == part.name) for part in found},
        notes={"captions": captions, **_region_notes(root, found, regions), **items.notes},
        columns={"picture": np.array(pictures, np.str_)[items.rows]},
    )


def _read_parts(root: Path, parts: Sequence[str]) -> list[_Part]:
    wanted = parts.split("|") if isinstance(parts, str) else list(parts)
    for name in wanted:
        check_option("parts", name, tuple(SPLITS))
    if {"test", "testall"} <= set(wanted):
        raise ConflictingOptions(
            'parts has both "test" and "testall", which holds the same pictures. Name one of them.'
        )
    found = [_read_part(root, name) for name in SPLITS if name in wanted]
    shapes = {part.features.shape[1:] for part in found}
    if len(shapes) > 1:
        raise FilesDiffer(f"The parts in {root} have features of different shapes: {shapes}. Use one release.")
    return found


def _region_notes(root: Path, parts: Sequence[_Part], regions: str) -> dict[str, str]:
    shape = " x ".join(str(size) for size in parts[0].features.shape[1:])
    repeated = ", ".join(part.name for part in parts if part.step > 1)
    unplaced = ", ".join(part.name for part in parts if regions == "all" and _file(root, part.name, BOXES) is None)
    read = {"mean": "the mean over a picture's regions", "all": f"{shape} per picture"}
    unread = f'{shape} per picture, not read, because data.options.regions is "none"'
    notes = {
        "regions": read.get(regions, unread),
        "features repeated per caption": repeated,
        "parts without boxes, whose regions are the whole picture": unplaced,
    }
    return {what: words for what, words in notes.items() if words}


def _file(root: Path, part: str, endings: Sequence[str]) -> Path | None:
    """Return the first file of a part with one of some endings, or None."""
    return next((path for ending in endings if (path := root / f"{part}_{ending}").is_file()), None)


def _regions(root: Path, parts: Sequence[_Part], pictures: Rows) -> Regions:
    """Return the regions of items, given the picture of each. Features stay mapped from their files."""
    names = [f"{part.name}_ims.npy" for part in parts]
    digests = file_digests(root, names)
    key = digest_json([[digests[name], part.step] for name, part in zip(names, parts, strict=True)])
    features = Joined(tuple(part.features[:: part.step] for part in parts), key)
    return Regions(features, np.concatenate([_boxes(root, part) for part in parts]), pictures)


def _boxes(root: Path, part: _Part) -> npt.NDArray[np.float32]:
    """Return the boxes of a part's pictures as shares, ``(pictures, regions, 4)``."""
    rows, regions = part.features.shape[:2]
    counts, path = (rows // part.step, rows), _file(root, part.name, BOXES)
    if path is None:
        return np.tile(np.array(WHOLE, np.float32), (counts[0], regions, 1))
    found, place = _stored_boxes(path), _file(root, part.name, SIZES) or path
    # GSMN's release has Python objects in the file of sizes, which are never loaded.
    given = read_npy(place, remedy=SAVE_SIZES) if place != path else found.get("sizes")
    boxes = fitting(found["bbox"], path, *((count, regions, 4) for count in counts))
    sizes = None if given is None else fitting(given, place, *((count, 2) for count in counts))
    if sizes is not None and len(sizes) > counts[0]:
        sizes = sizes[:: part.step]
    boxes = boxes if len(boxes) == counts[0] else boxes[:: part.step]
    return boxes_of_pictures(boxes, sizes, path, f"{part.name}_{SIZES[0]}")


def _stored_boxes(path: Path) -> dict[str, np.ndarray]:
    """Return the boxes in a file as ``bbox``, and the widths and heights beside them, if there are any, as ``sizes``."""
    if path.suffix == ".npy":
        return {"bbox": read_npy(path, remedy=reading.RESTORE)}
    with (
        reading_file(path, remedy=reading.RESTORE),
        path.open("rb") as stream,
        np.load(stream, allow_pickle=False) as stored,
    ):
        held = {name: stored[name] for name in stored.files}
        if {"image_w", "image_h"} <= held.keys():
            held["sizes"] = np.stack([held[side].reshape(-1) for side in ("image_w", "image_h")], axis=1)
    if "bbox" not in held:
        raise MissingContent(f"{path} has no array bbox, but: {', '.join(held) or 'none'}. Store the boxes as bbox.")
    return held


def _read_part(root: Path, name: str) -> _Part:
    path, captions = root / f"{name}_ims.npy", root / f"{name}_caps.txt"
    for needed in (path, captions):
        if not needed.is_file():
            present = ", ".join(file.name for file in reading.find(root, "*_ims.npy")) or "none"
            raise MissingFile(
                f"{needed} is missing; the arrays present are: {present}. Add it, or set data.options.parts."
            )
    features = read_npy(path, mapped=True, remedy=reading.RESTORE, missing=reading.RESTORE)
    if features.ndim != 3 or features.dtype.kind != "f":
        raise WrongShape(
            f"{path} holds {features.dtype} of shape {features.shape}; it needs real numbers of shape (pictures, "
            "regions, width)."
        )
    lines = _read_captions(captions)
    count, rest = divmod(len(lines), CAPTIONS_PER_PICTURE)
    if rest or len(features) not in {count, len(lines)}:
        raise FilesDiffer(
            f"{captions} has {len(lines):,} lines and {path} has {len(features):,} rows; there must be "
            f"{CAPTIONS_PER_PICTURE} lines per row, or one row per line. Restore both from one release."
        )
    step = CAPTIONS_PER_PICTURE if count and len(features) == len(lines) else 1
    if step > 1:
        _check_repeated_rows(path, features)
    starts = range(0, len(lines), CAPTIONS_PER_PICTURE)
    return _Part(name, features, [lines[start : start + CAPTIONS_PER_PICTURE] for start in starts], step)


def _read_captions(path: Path) -> list[str]:
    lines = reading.read_lines(path)
    if "" in lines:
        empty = f"line {lines.index('') + 1} is empty, but each picture has five captions"
        raise BadLine(f"{path}, {empty}. {reading.RESTORE}")
    return lines


def _check_repeated_rows(path: Path, features: np.ndarray) -> None:
    for start in {0, len(features) - CAPTIONS_PER_PICTURE}:
        block = features[start : start + CAPTIONS_PER_PICTURE]
        if not (block == block[:1]).all():
            raise FilesDiffer(
                f"{path} has one row per caption, but its rows {start} to {start + CAPTIONS_PER_PICTURE - 1} differ, so "
                "they cannot be the same picture. Restore features and captions from one release."
            )


def _means(part: _Part) -> Features:
    features = part.features[:: part.step]
    means: npt.NDArray[np.float32] = np.empty((len(features), features.shape[2]), np.float32)
    for start in range(0, len(features), BLOCK_PICTURES):
        means[start : start + BLOCK_PICTURES] = features[start : start + BLOCK_PICTURES].mean(axis=1, dtype=np.float64)
    return means


REGION_ARRAYS = reading.layout("region-arrays", read_region_arrays)
