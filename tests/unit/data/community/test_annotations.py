"""The collectors' own releases, written small in exactly their layouts and read back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from silohash.data.benchmarks.annotations import COCO, IAPR, MIRFLICKR, NUS_WIDE, PASCAL, WIKIPEDIA
from silohash.data.benchmarks.raw import Raw
from silohash.data.pictures.packing import PictureFiles
from silohash.types import UserError
from tests.unit.data.community.drawing import draw, write

CONCEPTS = [f"topic{number:02d}" for number in range(24)]
RELEVANT = [f"{name}_r1" for name in CONCEPTS[:14]]


def names_of(raw: Raw) -> tuple[str, ...]:
    assert isinstance(raw.image, PictureFiles)
    return raw.image.names


def labels_of(raw: Raw) -> list[list[str]]:
    assert raw.labels is not None
    return [[raw.label_names[column] for column in np.flatnonzero(row)] for row in raw.labels]


def write_mirflickr(root: Path) -> None:
    draw(root / "mirflickr", "im1.jpg", "im2.jpg", "im10.jpg")
    for name in [*CONCEPTS, *RELEVANT]:
        write(root, f"mirflickr25k_annotations_v080/{name}.txt")
    write(root, "mirflickr25k_annotations_v080/README.txt", "about the annotations")
    write(root, "mirflickr25k_annotations_v080/topic03.txt", "1", "10")
    write(root, "mirflickr25k_annotations_v080/topic03_r1.txt", "10")
    write(root, "mirflickr25k_annotations_v080/topic01.txt", "10")
    write(root / "mirflickr", "meta/tags/tags1.txt", "sky", "new york", "")
    write(root / "mirflickr", "meta/tags/tags2.txt")
    write(root / "mirflickr", "meta/tags/tags10.txt", "café")


def test_mirflickr(tmp_path: Path) -> None:
    write_mirflickr(tmp_path)
    assert not MIRFLICKR[0].missing(tmp_path)
    raw = MIRFLICKR[0].read(tmp_path)
    assert raw.ids.tolist() == ["im1", "im2", "im10"]
    assert names_of(raw) == ("im1.jpg", "im2.jpg", "im10.jpg")
    assert raw.label_names == tuple(CONCEPTS)
    assert labels_of(raw) == [["topic03"], [], ["topic01", "topic03"]]
    assert isinstance(raw.text, np.ndarray)
    assert raw.text.tolist() == ["sky newyork", "", "café"]
    assert raw.has("text").tolist() == [True, False, True]
    assert raw.notes["items without any of the concepts"] == "1"


def test_mirflickr_with_the_concepts_that_are_prominent(tmp_path: Path) -> None:
    write_mirflickr(tmp_path)
    raw = MIRFLICKR[0].read(tmp_path, concepts=38)
    assert raw.label_names == tuple(sorted([*CONCEPTS, *RELEVANT]))
    assert labels_of(raw)[2] == ["topic01", "topic03", "topic03_r1"]


def test_mirflickr_counts_missing_pictures_and_refuses_a_missing_concept(tmp_path: Path) -> None:
    write_mirflickr(tmp_path)
    (tmp_path / "mirflickr/im2.jpg").unlink()
    raw = MIRFLICKR[0].read(tmp_path)
    assert raw.has("image").tolist() == [True, False, True]
    assert raw.notes["items whose picture is missing or damaged"] == "1"
    (tmp_path / "mirflickr25k_annotations_v080/topic05.txt").unlink()
    with pytest.raises(UserError, match="has 23 files of concepts where 24 were expected"):
        MIRFLICKR[0].read(tmp_path)
    write(tmp_path, "mirflickr25k_annotations_v080/topic05.txt", "1", "one")
    with pytest.raises(UserError, match=r'topic05\.txt, line 2: "one"'):
        MIRFLICKR[0].read(tmp_path)


NUS_NAMES = [f"concept{number:02d}" for number in range(81)]


def write_nus(root: Path, items: int = 40) -> None:
    write(root, "ImageList/Imagelist.txt", *(f"class{row % 3}\\{row:04d}_{row}.jpg" for row in range(items)))
    for number, name in enumerate(NUS_NAMES):
        often = (7 * number) % 81
        lines = ["1" if row * 81 < often * items else "0" for row in range(items)]
        write(root, f"Groundtruth/AllLabels/Labels_{name}.txt", *lines)
    tags = [["1" if (row + column) % 9 == 0 else "0" for column in range(1000)] for row in range(items)]
    write(root, "NUS_WID_Tags/AllTags1k.txt", *("\t".join(row) + "\t" for row in tags))
    write(root, "NUS_WID_Tags/TagList1k.txt", *(f"tag{column}" for column in range(1000)))


def test_nus_wide(tmp_path: Path) -> None:
    write_nus(tmp_path)
    assert not NUS_WIDE[0].missing(tmp_path)
    raw = NUS_WIDE[0].read(tmp_path)
    assert raw.ids[:2].tolist() == ["class0/0000_0.jpg", "class1/0001_1.jpg"]
    assert raw.image is None
    assert raw.text is not None
    assert not isinstance(raw.text, str)
    assert raw.text.dtype == np.float32
    assert np.array_equal(np.asarray(raw.text)[4], [(4 + column) % 9 == 0 for column in range(1000)])
    assert raw.labels is not None
    often = [[(7 * number) % 81, name] for number, name in enumerate(NUS_NAMES)]
    counts = {name: -(-int(value) * 40 // 81) for value, name in often}
    assert len(raw.label_names) == 21
    assert list(raw.label_names) == sorted(raw.label_names)
    assert min(counts[name] for name in raw.label_names) >= sorted(counts.values())[-21]
    assert raw.labels.sum(axis=0).tolist() == [counts[name] for name in raw.label_names]
    assert NUS_WIDE[0].read(tmp_path, classes=81).label_names == tuple(NUS_NAMES)
    assert len(NUS_WIDE[0].read(tmp_path, classes=10).label_names) == 10


def test_nus_wide_with_words_pictures_and_stated_splits(tmp_path: Path) -> None:
    write_nus(tmp_path)
    draw(tmp_path, "Flickr/class0/0000_0.jpg", "Flickr/class1/0001_1.jpg")
    write(tmp_path, "ImageList/TrainImagelist.txt", "class0\\0000_0.jpg", "class2\\0002_2.jpg")
    write(tmp_path, "ImageList/TestImagelist.txt", "class1\\0001_1.jpg")
    raw = NUS_WIDE[0].read(tmp_path, text="words")
    assert names_of(raw)[:3] == ("class0/0000_0.jpg", "class1/0001_1.jpg", "")
    assert raw.notes["items whose picture is missing or damaged"].startswith("38,")
    assert raw.text is not None
    assert str(raw.text[0]).split()[:3] == ["tag0", "tag9", "tag18"]
    assert {name: rows.tolist() for name, rows in raw.stated.items()} == {"train": [0, 2], "query": [1]}
    write(tmp_path, "ImageList/TestImagelist.txt", "class1\\0001_1.jpg", "class9\\9.jpg")
    with pytest.raises(UserError, match=r"TestImagelist\.txt, line 2"):
        NUS_WIDE[0].read(tmp_path)


def test_nus_wide_files_of_other_lengths_are_refused(tmp_path: Path) -> None:
    write_nus(tmp_path)
    path = tmp_path / "Groundtruth/AllLabels/Labels_concept05.txt"
    path.write_text(path.read_text()[2:])
    with pytest.raises(UserError, match=r"Labels_concept05\.txt has 39 lines and .*Imagelist\.txt has 40"):
        NUS_WIDE[0].read(tmp_path)
    write_nus(tmp_path)
    tags = tmp_path / "NUS_WID_Tags/AllTags1k.txt"
    lines = tags.read_text().splitlines()
    tags.write_text("\n".join([*lines[:9], lines[9][2:], *lines[10:]]))
    with pytest.raises(UserError, match=r"AllTags1k\.txt, line 10 has 999 columns where 1,000"):
        NUS_WIDE[0].read(tmp_path)
    path.unlink()
    with pytest.raises(UserError, match="has 80 files of concepts where 81"):
        NUS_WIDE[0].read(tmp_path)


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


def test_coco(tmp_path: Path) -> None:
    write_coco(tmp_path)
    raw = COCO[0].read(tmp_path)
    assert raw.ids.tolist() == ["9", "5", "7"]
    assert raw.label_names == ("person", "stop sign", "toothbrush")
    assert labels_of(raw) == [["person", "stop sign"], ["toothbrush"], []]
    assert raw.text is not None
    assert raw.text.tolist() == ["a man", "a brush", ""]
    assert {name: rows.tolist() for name, rows in raw.stated.items()} == {"train": [0, 1], "validation": [2]}
    assert raw.image is None
    assert raw.notes["captions of pictures that are not listed"] == "1"
    assert raw.notes["pictures without any category"] == "1"


def test_coco_with_every_caption_and_pictures(tmp_path: Path) -> None:
    write_coco(tmp_path)
    draw(tmp_path / "train2014", "000000000009.jpg", "000000000005.jpg")
    raw = COCO[0].read(tmp_path, captions="each")
    assert raw.ids.tolist() == ["9#0", "5#0", "5#1", "7#0"]
    assert raw.columns["picture"].tolist() == ["9", "5", "5", "7"]
    assert names_of(raw)[1:] == ("train2014/000000000005.jpg", "train2014/000000000005.jpg", "")
    assert labels_of(raw)[2] == ["toothbrush"]
    assert COCO[0].read(tmp_path, captions="all").text.tolist() == ["a man", "a brush teeth and hair", ""]  # type: ignore[union-attr]
    with pytest.raises(UserError, match=r"instances_train2017\.json.*there is: instances_train2014\.json"):
        COCO[0].read(tmp_path, year=2017)


def test_coco_refuses_a_category_it_does_not_know(tmp_path: Path) -> None:
    write_instances(tmp_path, "train2017", [1], [(1, 2)])
    with pytest.raises(UserError, match="category 2"):
        COCO[0].read(tmp_path, year=2017)


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
    raw = COCO[1].read(tmp_path, labels=True)
    assert raw.ids.tolist() == ["5", "7", "9", "11"]
    assert raw.columns["part"].tolist() == ["restval", "test", "train", "val"]
    stated = {name: rows.tolist() for name, rows in raw.stated.items()}
    assert stated == {"train": [0, 2], "validation": [3], "query": [1]}
    assert labels_of(raw) == [["toothbrush"], [], ["person", "stop sign"], []]
    without = COCO[1].read(tmp_path, restval=False, captions="each")
    assert without.stated["train"].tolist() == [10, 11, 12, 13, 14]
    assert without.labels is None
    images[1]["split"] = "tset"
    write_json(tmp_path, "dataset_coco.json", {"images": images})
    with pytest.raises(UserError, match='picture 7 is in "tset"'):
        COCO[1].read(tmp_path)


def write_iapr(root: Path) -> None:
    draw(root, "images/00/25.jpg", "images/01/1000.jpg")
    for number, folder, title in [(25, "00", "Plaza & church"), (1000, "01", "Niño")]:
        write(
            root,
            f"annotations_complete_eng/{folder}/{number}.eng",
            "<DOC>",
            f"<DOCNO>annotations/{folder}/{number}.eng</DOCNO>",
            f"<TITLE>{title}</TITLE>",
            f"<DESCRIPTION>a description of {number};\n  more of it &amp; so on;</DESCRIPTION>",
            "<NOTES></NOTES>",
            "<LOCATION>Quito, Ecuador</LOCATION>",
            "</DOC>",
            encoding="latin-1",
        )
    write(root, "saiapr_tc-12/wlist.txt", "1 sky-blue", "2\tman", "7 group of persons")
    write(root, "saiapr_tc-12/00/labels.txt", "25\t1\t7", "25\t2\t1")
    write(root, "saiapr_tc-12/01/labels.txt", "1000 1 7", "4000 1 1")


def test_iapr(tmp_path: Path) -> None:
    write_iapr(tmp_path)
    assert not IAPR[0].missing(tmp_path)
    raw = IAPR[0].read(tmp_path)
    assert raw.ids.tolist() == ["25", "1000"]
    assert names_of(raw) == ("images/00/25.jpg", "images/01/1000.jpg")
    assert raw.text is not None
    assert raw.text[0] == "a description of 25; more of it & so on;"
    assert labels_of(raw) == [["sky-blue", "group of persons"], ["group of persons"]]
    assert raw.label_names == ("sky-blue", "group of persons")
    assert raw.notes["segments of pictures that are not there"] == "1"
    whole = IAPR[0].read(tmp_path, concepts=275, fields="title|location")
    assert whole.label_names == ("sky-blue", "man", "group of persons")
    assert whole.text is not None
    assert whole.text.tolist() == ["Plaza & church Quito, Ecuador", "Niño Quito, Ecuador"]


def test_iapr_names_bad_lines(tmp_path: Path) -> None:
    write_iapr(tmp_path)
    write(tmp_path, "saiapr_tc-12/01/labels.txt", "1000 1 7", "1000 1")
    with pytest.raises(UserError, match=r'01/labels\.txt, line 2: "1000 1"'):
        IAPR[0].read(tmp_path)
    write(tmp_path, "saiapr_tc-12/01/labels.txt", "1000 1 8")
    with pytest.raises(UserError, match="label 8 is not in wlist"):
        IAPR[0].read(tmp_path)


def write_wikipedia(root: Path) -> None:
    write(root, "trainset_txt_img_cat.list", "aa-1\tp1\t2", "bb-2\tp2\t1")
    write(root, "testset_txt_img_cat.list", "cc-3\tp3\t2")
    write(root, "categories.list", "art", "biology")
    draw(root, "images/biology/p1.jpg", "images/art/p2.jpg", "images/biology/p3.jpg")
    head = '<?xml version="1.0" encoding="UTF-8" ?>'
    write(
        root,
        "texts/aa-1.xml",
        head,
        "<article><title>Not this</title><text>The <b>cell</b> &lt; 1 mm",
        "</text></article>",
    )
    write(root, "texts/bb-2.xml", head, "<document>A painting.</document>")


def test_wikipedia(tmp_path: Path) -> None:
    write_wikipedia(tmp_path)
    assert not WIKIPEDIA[0].missing(tmp_path)
    raw = WIKIPEDIA[0].read(tmp_path)
    assert raw.ids.tolist() == ["aa-1", "bb-2", "cc-3"]
    assert labels_of(raw) == [["biology"], ["art"], ["biology"]]
    assert raw.text is not None
    assert raw.text.tolist() == ["The cell < 1 mm", "A painting.", ""]
    assert {name: rows.tolist() for name, rows in raw.stated.items()} == {"train": [0, 1], "query": [2]}
    assert names_of(raw)[0] == "images/biology/p1.jpg"
    assert raw.notes["items whose text is missing"] == "1"
    write(tmp_path, "testset_txt_img_cat.list", "cc-3\tp3\t3")
    with pytest.raises(UserError, match=r"testset_txt_img_cat\.list, line 1.*category from 1 to 2"):
        WIKIPEDIA[0].read(tmp_path)


def test_pascal_sentence(tmp_path: Path) -> None:
    draw(tmp_path, "dataset/dog/1.jpg", "dataset/cat/1.jpg")
    write(tmp_path, "sentence/dog/1.txt", "A dog.", "Two dogs.")
    write(tmp_path, "sentence/cat/1.txt", "A cat.")
    write(tmp_path, "sentence/cat/2.txt", "A cat without a picture.")
    assert not PASCAL[0].missing(tmp_path)
    raw = PASCAL[0].read(tmp_path)
    assert raw.ids.tolist() == ["cat/1", "cat/2", "dog/1"]
    assert labels_of(raw) == [["cat"], ["cat"], ["dog"]]
    assert raw.text is not None
    assert raw.text.tolist() == ["A cat.", "A cat without a picture.", "A dog. Two dogs."]
    assert raw.has("image").tolist() == [True, False, True]
    assert PASCAL[0].read(tmp_path, captions="each").ids.tolist() == ["cat/1#0", "cat/2#0", "dog/1#0", "dog/1#1"]
    for path in (tmp_path / "dataset").rglob("*.jpg"):
        path.write_bytes(b"")
    with pytest.raises(UserError, match="None of the 3 pictures"):
        PASCAL[0].read(tmp_path)


def test_missing_files_are_listed(tmp_path: Path) -> None:
    write_wikipedia(tmp_path)
    (tmp_path / "categories.list").unlink()
    assert [need.pattern for need in WIKIPEDIA[0].missing(tmp_path)] == ["**/categories.list"]
    with pytest.raises(UserError, match=r"categories\.list"):
        WIKIPEDIA[0].read(tmp_path)
    assert [need.pattern for need in COCO[0].missing(tmp_path)] == ["**/instances_*20*.json"]
