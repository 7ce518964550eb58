"""The table of costs, with costs known beforehand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from silohash.study.annotations import annotated
from silohash.study.costs import COSTS, cost_table, format_cost
from silohash.study.tables import markdown
from tests.synthetic_studies import BITS, METHODS, TABLE, cell_of, records, synthetic_study


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


def test_costs_of_one_round_in_their_units():
    record = replace(records(1)[0], uplink_bytes=3_000_000, downlink_bytes=500_000, seconds=1.25)
    assert [cost(record) for cost in COSTS.values()] == [3.0, 0.5, 1.25]


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
