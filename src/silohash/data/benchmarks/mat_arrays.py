"""The Matlab and HDF5 files of DCMH and UCCH: arrays of pictures or features, tags and labels beside each other.

The arrays' axes are probed (`silohash.data.formats.matlab`), the number of items is the size that all arrays share, and rows
of features that are out of step with tags and labels are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.data.archive import Features, Pictures
from silohash.data.benchmarks.checks import (
    as_features,
    as_labels,
    common_rows,
    count_notes,
    numbered,
    repeated_notes,
    row_ids,
)
from silohash.data.benchmarks.companions import (
    LEAST_PICTURES,
    check_in_step,
    find_file,
    looks_turned,
    need_companion,
    need_file,
    thumbnails,
)
from silohash.data.benchmarks.raw import Raw
from silohash.data.benchmarks.reading import one_of, unique_ids
from silohash.data.formats.matlab import MatFile, Swap, open_mat
from silohash.data.formats.matlab_pictures import MatPictures
from silohash.types import Rows, UserError

RAND = "-rand"
COCO_QUERIES = 5000
IAPR_QUERIES = 2000
COCO_ITEMS = (122218, 123287)


@dataclass(frozen=True)
class Family:
    """A data set's files in the naming of DCMH.

    Attributes:
        stem: what their names begin with.
        items: the published numbers of items.
        classes: the published number of classes.
    """

    stem: str
    items: tuple[int, ...]
    classes: int


Sample: TypeAlias = tuple[Rows, npt.NDArray[np.float64]]
"""Rows of some pictures, and their colours much reduced."""

IAPR_DATABASE = {"image": "VDatabase", "text": "YDatabase", "labels": "databaseL"}
IAPR_TEST = {"image": "VTest", "text": "YTest", "labels": "testL"}
COCO_ARRAYS = {"image": "XAll", "text": "YAll", "labels": "LAll"}

MIRFLICKR_FAMILY = Family("mirflickr25k", (20015,), 24)
NUS21_FAMILY = Family("nus-wide-tc21", (195834,), 21)
NUS10_FAMILY = Family("nus-wide-tc10", (186577, 186557), 10)


@dataclass(frozen=True)
class Place:
    """A variable in an opened file."""

    file: MatFile
    name: str

    def __str__(self) -> str:
        """Returns file and variable, as errors name them."""
        return f"{self.file.path.name}: {self.name}"

    @classmethod
    def of(cls, path: Path, *names: str) -> Place:
        """Opens a file and finds one of several variables in it."""
        file = open_mat(path)
        return cls(file, file.find(*names))

    @property
    def shape(self) -> tuple[int, ...]:
        """Returns its shape as Matlab shows it."""
        return self.file.shape(self.name)

    def array(self, rows: int) -> np.ndarray:
        """Reads it with the items first."""
        return self.file.array(self.name, rows=rows)


def axis_notes(places: Mapping[str, Place], rows: int) -> dict[str, str]:
    """Returns notes for the card of structs, and of arrays whose items do not stand first."""
    notes = {}
    for what, place in places.items():
        if "/" in place.name:
            notes[f"{what}: variable"] = f"{place}, a field of a struct"
        axis = place.file.row_axis(place.name, rows)
        if axis and len(place.shape) == 2:
            notes[f"{what}: axes"] = f"{place} holds the items on its second axis; exchanged"
    return notes


def _names(place: Place | None, rows: int) -> tuple[npt.NDArray[np.str_], dict[str, str]]:
    """Returns ids of the files' names, or of the rows where none are given."""
    if place is None:
        return row_ids(rows), {"ids": "numbers of rows: no file of names lies beside"}
    names = place.file.strings(place.name, rows=rows)
    if names.ndim != 1:
        raise UserError(f"{place.file.path}: {place.name} holds several names an item. One is needed.")
    ids = unique_ids(names.tolist())
    repeated = int((ids != names).sum())
    return ids, {"names that occur again": f"{repeated:,}"} if repeated else {}


