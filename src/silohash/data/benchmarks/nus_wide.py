"""NUS-WIDE: its card, its layouts, and the reader of the collectors' release."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from silohash.base.errors import FilesDiffer, MissingFile
from silohash.base.types import Rows
from silohash.data.archive import Features, Texts
from silohash.data.benchmarks.dataset import described
from silohash.data.benchmarks.layouts import reading
from silohash.data.benchmarks.layouts.matlab_arrays import DSCMR_LAYOUT, feature_layout, picture_layout
from silohash.data.benchmarks.layouts.picture_lists import COMPANION_LISTS, LISTS, picture_list_layout
from silohash.data.benchmarks.layouts.reading import layout
from silohash.data.catalogue import check_option
from silohash.data.pictures.reading import PictureFiles
from silohash.data.protocols.contents import Contents

ITEMS_21 = (195_834,)
ITEMS_10 = (186_577, 186_557)
CLASSES = (10, 21, 81)
TEXTS = ("tags", "words")
STATED = {"train": "TrainImagelist.txt", "query": "TestImagelist.txt"}
PICTURE_FOLDERS = ("Flickr", "images", "Images", "ImageData", "")


def read_collectors_files(
    root: Path, *, classes: int = 21, text: str = "tags", pictures: str | None = None
) -> Contents:
    """Read the collectors' release, all 269,648 items in the order of ``Imagelist.txt``.

    The 21 or 10 concepts are those with the most pictures, counted over all items before any is left out. In the
    complete collection the 21 are those with more than 5,000 pictures. They are in alphabetical order. By default,
    pictures are looked for in `PICTURE_FOLDERS`, and may be missing.
    """
    check_option("classes", classes, CLASSES)
    check_option("text", text, TEXTS)
    listed = reading.find_one(root, "**/Imagelist.txt")
    names = _read_names(listed)
    labels, label_names = _read_labels(root, classes, len(names), listed)
    column, text_notes = _read_tags(root, text, len(names), listed)
    image, picture_notes = _find_pictures(root, names, pictures)
    bare = int((~labels.any(axis=1)).sum())
    return Contents(
        ids=reading.unique_ids(names), image=image, text=column, labels=labels, label_names=label_names,
        stated=_read_splits(listed.parent, names),
        notes={
            "classes": f"the {classes} with the most pictures: {', '.join(label_names)}" if classes < 81 else "all 81",
            "tags": "the 1,000 of AllTags1k.txt",
            **picture_notes,
            **reading.count_notes({"items without any of the classes": bare}),
            **text_notes,
        },
    )  # fmt: skip


def _read_names(path: Path) -> list[str]:
    return [line.replace("\\", "/") for line in reading.read_lines(path)]


def _read_labels(root: Path, classes: int, count: int, listed: Path) -> tuple[npt.NDArray[np.uint8], tuple[str, ...]]:
    folder = reading.find_one(root, "**/AllLabels/Labels_*.txt").parent
    files = {path.stem.removeprefix("Labels_"): path for path in reading.find(folder, "Labels_*.txt")}
    if len(files) != max(CLASSES):
        raise MissingFile(
            f"{folder} has {len(files)} files of concepts where {max(CLASSES)} were expected. Unpack Groundtruth again; "
            "the most frequent concepts are unknown without all files."
        )
    table = np.zeros((count, len(files)), np.uint8)
    names = sorted(files)
    for column, name in enumerate(names):
        values = reading.read_zero_one(files[name], columns=1)
        _check_length(files[name], len(values), listed, count)
        table[:, column] = values[:, 0]
    pictures_per_concept = table.sum(axis=0, dtype=np.int64)
    kept = np.sort(np.argsort(-pictures_per_concept, kind="stable")[:classes])
    return np.ascontiguousarray(table[:, kept]), tuple(names[column] for column in kept.tolist())


def _check_length(path: Path, lines: int, listed: Path, count: int) -> None:
    if lines != count:
        raise FilesDiffer(
            f"{path} has {lines:,} lines and {listed} has {count:,}, but they must match line by line. Restore both from "
            "the same release."
        )


def _read_tags(root: Path, text: str, count: int, listed: Path) -> tuple[Features | Texts, dict[str, str]]:
    path = reading.find_one(root, "**/AllTags1k.txt")
    table = reading.read_zero_one(path)
    _check_length(path, len(table), listed, count)
    if text == "tags":
        return table.astype(np.float32), {}
    named = reading.find_one(root, "**/TagList1k.txt", "the names of the columns of AllTags1k.txt, one per line")
    words = np.array(reading.read_lines(named), np.str_)
    if len(words) != table.shape[1]:
        raise FilesDiffer(f"{named} names {len(words):,} tags and {path} has {table.shape[1]:,} columns. Restore both.")
    return reading.text_column([" ".join(words[row != 0].tolist()) for row in table])


def _read_splits(folder: Path, names: Sequence[str]) -> dict[str, Rows]:
    """Return the rows of the collectors' lists of training and test pictures, if both lists are present."""
    lists = {split: folder / file for split, file in STATED.items()}
    if not all(path.is_file() for path in lists.values()):
        return {}
    row_of = {name: row for row, name in enumerate(names)}
    stated = {}
    for split, path in lists.items():
        listed = _read_names(path)
        for number, name in enumerate(listed, start=1):
            if name not in row_of:
                raise FilesDiffer(f'{path}, line {number}: "{name}" is not in Imagelist.txt. Restore the lists.')
        stated[split] = np.unique(np.array([row_of[name] for name in listed], np.int64))
    return stated


def _find_pictures(root: Path, names: Sequence[str], folder: str | None) -> tuple[PictureFiles | None, dict[str, str]]:
    if folder is None:
        tops = {name.split("/")[0] for name in names}
        present = (name for name in PICTURE_FOLDERS if any(path.name in tops for path in (root / name).glob("*")))
        folder = next(present, None)
    if folder is None:
        return None, {"pictures": f"none found in {', '.join(name or 'the folder itself' for name in PICTURE_FOLDERS)}"}
    remedy = "Set pictures to the folder that the names in Imagelist.txt are relative to."
    return reading.check_picture_files(root / folder, names, remedy)


NUS_WIDE = described(
    "nus-wide",
    picture_layout("dcmh-mat-21", "nus-wide-tc21", items=ITEMS_21, classes=21),
    picture_layout("dcmh-mat-10", "nus-wide-tc10", items=ITEMS_10, classes=10),
    feature_layout("features-mat-21", "nus-wide-tc21", ("xall-vgg", "xall"), items=ITEMS_21, classes=21),
    feature_layout("features-mat-10", "nus-wide-tc10", ("xall-vgg", "xall"), items=ITEMS_10, classes=10),
    picture_list_layout({21: ITEMS_21, 10: ITEMS_10}, endings=("", "21", "10")),
    DSCMR_LAYOUT,
    LISTS,
    COMPANION_LISTS,
    layout("nus-wide/raw", read_collectors_files),
)
