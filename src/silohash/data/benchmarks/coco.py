"""MS-COCO: its card, its layouts, and the readers of the collectors' and of Karpathy's JSON files."""

from __future__ import annotations

from array import array
from codecs import BOM_UTF8
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import ijson
import numpy as np
import numpy.typing as npt

from silohash.base.errors import DamagedFile, MissingContent, MissingFile
from silohash.data.benchmarks.dataset import described
from silohash.data.benchmarks.layouts import matlab_arrays, reading
from silohash.data.benchmarks.layouts.matlab_arrays import Named
from silohash.data.benchmarks.layouts.picture_lists import LISTS, picture_list_layout
from silohash.data.benchmarks.layouts.reading import layout
from silohash.data.benchmarks.layouts.region_arrays import REGION_ARRAYS
from silohash.data.catalogue import check_option
from silohash.data.pictures.reading import PictureFiles
from silohash.data.protocols.contents import Contents

ITEMS = (122_218, 123_287)
CLASSES = 80
YEARS = (2014, 2017)
PARTS = {"train": "train", "val": "validation"}
"""A part's name in the files -> the split that it stands for."""

KARPATHY_PARTS = ("train", "restval", "val", "test")


FIELDS: Mapping[str, Mapping[str, Callable[[Any], Any]]] = {
    "images": {"id": int, "file_name": str},
    "annotations": {"image_id": int, "category_id": int},
    "categories": {"id": int, "name": str},
}
"""The fields that are read of the entries of each list in ``instances_*.json``."""


@dataclass
class _Instances:
    """The pictures and categories in ``instances_*.json``, and picture and category of each box, one after the other."""

    ids: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    categories: dict[int, str] = field(default_factory=dict)
    # Lists of integers would take several times the memory for the 900,000 boxes of 2014.
    boxes: array[int] = field(default_factory=lambda: array("q"))

    def read(self, path: Path, part: str) -> None:
        """Add the contents of a file."""
        for number, name in _fields_of(path, "images"):
            self.ids.append(number)
            self.names.append(name)
            self.parts.append(part)
        for box in _fields_of(path, "annotations"):
            self.boxes.extend(box)
        self.categories |= dict(_fields_of(path, "categories"))

    def label_names(self) -> tuple[str, ...]:
        """Return the names of the categories in the order of their numbers."""
        return tuple(name for _, name in sorted(self.categories.items()))

    def labels(self, ids: Sequence[int]) -> tuple[npt.NDArray[np.uint8], int]:
        """Return the labels of pictures, ``(N, C)`` uint8, and the number of boxes in other pictures.

        Raises:
            UserError: If a box has a category that is not listed.
        """
        known = np.array(sorted(self.categories), np.int64)
        pictures, categories = np.array(self.boxes, np.int64).reshape(-1, 2).T
        unknown = categories[~np.isin(categories, known)]
        if len(unknown):
            raise DamagedFile(
                f"The instances name the category {unknown[0]}, which their list of categories lacks. Restore the files."
            )
        row_of = {number: row for row, number in enumerate(ids)}
        rows = np.array([row_of.get(number, -1) for number in pictures.tolist()], np.int64)
        listed = rows >= 0
        labels = np.zeros((len(ids), len(known)), np.uint8)
        labels[rows[listed], np.searchsorted(known, categories[listed])] = 1
        return labels, int((~listed).sum())