def open_pictures(place: Place, rows: int, swap: Swap) -> tuple[MatPictures, Sample, dict[str, str]]:
    """Opens pictures; where Python wrote them, the pictures themselves decide between height and width.

    Returns:
        The pictures, the rows and colours of some of them, and notes.

    Raises:
        UserError: if the axes cannot be told.
    """
    pictures = place.file.pictures(place.name, rows=rows, swap=swap)
    sample = thumbnails(pictures)
    turned = looks_turned(sample[1])
    notes = {}
    if swap == "auto" and turned and place.file.kind != "v7.3" and pictures.size[0] == pictures.size[1]:
        pictures = place.file.pictures(place.name, rows=rows, swap="yes")
        notes["pictures: orientation"] = "height and width exchanged, as the pictures lay on their side"
    elif turned:
        notes["pictures: orientation"] = "they seem to lie on their side; see the option swap"
    notes["pictures: axes"] = f"{place}, stored as {pictures.axes.order} in a file of kind {place.file.kind}"
    if place.file.kind == "v5":
        notes["pictures: memory"] = f"{place} is held in memory whole, as a file of version 5 to 7 must be"
    return pictures, sample, notes


def _assemble(places: Mapping[str, Place], family: Family, *, swap: Swap, shuffled: str) -> Raw:
    """Reads image, tags, labels and (where given) names into one `Raw`."""
    rows = common_rows({str(place): place.shape for place in places.values()})
    labels, label_notes = as_labels(places["labels"].array(rows), str(places["labels"]))
    text = as_features(places["tags"].array(rows), str(places["tags"]))
    ids, id_notes = _names(places.get("names"), rows)
    notes = {
        **axis_notes(places, rows),
        **count_notes(rows, family.items),
        **count_notes(labels.shape[1], (family.classes,), "classes"),
        **label_notes,
        **id_notes,
    }
    tags, classes = str(places["tags"]), str(places["labels"])
    image: Pictures | Features
    columns: dict[str, np.ndarray]
    if "pictures" in places:
        image, (some, small), picture_notes = open_pictures(places["pictures"], rows, swap)
        columns = {str(places["pictures"]): small, tags: text[some], classes: labels[some]}
        notes |= picture_notes | check_in_step(columns, shuffled=shuffled, least=LEAST_PICTURES)
    else:
        image = as_features(places["features"].array(rows), str(places["features"]))
        columns = {str(places["features"]): image, tags: text, classes: labels}
        notes |= check_in_step(columns, shuffled=shuffled)
    notes["order of classes"] = "as in the file, which does not name them"
    names = numbered("class", labels.shape[1])
    return Raw(ids=ids, image=image, text=text, labels=labels, label_names=names, notes=notes)


def _read_pictures(root: Path, family: Family, *, swap: Swap, shuffled: str) -> Raw:
    """Reads ``<stem>-iall.mat``, ``-yall.mat``, ``-lall.mat`` and, where it is there, ``-fall.mat``."""
    images = need_file(root, f"{family.stem}-iall.mat")
    places = {
        "pictures": Place.of(images, "IAll"),
        "tags": Place.of(need_file(root, f"{family.stem}-yall.mat", beside=images), "YAll"),
        "labels": Place.of(need_file(root, f"{family.stem}-lall.mat", beside=images), "LAll"),
    }
    names = find_file(root, f"{family.stem}-fall.mat", beside=images)
    if names is not None:
        places["names"] = Place.of(names, "FAll")
    return _assemble(places, family, swap=swap, shuffled=shuffled)


def _read_features(root: Path, family: Family, stems: tuple[str, ...], *, rand: str, shuffled: str) -> Raw:
    """Reads features with the tags, labels and names of the same folder and the same order of rows."""
    one_of("rand", rand, ("auto", "yes", "no"))
    plain = find_file(root, *(f"{stem}.mat" for stem in stems)) if rand != "yes" else None
    mixed = find_file(root, *(f"{stem}{RAND}.mat" for stem in stems)) if rand != "no" else None
    if plain is not None and mixed is not None:
        raise UserError(
            f"{plain.name} and {mixed.name} hold the same items in different orders. Set rand = no for the first, "
            "rand = yes for the second."
        )
    path = plain or mixed
    if path is None:
        raise UserError(f"{' or '.join(f'{stem}.mat' for stem in stems)} is missing under {root}. Put it there.")
    end, other = (RAND, "") if path is mixed else ("", RAND)
    places = {"features": Place.of(path, "XAll")}
    for what, part, variable in (("tags", "yall", "YAll"), ("labels", "lall", "LAll")):
        name = f"{family.stem}-{part}"
        places[what] = Place.of(need_companion(path, f"{name}{end}.mat", f"{name}{other}.mat"), variable)
    names = path.parent / f"{family.stem}-fall{end}.mat"
    if names.is_file():
        places["names"] = Place.of(names, "FAll")
    return _assemble(places, family, swap="auto", shuffled=shuffled)


