"""Columns of 0 and 1, whole numbers, captions, and pictures that are not all present."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from silohash.base.errors import BadLine, NothingUsable, UnreadableFile, WrongChoice
from silohash.data.benchmarks.layouts.reading import (
    check_picture_files,
    read_numbers,
    read_zero_one,
    spread_captions,
    unique_ids,
)
from tests.unit.data.benchmarks.drawing import draw, write


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\t\r\n", " \n\n\n"])
@pytest.mark.parametrize("between", [" ", "\t", "  "])
def test_a_table_of_zero_and_one(tmp_path: Path, ending: str, between: str) -> None:
    expected = np.random.default_rng(0).integers(0, 2, (23, 5)).astype(np.uint8)
    lines = [between.join(map(str, row)) for row in expected.tolist()]
    (tmp_path / "table.txt").write_bytes(ending.removesuffix("\n\n").join(lines).encode() + ending.encode())
    assert np.array_equal(read_zero_one(tmp_path / "table.txt"), expected)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["1 0", "0 1", "1 2"], r"3.*2"),
        (["1 0", "01 1"], r"2.*01"),
        (["1 0", "1 x"], "2"),
        (["1 0", "0 1", "1"], r"3.*columns.*where.*2"),
        (["1 0", "", "0 1"], "2"),
        (["1 0", "0 1 1", "1 1"], r"line.*columns"),
    ],
)
def test_a_bad_line_of_a_table_is_named(tmp_path: Path, lines: list[str], said: str) -> None:
    write(tmp_path, "table.txt", *lines)
    with pytest.raises(BadLine, match=said):
        read_zero_one(tmp_path / "table.txt")


def test_a_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match=r"table\.txt"):
        read_zero_one(tmp_path / "table.txt")


def test_whole_numbers_are_read_and_other_lines_named(tmp_path: Path) -> None:
    write(tmp_path, "numbers.txt", "3 4", "", "5,-6")
    assert read_numbers(tmp_path / "numbers.txt", 2).tolist() == [[3, 4], [5, -6]]
    write(tmp_path, "numbers.txt", "3", "4", "x")
    with pytest.raises(BadLine, match=r"3.*number"):
        read_numbers(tmp_path / "numbers.txt", 1)


def test_pictures_that_are_missing_or_damaged_are_counted(tmp_path: Path) -> None:
    draw(tmp_path, "a.jpg", "b.jpg")
    (tmp_path / "b.jpg").write_bytes(b"no picture")
    pictures, notes = check_picture_files(tmp_path, ["a.jpg", "b.jpg", "c.jpg", ""], "Put them there.")
    assert pictures.names == ("a.jpg", "", "", "")
    assert notes["items whose picture is missing or damaged"].startswith('3, the first: the picture "b.jpg"')
    assert pictures.picture(0).size == (6, 4)


def test_no_picture_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NothingUsable, match=r"2.*x\.jpg.*them"):
        check_picture_files(tmp_path, ["x.jpg", "y.jpg"], "Put them there.")


def test_pictures_outside_the_folder_are_not_read(tmp_path: Path) -> None:
    draw(tmp_path, "outside.jpg", "in/a.jpg")
    pictures, _ = check_picture_files(tmp_path / "in", ["a.jpg", "../outside.jpg", str(tmp_path / "outside.jpg")], "")
    assert pictures.names == ("a.jpg", "", "")


def test_captions_make_items() -> None:
    sentences = [["one", "two"], [], ["three"]]
    each = spread_captions(["a", "b", "c"], sentences, "each")
    assert each.ids.tolist() == ["a#0", "a#1", "b#0", "c#0"]
    assert each.text.tolist() == ["one", "two", "", "three"]
    assert each.rows.tolist() == [0, 0, 1, 2]
    assert spread_captions(["a", "b", "c"], sentences, "first").text.tolist() == ["one", "", "three"]
    assert spread_captions(["a", "b", "c"], sentences, "all").text.tolist() == ["one two", "", "three"]
    with pytest.raises(WrongChoice, match=r"captions.*al"):
        spread_captions(["a"], [["one"]], "al")


def test_ids_stand_once() -> None:
    assert unique_ids(["a", "b", "a"]).tolist() == ["a", "b", "a#2"]


def test_pictures_that_declare_no_range_are_noted(tmp_path: Path) -> None:
    draw(tmp_path, "a.jpg")
    Image.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8)).save(tmp_path / "b.jpg", "TIFF")
    _, notes = check_picture_files(tmp_path, ["a.jpg", "b.jpg"], "")
    expected = "1 picture declares no value range, so percentiles set black and white: b.jpg."
    assert notes == {"pictures of more than 8 bits": expected}
    assert check_picture_files(tmp_path, ["a.jpg"], "")[1] == {}
