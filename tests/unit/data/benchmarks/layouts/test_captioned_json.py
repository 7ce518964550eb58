"""Instances, captions and Karpathy's list, written small and read back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from silohash.base.types import UserError
from silohash.data.benchmarks.coco import COCO
from silohash.data.benchmarks.layouts.captioned_json import elements
from tests.unit.data.benchmarks.drawing import draw
from tests.unit.data.benchmarks.found import labels_of, names_of

LAYOUTS = {layout.name: layout for layout in COCO.layouts}


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
    with pytest.raises(
        UserError, match=r"instances_train2017\.json.*the instances present are: instances_train2014\.json"
    ):
        JSON.read(tmp_path, year=2017)


def test_an_unknown_category_is_refused(tmp_path: Path) -> None:
    write_instances(tmp_path, "train2017", [1], [(1, 2)])
    with pytest.raises(UserError, match="category 2"):
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
    with pytest.raises(UserError, match='picture 7 is in "tset"'):
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
    with pytest.raises(UserError, match=r"a\.json is damaged or not a JSON object"):
        list(elements(tmp_path / "a.json", key))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.json"):
        list(elements(tmp_path / "none.json", "images"))
