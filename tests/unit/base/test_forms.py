"""What is wrong with a file is said in one sentence that names the file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import ValidationError

from silohash.base.errors import DamagedFile, UserError, WrongKindOfPath
from silohash.base.forms import LONGEST_DETAIL, any_json, damaged, detail, fault, json_line, of_json, of_value, reading


@dataclass(frozen=True)
class Item:
    name: str
    size: int
    share: float | None = None


def test_a_document_of_the_form_is_returned() -> None:
    assert of_json('[{"name": "a", "size": 2}, {"name": "b", "size": 3, "share": NaN, "new": 1}]', list[Item])[
        0
    ] == Item("a", 2)
    assert of_json(b'{"a": [1, 2]}', dict[str, tuple[int, int]]) == {"a": (1, 2)}
    assert of_value({"name": "a", "size": 2}, Item) == Item("a", 2)


def test_values_are_shown_only_where_they_are_short_and_there() -> None:
    for content in ('{"name": "a", "size": [1, 2]}', '{"name": "a"}', '{"name": '):
        with pytest.raises(ValidationError) as refused:
            of_json(content, Item)
        assert "got" not in fault(refused.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{}", "name: field required"),
        ("[]", "input should be an object"),
        ("null", "input should be an object, got None"),
        ('{"name": "a", "size": "2"}', "size: input should be a valid integer, got '2'"),
        ('{"name": "a", "size": true}', "size: input should be a valid integer, got True"),
        ('{"name": "a", "size": 2, "share": "x"}', "share: input should be a valid number, got 'x'"),
        ('{"name": 1, "size": 2}', "name: input should be a valid string, got 1"),
        ('{"name": ', "invalid JSON: EOF while parsing"),
        (b'{"name": "\xff"}', "invalid JSON"),
        ("", "invalid JSON: EOF"),
        ("[" * 100_000, "invalid JSON: recursion limit exceeded"),
    ],
)
def test_the_first_fault_is_named_with_its_place_and_value(content: str | bytes, says: str) -> None:
    with pytest.raises(ValidationError) as refused:
        of_json(content, Item)
    assert says in fault(refused.value)
    assert "\n" not in fault(refused.value)


def test_the_place_of_a_fault_is_a_path() -> None:
    with pytest.raises(ValidationError) as refused:
        of_json(json.dumps({"a": [{"name": "x", "size": 1}, {"name": "x"}]}), dict[str, list[Item]])
    assert fault(refused.value) == "a.1.size: field required"


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (KeyError("sum"), "'sum' is missing"),
        (KeyError("There is no item named x"), "'There is no item named x'"),
        (ValueError("two\n lines."), "two lines"),
        (ValueError("escape \x1b[31m"), "escape ⟨U+001B⟩[31m"),
        (MemoryError(), "MemoryError"),
        (ValueError("x" * 1000), "x" * LONGEST_DETAIL + "…"),
    ],
)
def test_details_are_one_plain_line(error: Exception, says: str) -> None:
    assert detail(error) == says


def test_bytes_that_are_not_text_are_named_with_their_position() -> None:
    with pytest.raises(UnicodeDecodeError) as refused:
        b"ab\xff".decode()
    assert detail(refused.value) == "it is not UTF-8 text: byte 0xff at position 2"


@pytest.mark.parametrize(
    "error", [ValueError("v"), TypeError("t"), KeyError("k"), IndexError("i"), AttributeError("a"), RecursionError("r"),
              OverflowError("o"), EOFError("e"), MemoryError("m"), SyntaxError("s")],
)  # fmt: skip
def test_errors_of_parsers_name_the_file(error: Exception, tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text("")
    with pytest.raises(DamagedFile) as refused, reading(path, remedy="Train again."):
        raise error
    assert str(refused.value) == f"{path} is damaged or has another format ({detail(error)}). Train again."


def test_missing_files_folders_and_other_errors(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for error, says in (
        (FileNotFoundError(), "a is missing. Index it."),
        (PermissionError(13, "no such luck"), "a could not be read (no such luck)."),
        (UserError("as it is"), "as it is"),
    ):
        with pytest.raises(UserError) as refused, reading(path, missing="Index it."):
            raise error
        assert str(refused.value).endswith(says)
    with pytest.raises(WrongKindOfPath, match="Move"), reading(
        tmp_path, remedy="Move it."
    ):  # fmt: skip
        raise AssertionError("not reached")
    with pytest.raises(KeyboardInterrupt), reading(path):
        raise KeyboardInterrupt


def test_a_damaged_line_is_named() -> None:
    assert str(damaged("rounds.jsonl, line 3", "x", "Do.")) == (
        "rounds.jsonl, line 3 is damaged or has another format (x). Do."
    )


def test_a_document_of_any_form_is_read_and_written_on_one_line() -> None:
    value = {"a": [1, 2.5, None, True, 123456789012345678901234567890], "é\n": {"b": "\x00"}}
    assert json_line(value).count(b"\n") == 0
    assert any_json(json_line(value)) == json.loads(json_line(value)) == value
    halves = {"name": "\ud83d"}
    assert any_json(json_line(halves)) == halves, "half of a surrogate pair, as in names of files that are not UTF-8"
    assert json_line(float("nan")) == b"NaN"
    with pytest.raises(ValueError, match=r"JSON|Expecting"):
        any_json(b"{")
