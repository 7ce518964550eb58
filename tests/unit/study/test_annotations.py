"""Ranks, significance, footnotes and notes of tables whose figures are known beforehand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from silohash.base.types import ORACLE, WITH_LABELS
from silohash.study import pivot
from silohash.study.pivot import Cell, paired_values
from silohash.study.tables import latex, markdown
from tests.reports import card
from tests.synthetic_studies import (
    BITS,
    MEANS,
    METHODS,
    ONE_LENGTH,
    QUERIES,
    TABLE,
    axis,
    by_method,
    cell_of,
    note,
    only_table,
    synthetic_study,
)


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

    sure = only_table(synthetic_study(METHODS, value=by_method, table=ONE_LENGTH, spread=0.02))
    unsure = only_table(synthetic_study(METHODS, value=close, table=ONE_LENGTH, spread=0.2))
    assert cell_of(sure, "FedCAFE", "i2t").p_value < 0.01
    assert cell_of(unsure, "FedCAFE", "i2t").p_value > 0.1
    assert "**0.660**†" in markdown(sure)
    assert "†" not in markdown(unsure).split("\n- ")[0]
    assert f"over {QUERIES} queries" in note(sure, "†")
    assert "2 tests" in note(sure, "†")


def test_a_query_counts_by_its_mean_over_seeds():
    study = synthetic_study(METHODS, value=by_method, table=ONE_LENGTH)
    table = only_table(study)
    one, other = paired_values(cell_of(table, "FedCAFE", "i2t"), cell_of(table, "Local", "i2t"))
    values = [run.per_query["GG", "i2t", "mAP@all"] for run in study.runs if run.choices["method"] == "FedCAFE"]
    assert np.allclose(one, np.mean(values, axis=0))
    assert len(one) == len(other) == QUERIES


def test_equal_figures_have_no_best():
    table = only_table(synthetic_study(METHODS, table=ONE_LENGTH))
    assert {s.rank for s in table.cells.values()} == {""}
    assert note(table, "bold") == ""


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

    table = only_table(synthetic_study(METHODS, value=by_method, changed=other, table=ONE_LENGTH))
    assert {s.rank for s in table.cells.values()} == {""}
    letters = {s.fields["method"]: s.footnote for s in table.cells.values()}
    assert letters["Local"] == letters["FedCAFE"] != letters["FedAvg"]
    text = markdown(table)
    assert f"0.610<sup>{letters['FedAvg']}</sup>" in text
    assert f"- {letters['FedAvg']}: glyphs, default: 100 items; queries without a relevant item count 0" in text
    assert rf"\textsuperscript{{{letters['FedAvg']}}}" in latex(table)


def one_round(method, **others):
    """Return the changes of a study in which a method has a single round, and the others choose theirs."""
    return lambda choices: {
        "population": 100,
        **({"rounds": 1, "round_by": "validation on pairs"} if choices["method"] == method else others),
    }


def test_a_method_with_one_round_is_ranked_beside_those_that_choose_a_round():
    changed = one_round("FedCAFE", round_by="validation")
    table = only_table(synthetic_study(METHODS, value=by_method, changed=changed, table=ONE_LENGTH))
    assert {s.footnote for s in table.cells.values()} == {""}
    assert cell_of(table, "FedCAFE", "i2t").rank == "best"
    assert cell_of(table, "FedCAFE", "i2t").p_value is not None
    assert cell_of(table, "FedAvg", "i2t").rank == "second"
    measured = [text.rpartition("; ")[2] for text in table.notes if text.startswith("Measured on")]
    assert sorted(measured) == ["a single round.", "round chosen by validation."]


def test_different_choices_of_the_round_are_not_ranked():
    def chosen(choices):
        others = {"Local": "validation on pairs", "FedAvg": "validation"}
        return one_round("FedCAFE", round_by=others.get(choices["method"], ""))(choices)

    table = only_table(synthetic_study(METHODS, value=by_method, changed=chosen, table=ONE_LENGTH))
    assert {s.rank for s in table.cells.values()} == {""}
    assert len({s.footnote for s in table.cells.values()} - {""}) == 3


def test_one_round_does_not_make_other_conditions_equal():
    changed = one_round("FedCAFE", round_by="validation", no_hits="skip")
    table = only_table(synthetic_study(METHODS, value=by_method, changed=changed, table=ONE_LENGTH))
    assert {s.rank for s in table.cells.values()} == {""}
    assert cell_of(table, "FedCAFE", "i2t").footnote != cell_of(table, "FedAvg", "i2t").footnote


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
        table=ONE_LENGTH,
    )
    assert {s.rank for s in only_table(study).cells.values()} == {""}


def seeded(values, queries="same"):
    """Returns a cell with one array of figures per seed: seed -> (digest of its queries, figures)."""
    given = {seed: array if isinstance(array, tuple) else (queries, array) for seed, array in values.items()}
    return Cell(
        fields={},
        seeds=tuple(given),
        queries=tuple(digest for digest, _ in given.values()),
        per_query=tuple(np.array(array, np.float64) for _, array in given.values()),
    )


def test_pairs_are_means_over_the_shared_seeds():
    one, other = paired_values(seeded({0: [1, 2], 1: [3, 6], 5: [9, 9]}), seeded({1: [0, 1], 0: [2, 3], 4: [7, 7]}))
    assert one.tolist() == [2, 4]
    assert other.tolist() == [1, 2]


def test_pairs_of_seeds_with_their_own_queries_follow_each_other():
    one, other = paired_values(
        seeded({0: ("a", [1, 2]), 1: ("b", [3, 4, 5])}), seeded({0: ("a", [0, 1]), 1: ("b", [7, 8, 9])})
    )
    assert one.tolist() == [1, 2, 3, 4, 5]
    assert other.tolist() == [0, 1, 7, 8, 9]


def test_queries_that_either_does_not_count_are_left_out_of_the_pairs():
    one, other = paired_values(seeded({0: [1, np.nan, 3, 4]}), seeded({0: [5, 6, np.inf, 8]}))
    assert (one.tolist(), other.tolist()) == ([1, 4], [5, 8])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (seeded({0: [1, 2]}), seeded({1: [1, 2]})),
        (seeded({0: [1, 2]}), seeded({0: ("other", [1, 2])})),
        (seeded({0: [1, 2], 1: [1, 2]}), seeded({0: [1, 2], 1: ("other", [1, 2])})),
        (seeded({0: [1, 2]}), Cell(fields={}, seeds=(0,))),
    ],
)
def test_cells_without_shared_queries_have_no_pairs(first, second):
    one, other = paired_values(first, second)
    assert len(one) == len(other) == 0


def test_two_methods_have_a_best_but_no_second():
    table = only_table(synthetic_study(axis("method", "Local", "FedAvg"), value=by_method, table=ONE_LENGTH))
    assert sorted(cell.rank for cell in table.cells.values()) == ["", "", "best", "best"]
    assert note(table, "bold") == "Best method: bold."


def test_equal_seconds_are_both_second():
    def tied(choices, seed, task):
        return 0.6 if choices["method"] == "FedCAFE" else 0.5

    table = only_table(synthetic_study(METHODS, value=tied, table=ONE_LENGTH))
    ranks = {(cell.fields["method"], cell.rank) for cell in table.cells.values()}
    assert ranks == {("FedCAFE", "best"), ("FedAvg", "second"), ("Local", "second")}
    assert note(table, "bold") == "Best method: bold. Second: underlined or italic."


def test_method_that_needs_the_querys_label_is_not_ranked(monkeypatch):
    class Registry:
        def names(self):
            return ["oracle"]

        def card(self, name):
            return card(name, needs_label_at_query=True)

    monkeypatch.setattr(pivot, "LOCAL_METHODS", Registry())
    study = synthetic_study(
        METHODS,
        value=by_method,
        changed=lambda choices: {"local": "oracle" if choices["method"] == "FedCAFE" else "dcmh"},
        table=ONE_LENGTH,
    )
    table = only_table(study)
    ranks = {(cell.fields["method"], cell.rank) for cell in table.cells.values()}
    assert ranks == {("FedCAFE", ""), ("FedAvg", "best"), ("Local", "")}
    assert "0.660‡" in markdown(table)
    assert "needs the label of the query" in note(table, "‡")


def test_more_conditions_than_letters():
    assert [pivot._letter(number) for number in (0, 25, 26, 27, 52)] == ["a", "z", "aa", "bb", "aaa"]


def test_the_note_of_the_test_names_its_level_and_queries():
    table = only_table(synthetic_study(METHODS, value=by_method, table=ONE_LENGTH, spread=0.02))
    assert "p < 0.05 in a paired bootstrap" in note(table, "†")
    cells = {
        (("a",), ("x",)): Cell({}, rank="best", p_value=0.01, tested_on=1_200),
        (("b",), ("x",)): Cell({}, rank="best", p_value=0.2, tested_on=900),
    }
    tested = pivot._rank_notes(replace(table, cells=cells))[1]
    assert "over 900 to 1,200 queries" in tested
    assert "There are 2 tests" in tested


def test_cells_without_a_run_are_counted():
    study = synthetic_study(
        METHODS, value=by_method, table=ONE_LENGTH, missing=lambda choices, seed: choices["method"] == "Local"
    )
    table = only_table(study)
    empty = sum(cell.empty_because == "no run" for cell in table.cells.values())
    assert empty > 0
    assert f"{empty} of {len(table.cells)} cells have no finished run." in table.notes


def test_figures_of_items_with_their_labels_stand_apart():
    endings = {"FedCAFE": f"one view{ORACLE}", "FedAvg": f"one view{WITH_LABELS}", "Local": "one view"}
    study = synthetic_study(
        METHODS,
        value=by_method,
        changed=lambda choices: {"database_code": endings[choices["method"]]},
        table=ONE_LENGTH,
    )
    table = only_table(study)
    assert {cell.rank for cell in table.cells.values()} == {""}
    assert {cell.footnote for cell in table.cells.values()} == {""}
    text = markdown(table)
    assert "0.660‡ oracle" in text
    assert "0.610§" in text
    assert "0.510‡" not in text
    assert "oracle" in note(table, "‡")
    assert "database items" in note(table, "§")


def test_methods_without_labels_are_ranked_beside_those_with():
    study = synthetic_study(
        METHODS,
        value=by_method,
        changed=lambda choices: {"database_code": f"one view{ORACLE if choices['method'] == 'FedCAFE' else ''}"},
        table=ONE_LENGTH,
    )
    ranks = {(cell.fields["method"], cell.rank) for cell in only_table(study).cells.values()}
    assert ranks == {("FedCAFE", ""), ("FedAvg", "best"), ("Local", "")}


def test_the_lowest_rank_is_the_best_and_is_not_tested():
    study = synthetic_study(
        METHODS, value=by_method, changed=lambda choices: {"measure": "MedR[by=pairs]"}, table=ONE_LENGTH
    )
    table = only_table(study)
    assert {method: cell_of(table, method, "i2t").rank for method in MEANS} == {
        "Local": "best", "FedAvg": "second", "FedCAFE": ""
    }  # fmt: skip
    assert cell_of(table, "Local", "i2t").p_value is None
