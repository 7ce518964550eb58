"""Records of CSV files: their lines, and quotation marks that are not closed."""

from __future__ import annotations

import csv
from collections.abc import Sequence

import pytest

from silohash.data.formats.csv_records import read_records

OPEN = "an opening quotation mark is not closed"


def named(cells: Sequence[str]) -> bool:
    """Return whether the first of two cells ends in ``.jpg``."""
    return len(cells) == 2 and cells[0].endswith(".jpg")


def found(text: str, delimiter: str = ",") -> list[tuple[int, list[str] | str]]:
    """Return the line and the cells or the problem of each record."""
    records = read_records(text.splitlines(keepends=True), delimiter, named)
    return [(record.line, record.problem or list(record.cells)) for record in records]


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,2\n",
        "a,b\r\n1,2\r\n",
        "a,b\n1,2",
        'a,b\n"x, y",2\n',
        'a,b\n"x ""y""",2\n',
        'a,b\n"two\nlines",2\n"three\n\nlines",4\n',
        'a,b\n"two\nlines, with a comma",2\n',
        "a,b\n\n1,2\n\n",
        'a,b\n1,5" x 7"\n',
        'a,b\n"",""\n',
        "",
    ],
)
def test_correct_files_are_read_as_by_the_standard_library(text: str) -> None:
    expected = list(csv.reader(text.splitlines(keepends=True)))
    assert [cells for _, cells in found(text)] == expected


def test_records_have_their_first_line() -> None:
    text = 'a;b\n"1\n2\n3";x\n\nlast;y\n'
    assert found(text, ";") == [(1, ["a", "b"]), (2, ["1\n2\n3", "x"]), (5, []), (6, ["last", "y"])]


def test_a_mark_that_is_never_closed() -> None:
    text = 'a,b\n1.jpg,one\n2.jpg,"two\n3.jpg,three\n4.jpg,four\n'
    assert found(text) == [
        (1, ["a", "b"]),
        (2, ["1.jpg", "one"]),
        (3, f"{OPEN}, so it would include lines 4 to 5, read separately instead"),
        (4, ["3.jpg", "three"]),
        (5, ["4.jpg", "four"]),
    ]


def test_a_mark_that_the_next_quoted_field_closes() -> None:
    text = 'a,b\n1.jpg,"one\n2.jpg,two\n3.jpg,"three"\n4.jpg,four\n'
    assert found(text) == [
        (1, ["a", "b"]),
        (2, f"{OPEN}, so it would include lines 3 to 4, read separately instead"),
        (3, ["2.jpg", "two"]),
        (4, ["3.jpg", "three"]),
        (5, ["4.jpg", "four"]),
    ]


def test_a_mark_that_a_later_one_closes_correctly() -> None:
    text = 'a,b\n1.jpg,"one\n2.jpg,two\n3.jpg,5"\n4.jpg,four\n'
    assert found(text) == [
        (1, ["a", "b"]),
        (2, f"{OPEN}, so it would include lines 3 to 4, read separately instead"),
        (3, ["2.jpg", "two"]),
        (4, ["3.jpg", '5"']),
        (5, ["4.jpg", "four"]),
    ]


def test_a_text_with_lines_that_are_not_rows_is_one_record() -> None:
    assert found('1.jpg,"a, b\nc, d\ne"\n') == [(1, ["1.jpg", "a, b\nc, d\ne"])]


def test_open_marks_in_several_lines_and_in_the_last() -> None:
    assert found('1.jpg,"one\n2.jpg,"two\n3.jpg,"three') == [
        (1, f"{OPEN}, so it would include line 2, read separately instead"),
        (2, f"{OPEN}, so it would include line 3, read separately instead"),
        (3, OPEN),
    ]


def test_marks_within_one_line_are_read_leniently() -> None:
    assert found('1.jpg,"one" more\n2.jpg,"two"x"\n3.jpg,three\n') == [
        (1, ["1.jpg", "one more"]),
        (2, ["2.jpg", 'twox"']),
        (3, ["3.jpg", "three"]),
    ]


def test_a_field_that_is_too_large_is_one_problem() -> None:
    before = csv.field_size_limit(10)
    try:
        assert found("1.jpg,one\n2.jpg,a long text of words\n3.jpg,three\n") == [
            (1, ["1.jpg", "one"]),
            (2, "cannot be read (field larger than field limit (10))"),
            (3, ["3.jpg", "three"]),
        ]
    finally:
        csv.field_size_limit(before)
