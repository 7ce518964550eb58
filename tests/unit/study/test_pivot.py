"""Tables of figures: means and intervals known beforehand, and which runs belong to which cell."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from silohash.base.errors import RunsDiffer
from silohash.study.pivot import (
    Cell,
    compared_field,
    field_values,
    figure_cell,
    file_name,
    measures_of_tables,
    result_tables,
    table_layout,
    with_interval,
)
from silohash.study.tables import markdown
from tests.reports import row
from tests.synthetic_studies import (
    BITS,
    METHODS,
    ONE_LENGTH,
    TABLE,
    axis,
    by_method,
    cell_of,
    note,
    only_table,
    synthetic_study,
)


def test_one_seed_takes_the_interval_over_queries():
    table = only_table(synthetic_study(METHODS, BITS, seeds=(3,), value=lambda c, s, t: 0.5, table=TABLE))
    found = cell_of(table, "Local", "32", "t2i")
    assert (found.low, found.high, found.interval) == (0.48, 0.53, "queries")
    assert "0.500 (0.480–0.530)" in markdown(table)
    assert "bootstrap" in note(table, "Parentheses")
    assert note(table, "±") == ""


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


def test_a_figure_that_was_not_measured_is_not_a_missing_run():
    study = synthetic_study(
        METHODS, evaluations=("XS",), table={**TABLE, "evaluations": ["GG", "XS"], "columns": ["task"]}
    )
    assert [table.name for table in result_tables(study)] == ["table"]
    study = synthetic_study(METHODS, table={**TABLE, "columns": ["evaluation", "task"], "measure": "P@10"})
    assert {s.empty_because for s in only_table(study).cells.values()} == {"not measured"}


def test_seeds_that_were_measured_differently_have_no_mean():
    study = synthetic_study(METHODS, table=ONE_LENGTH)
    first, *others = study.runs
    changed = type(first)(
        **{**vars(first), "rows": tuple(type(r)(**{**vars(r), "protocol": "other"}) for r in first.rows)}
    )
    with pytest.raises(RunsDiffer, match="Local"):
        result_tables(type(study)(study.config, (changed, *others)))


def test_a_table_for_each_choice_that_is_in_neither_rows_nor_columns():
    study = synthetic_study(METHODS, BITS, value=by_method, table={"rows": ["method"], "columns": ["task"]})
    assert [(table.name, table.title) for table in result_tables(study)] == [
        ("table-16-GG_PG", "Made up, 16, GG/PG, mAP@all"),
        ("table-16-XS", "Made up, 16, XS, mAP@all"),
        ("table-32-GG_PG", "Made up, 32, GG/PG, mAP@all"),
        ("table-32-XS", "Made up, 32, XS, mAP@all"),
    ]


def cell(**changed):
    return Cell(fields={"method": "a"}, **changed)


def test_a_new_cell_lacks_no_run_and_has_no_figures():
    fresh = Cell(fields={})
    assert (fresh.missing, fresh.tested_on, fresh.seeds, fresh.rows) == (0, 0, (), ())
    assert math.isnan(fresh.low)
    assert not fresh.needs_query_label


def test_layout_puts_methods_in_the_rows_unless_the_study_says_otherwise():
    config = synthetic_study(BITS, METHODS).config
    assert table_layout(config) == (("method",), ("bits", "evaluation", "task"))
    assert compared_field(config, ("bits", "method")) == "method"
    assert compared_field(config, ("task", "bits")) == "bits"
    assert compared_field(config, ("task", "measure")) == ""
    without = synthetic_study(BITS, axis("silos", "2", "5", key="partition.silos")).config
    assert table_layout(without) == (("bits",), ("silos", "evaluation", "task"))
    given = synthetic_study(METHODS, table={"columns": ["task"]}).config
    assert table_layout(given) == ((), ("task",))


@pytest.mark.parametrize(
    ("measured", "wanted", "expected"),
    [
        (("GG", "XS"), ("GG", "PG", "XS"), ["GG/PG", "XS"]),
        (("PG",), ("GG", "PG", "XS"), ["GG/PG"]),
        (("GL",), ("GL", "PL"), ["GL/PL"]),
        (("GG", "PL"), ("GG",), ["GG"]),
        (("XS",), ("GG",), ["GG"]),
        ((), ("XS", "PG"), ["PG", "XS"]),
        ((), (), ["GG"]),
    ],
)
def test_evaluations_of_a_table(measured, wanted, expected):
    study = synthetic_study(METHODS, evaluations=measured, table={"evaluations": list(wanted)})
    assert field_values(study, ())["evaluation"] == expected


def test_tasks_and_measures_of_a_table():
    study = synthetic_study(METHODS, tasks=("t2i", "i2i"))
    assert field_values(study, ())["task"] == ["t2i", "i2i"]
    assert field_values(synthetic_study(METHODS, missing=lambda choices, seed: True), ())["task"] == ["i2t", "t2i"]
    study = synthetic_study(METHODS, table={"measure": "P@10"})
    assert field_values(study, ())["measure"] == ["P@10"]
    assert field_values(study, ("task", "measure"))["measure"] == ["P@10", "mAP@all"]


def test_tables_show_a_measure_that_the_runs_have_unless_the_study_names_one():
    def changed(choices):
        return {"measure": {"Local": "R@1[by=pairs]", "FedAvg": "R@10[by=pairs]"}.get(choices["method"], "P@5")}

    assert measures_of_tables(synthetic_study(METHODS)) == ["mAP@all"]
    assert measures_of_tables(synthetic_study(METHODS, changed=changed)) == ["R@10[by=pairs]"]
    assert measures_of_tables(synthetic_study(METHODS, changed=lambda choices: {"measure": "P@5"})) == ["P@5"]
    assert measures_of_tables(synthetic_study(METHODS, changed=changed, table={"measure": "mAP@all"})) == ["mAP@all"]
    assert measures_of_tables(synthetic_study(METHODS, missing=lambda choices, seed: True)) == ["mAP@all"]
    assert field_values(synthetic_study(METHODS, changed=changed), ())["measure"] == ["R@10[by=pairs]"]
    further = {"further_measures": ["R@10[by=pairs]", "mAP@all"]}
    assert measures_of_tables(synthetic_study(METHODS, changed=changed, table=further)) == ["mAP@all", "R@10[by=pairs]"]


def test_each_measure_has_tables_where_it_was_measured():
    study = synthetic_study(
        axis("data", "coco18", "flickr"), METHODS, evaluations=("GG",),
        changed=lambda choices: {"measure": "R@10[by=pairs]"} if choices["data"] == "flickr" else {},
        table={"rows": ["method"], "columns": ["task"], "further_measures": ["R@10[by=pairs]"]},
    )  # fmt: skip
    assert [(table.name, table.title) for table in result_tables(study)] == [
        ("table-coco18-mAP_all", "Made up, coco18, mAP@all"),
        ("table-flickr-R_10_by_pairs_", "Made up, flickr, R@10[by=pairs]"),
    ]


def test_cell_counts_the_runs_that_are_missing():
    study = synthetic_study(METHODS, seeds=(0, 1, 2), value=by_method, missing=lambda choices, seed: seed == 1)
    fields = {"method": "FedAvg", "task": "i2t", "evaluation": "GG/PG", "measure": "mAP@all"}
    found = figure_cell(study, fields)
    assert (found.seeds, found.missing, found.values) == ((0, 2), 1, (0.6, 0.64))
    assert len(found.per_query) == len(found.queries) == 2
    bare = tuple(replace(run, per_query={}) if run.seed == 0 else run for run in study.runs)
    found = figure_cell(replace(study, runs=bare), fields)
    assert (found.values, found.per_query, found.queries) == ((0.6, 0.64), (), ())
    other = figure_cell(study, {**fields, "task": "i2i"})
    assert (other.values, other.empty_because, math.isnan(other.mean)) == ((), "not measured", True)


def test_interval_is_over_seeds_or_queries_or_absent():
    two = with_interval(cell(values=(0.4, 0.6), rows=(row(), row())))
    assert (two.interval, two.mean) == ("seeds", 0.5)
    # Two values 0.2 apart have a standard error of 0.1; Student's t with 1 degree of freedom is 12.7062.
    assert (two.low, two.high) == pytest.approx((0.5 - 1.27062, 0.5 + 1.27062), rel=1e-5)
    one = with_interval(cell(values=(0.4,), rows=(row(low=0.3, high=0.45),)))
    assert (one.interval, one.low, one.high) == ("queries", 0.3, 0.45)
    assert with_interval(cell(values=(0.4,))).interval == ""
    assert cell().empty_because == "no run"
    assert cell(values=(0.4,)).empty_because == ""


def test_file_names_hold_letters_digits_and_few_signs():
    assert file_name("GG/PG x+1.5_a-b é") == "GG_PG_x+1.5_a-b_é"
