"""The table of costs, with costs known beforehand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from silohash.study.annotations import annotated
from silohash.study.costs import COSTS, MEMORY, cost_table, format_cost
from silohash.study.tables import markdown
from tests.synthetic_studies import BITS, MEANS, METHODS, ONE_LENGTH, TABLE, cell_of, records, synthetic_study


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
