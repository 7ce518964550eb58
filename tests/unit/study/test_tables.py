"""Tables as Markdown, CSV and LaTeX, and the files that hold them."""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from silohash.base.types import ORACLE
from silohash.report.tables import COLUMNS
from silohash.study.pivot import Cell, ResultTable, annotated, result_tables
from silohash.study.results import StudyResults
from silohash.study.tables import (
    COSTS,
    MEMORY,
    cost_table,
    difference_table,
    escaped,
    format_cost,
    latex,
    long_form,
    markdown,
    paired_difference,
    summary,
    write_tables,
)
from tests import synthetic_studies as made_up
from tests.synthetic_studies import BITS, MEANS, METHODS, ONE_LENGTH, TABLE, cell_of, records, synthetic_study

FIGURES = {"Local": (0.40, 0.44, 0.45), "FedAvg": (0.60, 0.61, 0.64), "FedCAFE": (0.65, 0.63, 0.70)}


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


def test_costs_are_means_over_rounds_and_are_not_ranked():
    study = synthetic_study(METHODS, BITS, table=TABLE)
    dear = [
        cell
        if cell.choices["method"] != "FedCAFE"
        else type(cell)(
            **{**vars(cell), "rounds": tuple(type(r)(**{**vars(r), "uplink_bytes": 9}) for r in cell.rounds)}
        )
        for cell in study.runs
    ]
    table = annotated(cost_table(type(study)(study.config, tuple(dear))))
    assert table.columns == tuple((bits, cost) for bits in ("16", "32") for cost in COSTS if cost != MEMORY)
    found = cell_of(table, "FedCAFE", "16", "sent per round (MB)")
    assert found.mean == pytest.approx(9e-6)
    assert {s.rank for s in table.cells.values()} == {""}
    assert "| 2.00 ± 0 |" in markdown(table)
    assert cell_of(table, "FedAvg", "16", "time per round (s)").mean == 1.5


def test_costs_of_a_run_in_their_units():
    (run, *_) = synthetic_study(METHODS, table=ONE_LENGTH).runs
    first, second = records(2)
    rounds = (
        replace(first, uplink_bytes=3_000_000, downlink_bytes=500_000, seconds=1.25),
        replace(second, uplink_bytes=5_000_000, downlink_bytes=1_500_000, seconds=1.75),
    )
    measured = replace(run, rounds=rounds, peak_bytes=350_500_000)
    assert [cost(measured) for cost in COSTS.values()] == [4.0, 1.0, 1.5, 3.0, 350.5]
    unknown = replace(run, rounds=(), peak_bytes=None)
    assert [cost(unknown) for cost in COSTS.values()] == pytest.approx([math.nan] * 5, nan_ok=True)


def test_memory_is_shown_where_it_was_measured():
    study = synthetic_study(METHODS, table=ONE_LENGTH)
    assert "Peak memory" not in markdown(cost_table(study))
    assert (MEMORY,) not in cost_table(study).columns
    runs = [replace(run, peak_bytes=(400 + 100 * run.seed) * 1_000_000) for run in study.runs[:-1]]
    table = cost_table(replace(study, runs=(*runs, study.runs[-1])))
    found = [cell_of(table, method, MEMORY).values for method in MEANS]
    assert found == [(400.0, 500.0), (400.0, 500.0), (400.0,)]
    assert "| 450 ± " in markdown(table)
    assert "Peak memory is that of the process" in markdown(table)


def test_costs_stand_under_every_axis_that_the_tables_show():
    study = synthetic_study(BITS, METHODS, table={"rows": ["task", "bits"], "columns": ["measure", "evaluation"]})
    table = cost_table(study)
    assert (table.row_fields, table.column_fields) == (("bits", "method"), ("measure",))
    assert (table.name, table.title, table.ranked) == ("costs", "Made up, costs", False)
    bare = replace(study, runs=tuple(replace(run, rounds=()) for run in study.runs))
    assert {cell.empty_because for cell in cost_table(bare).cells.values()} == {"not measured"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0.0, "0"), (0.00123, "0.00123"), (0.99949, "0.999"), (1.0, "1.00"), (9.996, "10.00"), (12.34, "12.3")),
        *((99.96, "100.0"), (123.4, "123"), (1234.5, "1,234"), (-12.34, "-12.3")),
    ],
)
def test_cost_has_three_digits(value, text):
    assert format_cost(value) == text


