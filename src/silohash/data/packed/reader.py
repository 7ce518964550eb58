"""Read a packed data set as its descriptor states.

A set is a folder of tables, arrays and pictures. Its descriptor (in ``sets.toml``) names the files and says
how a row of the table becomes an item. ``docs/how-to/development-data.md`` explains how each set was made.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.base.errors import MissingContent, MissingFile, WrongKindOfPath
from silohash.base.forms import of_json, reading
from silohash.base.types import Rows
from silohash.data.archive import Archive, ArchiveCard, Pictures, as_texts, multi_hot
from silohash.data.catalogue import check_option, check_options
from silohash.data.pictures.reading import PackedPictures, PictureFiles, read_array
from silohash.data.regions import Regions, relative_boxes
from silohash.data.splits import default_splits, fold_splits, splits_of

RESTORE = "Restore the file."
Row: TypeAlias = dict[str, Any]
Choices: TypeAlias = Mapping[str, str]
Labels: TypeAlias = npt.NDArray[np.uint8]
Parts: TypeAlias = Sequence[tuple[str, str]]

MOBILENET_STEP = 0.023528477
"""Activation that one unit of the 8-bit picture features stands for."""

FEATURES: Mapping[str, Parts] = {
    "mobilenet": [("features/image_mobilenetv2.npy", "")],
    "bow": [("features/text_bow.npz", "bow")],
    "words": [("features/text_bow.npz", "bow")],
    "minilm": [("features/text_minilm.npy", "")],
}
"""File and key of the features that an option names."""

OWN_SPLIT, FOLDS = "none", 10
"""The option ``fold`` of the set's own split, and the number of folds that the option can name instead."""

SIZES = {"unseen": "{train}-{database}-unseen", "test": "{train}-test-halves"}
"""How a protocol's name states the sizes of the splits, by the option ``database``."""


class Labeling(NamedTuple):
    """The format of an item's labels, joined with ``|``, and a sentence on which items are relevant to each other."""

    labels: str
    relevant: str


