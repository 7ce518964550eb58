"""Tables of a study: means and intervals known beforehand, ranks, footnotes, and what the files hold."""

from __future__ import annotations

import csv
import io
import math
import re

import numpy as np
import pytest

from silohash.report.tables import COLUMNS
from silohash.study.annotations import annotated, paired_values
from silohash.study.costs import COSTS, cost_table
from silohash.study.pivot import result_tables
from silohash.study.tables import escaped, latex, markdown, summary, write_tables
from silohash.types import UserError
from tests.synthetic_studies import QUERIES, axis, synthetic_study

MEANS = {"Local": 0.4, "FedAvg": 0.6, "FedCAFE": 0.65}
METHODS = axis("method", *MEANS)
BITS = axis("bits", "16", "32", key="local.bits")
TABLE = {"rows": ["method"], "columns": ["bits", "task"], "evaluations": ["GG"]}
ONE_BIT = {**TABLE, "columns": ["task"]}


def by_method(choices, seed, task):
    return MEANS[choices["method"]] + 0.02 * seed


def only_table(study):
    (table,) = [annotated(table) for table in result_tables(study)]
    return table


def cell_of(table, *row_and_column):
    (found,) = [cell for cell in table.cells.values() if set(row_and_column) <= set(cell.fields.values())]
    return found


def read_csv(text):
    return list(csv.DictReader(io.StringIO(text)))


def note(table, word):
    return next((text for text in table.notes if word in text), "")


def test_mean_and_interval_over_seeds():
    table = only_table(synthetic_study(METHODS, BITS, seeds=(0, 1, 2), value=by_method, table=TABLE))
    found = cell_of(table, "FedAvg", "16", "i2t")
    assert found.values == (0.6, 0.62, 0.64)
    assert found.mean == pytest.approx(0.62)
    # Student's t with 2 degrees of freedom is 4.3027 at 95 %; the deviation of the three is 0.02.
    assert found.high - found.mean == pytest.approx(4.302653 * 0.02 / math.sqrt(3), rel=1e-6)
    assert found.interval == "seeds"
    assert "over 3 seeds" in note(table, "±")
    assert "| **0.670**† ± 0.050 |" in markdown(table)
    assert note(table, "Parentheses") == ""


def test_one_seed_takes_the_interval_over_queries():
    table = only_table(synthetic_study(METHODS, BITS, seeds=(3,), value=lambda c, s, t: 0.5, table=TABLE))
    found = cell_of(table, "Local", "32", "t2i")
    assert (found.low, found.high, found.interval) == (0.48, 0.53, "queries")
    assert "0.500 (0.480–0.530)" in markdown(table)
    assert "bootstrap" in note(table, "Parentheses")
    assert note(table, "±") == ""


def test_best_and_second_in_each_column():
    table = only_table(synthetic_study(METHODS, BITS, value=by_method, table=TABLE))
    for column in table.columns:
        ranks = {row[0]: table.cells[row, column].rank for row in table.rows}
        assert ranks == {"FedCAFE": "best", "FedAvg": "second", "Local": ""}
    assert markdown(table).count("**") == 2 * 4
    assert latex(table).count(r"\textbf{0.660}") == 4
    assert latex(table).count(r"\underline{0.610}") == 4


def test_methods_are_compared_along_the_columns_too():
    table = {"rows": ["bits"], "columns": ["method", "task"], "evaluations": ["GG"]}
    table = only_table(synthetic_study(METHODS, BITS, value=by_method, table=table))
    assert {s.rank for s in table.cells.values() if s.fields["method"] == "FedCAFE"} == {"best"}


def test_a_difference_within_the_noise_is_not_annotated():
    def close(choices, seed, task):
        return 0.5 + 0.0005 * list(MEANS).index(choices["method"])

    sure = only_table(synthetic_study(METHODS, value=by_method, table=ONE_BIT, spread=0.02))
    unsure = only_table(synthetic_study(METHODS, value=close, table=ONE_BIT, spread=0.2))
    assert cell_of(sure, "FedCAFE", "i2t").p_value < 0.01
    assert cell_of(unsure, "FedCAFE", "i2t").p_value > 0.1
    assert "**0.660**†" in markdown(sure)
    assert "†" not in markdown(unsure).split("\n- ")[0]
    assert f"over {QUERIES} queries" in note(sure, "†")
    assert "2 tests" in note(sure, "†")


def test_a_query_counts_by_its_mean_over_seeds():
    study = synthetic_study(METHODS, value=by_method, table=ONE_BIT)
    table = only_table(study)
    one, other = paired_values(cell_of(table, "FedCAFE", "i2t"), cell_of(table, "Local", "i2t"))
    values = [run.per_query["GG", "i2t", "mAP@all"] for run in study.runs if run.choices["method"] == "FedCAFE"]
    assert np.allclose(one, np.mean(values, axis=0))
    assert len(one) == len(other) == QUERIES


def test_equal_figures_have_no_best():
    table = only_table(synthetic_study(METHODS, table=ONE_BIT))
    assert {s.rank for s in table.cells.values()} == {""}
    assert note(table, "bold") == ""


