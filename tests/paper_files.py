"""Small files in the layouts of the data sets of the papers, and a small CNN-F, for tests."""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from tests.benchmark_files import WIKIPEDIA_CLASSES
from tests.runs import labels_of, views_of
from tests.unit.data.benchmarks.arrays import Items, dcmh, items, save
from tests.unit.data.formats.matlab_files import cell, photographs, write_v73

ITEMS = 300
NUS_ITEMS, COCO_ITEMS, WIKIPEDIA_ITEMS = 2400, 1300, 140
"""The papers train on a few percent of these sets, so more items are needed for each silo to have some."""
CATEGORIES = 12
REGIONS = 4


def write_paper_data(folder: Path, names: Collection[str], *, regions: bool = False) -> None:
    """Writes the data sets of some names into ``folder/data``, where `silohash reproduce` looks for them.

    Args:
        regions: whether COCO is written as arrays of regions; a folder can hold one layout only.
    """
    write = {
        "mirflickr25k": partial(write_dcmh, items(ITEMS, 24, 8), "mirflickr25k"),
        "nus-wide": partial(write_dcmh, items(NUS_ITEMS, 21, 8), "nus-wide-tc21"),
        "iapr-tc12": write_iapr,
        "wikipedia": write_wikipedia_release,
        "fashionvc": partial(write_fashion, 8, 27),
        "ssense": partial(write_fashion, 4, 28),
        "coco": write_regions if regions else write_coco,
    }
    for name in names:
        write[name](folder / "data" / name)
    for name, file, count in (("wikipedia", "lda-1024", WIKIPEDIA_ITEMS), ("iapr-tc12", "bert-1024", ITEMS),
                              ("coco", "bert-1024", COCO_ITEMS)):  # fmt: skip
        if name in names:  # features of texts, which users compute
            np.save(folder / "data" / name / f"{file}.npy", np.random.default_rng(0).random((count, 16), np.float32))


def write_wikipedia_release(folder: Path) -> None:
    """Writes the collectors' lists, articles and pictures."""
    for name in ("texts", "images/art"):
        (folder / name).mkdir(parents=True)
    lines = [f"text{row}\tpicture{row}\t{1 + row % WIKIPEDIA_CLASSES}\n" for row in range(WIKIPEDIA_ITEMS)]
    for row, pixels in enumerate(photographs(WIKIPEDIA_ITEMS, 8, 8)):
        (folder / "texts" / f"text{row}.xml").write_text(f"<text>class {row % WIKIPEDIA_CLASSES}</text>")
        Image.fromarray(pixels).save(folder / "images" / "art" / f"picture{row}.jpg")
    (folder / "trainset_txt_img_cat.list").write_text("".join(lines[:100]))
    (folder / "testset_txt_img_cat.list").write_text("".join(lines[100:]))
    (folder / "categories.list").write_text("".join(f"class {c}\n" for c in range(WIKIPEDIA_CLASSES)))


def write_dcmh(some: Items, stem: str, folder: Path) -> None:
    """Writes DCMH's four files."""
    folder.mkdir(parents=True)
    dcmh(folder, some, stem)


def write_iapr(folder: Path) -> None:
    """Writes torchcmh's three files, and the pictures."""
    some = items(ITEMS, 30, 8)
    folder.mkdir(parents=True)
    for name, pixels in zip(some.names, some.pictures, strict=True):
        Image.fromarray(pixels).save(folder / name)
    save(folder / "imgList.mat", FAll=cell(some.names))
    save(folder / "tagList.mat", YAll=some.tags)
    save(folder / "labelList.mat", LAll=some.labels)


def write_fashion(coarse: int, fine: int, folder: Path) -> None:
    """Writes SHDCH's three files; each fine class is in one coarse one."""
    some = items(ITEMS, fine, 8)
    fines = np.random.default_rng(1).integers(0, fine, ITEMS)
    folder.mkdir(parents=True)
    write_v73(folder / "image.mat", {"Image": some.pictures})
    save(folder / "tag.mat", Tag=some.tags)
    save(folder / "label.mat", Label=np.hstack([np.eye(n, dtype=np.uint8)[fines % n] for n in (coarse, fine)]))


def write_coco(folder: Path) -> None:
    """Writes the collectors' files of 2014, with a caption of the categories and a small photograph per item."""
    labels = labels_of(COCO_ITEMS, CATEGORIES)
    half = COCO_ITEMS // 2
    for part, rows in (("train2014", range(half)), ("val2014", range(half, COCO_ITEMS))):
        (folder / part).mkdir(parents=True)
        for row in rows:
            Image.fromarray(photographs(1, 8, 8, seed=row)[0]).save(folder / part / f"{row}.jpg")
        (folder / "annotations").mkdir(exist_ok=True)
        boxes = [{"image_id": row, "category_id": int(c)} for row in rows for c in np.flatnonzero(labels[row])]
        instances = {
            "images": [{"id": row, "file_name": f"{row}.jpg"} for row in rows],
            "annotations": boxes,
            "categories": [{"id": c, "name": f"thing {c}"} for c in range(CATEGORIES)],
        }
        captions = [
            {"image_id": row, "caption": " and ".join(f"a thing{c}" for c in np.flatnonzero(labels[row]))}
            for row in rows
        ]
        (folder / "annotations" / f"instances_{part}.json").write_text(json.dumps(instances))
        (folder / "annotations" / f"captions_{part}.json").write_text(json.dumps({"annotations": captions}))


def write_regions(folder: Path) -> None:
    """Writes arrays of regions with their boxes in pixels, and five captions per picture."""
    folder.mkdir(parents=True)
    for part, count in (("train", 80), ("dev", 20), ("test", 20), ("testall", 40)):
        labels = labels_of(count, CATEGORIES, seed=count)
        views = [views_of(labels, seed=region) for region in range(REGIONS)]
        np.save(folder / f"{part}_ims.npy", np.stack(views, axis=1))
        corners = np.random.default_rng(count).integers(0, 50, (count, REGIONS, 2))
        np.save(folder / f"{part}_ims_bbx.npy", np.concatenate([corners, corners + 40], axis=2).astype(np.float32))
        np.save(folder / f"{part}_ims_size.npy", np.full((count, 2), 100.0))
        lines = [
            f"caption {number} of {' and '.join(f'thing{c}' for c in np.flatnonzero(row))}"
            for row in labels
            for number in range(5)
        ]
        (folder / f"{part}_caps.txt").write_text("\n".join(lines) + "\n")