@dataclass(frozen=True, kw_only=True)
class PackedSet:
    """Facts of one packed data set. Calling it with options opens the archive.

    Formats are filled with the columns of an item's row, as ``"{file}#{caption_no}"``. Those of the protocol are filled with
    the options, ``sizes`` and ``split``.

    Attributes:
        name: Name of the set and of its folder.
        options: Values of each option; the first is the default.
        rows: Table with one row per item, or a function that returns such rows for the chosen options. A row's ``split`` is
            ``query``, ``database`` or ``train``; ``image_row`` and ``text_row`` point into the features.
        id: Format of an item's id.
        protocol: Format of the protocol's name.
        own_split: Name of the set's own split in the protocol's name, if the option ``fold`` can replace it.
        caption: Format of an item's text; empty if there are no texts to read.
        pictures: Folder of picture files, or the first of the packed files; empty if there are no pictures.
        given: Files and keys of the features, by modality, if there are only these.
        labelings: Labels and relevance, by value of the option ``labels``.
        label_names: Names in order, or the table that lists them; empty for the names that occur, sorted.
        split_names: Split that a value of the column ``split`` means, where they differ.
        split_key: Format of what stays together in default splits; empty for the id.
        columns: Format of each further column.
        notes: Further notes for the card.
    """

    name: str
    summary: str
    source: str
    license: str
    options: Mapping[str, tuple[str, ...]]
    rows: str | Callable[[PackedSet, Choices], list[Row]]
    id: str = "{source_id}"
    protocol: str = "{sizes}"
    own_split: str = "default"
    caption: str = ""
    pictures: str = ""
    given: Mapping[str, Parts] = field(default_factory=dict)
    labelings: Mapping[str, Labeling] = field(default_factory=dict)
    label_names: str | tuple[str, ...] = ()
    split_names: Mapping[str, str] = field(default_factory=dict)
    split_key: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, **options: object) -> Archive:
        """Open the archive.

        Raises:
            UserError: If an option is unknown or cannot have its value, or a file is missing or damaged.
        """
        check_options(f'The archive "{self.name}"', options, tuple(self.options))
        chosen = {name: str(options.get(name, values[0])) for name, values in self.options.items()}
        for name, value in chosen.items():
            check_option(f"{self.name}: {name}", value, self.options[name])
        try:
            rows = self.table(self.rows) if isinstance(self.rows, str) else self.rows(self, chosen)
            return self._archive(rows, chosen).with_digest()
        except KeyError as error:
            raise MissingContent(f"A table of {self.name} lacks the column {error}. Restore the folder.") from error

    def folder(self) -> Path:
        """Return the set's folder, which may not exist."""
        return data_root() / self.name

    def file(self, name: str) -> Path:
        """Return the path of one of the set's files.

        Raises:
            UserError: If it is missing; names the file and ``SILOHASH_DATA``.
        """
        path = self.folder() / name
        if not path.exists():
            remedy = f"Restore it, or set SILOHASH_DATA to the folder that holds {self.name}."
            built = (
                "silohash data build makes most sets, but no features of networks (image = mobilenet, text = minilm)."
            )
            raise MissingFile(f"{path} is missing, and {self.name} needs it. {remedy} {built}")
        return path

    def table(self, name: str) -> list[Row]:
        """Read a table, ``.csv`` or ``.jsonl``, as one mapping per row."""
        path = self.file(name)
        with reading(path, remedy=RESTORE, missing=RESTORE), path.open(encoding="utf-8", newline="") as stream:
            if path.suffix == ".jsonl":
                return [of_json(line, dict[str, Any]) for line in stream if line.strip()]
            return list(csv.DictReader(stream, strict=True))

    def _archive(self, rows: list[Row], chosen: Choices) -> Archive:
        labeling = self.labelings.get(chosen.get("labels") or next(iter(self.labelings), ""))
        labels, label_names = self._labels(rows, labeling)
        splits = self._splits(rows, chosen)
        image, text = self._image(rows, chosen), self._features("text", rows, chosen)
        pictures = self._pictures(rows)
        words = as_texts([self.caption.format_map(row) for row in rows])[0] if self.caption else None
        return Archive(
            ids=_strings(self.id, rows), image=pictures if image is None else image,
            text=words if text is None else text, labels=labels, label_names=label_names, splits=splits,
            card=self._card(splits, labeling, chosen),
            columns={name: _strings(form, rows) for name, form in self.columns.items()},
            has_image=~np.isnan(image[:, 0]) if isinstance(image, np.ndarray) else np.zeros(0, bool),
            captions=None if text is None else words, preview=None if image is None else pictures,
            automatic_splits="split" not in rows[0] and _fold(chosen) is None,
        )  # fmt: skip

    def _card(self, splits: Mapping[str, Rows], labeling: Labeling | None, chosen: Choices) -> ArchiveCard:
        counts = {name: len(rows) for name, rows in splits.items()}
        sizes = SIZES.get(chosen.get("database", ""), "{train}-{database}").format_map(counts)
        split = self.own_split if _fold(chosen) is None else f"{FOLDS}-fold"
        protocol = f"{self.name}/{self.protocol.format_map({**chosen, 'sizes': sizes, 'split': split})}"
        notes = {**({"relevant": labeling.relevant} if labeling else {}), **self.notes}
        return ArchiveCard(self.name, self.source, self.license, protocol, notes=notes)

    def _image(self, rows: list[Row], chosen: Choices) -> npt.NDArray[np.float32] | Regions | None:
        """Return the features or the regions of the pictures that were chosen; None for the pictures themselves."""
        if chosen.get("image") == "scene":
            return scene_regions([row["regions"] for row in rows])
        if chosen.get("image") not in REGION_OPTIONS:
            return self._features("image", rows, chosen)
        pictures = np.array([row.get("image_row", place) for place, row in enumerate(rows)], np.int64)
        return read_regions(self.file, chosen["image"], pictures)

    def _features(self, modality: str, rows: list[Row], chosen: Choices) -> npt.NDArray[np.float32] | None:
        """Return the features that were chosen, ``(N, D)`` float32; NaN where an item has none."""
        option = chosen.get(modality, "")
        parts = self.given.get(modality) or FEATURES.get(option)
        if not parts:
            return None
        held = np.concatenate([read_array(self.file(file), key) for file, key in parts])
        places = np.array([row.get(f"{modality}_row", place) for place, row in enumerate(rows)])
        there = places < len(held)
        values = np.full((len(rows), held.shape[1]), np.nan, np.float32)
        values[there] = held[places[there]]
        if option == "mobilenet":
            values *= np.float32(MOBILENET_STEP)
        return np.minimum(values, 1.0) if option == "words" else values

    def _pictures(self, rows: list[Row]) -> Pictures | None:
        path = self.file(self.pictures) if self.pictures else None
        if path is None or not path.is_dir():
            return None if path is None else PackedPictures(path.parent)
        return PictureFiles(path, [Path(row["file"]).name for row in rows])

    def _labels(self, rows: list[Row], labeling: Labeling | None) -> tuple[Labels | None, tuple[str, ...]]:
        if labeling is None:
            return None, ()
        of_item = [list(filter(None, labeling.labels.format_map(row).split("|"))) for row in rows]
        names = self.label_names or tuple(sorted(set().union(*of_item)))
        if isinstance(names, str):
            names = tuple(row["name"] for row in self.table(names))
        return multi_hot(of_item, names), names

    def _splits(self, rows: list[Row], chosen: Choices) -> dict[str, Rows]:
        keys = [(self.split_key or self.id).format_map(row) for row in rows]
        fold = _fold(chosen)
        if fold is not None:
            return fold_splits(keys, fold, FOLDS)
        if "split" not in rows[0]:
            return default_splits(keys)
        parts = [self.split_names.get(row["split"], row["split"]) for row in rows]
        return splits_of(parts, search_training=chosen.get("database") not in SIZES)