def read_annotations(root: Path, *, year: int = 2014, captions: str = "first") -> Contents:
    """Read files of instances and captions; the pictures of ``train`` come first, then those of ``val``.

    Pictures without any category are kept with a row of zeros; the protocol decides on them. Texts are None if there is no
    ``captions_*.json``.

    Raises:
        UserError: If an option has another value, or the instances are missing or damaged.
    """
    check_option("year", year, YEARS)
    instances = _read_instances(root, year)
    if not instances.ids:
        present = ", ".join(path.name for path in reading.find(root, "**/instances_*.json")) or "none"
        raise MissingFile(
            f"{root} has no annotations/instances_train{year}.json or instances_val{year}.json; the instances present "
            f"are: {present}. Set year, or add the files."
        )
    captions_of, unlisted = _read_captions(root, year, instances.ids)
    pictures = np.array(instances.ids, np.int64).astype(np.str_)
    items = reading.spread_captions(pictures.tolist(), captions_of or [()] * len(pictures), captions)
    files = [(f"{part}{year}", name) for part, name in zip(instances.parts, instances.names, strict=True)]
    image, picture_notes = _find_pictures(root, [files[row] for row in items.rows])
    labels, other_boxes = instances.labels(instances.ids)
    part = np.array(instances.parts, np.str_)[items.rows]
    counts = {
        "pictures without any category": int((~labels.any(axis=1)).sum()),
        "boxes of pictures that are not listed": other_boxes,
        "captions of pictures that are not listed": unlisted,
    }
    return Contents(
        ids=items.ids, image=image, text=items.text if captions_of else None, labels=labels[items.rows],
        label_names=instances.label_names(),
        stated={PARTS[name]: np.flatnonzero(part == name) for name in PARTS if (part == name).any()},
        notes={
            "captions": captions if captions_of else "none: there is no file of captions",
            **picture_notes,
            **reading.count_notes(counts),
            **items.notes,
        },
        columns={"picture": pictures[items.rows], "part": part},
    )  # fmt: skip


def read_karpathy(
    file: str, root: Path, *, captions: str = "first", restval: bool = True, labels: bool = False
) -> Contents:
    """Read Karpathy's list of pictures with captions, in four parts.

    The stated splits are ``train`` (with ``restval`` if wanted), ``validation`` (``val``) and ``query`` (``test``). The
    column ``part`` keeps all four names.

    Raises:
        UserError: If an option has another value, or the list is missing, empty or damaged.
    """
    path = reading.find_one(root, f"**/{file}")
    entries = [_parse_entry(path, element) for element in elements(path, "images")]
    if not entries:
        raise MissingContent(f'{path} does not list any "images". Restore the file.')
    pictures, files, parts, captions_of = zip(*entries, strict=True)
    ids = list(map(str, pictures))
    items = reading.spread_captions(ids, captions_of, captions)
    image, picture_notes = _find_pictures(root, [files[row] for row in items.rows])
    part = np.array(parts, np.str_)[items.rows]
    table, names = _read_categories(root, pictures) if labels else (None, ())
    trained = ("train", "restval") if restval else ("train",)
    return Contents(
        ids=items.ids, image=image, text=items.text, labels=None if table is None else table[items.rows],
        label_names=names,
        stated={
            "train": np.flatnonzero(np.isin(part, trained)),
            "validation": np.flatnonzero(part == "val"),
            "query": np.flatnonzero(part == "test"),
        },
        notes={"captions": captions, "training parts": ", ".join(trained), **picture_notes, **items.notes},
        columns={"picture": np.array(ids, np.str_)[items.rows], "part": part},
    )  # fmt: skip


def _fields_of(path: Path, key: str) -> Iterator[Any]:
    for element in elements(path, key):
        with _naming(path, f'an entry of "{key}"'):
            found = tuple(kind(element[name]) for name, kind in FIELDS[key].items())
        yield found


def _read_instances(root: Path, year: int) -> _Instances:
    instances = _Instances()
    for part in PARTS:
        for path in reading.find(root, f"**/instances_{part}{year}.json")[:1]:
            instances.read(path, part)
    return instances


def _read_captions(root: Path, year: int, ids: Sequence[int]) -> tuple[list[list[str]], int]:
    """Return the captions of each picture, empty without files of captions, and the number of unlisted captions."""
    paths = [path for part in PARTS for path in reading.find(root, f"**/captions_{part}{year}.json")[:1]]
    captions_of: defaultdict[int, list[str]] = defaultdict(list)
    for path in paths:
        for element in elements(path, "annotations"):
            with _naming(path, "a caption"):
                captions_of[int(element["image_id"])].append(" ".join(str(element["caption"]).split()))
    unlisted = sum(len(captions_of[number]) for number in captions_of.keys() - set(ids))
    return [captions_of[number] for number in ids] if paths else [], unlisted


