"""Folders of Matlab files: torchcmh's lists of picture files, SHDCH's fashion folders, DSCMR's train and test parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from silohash.data.archive import Features
from silohash.data.benchmarks.checks import (
    as_class_labels,
    as_features,
    as_labels,
    common_rows,
    count_notes,
    numbered,
    repeated_notes,
    row_ids,
)
from silohash.data.benchmarks.companions import LEAST_PICTURES, check_in_step, need_file, pair_notes
from silohash.data.benchmarks.mat_arrays import Place, axis_notes, open_pictures, rest_searched
from silohash.data.benchmarks.raw import Raw
from silohash.data.benchmarks.reading import checked_pictures, one_of, unique_ids
from silohash.data.formats.matlab import Swap, as_shape
from silohash.types import Rows, UserError

LEVELS = ("fine", "coarse", "both")
FASHIONVC_CLASSES, SSENSE_CLASSES = (8, 27), (4, 28)
FASHIONVC_QUERIES, SSENSE_QUERIES = 3000, 2000
PUBLISHED = {24: (20015,), 21: (195834,), 10: (186577, 186557), 255: (20000,), 80: (122218, 123287)}
"""Published numbers of items by number of classes: MIRFlickr-25K, NUS-WIDE (two), IAPR TC-12, MS-COCO."""

WIKIPEDIA_TEST, WIKIPEDIA_VALIDATION = 693, 231


def torchcmh(root: Path, *, pictures: str = "") -> Raw:
    """Reads ``imgList.mat``, ``tagList.mat`` and ``labelList.mat`` (NUS-WIDE: ``…21`` or ``…10``).

    Args:
        root: the folder of the three files.
        pictures: the folder that the listed names are relative to, relative to the root; the root where it is empty.

    Raises:
        UserError: if a file is missing or damaged, the lists do not belong together, or no picture can be used.
    """
    listed = need_file(root, "imgList.mat", "imgList21.mat", "imgList10.mat")
    end = listed.stem.removeprefix("imgList")
    places = {
        "names": Place.of(listed, "FAll", "imgs"),
        "tags": Place.of(need_file(root, f"tagList{end}.mat", beside=listed), "YAll", "tags"),
        "labels": Place.of(need_file(root, f"labelList{end}.mat", beside=listed), "LAll", "labels"),
    }
    rows = common_rows({str(place): place.shape for what, place in places.items() if what != "names"})
    names = places["names"].file.strings(places["names"].name, rows=rows)
    paths = [str(name) if names.ndim == 1 else "/".join(name) for name in names]
    plain = [path.replace("\\", "/").lstrip("/") for path in paths]
    labels, notes = as_labels(places["labels"].array(rows), str(places["labels"]))
    text = as_features(places["tags"].array(rows), str(places["tags"]))
    remedy = "Set pictures to the folder that the names in imgList.mat are relative to."
    files, picture_notes = checked_pictures(root / pictures, plain, f"{remedy} The first name is {plain[0]}.")
    notes |= axis_notes(places, rows) | picture_notes | pair_notes(text, labels)
    notes |= count_notes(rows, PUBLISHED.get(labels.shape[1], ()))
    return Raw(
        ids=unique_ids(plain),
        image=files,
        text=text,
        labels=labels,
        label_names=numbered("class", labels.shape[1]),
        notes=notes,
    )


def fashionvc(
    root: Path, *, labels: str = "fine", swap: Swap = "auto", shuffled: str = "refuse", queries: int = FASHIONVC_QUERIES
) -> Raw:
    """Reads FashionVC as SHDCH distributes it: ``image.mat``, ``tag.mat``, ``label.mat``; the first rows are queries.

    Args:
        root: the folder of the three files.
        labels: ``fine`` (27 classes), ``coarse`` (8) or ``both``.
        swap: whether height and width are exchanged: ``auto``, ``yes`` or ``no``.
        shuffled: ``refuse`` or ``accept`` pictures, tags or labels that are out of step with the others.
        queries: how many of the first rows are queries.

    Raises:
        UserError: if a file is missing or damaged, or the arrays do not belong together.
    """
    raw, notes = _fashion(root, FASHIONVC_CLASSES, labels, swap=swap, shuffled=shuffled)
    return _with_queries(raw, queries, notes | count_notes(len(raw), (19862,)))


def ssense(
    root: Path, *, labels: str = "fine", swap: Swap = "auto", shuffled: str = "refuse", queries: int = SSENSE_QUERIES
) -> Raw:
    """Reads Ssense as SHDCH distributes it (4 coarse and 28 fine classes); options as for `fashionvc`."""
    raw, notes = _fashion(root, SSENSE_CLASSES, labels, swap=swap, shuffled=shuffled)
    return _with_queries(raw, queries, notes | count_notes(len(raw), (15696,)))


def _with_queries(raw: Raw, queries: int, notes: dict[str, str]) -> Raw:
    """Returns the same items, the first ones stated as queries where there are more than those."""
    stated: dict[str, Rows] = {}
    if 0 < queries < len(raw):
        stated = rest_searched(len(raw), np.arange(queries))
    else:
        notes["splits"] = (
            f"none stated: {len(raw):,} items are no more than the {queries:,} first rows that are queries"
        )
    return Raw(
        raw.ids, raw.image, raw.text, raw.labels, raw.label_names, stated=stated, notes=notes, columns=raw.columns
    )


def _fashion(
    root: Path, classes: tuple[int, int], level: str, *, swap: Swap, shuffled: str
) -> tuple[Raw, dict[str, str]]:
    one_of("labels", level, LEVELS)
    images = need_file(root, "image.mat")
    places = {
        "pictures": Place.of(images, "Image"),
        "tags": Place.of(need_file(root, "tag.mat", beside=images), "Tag"),
        "labels": Place.of(need_file(root, "label.mat", beside=images), "Label"),
    }
    rows = common_rows({str(place): place.shape for place in places.values()})
    where = str(places["labels"])
    values = places["labels"].array(rows)
    if values.ndim != 2 or values.shape[1] != sum(classes):
        raise UserError(
            f"{where} is {as_shape(values.shape)}; {classes[0]} coarse and {classes[1]} fine classes are "
            f"{sum(classes)} columns. Is it the label.mat of another data set?"
        )
    every, notes = as_labels(values, where)
    columns, hierarchy_notes = _hierarchy(every, classes[0])
    text = as_features(places["tags"].array(rows), str(places["tags"]))
    image, (some, small), picture_notes = open_pictures(places["pictures"], rows, swap)
    compared: dict[str, np.ndarray] = {
        str(places["pictures"]): small,
        str(places["tags"]): text[some],
        where: every[some],
    }
    notes |= axis_notes(places, rows) | hierarchy_notes | picture_notes
    notes |= check_in_step(compared, shuffled=shuffled, least=LEAST_PICTURES)
    names = numbered("coarse", classes[0]) + numbered("fine", classes[1])
    part = {"fine": slice(classes[0], None), "coarse": slice(classes[0]), "both": slice(None)}[level]
    raw = Raw(row_ids(rows), image, text, every[:, part], names[part], columns=columns)
    return raw, notes


def _hierarchy(labels: npt.NDArray[np.uint8], coarse: int) -> tuple[dict[str, npt.NDArray[np.str_]], dict[str, str]]:
    """Returns each item's coarse and fine class as columns, where it has one of each, and notes of what is odd."""
    upper, lower = labels[:, :coarse], labels[:, coarse:]
    single = (upper.sum(axis=1) == 1) & (lower.sum(axis=1) == 1)
    notes = {}
    if not single.all():
        notes["items without exactly one coarse and one fine class"] = f"{int((~single).sum()):,}"
    parents = lower.T.astype(np.int64) @ upper
    torn = np.flatnonzero((parents > 0).sum(axis=1) > 1)
    if len(torn):
        numbers = ", ".join(map(str, torn.tolist()))
        notes["fine classes under several coarse ones"] = (
            f"{len(torn)}: {numbers}; are coarse classes the first columns?"
        )
    named = {"coarse": upper, "fine": lower}
    columns = {
        what: np.array([f"{what} {number}" for number in part.argmax(axis=1)], dtype=np.str_)
        for what, part in named.items()
    }
    return (columns if single.all() else {}), notes