def mirflickr_pictures(root: Path, *, swap: Swap = "auto", shuffled: str = "refuse") -> Raw:
    """Reads MIRFlickr-25K as DCMH distributes it: pictures, tags, labels and names in four files.

    Args:
        root: the folder, or one above those of the files.
        swap: whether height and width are exchanged: ``auto``, ``yes`` or ``no``.
        shuffled: ``refuse`` or ``accept`` pictures, tags or labels that are out of step with the others.

    Raises:
        UserError: if a file is missing or damaged, or the arrays do not belong together.
    """
    return _read_pictures(root, MIRFLICKR_FAMILY, swap=swap, shuffled=shuffled)


def mirflickr_merged(root: Path, *, swap: Swap = "auto", shuffled: str = "refuse") -> Raw:
    """Reads ``FLICKR-25K.mat``: pictures, tags and labels in one file, whichever of its three layouts it has.

    The layouts are Matlab's own (axes reversed), one packed again by Python (natural order), and one of structs, as
    ``images/IAll``.

    Args:
        root: the folder of the file.
        swap: whether height and width are exchanged: ``auto`` (Matlab's are; Python's where the pictures lie on their
            side), ``yes`` or ``no``.
        shuffled: ``refuse`` or ``accept`` pictures, tags or labels that are out of step with the others.

    Raises:
        UserError: if the file is missing or damaged, or its arrays do not belong together.
    """
    file = open_mat(need_file(root, "FLICKR-25K.mat"))
    places = {
        "pictures": Place(file, file.find("images", "IAll")),
        "tags": Place(file, file.find("YAll", "tags")),
        "labels": Place(file, file.find("LAll", "labels")),
    }
    if file.has("FAll"):
        places["names"] = Place(file, file.find("FAll"))
    return _assemble(places, MIRFLICKR_FAMILY, swap=swap, shuffled=shuffled)


def mirflickr_features(root: Path, *, rand: str = "auto", shuffled: str = "refuse") -> Raw:
    """Reads MIRFlickr-25K as UCCH distributes it: VGG-19 features, tags and labels of one folder.

    Args:
        root: the folder, or one above it.
        rand: whether the files with ``-rand`` in their name are taken: ``auto``, ``yes`` or ``no``.
        shuffled: ``refuse`` or ``accept`` features that are out of step with tags and labels.

    Raises:
        UserError: if a file is missing or damaged, or the files do not belong together.
    """
    return _read_features(root, MIRFLICKR_FAMILY, ("mirflickr25k-iall-vgg",), rand=rand, shuffled=shuffled)


def nus21_pictures(root: Path, *, swap: Swap = "auto", shuffled: str = "refuse") -> Raw:
    """Reads NUS-WIDE with 21 classes as DCMH distributes it; options as for `mirflickr_pictures`."""
    return _read_pictures(root, NUS21_FAMILY, swap=swap, shuffled=shuffled)


def nus10_pictures(root: Path, *, swap: Swap = "auto", shuffled: str = "refuse") -> Raw:
    """Reads NUS-WIDE with 10 classes as DCMH distributes it; options as for `mirflickr_pictures`."""
    return _read_pictures(root, NUS10_FAMILY, swap=swap, shuffled=shuffled)


def nus21_features(root: Path, *, rand: str = "auto", shuffled: str = "refuse") -> Raw:
    """Reads NUS-WIDE with 21 classes and given features; options as for `mirflickr_features`."""
    stems = ("nus-wide-tc21-xall-vgg", "nus-wide-tc21-xall")
    return _read_features(root, NUS21_FAMILY, stems, rand=rand, shuffled=shuffled)


