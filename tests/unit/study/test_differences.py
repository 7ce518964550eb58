"""Differences from one choice, paired by seed, with Student's interval."""

from __future__ import annotations

import math
from typing import Any

import pytest

from silohash.study.annotations import annotated
from silohash.study.differences import difference_tables, paired_difference
from silohash.study.pivot import Cell, result_tables
from silohash.study.tables import markdown, write_tables
from silohash.types import ORACLE
from tests import synthetic_studies as made_up

FIGURES = {"Local": (0.40, 0.44, 0.45), "FedAvg": (0.60, 0.61, 0.64), "FedCAFE": (0.65, 0.63, 0.70)}


def study(**more: Any) -> Any:
    table = {**made_up.ONE_LENGTH, "against": {"method": ["FedAvg"]}, **more.pop("table", {})}
    return made_up.synthetic_study(
        made_up.METHODS, seeds=(0, 1, 2), table=table,
        value=lambda choices, seed, task: FIGURES[choices["method"]][seed] + (0.1 if task == "t2i" else 0.0), **more,
    )  # fmt: skip


def differences(**more: Any) -> Any:
    of = study(**more)
    (table,) = [t for one in result_tables(of) for t in difference_tables(one, of.config.table.against)]
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
    tables = [t for one in result_tables(of) for t in difference_tables(one, of.config.table.against)]
    assert [table.name for table in tables] == ["table-minus-FedAvg", "table-minus-Local"]
    assert tables[1].columns == (("FedAvg",), ("FedCAFE",))
    assert made_up.cell_of(tables[1], "FedAvg", "i2t").values == pytest.approx((0.2, 0.17, 0.19))


def test_files_are_written_beside_those_of_the_figures(tmp_path: Any) -> None:
    write_tables(study(), tmp_path)
    assert (tmp_path / "tables" / "table-minus-FedAvg.md").exists()
    assert "+0.043" in (tmp_path / "tables" / "table-minus-FedAvg.tex").read_text()
    write_tables(study(table={"against": {}}), tmp_path)
    assert not (tmp_path / "tables" / "table-minus-FedAvg.md").exists()
