"""NUS-WIDE as its collectors distribute it: lists of names, a file of 0 and 1 for each concept, a table of tags."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from silohash.data.archive import Features, Texts, as_texts
from silohash.data.benchmarks.raw import Raw
from silohash.data.benchmarks.reading import (
    checked_pictures,
    counts,
    find,
    find_one,
    lines_of,
    one_of,
    unique_ids,
    zero_one_table,
)
from silohash.data.pictures.packing import PictureFiles
from silohash.types import Rows, UserError

CLASSES = (10, 21, 81)
TEXTS = ("tags", "words")
NAMES = "**/Imagelist.txt"
LABELS = "**/AllLabels/Labels_*.txt"
TAGS = "**/AllTags1k.txt"
WORDS = "**/TagList1k.txt"
STATED = {"train": "TrainImagelist.txt", "query": "TestImagelist.txt"}
PICTURE_FOLDERS = ("Flickr", "images", "Images", "ImageData", "")


def nus_wide(root: Path, *, classes: int = 21, text: str = "tags", pictures: str | None = None) -> Raw:
    """Reads NUS-WIDE's own files, all 269,648 items of them in the order of ``Imagelist.txt``.

    Args:
        root: the folder with ``Groundtruth``, ``NUS_WID_Tags`` and ``ImageList``.
        classes: 81 (all), or the 21 or 10 concepts with the most pictures, counted over all items before any is left
            out; in the full collection the 21 are those with more than 5,000 pictures. In alphabetical order.
        text: ``tags`` (``(N, 1000)`` of 0 and 1) or ``words`` (the tags as words, named by ``TagList1k.txt``).
        pictures: the folder of pictures, relative to the root; ``Flickr``, ``images`` or the root itself where the
            first pictures of the list lie there, else none.

    Raises:
        UserError: if a file is missing or has another number of lines than the list of names, or a line is damaged.
    """
    one_of("classes", classes, CLASSES)
    one_of("text", text, TEXTS)
    listed = find_one(root, NAMES, "the pictures' names")
    names = _names(listed)
    labels, label_names = _labels(root, classes, len(names), listed)
    column, cut = _text(root, text, len(names), listed)
    files, notes = _pictures(root, names, pictures)
    return Raw(
        ids=unique_ids(names),
        image=files,
        text=column,
        labels=labels,
        label_names=label_names,
        stated=_stated(listed.parent, names),
        notes={
            "classes": f"the {classes} with the most pictures: {', '.join(label_names)}" if classes < 81 else "all 81",
            "tags": "the 1,000 of AllTags1k.txt",
            **notes,
            **counts(
                {
                    "items without any of the classes": int((~labels.any(axis=1)).sum()),
                    "texts that were cut": cut,
                }
            ),
        },
    )


def _names(path: Path) -> list[str]:
    return [line.replace("\\", "/") for line in lines_of(path)]


def _labels(root: Path, classes: int, count: int, listed: Path) -> tuple[npt.NDArray[np.uint8], tuple[str, ...]]:
    first = find_one(root, LABELS, "a file a concept, 0 or 1 in each line")
    files = {path.stem.removeprefix("Labels_"): path for path in find(first.parent, "Labels_*.txt")}
    if len(files) != max(CLASSES):
        raise UserError(
            f"{first.parent} has {len(files)} files of concepts where {max(CLASSES)} were expected. "
            "Unpack Groundtruth again: without all of them the most frequent cannot be told."
        )
    table = np.zeros((count, len(files)), np.uint8)
    names = sorted(files)
    for column, name in enumerate(names):
        values = zero_one_table(files[name], np.uint8, columns=1)
        _same_length(files[name], len(values), listed, count)
        table[:, column] = values[:, 0]
    often = table.sum(axis=0, dtype=np.int64)
    kept = np.sort(np.argsort(-often, kind="stable")[:classes])
    return np.ascontiguousarray(table[:, kept]), tuple(names[column] for column in kept.tolist())


def _same_length(path: Path, lines: int, listed: Path, count: int) -> None:
    if lines != count:
        raise UserError(
            f"{path} has {lines:,} lines and {listed} has {count:,}. They belong together line by line: restore both "
            "from the same release."
        )


def _text(root: Path, text: str, count: int, listed: Path) -> tuple[Features | Texts, int]:
    path = find_one(root, TAGS, "a table of 1,000 columns of 0 and 1, a line an item")
    if text == "tags":
        values = zero_one_table(path, np.float32)
        _same_length(path, len(values), listed, count)
        return values, 0
    table = zero_one_table(path, np.uint8)
    _same_length(path, len(table), listed, count)
    named = find_one(root, WORDS, "the names of the columns of AllTags1k.txt, one a line")
    words = np.array(lines_of(named), np.str_)
    if len(words) != table.shape[1]:
        raise UserError(f"{named} names {len(words):,} tags and {path} has {table.shape[1]:,} columns. Restore both.")
    return as_texts([" ".join(words[row != 0].tolist()) for row in table])


def _stated(folder: Path, names: Sequence[str]) -> dict[str, Rows]:
    """Returns the rows of the collectors' own lists of training and test pictures, where both are there."""
    lists = {split: folder / file for split, file in STATED.items()}
    if not all(path.is_file() for path in lists.values()):
        return {}
    row_of = {name: row for row, name in enumerate(names)}
    return {split: _rows(path, row_of) for split, path in lists.items()}


def _rows(path: Path, row_of: Mapping[str, int]) -> Rows:
    names = _names(path)
    strange = [number for number, name in enumerate(names, start=1) if name not in row_of]
    if strange:
        raise UserError(
            f'{path}, line {strange[0]}: "{names[strange[0] - 1]}" is not in Imagelist.txt. Restore the lists.'
        )
    return np.unique(np.array([row_of[name] for name in names], np.int64))


def _pictures(root: Path, names: Sequence[str], folder: str | None) -> tuple[PictureFiles | None, dict[str, str]]:
    remedy = "Set pictures to the folder that the names of Imagelist.txt are relative to."
    if folder is not None:
        return checked_pictures(root / folder, names, remedy)
    tops = {name.split("/")[0] for name in names}
    for candidate in PICTURE_FOLDERS:
        if any(entry.name in tops for entry in _entries(root / candidate)):
            return checked_pictures(root / candidate, names, remedy)
    return None, {"pictures": f"none found in {', '.join(name or 'the folder itself' for name in PICTURE_FOLDERS)}"}


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return list(entries)
