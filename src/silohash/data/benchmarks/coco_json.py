"""Microsoft COCO as its collectors distribute it (instances and captions), and Karpathy's splits of it."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from silohash.data.archive import as_texts
from silohash.data.benchmarks.json_stream import members
from silohash.data.benchmarks.raw import Raw
from silohash.data.benchmarks.reading import checked_pictures, counts, find, find_one, one_of, spread
from silohash.data.pictures.packing import PictureFiles
from silohash.types import UserError

YEARS = (2014, 2017)
PARTS = {"train": "train", "val": "validation"}
"""The collectors' name of a part, and the split it stands for."""
KARPATHY_SPLITS = ("train", "restval", "val", "test")
KARPATHY = "**/dataset_coco.json"


@dataclass
class _Instances:
    """What is kept of ``instances_*.json``: pictures, categories, and which category is seen in which picture."""

    numbers: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    part: list[str] = field(default_factory=list)
    categories: dict[int, str] = field(default_factory=dict)
    seen_in: array[int] = field(default_factory=lambda: array("q"))
    seen: array[int] = field(default_factory=lambda: array("q"))

    def read(self, path: Path, part: str) -> None:
        """Adds what a file holds."""
        for key, element in members(path):
            try:
                if key == "images":
                    self.numbers.append(int(element["id"]))
                    self.names.append(str(element["file_name"]))
                    self.part.append(part)
                elif key == "annotations":
                    self.seen_in.append(int(element["image_id"]))
                    self.seen.append(int(element["category_id"]))
                elif key == "categories":
                    self.categories[int(element["id"])] = str(element["name"])
            except (KeyError, TypeError, ValueError) as error:
                raise UserError(f'{path}: an entry of "{key}" lacks {error}. Restore the file.') from error

    def label_names(self) -> tuple[str, ...]:
        """Returns the names of the categories, by their number."""
        return tuple(name for _, name in sorted(self.categories.items()))

    def labels(self, numbers: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.uint8], int]:
        """Returns ``(N, C)`` uint8 of the pictures with those numbers, and how many boxes are of other pictures."""
        known = np.array(sorted(self.categories), np.int64)
        seen = np.array(self.seen, np.int64)
        seen_in = np.array(self.seen_in, np.int64)
        strange = seen[~np.isin(seen, known)]
        if len(strange):
            raise UserError(f"The instances name a category {strange[0]}, which their categories lack. Restore them.")
        order = np.argsort(numbers, kind="stable")
        place = np.minimum(np.searchsorted(numbers, seen_in, sorter=order), max(0, len(numbers) - 1))
        there = numbers[order][place] == seen_in
        labels = np.zeros((len(numbers), len(known)), np.uint8)
        labels[order[place[there]], np.searchsorted(known, seen[there])] = 1
        return labels, int((~there).sum())


def coco(root: Path, *, year: int = 2014, captions: str = "first") -> Raw:
    """Reads COCO's own files; the pictures of ``train`` come first, then those of ``val``.

    Pictures without any of the 80 categories stay in, with a row of zeros; the protocol says what becomes of them.

    Args:
        root: the folder with ``annotations`` and, where the pictures are at hand, ``train2014`` and ``val2014``.
        year: 2014 or 2017.
        captions: ``first``, ``all`` (joined) or ``each`` (an item a caption; the column ``picture`` tells which belong
            together). Texts are None where no ``captions_*.json`` is there.

    Raises:
        UserError: if no file of that year is there, or one is damaged.
    """
    one_of("year", year, YEARS)
    instances = _instances(root, year)
    if not instances.numbers:
        there = ", ".join(path.name for path in find(root, "**/instances_*.json")) or "none"
        raise UserError(
            f"{root} has no annotations/instances_train{year}.json or instances_val{year}.json; of instances there is: "
            f"{there}. Set year, or put the files there."
        )
    numbers = np.array(instances.numbers, np.int64)
    sentences, unknown = _sentences(root, year, instances.numbers)
    items = spread([str(number) for number in instances.numbers], sentences or [()] * len(numbers), captions)
    folders = [f"{part}{year}" for part in instances.part]
    pictures, notes = _pictures(
        root, [folders[row] for row in items.rows], [instances.names[row] for row in items.rows]
    )
    labels, strange = instances.labels(numbers)
    texts, cut = as_texts(items.texts)
    part = np.array(instances.part, np.str_)[items.rows]
    return Raw(
        ids=np.array(items.ids, np.str_),
        image=pictures,
        text=texts if sentences else None,
        labels=labels[items.rows],
        label_names=instances.label_names(),
        stated={PARTS[name]: np.flatnonzero(part == name) for name in PARTS if (part == name).any()},
        notes={
            "captions": captions if sentences else "none: there is no captions file",
            **notes,
            **counts(
                {
                    "pictures without any category": int((~labels.any(axis=1)).sum()),
                    "boxes of pictures that are not listed": strange,
                    "captions of pictures that are not listed": unknown,
                    "texts that were cut": cut,
                }
            ),
        },
        columns={"picture": np.array([str(number) for number in instances.numbers], np.str_)[items.rows], "part": part},
    )


