"""Cells of metadata: lists as other tools write them, numbers, and pictures in the place of their names."""

from __future__ import annotations

import contextlib
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silohash.data.formats.cells import CellError, cell_of, holds_picture, labels_of, parsed, text_of


@pytest.mark.parametrize(
    "cell",
    [
        "a dog|two",
        " a dog | two | a\u00a0dog\u200b",
        '["a dog", "two"]',
        "['a dog', 'two']",
        "('a dog', 'two')",
        "{'a dog', 'two'}",
        "['a dog' 'two']",
        "['a dog'\n 'two']",
        "array(['a dog', 'two'], dtype=object)",
        "list(['a dog', 'two'])",
        "frozenset({'a dog', 'two'})",
        "array(['a dog', 'two'], dtype='<U5')",
        "[np.str_('a dog'), np.str_('two')]",
        "[b'a dog', b'two']",
        ["a dog", "two", "a dog"],
        ("a dog", None, b"two", float("nan"), ""),
    ],
)
def test_labels_in_every_notation(cell):
    assert labels_of(cell) == ("a dog", "two")


@pytest.mark.parametrize(
    ("cell", "labels"),
    [
        *((empty, ()) for empty in ("[]", "()", "{}", "set()", "frozenset()", "array([], dtype=object)", "")),
        (None, ()),
        (float("nan"), ()),
        ("[1, 2]", ("1", "2")),
        ("[1 2]", ("1", "2")),
        ("[1. 2.]", ("1", "2")),
        ([2.0, 2, Decimal("2.0")], ("2",)),
        ([0, 1], ("0", "1")),
        (2.0, ("2",)),
        ("2.0", ("2.0",)),
        ("b'sea'", ("sea",)),
        ("[sic]", ("[sic]",)),
        ("[sic]|[x]", ("[sic]", "[x]")),
        ("(sea)", ("(sea)",)),
        ('["it\'s", "a,b"]', ("it's", "a,b")),
        ("AC/DC, live", ("AC/DC, live",)),
    ],
)
def test_labels(cell, labels):
    assert labels_of(cell) == labels


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("[a, b]", "look like a list that cannot be read"),
        ("['a' 'b' ... 'c']", "look like a list that cannot be read"),
        ("['a', nan]", "look like a list that cannot be read"),
        ("{a,b}", "look like a list that cannot be read"),
        ('c("a", "b")', "look like a list that cannot be read"),
        ("{'a': 1}", "are an object"),
        ({"a": 1}, "are an object"),
        ([["a"], ["b"]], "are a list of lists or objects"),
        ([{"name": "a"}], "are a list of lists or objects"),
        (["['a', 'b']"], "are a list of lists or objects"),
        ([0, 1, 0], "look like a zero or one for each label"),
        ([1, 1], "look like a zero or one for each label"),
        ([0.1, 0.9], "look like a score for each label"),
        ("[0. 1. 0. 0.]", "look like a zero or one for each label"),
        ([True, False, False], "look like a zero or one for each label"),
        ("bird\ntree", "has a line break or a tab"),
        ("bird\ttree", "has a line break or a tab"),
        (["bird\u2028tree"], "has a line break or a tab"),
    ],
)
def test_labels_that_are_refused_with_the_remedy(cell, reason):
    with pytest.raises(CellError, match=rf"{reason}.*\. Write "):
        labels_of(cell)


@pytest.mark.parametrize("column", ["text", "file_name", "id", "split"])
def test_a_list_of_one_value_is_the_value_and_of_several_is_refused(column):
    for cell in ("['a dog']", '["a dog"]', ["a dog"], ("a dog",), [b"a dog"], b"a dog", "b'a dog'", "a dog"):
        assert cell_of(column, cell) == "a dog"
    for cell in ("[]", [], None, ""):
        assert cell_of(column, cell) == ""
    for cell in ('["a dog", "another"]', "['a' 'b']", ["a", "b"]):
        with pytest.raises(CellError, match=rf'column "{column}" holds a list of 2 values, \[.*\. Write one '):
            cell_of(column, cell)
    for cell in ({"en": "a dog"}, [["a", "b"]], "[['a', 'b']]", '[{"en": "a dog"}]'):
        with pytest.raises(CellError, match="holds an object"):
            cell_of(column, cell)


def test_texts_in_brackets_remain_texts():
    for text in ("[Untitled]", "[1]", "(a dog)", "['a', 'b'", "b'tis", "{x}", "a dog [sic]"):
        assert cell_of("text", text) == text
    assert cell_of("place", '["a", "b"]') == '["a", "b"]'


def test_ids_and_splits_are_tidied_and_texts_are_not():
    assert cell_of("id", " a\u200b ") == cell_of("split", "\ufeffa\u00a0") == "a"
    assert cell_of("text", " two\n  lines\u200b") == "two\n  lines\u200b"
    assert cell_of("place", "two  spaces") == "two  spaces"


def test_whole_numbers_have_one_form():
    assert [text_of(value) for value in (2, 2.0, Decimal("2.00"), -0.0)] == ["2", "2", "2", "0"]
    assert [text_of(value) for value in (2.5, 1e300, float("inf"), True)] == ["2.5", "1e+300", "inf", "True"]
    # From here on, a float does not tell neighboring whole numbers apart.
    assert [text_of(float(value)) for value in (2**53, 2**54)] == ["9007199254740992", "1.8014398509481984e+16"]


@pytest.mark.parametrize(
    "cell",
    [
        b"\x89PNG\r\n\x1a\n",
        b"\xff\xd8\xff\xe0",
        {"bytes": b"\x89PNG", "path": "a.png"},
        {"bytes": b"anything"},
        [{"bytes": b"\x89PNG"}],
        r"b'\x89PNG\r\n'",
        r'b"\xff\xd8\xff\xe0"',
        r"{'bytes': b'\x89PNG', 'path': None}",
        r"{'path': 'a.png', 'bytes': b'\x89PNG'}",
        "data:image/png;base64,iVBORw0KGgo",
        "iVBORw0KGgoAAAANSUhEUg",
        "<PIL.PngImagePlugin.PngImageFile image mode=RGB size=32x32 at 0x7F>",
    ],
)
def test_pictures_in_the_place_of_names(cell):
    assert holds_picture(cell)
    with pytest.raises(CellError, match=r"holds a picture itself\. Save the pictures as files"):
        cell_of("file_name", cell)


def test_the_path_of_a_picture_without_its_bytes():
    for cell in ({"bytes": None, "path": "a.png"}, {"path": "a.png"}, "{'bytes': None, 'path': 'a.png'}"):
        assert not holds_picture(cell)
        assert cell_of("file_name", cell) == "a.png"


def test_what_cannot_be_parsed_remains_text():
    for cell in (
        "[" * 5000 + "]" * 5000,
        "[a",
        "b'x",
        "('x')",
        "[\\]",
        "{'a', []}",
        "{'a': b}",
        "b'\u00fc'",
        "['a\0']",
    ):
        assert parsed(cell) == cell
    assert parsed(r"['C:\d.png']") == [r"C:\d.png"]


CELLS = st.recursive(
    st.text(st.sampled_from("[](){}'\",|b \\a1.-\n")) | st.none() | st.booleans() | st.floats() | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["bytes", "path"]), inner),
)


@given(CELLS, st.sampled_from(["file_name", "text", "id", "split", "place"]))
def test_every_cell_is_text_or_refused(cell, name):
    with contextlib.suppress(CellError):
        assert isinstance(cell_of(name, cell), str)
    with contextlib.suppress(CellError):
        assert all(labels_of(cell))
