"""MS-COCO: its layouts, read from small files, and the numbers of its published protocols."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from silohash.base.errors import DamagedFile, MissingFile, UnreadableFile
from silohash.data.archive import Archive, ArchiveCard
from silohash.data.benchmarks.coco import COCO, elements
from silohash.data.partitions.kinds import nested_rows
from tests.unit.data.benchmarks.arrays import save
from tests.unit.data.benchmarks.drawing import draw
from tests.unit.data.benchmarks.found import labels_of, names_of
from tests.unit.data.formats.matlab_files import write_hdf5

LAYOUTS = {layout.name: layout for layout in COCO.layouts}
UCCH_FILE = "MSCOCO_deep_doc2vec_data_rand.h5py"
DIFFERS = "items differ from the published number"

PROTOCOLS: dict[str, tuple[int, int, int | None, int | None, int, str, str, str, str]] = {
    # name: queries, training items, database, items, labels, population, draw, searched items, measure
    "fedhap": (4_992, 10_000, 112_226, 122_218, 80, "labeled", "seeded", "rest", "mAP@all"),
    "feduch": (2_000, 5_000, 121_287, 123_287, 80, "all", "seeded", "rest", "mAP@50[denominator=retrieved]"),
    "deephash": (5_000, 10_000, 117_218, 122_218, 80, "labeled", "stated", "rest", "mAP@5000[denominator=retrieved]"),
    "hashnet-112218": (
        *(5_000, 10_000, 112_218, 122_218, 80),
        *("labeled", "stated", "not train", "mAP@5000[denominator=retrieved]"),
    ),
    "csq": (5_000, 9_992, None, None, 80, "labeled", "stated", "neither", "mAP@5000[denominator=retrieved]"),
    "ucch": (5_000, 117_218, 117_218, 122_218, 80, "labeled", "last rows", "rest", "mAP@all"),
    "torchcmh": (5_000, 10_000, None, None, 80, "all", "numpy seed", "rest", "mAP@all"),
    "fedbi-gnns": (5_000, 113_287, 5_000, 123_287, 0, "all", "stated", "query", "Success@1"),
    "fedbi-gnns-7972": (5_000, 113_287, 5_000, 123_287, 0, "all", "stated", "query", "Success@1"),
}


def trained_on(items: int) -> Archive:
    rows = np.arange(items)
    return Archive(
        ids=rows.astype(np.str_), image=np.ones((items, 1), np.float32), text=None, labels=None, label_names=(),
        splits={"train": rows, "database": rows, "query": rows[:0]}, card=ArchiveCard("made up", "a test", "none"),
    )  # fmt: skip


def write_features(root: Path, rows: int) -> None:
    draws = np.random.default_rng(rows)
    labels = np.zeros((rows, 80), np.int64)
    labels[np.arange(rows), np.arange(rows) % 80] = 1
    images, texts = (draws.normal(size=(rows, 6)).astype(np.float32) for _ in range(2))
    write_hdf5(root / UCCH_FILE, {"XAll": images, "YAll": texts, "LAll": labels})


def write_lists(root: Path, rows: int, classes: int) -> None:
    draw(root, *(f"{row}.jpg" for row in range(rows)))
    labels = np.eye(classes, dtype=np.uint8)[np.arange(rows) % classes]
    save(root / "imgList.mat", imgs=np.array([f"{row}.jpg" for row in range(rows)]))
    save(root / "tagList.mat", tags=np.random.default_rng(0).integers(0, 2, (rows, 5)).astype(np.float64))
    save(root / "labelList.mat", labels=labels)


def test_the_last_5000_rows_of_the_features_are_the_queries(tmp_path: Path) -> None:
    write_features(tmp_path, 5_003)
    found = LAYOUTS["ucch-h5py"].read(tmp_path)
    assert found.stated["query"].tolist() == list(range(3, 5_003))
    assert found.stated["database"].tolist() == found.stated["train"].tolist() == [0, 1, 2]


def test_features_of_another_size_are_noted_beside_the_published_one(tmp_path: Path) -> None:
    write_features(tmp_path, 200)
    notes = LAYOUTS["ucch-h5py"].read(tmp_path).notes
    assert notes[DIFFERS] == "200, not 122,218 or 123,287"
    assert "classes differ from the published number" not in notes


@pytest.mark.parametrize(("classes", "published"), [(80, True), (79, False)])
def test_lists_of_80_classes_are_compared_with_the_published_size(
    tmp_path: Path, classes: int, published: bool
) -> None:
    write_lists(tmp_path, 81, classes)
    notes = LAYOUTS["torchcmh"].read(tmp_path).notes
    assert notes.get(DIFFERS) == ("81, not 122,218 or 123,287" if published else None)


def test_the_layouts_are_tried_in_this_order() -> None:
    assert list(LAYOUTS) == ["ucch-h5py", "torchcmh", "lists", "region-arrays", "json", "karpathy-json"]


@pytest.mark.parametrize(
    ("layout", "needed", "files"),
    [
        ("ucch-h5py", [f"**/{UCCH_FILE}"], [UCCH_FILE]),
        ("json", ["**/instances_*20*.json"], ["annotations/instances_val2017.json"]),
        ("karpathy-json", ["**/dataset_coco.json"], ["dataset_coco.json"]),
    ],
)
def test_what_a_layout_needs(tmp_path: Path, layout: str, needed: list[str], files: list[str]) -> None:
    assert [need.pattern for need in LAYOUTS[layout].missing(tmp_path)] == needed
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert not LAYOUTS[layout].missing(tmp_path)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_numbers_of_each_protocol(name: str) -> None:
    rule = COCO.protocols[name]
    sizes = (rule.query, rule.train, rule.database, rule.items, rule.classes)
    assert (*sizes, rule.population, rule.draw, rule.searched, rule.measure) == PROTOCOLS[name]
    assert rule.collected == 123_287


def test_no_protocol_is_left_out_of_the_table() -> None:
    assert [rule.name for rule in COCO.published] == list(PROTOCOLS)
    assert COCO.protocol("").name == "feduch"
    assert {rule.dataset for rule in COCO.published} == {COCO.key} == {"coco"}


def test_only_torchcmh_seeds_its_permutation() -> None:
    assert {rule.name: rule.numpy_seed for rule in COCO.published if rule.numpy_seed} == {"torchcmh": 8}


@pytest.mark.parametrize(("name", "smallest"), [("fedbi-gnns", 67_973), ("fedbi-gnns-7972", 7_972)])
def test_nested_silos_of_karpathys_split(name: str, smallest: int) -> None:
    rule = COCO.protocols[name]
    stated = tomllib.loads(rule.partition.replace(", fractions", "\nfractions"))
    parts, _ = nested_rows(trained_on(rule.train), None, stated, 0)
    assert [len(rows) for rows in parts] == [smallest, 90_630, 113_287]
    assert rule.reader == {"captions": "each"}


def test_two_sources_leave_out_queries_without_a_relevant_item() -> None:
    skipping = [rule.name for rule in COCO.published if rule.no_hits == "skip"]
    assert skipping == ["hashnet-112218", "csq"]


JSON, KARPATHY = LAYOUTS["json"], LAYOUTS["karpathy-json"]

CONTENT = {
    "info": {"year": 2014, "images": [1, {"a": None}]},
    "images": [{"id": 12, "name": 'quote " ] } , é', "area": 1.5}, {"id": 1234567, "name": ""}],
    "numbers": [12, 3456, -1.5e3, True],
    "none": [],
    "last": 17,
}


def write_json(root: Path, name: str, content: Mapping[str, Any]) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(json.dumps(content))


def write_instances(root: Path, part: str, pictures: Sequence[int], seen: Sequence[tuple[int, int]]) -> None:
    write_json(
        root,
        f"annotations/instances_{part}.json",
        {
            "info": {"year": part[-4:]},
            "images": [{"id": number, "file_name": f"{number:012d}.jpg", "height": 4} for number in pictures],
            "annotations": [
                {"segmentation": [[1.5, 2.5]], "image_id": number, "category_id": category, "id": place}
                for place, (number, category) in enumerate(seen)
            ],
            "categories": [
                {"id": 90, "name": "toothbrush"},
                {"id": 1, "name": "person"},
                {"id": 13, "name": "stop sign"},
            ],
        },
    )


def write_coco(root: Path) -> None:
    write_instances(root, "train2014", [9, 5], [(5, 90), (9, 1), (9, 13), (9, 1)])
    write_instances(root, "val2014", [7], [])
    captions = [(5, "a brush "), (9, "a man"), (5, "teeth\nand hair"), (1234, "none")]
    annotations = [{"image_id": number, "id": place, "caption": text} for place, (number, text) in enumerate(captions)]
    write_json(root, "annotations/captions_train2014.json", {"annotations": annotations})


def test_instances_and_captions(tmp_path: Path) -> None:
    write_coco(tmp_path)
    raw = JSON.read(tmp_path)
    assert raw.ids.tolist() == ["9", "5", "7"]
    assert raw.label_names == ("person", "stop sign", "toothbrush")
    assert labels_of(raw) == [["person", "stop sign"], ["toothbrush"], []]
    assert raw.text is not None
    assert raw.text.tolist() == ["a man", "a brush", ""]
    assert {name: rows.tolist() for name, rows in raw.stated.items()} == {"train": [0, 1], "validation": [2]}
    assert raw.image is None
    assert raw.notes["captions of pictures that are not listed"] == "1"
    assert raw.notes["pictures without any category"] == "1"


def test_with_every_caption_and_pictures(tmp_path: Path) -> None:
    write_coco(tmp_path)
    draw(tmp_path / "train2014", "000000000009.jpg", "000000000005.jpg")
    raw = JSON.read(tmp_path, captions="each")
    assert raw.ids.tolist() == ["9#0", "5#0", "5#1", "7#0"]
    assert raw.columns["picture"].tolist() == ["9", "5", "5", "7"]
    assert names_of(raw)[1:] == ("train2014/000000000005.jpg", "train2014/000000000005.jpg", "")
    assert labels_of(raw)[2] == ["toothbrush"]
    assert JSON.read(tmp_path, captions="all").text.tolist() == ["a man", "a brush teeth and hair", ""]  # type: ignore[union-attr]
    with pytest.raises(MissingFile, match=r"instances_train2017\.json.*instances_train2014\.json"):
        JSON.read(tmp_path, year=2017)


def test_an_unknown_category_is_refused(tmp_path: Path) -> None:
    write_instances(tmp_path, "train2017", [1], [(1, 2)])
    with pytest.raises(DamagedFile, match="category 2"):
        JSON.read(tmp_path, year=2017)


def test_karpathy(tmp_path: Path) -> None:
    write_coco(tmp_path)
    images = [
        {
            "cocoid": number,
            "filepath": "val2014",
            "filename": f"{number}.jpg",
            "split": split,
            "sentences": [{"raw": f"caption {k} of {number}", "tokens": ["caption"]} for k in range(5)],
        }
        for number, split in [(5, "restval"), (7, "test"), (9, "train"), (11, "val")]
    ]
    write_json(tmp_path, "dataset_coco.json", {"images": images, "dataset": "coco"})
    raw = KARPATHY.read(tmp_path, labels=True)
    assert raw.ids.tolist() == ["5", "7", "9", "11"]
    assert raw.columns["part"].tolist() == ["restval", "test", "train", "val"]
    stated = {name: rows.tolist() for name, rows in raw.stated.items()}
    assert stated == {"train": [0, 2], "validation": [3], "query": [1]}
    assert labels_of(raw) == [["toothbrush"], [], ["person", "stop sign"], []]
    without = KARPATHY.read(tmp_path, restval=False, captions="each")
    assert without.stated["train"].tolist() == [10, 11, 12, 13, 14]
    assert without.labels is None
    images[1]["split"] = "tset"
    write_json(tmp_path, "dataset_coco.json", {"images": images})
    with pytest.raises(DamagedFile, match=r"7.*tset"):
        KARPATHY.read(tmp_path)


def test_missing_files_are_listed(tmp_path: Path) -> None:
    assert [need.pattern for need in JSON.missing(tmp_path)] == ["**/instances_*20*.json"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("key", ["images", "numbers", "none", "last", "missing"])
def test_streamed_json_is_what_the_file_holds(tmp_path: Path, key: str, encoding: str) -> None:
    (tmp_path / "a.json").write_text(json.dumps(CONTENT, indent=1), encoding=encoding)
    value = CONTENT.get(key)
    found = list(elements(tmp_path / "a.json", key))
    assert found == (value if isinstance(value, list) else [])
    assert [type(element) for element in found] == [type(element) for element in (value if found else [])]  # type: ignore[union-attr]


@pytest.mark.parametrize("key", ["images", "a"])
@pytest.mark.parametrize(
    "content", ['{"images": [{"id": 1}, {"id"', '{"a": [1 2]}', "[1, 2]", "", '{"a" 1}', "\x00\xff"]
)
def test_damaged_json_is_named(tmp_path: Path, content: str, key: str) -> None:
    (tmp_path / "a.json").write_text(content, encoding="latin-1")
    with pytest.raises(DamagedFile, match=r"a\.json"):
        list(elements(tmp_path / "a.json", key))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match=r"none\.json"):
        list(elements(tmp_path / "none.json", "images"))
