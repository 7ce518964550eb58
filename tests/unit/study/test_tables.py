"""Tables as Markdown, CSV and LaTeX, and the files that hold them."""

from __future__ import annotations

import csv
import io
import re

import numpy as np
import pytest

from silohash.report.tables import COLUMNS
from silohash.study.tables import escaped, latex, long_form, markdown, summary, write_tables
from tests import synthetic_studies as made_up


def read_csv(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_missing_runs_say_so():
    study = made_up.synthetic_study(
        made_up.METHODS,
        value=made_up.by_method,
        table=made_up.ONE_LENGTH,
        missing=lambda choices, seed: choices["method"] == "Local" or (choices["method"] == "FedAvg" and seed == 1),
    )
    table = made_up.only_table(study)
    assert made_up.cell_of(table, "Local", "i2t").empty_because == "no run"
    assert "| Local | no run | no run |" in markdown(table)
    assert "[1 of 2 seeds]" in markdown(table).splitlines()[5]
    assert "[2" not in markdown(table)
    assert "2 of 6 cells have no finished run" in made_up.note(table, "no finished run")
    lines = read_csv(summary(table))
    assert [line["empty_because"] for line in lines if line["method"] == "Local"] == ["no run", "no run"]
    assert [line["seeds_missing"] for line in lines if line["method"] == "FedAvg"] == ["1", "1"]


def test_latex_is_escaped_and_balanced():
    study = made_up.synthetic_study(
        made_up.axis("method", "R&D_50%", "#1 {β}", r"back\slash", "[x]"),
        made_up.BITS,
        value=lambda choices, seed, task: 0.5 + 0.01 * len(choices["method"]),
        table=made_up.TABLE,
        title="A_b & 100 %",
    )
    text = latex(made_up.only_table(study))
    assert r"R\&D\_50\% &" in text
    assert r"\#1 \{$\beta$\} &" in text
    assert r"back\textbackslash{}slash &" in text
    assert "\n{[}x{]} &" in text
    assert r"\caption{A\_b \& 100 \%, mAP@all." in text
    plain = re.sub(r"\\[&%$#_{}\\]", "", text)
    depth = np.cumsum([{"{": 1, "}": -1}.get(letter, 0) for letter in plain])
    assert depth[-1] == 0
    assert depth.min() == 0
    assert plain.count("$") % 2 == 0
    assert text.isascii()
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    columns = [sum(int(n) - 1 for n in re.findall(r"multicolumn\{(\d)", line)) + plain_cells(line) for line in body]
    assert set(columns) == {5}


def plain_cells(line):
    return len(re.findall(r"(?<!\\)&", line)) + 1


def test_letters_that_latex_has_no_word_for_stay():
    assert escaped("Zürich – café") == "Zürich -- café"


def test_written_files(tmp_path):
    study = made_up.synthetic_study(made_up.METHODS, made_up.BITS, value=made_up.by_method, table=made_up.TABLE)
    written = write_tables(study, tmp_path)
    assert [path.name for path in written] == [
        *("table.md", "table.csv", "table.tex"),
        *("costs.md", "costs.csv", "costs.tex"),
        "figures.csv",
    ]
    lines = read_csv((tmp_path / "tables" / "figures.csv").read_text(encoding="utf-8"))
    assert list(lines[0]) == ["axis method", "axis bits", *COLUMNS]
    assert len(lines) == sum(len(run.rows) for run in study.runs)
    short = read_csv((tmp_path / "tables" / "table.csv").read_text(encoding="utf-8"))
    best = [line for line in short if line["rank"] == "best"]
    assert {line["method"] for line in best} == {"FedCAFE"}
    assert float(best[0]["mean"]) == pytest.approx(0.66)
    before = [path.read_bytes() for path in written]
    write_tables(study, tmp_path)
    assert [path.read_bytes() for path in written] == before


def test_names_are_neither_formulas_nor_markup_nor_hidden():
    study = made_up.synthetic_study(
        made_up.axis("method", "=cmd()", "<b>\x1b"),
        made_up.BITS,
        value=lambda choices, seed, task: 0.5,
        table=made_up.TABLE,
        title="[a](b)",
    )
    table = made_up.only_table(study)
    assert markdown(table).startswith("### [a\\](b)")
    assert "| \\<b>⟨U+001B⟩ |" in markdown(table)
    assert r"<b>" not in latex(table)
    assert r"$<$b$>$$\langle$U+001B$\rangle$ &" in latex(table)
    for text in (summary(table), long_form(study)):
        first = {line["method" if "method" in line else "axis method"] for line in read_csv(text)}
        assert first == {"'=cmd()", "<b>⟨U+001B⟩"}
