"""Arrays of region features with captions, as the repositories of image-text matching share them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from silohash.data.archive import Features, as_texts
from silohash.data.benchmarks.raw import Layout, Need, Raw
from silohash.data.benchmarks.reading import counts, find, lines_of, one_of, spread
from silohash.types import UserError

CAPTIONS_A_PICTURE = 5
REGIONS = ("none", "mean")
SPLITS = {"train": "train", "dev": "validation", "test": "query"}
"""The files' name of a split, and the split it stands for."""
BLOCK_PICTURES = 256


@dataclass(frozen=True)
class _Part:
    """One split: its mapped features ``(n, regions, width)``, captions of each picture, and the step between pictures.

    ``step`` is 5 where the features stand once a caption, else 1.
    """

    name: str
    features: np.ndarray
    sentences: list[list[str]]
    step: int


def region_arrays(
    root: Path, *, captions: str = "first", regions: str = "none", parts: Sequence[str] = tuple(SPLITS)
) -> Raw:
    """Reads ``{train,dev,test}_ims.npy`` (``(n, 36, 2048)``) with ``{train,dev,test}_caps.txt``, 5 captions a picture.

    Some releases hold each picture's features five times, once a caption; those are recognised by their number, and
    must really be equal. Pictures lie beside no such release, so that ``image`` is None or the regions' means.

    Args:
        root: the folder of arrays.
        captions: ``first``, ``all`` (joined) or ``each`` (an item a caption; the column ``picture`` tells which belong
            together).
        regions: ``none`` (no image column; the arrays stay on the disk for a reader of regions) or ``mean`` (the mean
            over a picture's regions, ``(N, width)``, read a few hundred pictures at a time).
        parts: which of train, dev and test are read; a list, or joined with ``|``.

    Raises:
        UserError: if a file is missing or damaged, or a split's features and captions differ in length.
    """
    one_of("regions", regions, REGIONS)
    wanted = parts.split("|") if isinstance(parts, str) else list(parts)
    for name in wanted:
        one_of("parts", name, tuple(SPLITS))
    found = [_part(root, name) for name in SPLITS if name in wanted]
    pictures = [f"{part.name}-{row}" for part in found for row in range(len(part.sentences))]
    items = spread(pictures, [of_picture for part in found for of_picture in part.sentences], captions)
    texts, cut = as_texts(items.texts)
    split = np.array([part.name for part in found for _ in part.sentences], np.str_)[items.rows]
    widths = {part.features.shape[1:] for part in found}
    if len(widths) > 1:
        raise UserError(f"The splits under {root} have features of different shapes: {widths}. Use one release.")
    return Raw(
        ids=np.array(items.ids, np.str_),
        image=np.concatenate([_means(part) for part in found])[items.rows] if regions == "mean" else None,
        text=texts,
        labels=None,
        label_names=(),
        stated={SPLITS[part.name]: np.flatnonzero(split == part.name) for part in found},
        notes={
            "captions": captions,
            "regions": "the mean over a picture's regions"
            if regions == "mean"
            else f"{_shape(found[0])} a picture, not read; regions = mean takes their mean",
            **_repeated(found),
            **counts({"texts that were cut": cut}),
        },
        columns={"picture": np.array(pictures, np.str_)[items.rows]},
    )


def _shape(part: _Part) -> str:
    return " x ".join(str(size) for size in part.features.shape[1:])


def _repeated(parts: Sequence[_Part]) -> dict[str, str]:
    repeated = [part.name for part in parts if part.step > 1]
    return {"features held once a caption": ", ".join(repeated)} if repeated else {}


def _part(root: Path, name: str) -> _Part:
    path, captions = root / f"{name}_ims.npy", root / f"{name}_caps.txt"
    for needed in (path, captions):
        if not needed.is_file():
            there = ", ".join(file.name for file in find(root, "*_ims.npy")) or "none"
            raise UserError(f"{needed} is missing; of such arrays there is: {there}. Put it there, or set parts.")
    try:
        features = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise UserError(f"{path} is damaged or no plain numpy file ({error}). Restore the file.") from error
    if features.ndim != 3 or features.dtype.kind != "f":
        raise UserError(
            f"{path} holds {features.dtype} of shape {features.shape}; it needs real numbers of shape (pictures, "
            "regions, width)."
        )
    lines = lines_of(captions)
    blank = [number for number, line in enumerate(lines, start=1) if not line]
    if blank:
        raise UserError(f"{captions}, line {blank[0]} is empty. Restore the file: five lines belong to each picture.")
    count, rest = divmod(len(lines), CAPTIONS_A_PICTURE)
    if rest or len(features) not in {count, len(lines)}:
        raise UserError(
            f"{captions} has {len(lines):,} lines and {path} has {len(features):,} rows; there must be "
            f"{CAPTIONS_A_PICTURE} lines a row, or a row a line. Restore both from one release."
        )
    step = CAPTIONS_A_PICTURE if count and len(features) == len(lines) else 1
    if step > 1:
        _check_repeated(path, features)
    sentences = [lines[start : start + CAPTIONS_A_PICTURE] for start in range(0, len(lines), CAPTIONS_A_PICTURE)]
    return _Part(name, features, sentences, step)


def _check_repeated(path: Path, features: np.ndarray) -> None:
    """Checks at the two ends of the file that five rows at a time are equal."""
    for start in {0, len(features) - CAPTIONS_A_PICTURE}:
        block = features[start : start + CAPTIONS_A_PICTURE]
        if not (block == block[:1]).all():
            raise UserError(
                f"{path} has a row for each caption, but its rows {start} to {start + CAPTIONS_A_PICTURE - 1} differ: "
                "they cannot be five times the same picture. Restore features and captions from one release."
            )


def _means(part: _Part) -> Features:
    """Returns the mean over each picture's regions, ``(pictures, width)`` float32."""
    features = part.features[:: part.step]
    means: npt.NDArray[np.float32] = np.empty((len(features), features.shape[2]), np.float32)
    for start in range(0, len(features), BLOCK_PICTURES):
        means[start : start + BLOCK_PICTURES] = features[start : start + BLOCK_PICTURES].mean(axis=1, dtype=np.float64)
    return means


COCO: tuple[Layout, ...] = (
    Layout(
        name="region-arrays",
        summary="train_ims.npy, dev_ims.npy, test_ims.npy of image-text matching (SCAN, GSMN) with 5 captions a picture",
        needs=(
            Need("test_ims.npy", "features of 36 regions a picture"),
            Need("test_caps.txt", "5 captions a picture, one a line"),
            Need("train_ims.npy", "the same of the training pictures", optional=True),
            Need("train_caps.txt", "their captions", optional=True),
            Need("dev_ims.npy", "the same of the validation pictures", optional=True),
            Need("dev_caps.txt", "their captions", optional=True),
        ),
        reader="silohash.data.benchmarks.arrays:region_arrays",
        options={
            "captions": "first, all (joined) or each (an item a caption)",
            "regions": "none, or mean (the mean over a picture's regions)",
            "parts": "which of train, dev and test are read, joined with |",
        },
    ),
)
