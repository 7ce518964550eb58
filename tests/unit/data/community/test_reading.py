"""Columns of 0 and 1, whole numbers, streamed JSON, and pictures that are not all there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from silohash.data.benchmarks import json_stream, reading
from silohash.data.benchmarks.reading import checked_pictures, numbers_of, spread, unique_ids, zero_one_table
from silohash.types import UserError
from tests.unit.data.community.drawing import draw, write


@pytest.mark.parametrize("block", [1, 7, 64, 1 << 18])
@pytest.mark.parametrize("ending", ["\n", "\r\n", "\t\r\n"])
def test_a_table_is_read_the_same_in_blocks_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, ending: str
) -> None:
    monkeypatch.setattr(reading, "BLOCK_BYTES", block)
    expected = np.random.default_rng(0).integers(0, 2, (23, 5)).astype(np.uint8)
    (tmp_path / "table.txt").write_bytes(
        ending.join("\t".join(map(str, row)) for row in expected.tolist()).encode() + (b"\n\n" if block == 7 else b"")
    )
    assert np.array_equal(zero_one_table(tmp_path / "table.txt", np.uint8), expected)
    assert zero_one_table(tmp_path / "table.txt", np.float32).dtype == np.float32


@pytest.mark.parametrize("block", [4, 1 << 18])
@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["1 0", "0 1", "1 2"], 'line 3: "1 2"'),
        (["1 0", "01 1"], 'line 2: "01 1"'),
        (["1 0", "0 1", "1"], "line 3 has 1 columns where 2"),
        (["1 0", "", "0 1"], "line 2 is empty"),
        (["1 0", "0 1 1", "1 1"], "line 2 has 3 columns where 2"),
    ],
)
def test_a_bad_line_of_a_table_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, lines: list[str], said: str
) -> None:
    monkeypatch.setattr(reading, "BLOCK_BYTES", block)
    write(tmp_path, "table.txt", *lines)
    with pytest.raises(UserError, match=said):
        zero_one_table(tmp_path / "table.txt", np.uint8)


def test_a_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"table\.txt cannot be read"):
        zero_one_table(tmp_path / "table.txt", np.uint8)


def test_whole_numbers_are_read_and_other_lines_named(tmp_path: Path) -> None:
    write(tmp_path, "numbers.txt", "3 4", "", "5,-6")
    assert numbers_of(tmp_path / "numbers.txt").tolist() == [[3, 4], [5, -6]]
    write(tmp_path, "numbers.txt", "3", "4", "x")
    with pytest.raises(UserError, match='line 3: "x" is not 1 whole number'):
        numbers_of(tmp_path / "numbers.txt")


def test_pictures_that_are_missing_or_damaged_are_counted(tmp_path: Path) -> None:
    draw(tmp_path, "a.jpg", "b.jpg")
    (tmp_path / "b.jpg").write_bytes(b"no picture")
    pictures, notes = checked_pictures(tmp_path, ["a.jpg", "b.jpg", "c.jpg", ""], "Put them there.")
    assert pictures.names == ("a.jpg", "", "", "")
    assert notes["items whose picture is missing or damaged"].startswith('3, the first: the picture "b.jpg"')
    assert pictures.picture(0).size == (6, 4)


def test_no_picture_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r'None of the 2 pictures.*"x\.jpg" is missing.*Put them there'):
        checked_pictures(tmp_path, ["x.jpg", "y.jpg"], "Put them there.")


def test_pictures_outside_the_folder_are_not_read(tmp_path: Path) -> None:
    draw(tmp_path, "outside.jpg", "in/a.jpg")
    pictures, _ = checked_pictures(tmp_path / "in", ["a.jpg", "../outside.jpg", str(tmp_path / "outside.jpg")], "")
    assert pictures.names == ("a.jpg", "", "")


def test_captions_make_items() -> None:
    sentences = [["one", "two"], [], ["three"]]
    each = spread(["a", "b", "c"], sentences, "each")
    assert each.ids == ["a#0", "a#1", "b#0", "c#0"]
    assert each.texts == ["one", "two", "", "three"]
    assert each.rows.tolist() == [0, 0, 1, 2]
    assert spread(["a", "b", "c"], sentences, "first").texts == ["one", "", "three"]
    assert spread(["a", "b", "c"], sentences, "all").texts == ["one two", "", "three"]
    with pytest.raises(UserError, match='captions cannot be "al"'):
        spread(["a"], [["one"]], "al")


def test_ids_stand_once() -> None:
    assert unique_ids(["a", "b", "a"]).tolist() == ["a", "b", "a#2"]


@pytest.mark.parametrize("chunk", [1, 3, 1 << 20])
def test_streamed_json_is_what_the_file_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(json_stream, "CHUNK", chunk)
    content = {
        "info": {"year": 2014, "more": [1, {"a": None}]},
        "images": [{"id": 12, "name": 'quote " ] } , é'}, {"id": 1234567, "name": ""}],
        "numbers": [12, 3456, -1.5e3, True],
        "none": [],
        "last": 17,
    }
    (tmp_path / "a.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
    assert list(json_stream.members(tmp_path / "a.json")) == [
        ("info", content["info"]),
        *(("images", image) for image in content["images"]),  # type: ignore[attr-defined]
        *(("numbers", number) for number in content["numbers"]),  # type: ignore[attr-defined]
        ("last", 17),
    ]


@pytest.mark.parametrize("content", ['{"images": [{"id": 1}, {"id"', '{"a": [1 2]}', "[1, 2]", "", '{"a" 1}'])
def test_damaged_json_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.json").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=r"a\.json is damaged or no JSON object"):
        list(json_stream.members(tmp_path / "a.json"))