def nus10_features(root: Path, *, rand: str = "auto", shuffled: str = "refuse") -> Raw:
    """Reads NUS-WIDE with 10 classes and given features; options as for `mirflickr_features`."""
    stems = ("nus-wide-tc10-xall-vgg", "nus-wide-tc10-xall")
    return _read_features(root, NUS10_FAMILY, stems, rand=rand, shuffled=shuffled)


def iapr_features(root: Path, *, overlap: str = "refuse", shuffled: str = "refuse") -> Raw:
    """Reads IAPR TC-12 as UCCH distributes it: ``iapr-tc12-rand.mat`` with a database and a test part.

    Args:
        root: the folder of the file.
        overlap: ``refuse`` or ``accept`` a test part of which more than a hundredth stands in the database again.
        shuffled: ``refuse`` or ``accept`` features that are out of step with texts and labels.

    Raises:
        UserError: if the file is missing or damaged, or its arrays do not belong together.
    """
    file = open_mat(need_file(root, "iapr-tc12-rand.mat"))
    database = {what: Place(file, file.find(name)) for what, name in IAPR_DATABASE.items()}
    test = {what: Place(file, file.find(name)) for what, name in IAPR_TEST.items()}
    counts = [common_rows({str(place): place.shape for place in part.values()}) for part in (database, test)]

    def _both(what: str) -> np.ndarray:
        parts = [part[what].array(count) for part, count in zip((database, test), counts, strict=True)]
        if parts[0].shape[1] != parts[1].shape[1]:
            raise UserError(f"{file.path}: {database[what].name} and {test[what].name} differ in their columns.")
        return np.concatenate(parts)

    image, text = as_features(_both("image"), str(database["image"])), as_features(_both("text"), str(database["text"]))
    labels, notes = as_labels(_both("labels"), str(database["labels"]))
    stated = rest_searched(len(labels), np.arange(counts[0], len(labels)))
    notes |= axis_notes(database, counts[0]) | count_notes(len(labels), (20000,))
    notes |= count_notes(counts[1], (IAPR_QUERIES,), "queries")
    notes |= check_in_step(
        {str(database["image"]): image, str(database["text"]): text, str(database["labels"]): labels}, shuffled=shuffled
    )
    notes |= repeated_notes((image, text), stated, overlap=overlap, where=str(file.path))
    names = numbered("class", labels.shape[1])
    return Raw(row_ids(len(labels)), image, text, labels, names, stated=stated, notes=notes)


def coco_features(root: Path, *, overlap: str = "refuse", shuffled: str = "refuse") -> Raw:
    """Reads MS-COCO as UCCH distributes it: ``MSCOCO_deep_doc2vec_data_rand.h5py``, the last 5,000 items the queries.

    Args:
        root: the folder of the file.
        overlap: as for `iapr_features`.
        shuffled: as for `iapr_features`.

    Raises:
        UserError: if the file is missing or damaged, or its arrays do not belong together.
    """
    path = need_file(root, "MSCOCO_deep_doc2vec_data_rand.h5py")
    file = open_mat(path)
    places = {what: Place(file, file.find(name)) for what, name in COCO_ARRAYS.items()}
    rows = common_rows({str(place): place.shape for place in places.values()})
    image = as_features(places["image"].array(rows), str(places["image"]))
    text = as_features(places["text"].array(rows), str(places["text"]))
    labels, notes = as_labels(places["labels"].array(rows), str(places["labels"]))
    notes |= axis_notes(places, rows) | count_notes(rows, COCO_ITEMS) | count_notes(labels.shape[1], (80,), "classes")
    notes |= check_in_step(
        {str(places["image"]): image, str(places["text"]): text, str(places["labels"]): labels}, shuffled=shuffled
    )
    stated: Mapping[str, Rows] = {}
    if rows > COCO_QUERIES:
        stated = rest_searched(rows, np.arange(rows - COCO_QUERIES, rows))
        notes |= repeated_notes((image, text), stated, overlap=overlap, where=str(path))
    names = numbered("class", labels.shape[1])
    return Raw(row_ids(rows), image, text, labels, names, stated=stated, notes=notes)


def rest_searched(count: int, query: Rows) -> dict[str, Rows]:
    """Returns splits in which all items but the queries are searched and trained on."""
    rest = np.setdiff1d(np.arange(count, dtype=np.int64), query)
    return {"query": query.astype(np.int64), "database": rest, "train": rest}