@contextmanager
def _naming(path: Path, what: str) -> Iterator[None]:
    """Replace the errors of an entry without a field by a `UserError` that names the file and the field."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise MissingContent(f"{path}: {what} lacks {error}. Restore the file.") from error


def _parse_entry(path: Path, element: Any) -> tuple[int, tuple[str, str], str, list[str]]:  # noqa: ANN401  any JSON value
    with _naming(path, "a picture"):
        picture, part = int(element["cocoid"]), str(element["split"])
        file = str(element["filepath"]), str(element["filename"])
        captions = [" ".join(str(sentence["raw"]).split()) for sentence in element["sentences"]]
    if part not in KARPATHY_PARTS:
        raise DamagedFile(
            f'{path}: the picture {picture} is in "{part}", which is not one of {", ".join(KARPATHY_PARTS)}. '
            "Restore the file."
        )
    return picture, file, part, captions


def _read_categories(root: Path, ids: Sequence[int]) -> tuple[npt.NDArray[np.uint8], tuple[str, ...]]:
    instances = _read_instances(root, 2014)
    if not instances.ids:
        raise MissingFile(
            f"{root} has no instances_train2014.json or instances_val2014.json, which labels = true needs. "
            "Put them into annotations, or remove the option."
        )
    return instances.labels(ids)[0], instances.label_names()


def _find_pictures(root: Path, files: Sequence[tuple[str, str]]) -> tuple[PictureFiles | None, dict[str, str]]:
    """Look for the folders of files given as (folder, name), such as ``train2014``; no folder means no pictures."""
    found = {name: reading.find(root, f"**/{name}/")[:1] for name in dict.fromkeys(folder for folder, _ in files)}
    present = {folder: paths[0].relative_to(root).as_posix() for folder, paths in found.items() if paths}
    if not present:
        return None, {"pictures": f"no folder {' or '.join(found)} was found"}
    names = [f"{present.get(folder, folder)}/{name}" for folder, name in files]
    return reading.check_picture_files(root, names, f"Put the pictures into {', '.join(found)} again.")


def elements(path: Path, key: str) -> Iterator[Any]:
    """Yield the elements of the list that a JSON object has under ``key``; nothing if it has none.

    Raises:
        UserError: If the file is missing, damaged, or not a JSON object.
    """
    try:
        with path.open("rb") as stream:
            # ijson does not skip a byte order mark.
            start = len(BOM_UTF8) if stream.read(len(BOM_UTF8)) == BOM_UTF8 else 0
            stream.seek(start)
            # For any other value, ijson.items would yield nothing instead of an error.
            if next(iter(ijson.basic_parse(stream)))[0] != "start_map":
                raise ijson.JSONError("it holds another value")
            stream.seek(start)
            yield from ijson.items(stream, f"{key}.item", use_float=True)
    except OSError as error:
        raise reading.unreadable(path, error) from error
    except (ijson.JSONError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise DamagedFile(f"{path} is damaged or not a JSON object ({reason}). {reading.RESTORE}") from error


_named = partial(Named, "MSCOCO_deep_doc2vec_data_rand.h5py")
_IMAGE, _TEXT, _LABELS = (_named((name,)) for name in ("XAll", "YAll", "LAll"))
_UCCH_ARRAYS = matlab_arrays.ArrayFiles(_IMAGE, _TEXT, _LABELS, items=ITEMS, classes=CLASSES)

COCO = described(
    "coco",
    layout("coco/ucch-h5py", partial(matlab_arrays.read_with_last_queries, _UCCH_ARRAYS, 5_000)),
    picture_list_layout({CLASSES: ITEMS}),
    LISTS,
    REGION_ARRAYS,
    layout("coco/json", read_annotations),
    layout("coco/karpathy-json", partial(read_karpathy, "dataset_coco.json")),
)
