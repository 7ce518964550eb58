"""Output of the commands: which stream it goes to, and in which form."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Column, Table

from silohash.cli import console


def test_results_and_status_go_to_different_streams(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_result("result")
    console.print_status("status")
    written = capsys.readouterr()
    assert (written.out, written.err) == ("result\n", "status\n")


def test_json_has_null_for_figures_that_are_not_finite(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_json({"a": [float("nan"), 1.5, {"b": float("inf")}], "c": (2,), "d": Path("x"), "e": "é"})
    text = capsys.readouterr().out
    assert json.loads(text) == {"schema": 1, "a": [None, 1.5, {"b": None}], "c": [2], "d": "x", "e": "é"}
    assert "é" in text


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "big5", "iso-8859-7", "cp437"])
def test_encodings_without_all_characters(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = {name: io.TextIOWrapper(io.BytesIO(), encoding) for name in ("stdout", "stderr")}
    for name, stream in written.items():
        monkeypatch.setattr(sys, name, stream)
    console.prepare_output()
    console.print_result("a \U0001f600 b")
    console.print_status("c \U0001f600 d")
    console.print_json({"text": "na\u00efve \U0001f600"})
    table = Table("name")
    table.add_row("e \U0001f600 f")
    console.print_table(table)
    console.console().print("g \U0001f600 h")
    contents = {}
    for name, stream in written.items():
        stream.flush()
        contents[name] = stream.buffer.getvalue().decode(encoding)
    out, err = contents["stdout"], contents["stderr"]
    assert out.startswith("a ? b\n{")
    assert json.loads(out[out.index("{") : out.index("}") + 1])["text"] == "na\u00efve \U0001f600"
    assert "e ? f" in out
    assert err == "c ? d\ng ? h\n"


def test_unicode_outputs_keep_all_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), "utf-8")
    monkeypatch.setattr(sys, "stdout", stream)
    console.prepare_output()
    assert stream.errors == "strict"


def test_a_closed_output_takes_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    console.prepare_output()
    with sys.stdout:
        console.print_result("nobody reads it")
        assert not sys.stdout.isatty()


def test_spinner_is_a_plain_line_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with console.spinner("Reading"):
        console.print_result("inside")
    written = capsys.readouterr()
    assert (written.out, written.err) == ("inside\n", "Reading …\n")


def test_tables_are_wide_without_a_terminal() -> None:
    assert console.console().width == console.PLAIN_WIDTH
    assert console.console().stderr
    assert not console.console(err=False).stderr


def figures(rows: int = 1) -> Table:
    table = Table(
        "run", Column("mAP", justify="right"), Column("95\u00a0%\ninterval", justify="right"), title="64 bits"
    )
    for row in range(rows):
        table.add_row(f"a run with a long name {row}", "57.7", "55.9 to 59.5")
    return table


def in_terminal(table: Table, width: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    screen = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    printed: list[str] = []
    monkeypatch.setattr(console, "console", lambda *, err: screen)
    monkeypatch.setattr(console, "print_result", printed.append)
    console.print_table(table)
    return [*re.sub(r"\x1b\[[0-9;]*m", "", screen.file.getvalue()).splitlines(), *printed]


def test_tables_are_plain_and_whole_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_table(figures(2))
    assert capsys.readouterr().out.splitlines() == [
        "64 bits",
        "                                        95\u00a0%",
        "run                        mAP      interval",
        "a run with a long name 0  57.7  55.9 to 59.5",
        "a run with a long name 1  57.7  55.9 to 59.5",
    ]
    wide = Table(Column("name"), Column("figure", justify="right"))
    wide.add_row("x" * 300, "57.7")
    console.print_table(wide)
    assert capsys.readouterr().out.splitlines()[1] == f"{'x' * 300}    57.7"


@pytest.mark.parametrize("width", [80, 44, 30, 24])
def test_figures_are_never_broken(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = in_terminal(figures(), width, monkeypatch)
    assert max(map(len, lines)) <= width
    assert any("57.7" in line for line in lines)
    assert any("55.9 to 59.5" in line for line in lines)


def test_rows_are_lists_of_cells_where_a_table_is_too_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_terminal(figures(2), 22, monkeypatch) == [
        "64 bits",
        *("run: a run with a long name 0,", "  mAP: 57.7,", "  95 % interval: 55.9 to 59.5"),
        *("run: a run with a long name 1,", "  mAP: 57.7,", "  95 % interval: 55.9 to 59.5"),
    ]


def test_hidden_characters_are_shown_and_lines_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_result("two\nlines\x1b[31m")
    console.print_status("a\u202eb\r")
    written = capsys.readouterr()
    assert (written.out, written.err) == ("two\nlines⟨U+001B⟩[31m\n", "a⟨U+202E⟩b⟨U+000D⟩\n")


def test_json_escapes_hidden_characters_and_stays_exact(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b\x9b31m\u202e\u2028\udcff\U000e0041é"
    console.print_json({hostile: hostile})
    text = capsys.readouterr().out
    assert json.loads(text) == {"schema": 1, hostile: hostile}
    assert all(" " <= letter <= "~" or letter in "\né" for letter in text)


def test_markup_in_a_table_is_printed_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.table import Table

    table = Table("[red]run[/red]", title="[link=file:///x]y[/link]")
    table.add_row("[bold]name[/bold] :smile:")
    console.console(err=False).print(table)
    written = capsys.readouterr().out
    for text in ("[red]run[/red]", "[link=file:///x]y[/link]", "[bold]name[/bold] :smile:"):
        assert text in written