def data_root() -> Path:
    """Return the folder of packed data sets: ``SILOHASH_DATA``, else ``../shared/data`` or ``data``.

    Raises:
        UserError: If there is none.
    """
    named = os.environ.get("SILOHASH_DATA")
    if named and not Path(named).is_dir():
        raise WrongKindOfPath(f"SILOHASH_DATA is {named}, which is not a folder. Set it to the folder of data sets.")
    beside = [start.parent / "shared" / "data" for start in (Path.cwd(), Path(__file__).resolve().parents[4])]
    found = Path(named) if named else next(filter(Path.is_dir, (*beside, Path("data"))), None)
    if found is None:
        raise MissingFile(
            "The packed data sets were not found: there is no folder ../shared/data or data. "
            "Set SILOHASH_DATA to the folder of data sets, or use the embedded archive glyphs."
        )
    return found


def _fold(chosen: Choices) -> int | None:
    """Return the fold of the queries; None for the set's own split."""
    fold = chosen.get("fold", OWN_SPLIT)
    return None if fold == OWN_SPLIT else int(fold)


def _strings(form: str, rows: list[Row]) -> npt.NDArray[np.str_]:
    return np.array([form.format_map(row) for row in rows], dtype=np.str_)


REGION_OPTIONS = ("regions", "boxes")
"""Values of the option ``image`` that mean regions: the cells of a grid, or the boxes that people drew."""

OBJECT_KINDS: Mapping[str, tuple[Any, ...]] = {
    "shape": ("square", "circle", "triangle"),
    "colour": ("yellow", "black", "blue"),
    "size": (10, 20, 30),
    "box": (0, 1, 2),
}
"""What an object of a drawn scene can be, and the boxes of the scene in which it can lie."""


def scene_regions(scenes: Sequence[Sequence[Mapping[str, Any]]]) -> Regions:
    """Return the objects of drawn scenes, each as its `OBJECT_KINDS`, one value per kind, and its ``bbox``.

    A scene's objects are mappings. ``bbox`` is x, y, width and height in pixels of the scene, which is 400 x 100.
    """
    most = max(map(len, scenes))
    features = np.zeros((len(scenes), most, sum(map(len, OBJECT_KINDS.values()))), np.float32)
    boxes = np.zeros((len(scenes), most, 4), np.float32)
    for row, objects in enumerate(scenes):
        for place, thing in enumerate(objects):
            features[row, place] = np.hstack([np.equal(thing[kind], values) for kind, values in OBJECT_KINDS.items()])
            boxes[row, place] = np.add(thing["bbox"], [0, 0, *thing["bbox"][:2]])
    sizes = np.tile([400, 100], (len(scenes), 1))
    return Regions(features, relative_boxes(boxes, sizes), np.arange(len(scenes)))


def read_regions(file: Callable[[str], Path], option: str, pictures: Rows) -> Regions:
    """Return the regions of the items' pictures, given as rows ``(N,)`` of the files, by one of the `REGION_OPTIONS`.

    Those of a grid are mapped into memory. A picture without boxes has its grid in place of them.
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