def test_missing_runs_say_so():
    study = synthetic_study(
        METHODS,
        value=by_method,
        table=ONE_BIT,
        missing=lambda choices, seed: choices["method"] == "Local" or (choices["method"] == "FedAvg" and seed == 1),
    )
    table = only_table(study)
    assert cell_of(table, "Local", "i2t").empty_because == "no run"
    assert "| Local | no run | no run |" in markdown(table)
    assert "[1 of 2 seeds]" in markdown(table).splitlines()[5]
    assert "[2" not in markdown(table)
    assert "2 of 6 cells have no finished run" in note(table, "no finished run")
    lines = read_csv(summary(table))
    assert [line["empty_because"] for line in lines if line["method"] == "Local"] == ["no run", "no run"]
    assert [line["seeds_missing"] for line in lines if line["method"] == "FedAvg"] == ["1", "1"]


def test_a_figure_that_was_not_measured_is_not_a_missing_run():
    study = synthetic_study(
        METHODS, evaluations=("XS",), table={**TABLE, "evaluations": ["GG", "XS"], "columns": ["task"]}
    )
    assert [table.name for table in result_tables(study)] == ["table"]
    study = synthetic_study(METHODS, table={**TABLE, "columns": ["evaluation", "task"], "measure": "P@10"})
    assert {s.empty_because for s in only_table(study).cells.values()} == {"not measured"}


def test_global_and_personal_models_stand_in_one_column():
    study = synthetic_study(METHODS, value=by_method, table={**TABLE, "columns": ["task"], "evaluations": ["GG", "PG"]})
    personal = [
        cell
        if cell.choices["method"] != "Local"
        else type(cell)(
            **{
                **vars(cell),
                "rows": tuple(type(r)(**{**vars(r), "evaluation": "PG", "federated": "local"}) for r in cell.rows),
            }
        )
        for cell in study.runs
    ]
    table = only_table(type(study)(study.config, tuple(personal)))
    assert cell_of(table, "Local", "i2t").mean == pytest.approx(0.41)
    assert "(local)" in note(table, "PG: each silo's personal model")


def test_what_was_measured_differently_is_never_ranked():
    def other(choices):
        return {"no_hits": "zero" if choices["method"] == "FedAvg" else "skip", "population": 100}

    table = only_table(synthetic_study(METHODS, value=by_method, changed=other, table=ONE_BIT))
    assert {s.rank for s in table.cells.values()} == {""}
    letters = {s.fields["method"]: s.footnote for s in table.cells.values()}
    assert letters["Local"] == letters["FedCAFE"] != letters["FedAvg"]
    text = markdown(table)
    assert f"0.610<sup>{letters['FedAvg']}</sup>" in text
    assert f"- {letters['FedAvg']}: glyphs, default: 100 items; queries without a relevant item count 0" in text
    assert rf"\textsuperscript{{{letters['FedAvg']}}}" in latex(table)


def test_different_data_in_different_columns_are_each_named():
    study = synthetic_study(
        axis("data", "glyphs", "coco18"),
        METHODS,
        value=by_method,
        changed=lambda choices: {"dataset": choices["data"], "population": 10},
        table={"rows": ["method"], "columns": ["data", "task"], "evaluations": ["GG"]},
    )
    table = only_table(study)
    assert {s.rank for s in table.cells.values() if s.fields["method"] == "FedCAFE"} == {"best"}
    assert [text.split(",")[0] for text in table.notes if text.startswith("Measured on")] == [
        "Measured on glyphs",
        "Measured on coco18",
    ]


def test_other_queries_are_not_ranked():
    study = synthetic_study(
        METHODS,
        value=by_method,
        changed=lambda choices: {"queries": choices["method"]},
        table=ONE_BIT,
    )
    assert {s.rank for s in only_table(study).cells.values()} == {""}


def test_seeds_that_were_measured_differently_have_no_mean():
    study = synthetic_study(METHODS, table=ONE_BIT)
    first, *others = study.runs
    changed = type(first)(
        **{**vars(first), "rows": tuple(type(r)(**{**vars(r), "protocol": "other"}) for r in first.rows)}
    )
    with pytest.raises(UserError, match="Local were measured differently"):
        result_tables(type(study)(study.config, (changed, *others)))


def test_a_table_for_each_choice_that_is_in_neither_rows_nor_columns():
    study = synthetic_study(METHODS, BITS, value=by_method, table={"rows": ["method"], "columns": ["task"]})
    assert [(table.name, table.title) for table in result_tables(study)] == [
        ("table-16-GG_PG", "Made up, 16, GG/PG, mAP@all"),
        ("table-16-XS", "Made up, 16, XS, mAP@all"),
        ("table-32-GG_PG", "Made up, 32, GG/PG, mAP@all"),
        ("table-32-XS", "Made up, 32, XS, mAP@all"),
    ]


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
    assert table.columns == tuple((bits, cost) for bits in ("16", "32") for cost in COSTS)
    found = cell_of(table, "FedCAFE", "16", "sent per round (MB)")
    assert found.mean == pytest.approx(9e-6)
    assert {s.rank for s in table.cells.values()} == {""}
    assert "| 2.00 ± 0 |" in markdown(table)
    assert cell_of(table, "FedAvg", "16", "time per round (s)").mean == 1.5


def test_latex_is_escaped_and_balanced():
    study = synthetic_study(
        axis("method", "R&D_50%", "#1 {β}", r"back\slash", "[x]"),
        BITS,
        value=lambda choices, seed, task: 0.5 + 0.01 * len(choices["method"]),
        table=TABLE,
        title="A_b & 100 %",
    )
    text = latex(only_table(study))
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
    study = synthetic_study(METHODS, BITS, value=by_method, table=TABLE)
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
