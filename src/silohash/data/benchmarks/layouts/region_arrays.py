"""Arrays of region features with captions, as papers on image-text matching distribute them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from silohash.base.errors import BadLine, FilesDiffer, MissingFile, WrongShape
from silohash.base.files import read_npy
from silohash.data.archive import Features
from silohash.data.benchmarks.layouts import reading
from silohash.data.benchmarks.layouts.reading import Layout, Need
from silohash.data.catalogue import check_option
from silohash.data.protocols.contents import Contents

CAPTIONS_PER_PICTURE = 5
REGIONS = ("none", "mean")
SPLITS = {"train": "train", "dev": "validation", "test": "query"}
"""A part's name in the files -> the split that it stands for."""

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
    root: Path, *, captions: str = "first", regions: str = "none", parts: Sequence[str] = tuple(SPLITS)
) -> Contents:
    """Read ``{train,dev,test}_ims.npy`` (``(n, 36, 2048)``) with ``{train,dev,test}_caps.txt``, 5 captions per picture.

    Some releases repeat each picture's features for each of its captions. They are recognized by their number of rows,
    and the repeated rows must be equal. No such release includes pictures, so ``image`` is None or the regions' means. With
    ``regions = "none"``, the arrays stay on the disk for a reader of regions.
    """
    check_option("regions", regions, REGIONS)
    found = _read_parts(root, parts)
    pictures = [f"{part.name}-{row}" for part in found for row in range(len(part.captions))]
    items = reading.spread_captions(pictures, [texts for part in found for texts in part.captions], captions)
    text, text_notes = reading.text_column(items.texts)
    part_of = np.array([part.name for part in found for _ in part.captions], np.str_)[items.rows]
    return Contents(
        ids=np.array(items.ids, np.str_),
        image=np.concatenate([_means(part) for part in found])[items.rows] if regions == "mean" else None,
        text=text,
        labels=None,
        label_names=(),
        stated={SPLITS[part.name]: np.flatnonzero(part_of == part.name) for part in found},
        notes={"captions": captions, **_region_notes(found, regions), **text_notes},
        columns={"picture": np.array(pictures, np.str_)[items.rows]},
    )


def _read_parts(root: Path, parts: Sequence[str]) -> list[_Part]:
    wanted = parts.split("|") if isinstance(parts, str) else list(parts)
    for name in wanted:
        check_option("parts", name, tuple(SPLITS))
    found = [_read_part(root, name) for name in SPLITS if name in wanted]
    shapes = {part.features.shape[1:] for part in found}
    if len(shapes) > 1:
        raise FilesDiffer(f"The parts in {root} have features of different shapes: {shapes}. Use one release.")
    return found


def _region_notes(parts: Sequence[_Part], regions: str) -> dict[str, str]:
    shape = " x ".join(str(size) for size in parts[0].features.shape[1:])
    repeated = ", ".join(part.name for part in parts if part.step > 1)
    untaken = f"{shape} per picture, not read; regions = mean reads their mean"
    notes = {"regions": "the mean over a picture's regions" if regions == "mean" else untaken}
    return notes | ({"features repeated per caption": repeated} if repeated else {})


def _read_part(root: Path, name: str) -> _Part:
    path, captions = root / f"{name}_ims.npy", root / f"{name}_caps.txt"
    for needed in (path, captions):
        if not needed.is_file():
            present = ", ".join(file.name for file in reading.find(root, "*_ims.npy")) or "none"
            raise MissingFile(f"{needed} is missing; the arrays present are: {present}. Add it, or set parts.")
    features = _map_features(path)
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
        number = lines.index("") + 1
        raise BadLine(f"{path}, line {number} is empty, but each picture has five captions. {reading.RESTORE}")
    return lines


def _map_features(path: Path) -> np.ndarray:
    features = read_npy(path, mapped=True, remedy=reading.RESTORE, missing=reading.RESTORE)
    if features.ndim != 3 or features.dtype.kind != "f":
        raise WrongShape(
            f"{path} holds {features.dtype} of shape {features.shape}; it needs real numbers of shape (pictures, "
            "regions, width)."
        )
    return features


def _check_repeated_rows(path: Path, features: np.ndarray) -> None:
    """Check that the first five and the last five rows of a file are equal."""
    for start in {0, len(features) - CAPTIONS_PER_PICTURE}:
        block = features[start : start + CAPTIONS_PER_PICTURE]
        if not (block == block[:1]).all():
            raise FilesDiffer(
                f"{path} has one row per caption, but its rows {start} to {start + CAPTIONS_PER_PICTURE - 1} differ, so "
                "they cannot be the same picture. Restore features and captions from one release."
            )


def _means(part: _Part) -> Features:
    """Return the mean over each picture's regions, ``(pictures, width)`` float32."""
    features = part.features[:: part.step]
    means: npt.NDArray[np.float32] = np.empty((len(features), features.shape[2]), np.float32)
    for start in range(0, len(features), BLOCK_PICTURES):
        means[start : start + BLOCK_PICTURES] = features[start : start + BLOCK_PICTURES].mean(axis=1, dtype=np.float64)
    return means


REGION_ARRAYS = Layout(
    name="region-arrays",
    summary="train_ims.npy, dev_ims.npy, test_ims.npy of image-text matching (SCAN, GSMN) with 5 captions per picture",
    needs=(
        Need("test_ims.npy", "features of 36 regions per picture"),
        Need("test_caps.txt", "5 captions per picture, one per line"),
        Need("train_ims.npy", "the same for the training pictures", optional=True),
        Need("train_caps.txt", "their captions", optional=True),
        Need("dev_ims.npy", "the same for the validation pictures", optional=True),
        Need("dev_caps.txt", "their captions", optional=True),
    ),
    read=read_region_arrays,
    options={
        "captions": reading.CAPTIONS_OPTION,
        "regions": "none, or mean (the mean over a picture's regions)",
        "parts": "which of train, dev and test to read, joined with |",
    },
)