def study(**more: Any) -> Any:
    table = {**made_up.ONE_LENGTH, "against": {"method": ["FedAvg"]}, **more.pop("table", {})}
    return made_up.synthetic_study(
        made_up.METHODS, seeds=(0, 1, 2), table=table,
        value=lambda choices, seed, task: FIGURES[choices["method"]][seed] + (0.1 if task == "t2i" else 0.0), **more,
    )  # fmt: skip


def differences_of(study: StudyResults) -> list[ResultTable]:
    """Returns the tables of differences that a study names."""
    references = [(axis, name) for axis, names in study.config.table.against.items() for name in names]
    return [difference_table(table, *reference) for table in result_tables(study) for reference in references]


def differences(**more: Any) -> Any:
    of = study(**more)
    (table,) = differences_of(of)
    return annotated(table)


def test_interval_of_the_paired_differences() -> None:
    cell = made_up.cell_of(differences(), "FedCAFE", "i2t")
    expected = (0.05, 0.02, 0.06)
    mean = sum(expected) / 3
    deviation = math.sqrt(sum((value - mean) ** 2 for value in expected) / 2)
    half = 4.302653 * deviation / math.sqrt(3)
    assert cell.values == pytest.approx(expected)
    assert (cell.mean, cell.low, cell.high) == pytest.approx((mean, mean - half, mean + half))
    assert (cell.interval, cell.seeds, cell.missing) == ("seeds", (0, 1, 2), 0)


def test_table_has_all_other_choices_and_no_ranks() -> None:
    table = differences()
    assert [row for row, _ in table.lines()] == [("Local",), ("FedCAFE",)]
    assert {cell.rank for cell in table.cells.values()} == {""}
    text = markdown(table)
    assert text.startswith("### Made up, mAP@all, difference from FedAvg\n")
    assert "| FedCAFE | +0.043 ± 0.052 | +0.043 ± 0.052 |" in text
    assert "| Local | -0.187 ± 0.038 | -0.187 ± 0.038 |" in text
    assert made_up.note(table, "with the same seed").startswith("Each figure minus that of FedAvg with the same seed")
    assert made_up.note(table, "over 3 seeds (Student's t)")


def test_difference_from_figures_with_true_labels_is_marked() -> None:
    oracle = f"one view, {ORACLE}"
    table = differences(changed=lambda choices: {"database_code": oracle} if choices["method"] == "FedAvg" else {})
    assert {cell.needs_query_label for cell in table.cells.values()} == {True}
    assert made_up.note(table, "‡ oracle")
    table = differences(changed=lambda choices: {"database_code": oracle} if choices["method"] == "Local" else {})
    marked = {row[0]: {cell.needs_query_label for cell in cells} for row, cells in table.lines()}
    assert marked == {"Local": {True}, "FedCAFE": {False}}


def test_only_seeds_that_both_have_are_paired() -> None:
    lacking = {("FedAvg", 0), ("FedCAFE", 2)}
    table = differences(missing=lambda choices, seed: (choices["method"], seed) in lacking)
    both = made_up.cell_of(table, "FedCAFE", "i2t")
    assert (both.seeds, both.missing, both.interval) == ((1,), 2, "")
    assert both.values == pytest.approx((0.02,))
    assert math.isnan(both.low)
    assert made_up.cell_of(table, "Local", "i2t").values == pytest.approx((-0.17, -0.19))


def test_cells_without_a_seed_in_common_are_empty() -> None:
    first = Cell({"method": "a"}, seeds=(0,), values=(0.5,))
    found = paired_difference(first, Cell({"method": "b"}, seeds=(1,), values=(0.4,)))
    assert (found.values, found.seeds, found.missing, found.empty_because) == ((), (), 1, "no run")


def test_reference_in_the_columns_and_several_references() -> None:
    of = study(table={"rows": ["task"], "columns": ["method"], "against": {"method": ["FedAvg", "Local"]}})
    tables = differences_of(of)
    assert [table.name for table in tables] == ["table-minus-FedAvg", "table-minus-Local"]
    assert tables[1].columns == (("FedAvg",), ("FedCAFE",))
    assert made_up.cell_of(tables[1], "FedAvg", "i2t").values == pytest.approx((0.2, 0.17, 0.19))


def test_files_are_written_beside_those_of_the_figures(tmp_path: Any) -> None:
    write_tables(study(), tmp_path)
    assert (tmp_path / "tables" / "table-minus-FedAvg.md").exists()
    assert "+0.043" in (tmp_path / "tables" / "table-minus-FedAvg.tex").read_text()
    write_tables(study(table={"against": {}}), tmp_path)
    assert not (tmp_path / "tables" / "table-minus-FedAvg.md").exists()
