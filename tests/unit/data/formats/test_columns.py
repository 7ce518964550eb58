"""Names of columns: misspelled ones, and those that are not used."""

from __future__ import annotations

import pytest

from silohash.data.formats.columns import (
    KNOWN,
    SLIPS,
    describe_slips,
    intended_column,
    likely_slips,
    named,
    unused_columns,
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((slip, known) for known, slips in SLIPS.items() for slip in slips),
        ("filename", "file_name"),
        ("FileName", "file_name"),
        ("file name", "file_name"),
        ("File-Name", "file_name"),
        ("Image_Path", "file_name"),
        ("Text", "text"),
        ("TEXT", "text"),
        ("txt", "text"),
        ("Captions", "text"),
        ("lables", "labels"),
        ("Label", "labels"),
        ("ID", "id"),
        ("Split", "split"),
        ("spilt", "split"),
        ("year", ""),
        ("museum", ""),
        ("place", ""),
        ("author", ""),
        ("name", ""),
        ("", ""),
    ],
)
def test_the_column_that_a_name_means(name: str, expected: str) -> None:
    assert intended_column(name) == expected


def test_no_slip_is_a_known_column() -> None:
    assert not {slip for slips in SLIPS.values() for slip in slips} & set(KNOWN)
    assert set(SLIPS) == set(KNOWN)


def test_a_column_beside_the_known_one_is_not_a_slip() -> None:
    assert likely_slips(["filename", "caption", "year"]) == {"filename": "file_name", "caption": "text"}
    assert likely_slips(["filename", "file_name", "caption", "text"]) == {}
    assert likely_slips(KNOWN) == {}
    assert describe_slips(["file_name", "tags"]) == ['The column "tags" is not used (did you mean "labels"?).']


def test_columns_without_a_name_are_named() -> None:
    names = named(["", "text", "", "year"])
    assert names == ["column 1 (without a name)", "text", "column 3 (without a name)", "year"]
    assert describe_slips(names) == [
        'A column does not have a name ("column 1 (without a name)", "column 3 (without a name)"). Name it, or remove it.'
    ]
    [sentence] = describe_slips(["Unnamed: 0", "text", ""])
    assert sentence.startswith('A column does not have a name ("Unnamed: 0", "").')
    assert describe_slips(["column 1", "text", "Unnamed"]) == []


def test_columns_that_are_not_used() -> None:
    assert unused_columns([]) == ""
    assert unused_columns(["place"], ["place"]) == ""
    assert unused_columns(["place", "year"], ["place", None]).startswith(
        'Columns that are not used: "year". A partition'
    )
    assert unused_columns(["place", "year"]).startswith('Columns that are not used: "place", "year". ')