def karpathy(root: Path, *, captions: str = "first", restval: bool = True, labels: bool = False) -> Raw:
    """Reads Karpathy's ``dataset_coco.json``: the pictures of COCO 2014 with captions, in four parts.

    The stated splits are ``train`` (with ``restval`` where wanted), ``validation`` (``val``) and ``query`` (``test``);
    the column ``part`` keeps all four names.

    Args:
        root: the folder with the file and, where the pictures are at hand, ``train2014`` and ``val2014``.
        captions: ``first``, ``all`` (joined) or ``each`` (an item a caption; the column ``picture`` tells which belong
            together).
        restval: whether the part ``restval`` is trained on.
        labels: whether to read the 80 categories from ``instances_train2014.json`` and ``instances_val2014.json``.

    Raises:
        UserError: if a file is missing or damaged.
    """
    path = find_one(root, KARPATHY, "Karpathy's list of COCO's pictures with captions")
    entries = [_entry(path, element) for key, element in members(path) if key == "images"]
    if not entries:
        raise UserError(f'{path} lists no "images". Restore the file.')
    items = spread([str(entry.number) for entry in entries], [entry.sentences for entry in entries], captions)
    chosen = [entries[row] for row in items.rows]
    pictures, notes = _pictures(root, [entry.folder for entry in chosen], [entry.name for entry in chosen])
    part = np.array([entry.part for entry in chosen], np.str_)
    table, names = _categories(root, entries) if labels else (None, ())
    texts, cut = as_texts(items.texts)
    trained = ("train", "restval") if restval else ("train",)
    return Raw(
        ids=np.array(items.ids, np.str_),
        image=pictures,
        text=texts,
        labels=None if table is None else table[items.rows],
        label_names=names,
        stated={
            "train": np.flatnonzero(np.isin(part, trained)),
            "validation": np.flatnonzero(part == "val"),
            "query": np.flatnonzero(part == "test"),
        },
        notes={"captions": captions, "trained on": ", ".join(trained), **notes, **counts({"texts that were cut": cut})},
        columns={"picture": np.array([str(entry.number) for entry in chosen], np.str_), "part": part},
    )


def _instances(root: Path, year: int) -> _Instances:
    instances = _Instances()
    for part in PARTS:
        for path in find(root, f"**/instances_{part}{year}.json")[:1]:
            instances.read(path, part)
    return instances


def _sentences(root: Path, year: int, numbers: Sequence[int]) -> tuple[list[list[str]], int]:
    """Returns the captions of each picture (nothing where no file is there), and how many are of other pictures."""
    row_of: Mapping[int, int] = {number: row for row, number in enumerate(numbers)}
    paths = [path for part in PARTS for path in find(root, f"**/captions_{part}{year}.json")[:1]]
    sentences: list[list[str]] = [[] for _ in numbers] if paths else []
    unknown = 0
    for path in paths:
        for key, element in members(path):
            if key != "annotations":
                continue
            try:
                row, caption = row_of.get(int(element["image_id"])), str(element["caption"])
            except (KeyError, TypeError, ValueError) as error:
                raise UserError(f"{path}: a caption lacks {error}. Restore the file.") from error
            if row is None:
                unknown += 1
            else:
                sentences[row].append(" ".join(caption.split()))
    return sentences, unknown


@dataclass(frozen=True)
class _Entry:
    """A picture of Karpathy's list."""

    number: int
    folder: str
    name: str
    part: str
    sentences: list[str]


def _entry(path: Path, element: Any) -> _Entry:  # noqa: ANN401  any JSON value
    try:
        entry = _Entry(
            number=int(element["cocoid"]),
            folder=str(element["filepath"]),
            name=str(element["filename"]),
            part=str(element["split"]),
            sentences=[" ".join(str(sentence["raw"]).split()) for sentence in element["sentences"]],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: a picture lacks {error}. Restore the file.") from error
    if entry.part not in KARPATHY_SPLITS:
        raise UserError(
            f'{path}: the picture {entry.number} is in "{entry.part}", which is none of {", ".join(KARPATHY_SPLITS)}.'
        )
    return entry


def _categories(root: Path, entries: Sequence[_Entry]) -> tuple[npt.NDArray[np.uint8], tuple[str, ...]]:
    instances = _instances(root, 2014)
    if not instances.numbers:
        raise UserError(
            f"{root} has no instances_train2014.json and instances_val2014.json, which labels = true needs. "
            "Put them into annotations, or leave the option out."
        )
    table, _ = instances.labels(np.array([entry.number for entry in entries], np.int64))
    return table, instances.label_names()


def _pictures(root: Path, folders: Sequence[str], names: Sequence[str]) -> tuple[PictureFiles | None, dict[str, str]]:
    """Finds the folders ``train2014`` and the like; without a single one there are no pictures."""
    found = {name: find(root, f"**/{name}/")[:1] for name in dict.fromkeys(folders)}
    lying = {name: paths[0].relative_to(root).as_posix() for name, paths in found.items() if paths}
    if not lying:
        return None, {"pictures": f"no folder {' or '.join(found)} was found"}
    files = [f"{lying.get(folder, folder)}/{name}" for folder, name in zip(folders, names, strict=True)]
    return checked_pictures(root, files, f"Put the pictures into {', '.join(found)} again.")