def dscmr(root: Path, *, overlap: str = "refuse", shuffled: str = "refuse") -> Raw:
    """Reads DSCMR's features: ``{train,test}_{img,txt,img_lab}.mat``; the train part is searched, the test part asks.

    Args:
        root: the folder of the six files.
        overlap: ``refuse`` or ``accept`` a test part of which more than a hundredth stands in the train part again.
        shuffled: ``refuse`` or ``accept`` features that are out of step with texts and labels.

    Raises:
        UserError: if a file is missing or damaged, holds NaN, or the files do not belong together.
    """
    first = need_file(root, "train_img.mat")
    parts = [_dscmr_part(first.parent, part) for part in ("train", "test")]
    counts = [common_rows({str(place): place.shape for place in part.values()}) for part in parts]
    image, text = (_joined(parts, counts, what) for what in ("img", "txt"))
    labels, notes = _dscmr_labels(parts, counts)
    stated = rest_searched(len(labels), np.arange(counts[0], len(labels)))
    where = {what: str(parts[0][what]) for what in parts[0]}
    compared: dict[str, np.ndarray] = {where["img"]: image, where["txt"]: text, where["img_lab"]: labels}
    notes |= axis_notes(parts[0], counts[0]) | check_in_step(compared, shuffled=shuffled)
    notes |= repeated_notes((image, text), stated, overlap=overlap, where=str(first.parent))
    names = numbered("class", labels.shape[1])
    return Raw(row_ids(len(labels)), image, text, labels, names, stated=stated, notes=notes)


