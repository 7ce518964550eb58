"""Metadata files of each format: the rows that are read, and the problems of those that are not."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence

import pyarrow
import pyarrow.parquet
import pytest

from silohash.base.errors import (
    BadLine,
    ChoiceNeeded,
    DamagedFile,
    MissingFile,
    NothingUsable,
    NotPermitted,
    RepeatedValue,
    WrongForm,
    WrongKindOfFile,
    WrongKindOfPath,
)
from silohash.data.formats.folder import read_folder
from silohash.data.formats.metadata import read_metadata, read_records
from tests.unit.data.formats.user_folders import draw, reasons, write_csv

pytestmark = pytest.mark.usefixtures("private_cache")


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_other_files_hold_lists_of_labels(tmp_path, kind):
    draw(tmp_path, "1.png")
    rows = [
        {"file_name": "1.png", "text": "one", "labels": ["a", "b"], "year": 1900},
        {"file_name": None, "text": "two", "labels": [], "year": None},
    ]
    if kind == "jsonl":
        (tmp_path / "metadata.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "metadata.parquet")
    archive = read_folder(tmp_path)
    assert archive.labels.tolist() == [[1, 1], [0, 0]]
    assert archive.has("image").tolist() == [True, False]
    assert archive.ids.tolist() == ["1.png", "row-2"]
    assert archive.columns["year"].tolist() == ["1900", ""]


def test_nothing_to_read_is_answered_with_an_example(tmp_path):
    with pytest.raises(MissingFile, match=r"is empty.*\n.*file_name,text,labels"):
        read_folder(tmp_path)
    draw(tmp_path, "1.png")
    with pytest.raises(MissingFile, match=r"has no metadata\.csv"):
        read_folder(tmp_path)
    with pytest.raises(WrongKindOfPath):
        read_folder(tmp_path / "nowhere")
    (tmp_path / "metadata.csv").write_text("file_name,text\n")
    with pytest.raises(NothingUsable):
        read_folder(tmp_path)
    (tmp_path / "metadata.csv").write_text("1.png,a parrot\n2.png,a ship\n")
    with pytest.raises(WrongKindOfFile):
        read_folder(tmp_path)
    (tmp_path / "metadata.csv").write_text("file_name,text\n9.png,x\n8.png,y\n")
    with pytest.raises(NothingUsable, match=r"2.*metadata\.csv.*2.*9\.png.*missing"):
        read_folder(tmp_path)
    (tmp_path / "metadata.jsonl").write_text("{}")
    with pytest.raises(ChoiceNeeded, match=r"has .*metadata\.csv and metadata\.jsonl|Keep the one"):
        read_folder(tmp_path)


def test_encodings(tmp_path):
    (tmp_path / "metadata.csv").write_bytes("text,place\nschön,hier\n".encode("latin-1") + b"plain,there\n")
    assert reasons(read_folder(tmp_path)) == {2: 'column "text" is not UTF-8'}
    write_csv(tmp_path, [{"text": "schön", "id": "日本"}], encoding="utf-8-sig")
    assert read_folder(tmp_path).ids.tolist() == ["日本"]
    write_csv(tmp_path, [{"text": "schön"}], encoding="utf-16")
    with pytest.raises(WrongForm):
        read_folder(tmp_path)
    write_csv(tmp_path, [{"text": "schön"}], encoding="utf-16-le")
    with pytest.raises(WrongForm):
        read_folder(tmp_path)
    (tmp_path / "metadata.csv").unlink()
    (tmp_path / "metadata.jsonl").write_text('{"text": "x"}\n', encoding="utf-16")
    with pytest.raises(WrongForm):
        read_folder(tmp_path)


def test_semicolons_quoted_lines_and_rows_of_another_length(tmp_path):
    (tmp_path / "metadata.csv").write_text('text;place\n"two\nlines; one field";here\n\nshort\na;b;c\nlast;there\n')
    archive = read_folder(tmp_path)
    assert archive.text.tolist() == ["two\nlines; one field", "last"]
    assert reasons(archive) == {
        5: "has 1 field and the header has 2",
        6: "has 3 fields and the header has 2",
    }


def test_names_of_columns_that_look_the_same(tmp_path):
    rows = [{"file_name ": "a.png", "\ufefftext": "x"}, {"text": "x", "text\u200b": "y"}]
    (tmp_path / "metadata.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    first, second = read_metadata(tmp_path)[1]
    assert first.values == {"file_name": "a.png", "text": "x"}
    assert second.problem == 'has the column "text" more than once'


def test_lines_of_json_that_are_none(tmp_path):
    (tmp_path / "metadata.jsonl").write_text('{"text": "x"}\n{"text": \n[1]\n{"text": "\\ud800"}\n{"text": "y"}\n')
    archive = read_folder(tmp_path)
    assert archive.ids.tolist() == ["row-1", "row-5"]
    assert [reason[:12] for reason in reasons(archive).values()] == ["is not JSON ", "is not a JSO", 'column "text']


def test_values_of_json_that_would_be_lost(tmp_path):
    rows = ['{"text": "x"}', '{"text": "a", "text": "b"}', f'{{"text": "a", "views": {"9" * 5000}}}']
    (tmp_path / "metadata.jsonl").write_text("\n".join(rows))
    archive = read_folder(tmp_path)
    assert archive.ids.tolist() == ["row-1"]
    repeated, large = reasons(archive).values()
    assert repeated == 'is not JSON ("text" is there more than once)'
    assert "4300 digits" in large


def test_a_damaged_table_is_named(tmp_path):
    (tmp_path / "metadata.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(DamagedFile, match=r"metadata\.parquet"):
        read_folder(tmp_path)


def test_a_column_given_twice_is_named(tmp_path):
    (tmp_path / "metadata.csv").write_text("text,text\na,b\n")
    with pytest.raises(RepeatedValue, match="text"):
        read_folder(tmp_path)
    (tmp_path / "metadata.csv").unlink()
    table = pyarrow.Table.from_arrays([pyarrow.array(["a"]), pyarrow.array(["b"])], ["text", "text"])
    pyarrow.parquet.write_table(table, tmp_path / "metadata.parquet")
    with pytest.raises(RepeatedValue, match="text"):
        read_folder(tmp_path)


def test_columns_without_a_name_do_not_hide_each_other(tmp_path):
    (tmp_path / "metadata.csv").write_text(",text,,\n0,a dog,x,y\n")
    archive = read_folder(tmp_path)
    assert archive.text.tolist() == ["a dog"]
    held = {name: values.tolist() for name, values in archive.columns.items()}
    assert held == {f"column {place} (without a name)": [value] for place, value in ((1, "0"), (3, "x"), (4, "y"))}


def test_an_open_quotation_mark_costs_one_row(tmp_path):
    draw(tmp_path, *(f"{number}.png" for number in range(5)))
    lines = ["file_name,text", "0.png,zero", '1.png,"one', "2.png,two", "3.png,three", '4.png,4" wide']
    for closing in ("", ',"', '"', '"x,y"'):
        (tmp_path / "metadata.csv").write_text("\n".join([*lines[:-1], lines[-1] + closing]), encoding="utf-8")
        archive = read_folder(tmp_path)
        assert set(reasons(archive)) - {6} == {3}
        assert "an opening quotation mark is not closed, so it would include line" in reasons(archive)[3]
        assert archive.ids[:3].tolist() == ["0.png", "2.png", "3.png"]


def test_texts_over_several_lines_remain_whole_unless_a_line_is_a_row(tmp_path):
    draw(tmp_path, "a.png", "b.png")
    (tmp_path / "metadata.csv").write_text('file_name,text\na.png,"one\nb.png,two\nc.png,three"\n')
    assert read_folder(tmp_path).ids.tolist() == ["b.png"]
    (tmp_path / "metadata.csv").write_text('file_name,text\na.png,"one\nc.png,three\nmore, words"\n')
    assert read_folder(tmp_path).text.tolist() == ["one\nc.png,three\nmore, words"]
    (tmp_path / "metadata.csv").write_text('text,place\n"one\ntwo, three",here\n')
    assert read_folder(tmp_path).text.tolist() == ["one\ntwo, three"]
    (tmp_path / "metadata.csv").write_text('text,place,year\n"one\ntwo,three,four\nfive",here,5\n')
    archive = read_folder(tmp_path)
    assert archive.text.tolist() == ["one\ntwo,three,four\nfive"]
    assert archive.card.warnings[-1] == (
        "metadata.csv: the text of row 2 has several lines, some of which look like rows of the table. "
        "Check its quotation marks."
    )


def test_an_open_quotation_mark_in_the_header(tmp_path):
    (tmp_path / "metadata.csv").write_text('text,"place\nx,y\n')
    with pytest.raises(BadLine, match=r"metadata\.csv.*opening.*quotation.*mark"):
        read_folder(tmp_path)


@pytest.mark.parametrize("column", ["text", "id", "labels", "place"])
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_nul_character_is_a_problem_and_not_the_end_of_a_text(tmp_path, column, kind):
    rows = [
        {"id": "a", "text": "x", "labels": "l", "place": "p"},
        {"id": "b", "text": "y", "labels": "l", "place": "q"},
    ]
    rows[0][column] += "\0rest"
    if kind == "jsonl":
        (tmp_path / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))
    else:
        write_csv(tmp_path, rows)
    archive = read_folder(tmp_path)
    assert archive.ids.tolist() == ["b"]
    assert list(reasons(archive).values()) == [f'column "{column}" contains a NUL character, which would cut it off']


def test_bytes_in_tables(tmp_path):
    rows = [
        {"text": "schön".encode(), "image": {"bytes": b"\x89PNG", "path": "a.png"}, "raw": b"\xff"},
        {"text": b"\xff", "image": None, "raw": b""},
    ]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "metadata.parquet")
    archive = read_folder(tmp_path)
    assert archive.text.tolist() == ["schön"]
    assert reasons(archive) == {2: 'column "text" is not UTF-8'}
    assert archive.columns["raw"].tolist() == [""]
    assert json.loads(archive.columns["image"][0]) == {"bytes": "", "path": "a.png"}


def test_misspelled_columns_are_named_where_nothing_can_be_read(tmp_path):
    (tmp_path / "metadata.csv").write_text("filename,caption\n1.png,a parrot\n")
    with pytest.raises(WrongKindOfFile, match=r"filename.*file_name.*caption"):
        read_folder(tmp_path)
    (tmp_path / "metadata.csv").unlink()
    (tmp_path / "metadata.jsonl").write_text('{"caption": "a parrot"}\n')
    with pytest.raises(NothingUsable, match=r"neither.*nor.*caption"):
        read_folder(tmp_path)


def test_a_table_that_is_a_link(tmp_path):
    (tmp_path / "table.csv").write_text("text\nx\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "metadata.csv").symlink_to(tmp_path / "table.csv")
    with pytest.raises(NotPermitted, match=r"metadata\.csv.*table\.csv"):
        read_folder(tmp_path / "folder")
    assert read_folder(tmp_path / "folder", follow_links=True).text.tolist() == ["x"]


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
