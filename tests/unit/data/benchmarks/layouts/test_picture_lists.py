"""Lists of pictures with labels: text, companion and MATLAB lists, overlaps, and lines that do not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from silohash.base.errors import BadLine, FilesDiffer, MissingFile, NothingUsable, OutOfRange
from silohash.data.benchmarks.layouts.picture_lists import COMPANION_LISTS, LISTS
from silohash.data.pictures.reading import PictureFiles
from tests.unit.data.benchmarks.arrays import items, read, save
from tests.unit.data.benchmarks.drawing import draw, write
from tests.unit.data.formats.matlab_files import cell


def write_lists(root: Path) -> None:
    draw(root, *(f"images/{name}.jpg" for name in "abcdef"))
    write(root, "database.txt", "images/a.jpg 0 1 0", "images/b.jpg 1 0 1", "images/c.jpg 0 0 0")
    write(root, "train.txt", "images/b.jpg 1 0 1", "images/d.jpg 0 0 1")
    write(root, "test.txt", "images/e.jpg 1 1 1", "")


def test_lists_of_zero_and_one(tmp_path: Path) -> None:
    write_lists(tmp_path)
    assert not LISTS.missing(tmp_path)
    raw = LISTS.read(tmp_path)
    assert raw.ids.tolist() == [f"images/{name}.jpg" for name in "abcde"]
    assert raw.labels is not None
    assert raw.labels.tolist() == [[0, 1, 0], [1, 0, 1], [0, 0, 0], [0, 0, 1], [1, 1, 1]]
    assert raw.label_names == ("class 0", "class 1", "class 2")
    stated = {name: rows.tolist() for name, rows in raw.stated.items()}
    assert stated == {"database": [0, 1, 2], "train": [1, 3], "query": [4]}
    assert raw.text is None
    assert raw.has("image").all()
    assert "queries in the database" not in raw.notes
    (tmp_path / "train.txt").unlink()
    assert not LISTS.missing(tmp_path)
    without = LISTS.read(tmp_path)
    assert {name: rows.tolist() for name, rows in without.stated.items()} == {"database": [0, 1, 2], "query": [3]}
    assert not [name for name in without.notes if name.startswith("queries in")]


def test_two_numbers_per_line_are_two_classes(tmp_path: Path) -> None:
    draw(tmp_path, "a.jpg", "b.jpg")
    write(tmp_path, "database.txt", "a.jpg 0 1")
    write(tmp_path, "test.txt", "b.jpg 1 0")
    labels = LISTS.read(tmp_path).labels
    assert labels is not None
    assert labels.tolist() == [[0, 1], [1, 0]]


def test_queries_in_the_database_are_stated_and_noted(tmp_path: Path) -> None:
    write_lists(tmp_path)
    write(tmp_path, "test.txt", "images/e.jpg 1 1 1", "images/a.jpg 0 1 0", "images/d.jpg 0 0 1")
    raw = LISTS.read(tmp_path)
    assert raw.notes["queries in the database"] == "1 of 3"
    assert raw.notes["queries in the training items"] == "1 of 3"
    assert np.intersect1d(raw.stated["query"], raw.stated["database"]).tolist() == [0]


def test_a_picture_twice_in_a_list_is_counted_and_other_labels_refused(tmp_path: Path) -> None:
    write_lists(tmp_path)
    write(tmp_path, "test.txt", "images/e.jpg 1 1 1", "images/e.jpg 1 1 1")
    assert LISTS.read(tmp_path).notes["lines that repeat a picture of their list"] == "1"
    write(tmp_path, "test.txt", "images/b.jpg 1 1 1")
    with pytest.raises(FilesDiffer, match=r"test\.txt.*images/b\.jpg"):
        LISTS.read(tmp_path)


def test_lists_of_one_class_a_line(tmp_path: Path) -> None:
    draw(tmp_path, "here/a 1.jpg", "here/b.jpg")
    write(tmp_path, "database.txt", "/data/set/a 1.jpg 0")
    write(tmp_path, "test.txt", "/data/set/b.jpg 2")
    raw = LISTS.read(tmp_path, pictures="here", strip="/data/set/")
    assert raw.labels is not None
    assert raw.labels.tolist() == [[1, 0, 0], [0, 0, 1]]
    assert isinstance(raw.image, PictureFiles)
    assert raw.image.names == ("a 1.jpg", "b.jpg")
    wider = LISTS.read(tmp_path, pictures="here", strip="/data/set/", classes=5)
    assert wider.labels is not None
    assert wider.labels.shape == (2, 5)
    with pytest.raises(OutOfRange, match=r"2.*1"):
        LISTS.read(tmp_path, pictures="here", strip="/data/set/", classes=2)
    with pytest.raises(NothingUsable, match=r"2.*pictures.*names.*/data/set/a.*1\.jpg"):
        LISTS.read(tmp_path)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("images/f.jpg 1 1", r"test\.txt.*2.*2.*3"),
        ("images/f.jpg 1 1 2", r"test\.txt.*2.*2"),
        ("images/f.jpg", r"test\.txt.*line.*2.*images/f\.jpg"),
        ("images/f.jpg 1 -1 1", r"test\.txt.*2.*1.*3"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, line: str, said: str) -> None:
    write_lists(tmp_path)
    write(tmp_path, "test.txt", "images/e.jpg 1 1 1", line)
    with pytest.raises(BadLine, match=said):
        LISTS.read(tmp_path)


def test_lists_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    write_lists(tmp_path)
    write(tmp_path, "test.txt", "images/e.jpg 1 1 1 1")
    with pytest.raises(FilesDiffer, match=r"database\.txt.*3.*train\.txt.*3"):
        LISTS.read(tmp_path)
    write(tmp_path, "test.txt", "images/e.jpg 1")
    with pytest.raises(FilesDiffer, match=r"database\.txt.*train\.txt"):
        LISTS.read(tmp_path)
    (tmp_path / "test.txt").unlink()
    with pytest.raises(MissingFile, match=r"has no test\.txt"):
        LISTS.read(tmp_path)


def write_companions(root: Path, *, hot: bool) -> None:
    draw(root, "a.jpg", "b.jpg", "c.jpg")
    write(root, "database_img.txt", "a.jpg", "b.jpg")
    write(root, "test_img.txt", "c.jpg")
    write(root, "database_label.txt", "2", "0 1")
    write(root, "test_label.txt", "1")
    if hot:
        write(root, "database_label_onehot.txt", "0 0 1", "1 1 0")
        write(root, "test_label_onehot.txt", "0 1 0")


@pytest.mark.parametrize("hot", [True, False])
def test_companion_lists(tmp_path: Path, hot: bool) -> None:
    write_companions(tmp_path, hot=hot)
    assert not COMPANION_LISTS.missing(tmp_path)
    raw = COMPANION_LISTS.read(tmp_path)
    assert raw.labels is not None
    assert raw.labels.tolist() == [[0, 0, 1], [1, 1, 0], [0, 1, 0]]
    assert {name: rows.tolist() for name, rows in raw.stated.items()} == {"database": [0, 1], "query": [2]}


@pytest.mark.parametrize(("name", "hot"), [("database_label_onehot.txt", True), ("database_label.txt", False)])
def test_companion_files_of_other_lengths_are_refused(tmp_path: Path, name: str, hot: bool) -> None:
    write_companions(tmp_path, hot=hot)
    write(tmp_path, name, "1" if not hot else "0 0 1")
    with pytest.raises(FilesDiffer, match=rf"database_img\.txt.*lines.*{name}"):
        COMPANION_LISTS.read(tmp_path)


def test_companion_labels_that_are_missing_or_damaged_are_named(tmp_path: Path) -> None:
    write_companions(tmp_path, hot=False)
    write(tmp_path, "database_label.txt", "2", "dog")
    with pytest.raises(BadLine, match=r"database_label\.txt"):
        COMPANION_LISTS.read(tmp_path)
    (tmp_path / "test_label.txt").unlink()
    with pytest.raises(MissingFile, match=r"nor test_label\.txt"):
        COMPANION_LISTS.read(tmp_path)


@pytest.mark.parametrize("of", ["mirflickr25k", "nus-wide", "iapr-tc12", "coco"])
def test_torchcmh(tmp_path, of):
    some = items(count=8)
    folders = [f"part{row % 2}" for row in range(8)] if of == "nus-wide" else [""] * 8
    paths = [f"{folder}/{name}".lstrip("/") for folder, name in zip(folders, some.names, strict=True)]
    for path, shade in zip(paths, range(8), strict=True):
        (tmp_path / "photos" / path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (5, 4), (shade, 0, 0)).save(tmp_path / "photos" / path, format="PNG")
    end = "21" if of == "nus-wide" else ""
    names = {
        "mirflickr25k": {"FAll": cell(some.names)},
        "nus-wide": {"imgs": cell(list(zip(folders, some.names, strict=True)))},
    }.get(of, {"imgs": np.array(some.names)})
    variables = ("YAll", "LAll") if of == "mirflickr25k" else ("tags", "labels")
    save(tmp_path / f"imgList{end}.mat", **names)
    save(tmp_path / f"tagList{end}.mat", **{variables[0]: some.tags})
    save(tmp_path / f"labelList{end}.mat", **{variables[1]: some.labels})
    raw = read(tmp_path, of, "torchcmh", pictures="photos")
    assert raw.ids.tolist() == paths
    assert [raw.image.picture(row).getpixel((0, 0))[0] for row in range(8)] == list(range(8))
    assert np.array_equal(raw.labels, some.labels)
    assert np.array_equal(raw.text, some.tags.astype(np.float32))
    with pytest.raises(NothingUsable):
        read(tmp_path, of, "torchcmh")
    (tmp_path / "photos" / paths[2]).unlink()
    assert (
        "1, the first"
        in read(tmp_path, of, "torchcmh", pictures="photos").notes["items whose picture is missing or damaged"]
    )


def test_an_empty_companion_list_adds_no_class(tmp_path: Path) -> None:
    write_companions(tmp_path, hot=False)
    write(tmp_path, "database_label.txt", "0", "0")
    write(tmp_path, "test_label.txt", "0")
    for name in ("train_img.txt", "train_label.txt"):
        write(tmp_path, name)
    assert not COMPANION_LISTS.missing(tmp_path)
    raw = COMPANION_LISTS.read(tmp_path)
    assert raw.labels is not None
    assert raw.labels.tolist() == [[1], [1], [1]]
    assert raw.stated["train"].tolist() == []