def wikipedia(root: Path, *, overlap: str = "refuse", shuffled: str = "refuse") -> Raw:
    """Reads Wikipedia's features as DSCMR distributes them; of 693 test rows the first 231 are for validation.

    Options as for `dscmr`.
    """
    raw = dscmr(root, overlap=overlap, shuffled=shuffled)
    query = raw.stated["query"]
    notes = {**raw.notes, **count_notes(len(raw), (2866, 2635))}
    if len(query) != WIKIPEDIA_TEST:
        return Raw(raw.ids, raw.image, raw.text, raw.labels, raw.label_names, stated=raw.stated, notes=notes)
    stated = {**raw.stated, "validation": query[:WIKIPEDIA_VALIDATION], "query": query[WIKIPEDIA_VALIDATION:]}
    notes["splits"] = "the first 231 of the 693 test rows are for validation"
    return Raw(raw.ids, raw.image, raw.text, raw.labels, raw.label_names, stated=stated, notes=notes)


def _dscmr_part(folder: Path, part: str) -> dict[str, Place]:
    places = {}
    for what in ("img", "txt", "img_lab"):
        path = folder / f"{part}_{what}.mat"
        if not path.is_file():
            raise UserError(f"{path} is missing. Put all six files of one source into {folder}.")
        places[what] = Place.of(path, path.stem, f"{part}_lab" if what == "img_lab" else path.stem)
    return places


def _joined(parts: list[dict[str, Place]], counts: list[int], what: str) -> Features:
    train, test = (
        as_features(part[what].array(count), str(part[what])) for part, count in zip(parts, counts, strict=True)
    )
    if train.shape[1] != test.shape[1]:
        raise UserError(
            f"{parts[0][what]} has {train.shape[1]:,} features and {parts[1][what]} {test.shape[1]:,}. "
            "Take all files from one source."
        )
    return np.concatenate([train, test])


def _dscmr_labels(parts: list[dict[str, Place]], counts: list[int]) -> tuple[npt.NDArray[np.uint8], dict[str, str]]:
    """Returns the labels of both parts: class numbers from 0 (or from 1, which is noted), or columns of 0 and 1."""
    values = [part["img_lab"].array(count) for part, count in zip(parts, counts, strict=True)]
    where = str(parts[0]["img_lab"])
    if values[0].shape[1:] != values[1].shape[1:]:
        raise UserError(f"{where} and {parts[1]['img_lab']} differ in their columns. Take all files from one source.")
    both = np.concatenate(values)
    if both.ndim == 2 and both.shape[1] > 1:
        return as_labels(both, where)
    lowest, highest = (float(edge(both)) if both.size else 0.0 for edge in (np.min, np.max))
    if not np.isfinite(highest):
        raise UserError(
            f"{where} or its test part holds NaN or infinity among the class numbers. Fetch the files again."
        )
    first = 1 if lowest == 1 else 0
    labels, notes = as_class_labels(both, where, first=first, classes=max(1, int(highest) - first + 1))
    return labels, notes | ({"class numbers": "run from 1 in the files; from 0 here"} if first else {})
