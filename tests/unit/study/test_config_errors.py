"""Messages for study files that are not valid: the place, the key, the value seen and the known keys."""

from __future__ import annotations

from typing import Any

import pytest

from silohash.study.config import make_study
from silohash.types import UserError

AXIS = {"name": "method", "choice": [{"name": "FedAvg"}, {"name": "Local"}]}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, 's.toml: "axis" is missing.'),
        ({"axis": [{"choice": [{"name": "a"}]}]}, 's.toml: axis 1: "name" is missing.'),
        ({"axis": [AXIS, {"name": "b", "choice": [{"set": {}}]}]}, 's.toml: axis "b", choice 1: "name" is missing.'),
        (
            {"axis": [AXIS], "table": {"row": ["method"]}},
            's.toml: unknown key "table.row" (did you mean "rows"?); known: rows, columns, measure, further_measures, '
            "evaluations, against.",
        ),
        (
            {"axis": [{**AXIS, "choice": [{"name": "a"}, {"name": "b", "sets": {}}]}]},
            's.toml: axis "method", choice "b": unknown key "sets" (did you mean "set"?); known: name, recipe, set.',
        ),
        ({"axis": [AXIS], "processes": 65}, "s.toml: processes: input should be less than or equal to 64 (got 65)."),
        ({"axis": "method"}, 's.toml: axis: the value must be a list (got "method"). Write axis = [{name = "method"}].'),
        ({"axis": ["method"]}, 's.toml: axis 1: the value must be a table (got "method"). Write {name = "method"} in the '
         "list."),
        ({"axis": [AXIS], "seeds": "0"}, 's.toml: seeds: the value must be a list (got "0"). Write seeds = [0].'),
        ({"axis": [AXIS], "base": "run.toml"}, 's.toml: base: the value must be a table (got "run.toml"). Write base = '
         '{recipe = "run.toml"}.'),
        ({"axis": [{**AXIS, "choice": [{"name": "a", "set": 3}]}]}, 's.toml: axis "method", choice "a": set: the value must '
         'be a table (got 3). Write set = {"federated.rounds" = 5}.'),
        ({"axis": [AXIS], "tune": {"trials": 1, "of": ["method"], "parameters": {"a": {"low": "x", "high": 2}}}},
         's.toml: tune.parameters.a.low: the value must be a number (got "x"). Write low = 0.1.'),
        ({"axis": [AXIS], "tune": {"trials": 1, "of": ["method"], "parameters": {"a": 3}}},
         "s.toml: tune.parameters.a: the value must be a table (got 3). Write a = {values = [0.001, 0.01]}."),
        ({"axis": [AXIS], "seeds": [-1]}, "s.toml: seeds: give each seed once, and none below 0."),
        ({"axis": [{**AXIS, "name": "seed"}]}, 's.toml: axis "seed": an axis cannot be called "seed", because tables have '
         "a column of that name."),
        ({"axis": [AXIS], "where": [{"choices": {"method": "Fed"}}]}, 's.toml: where: axis "method" has no choice "Fed"'
         ' (did you mean "FedAvg"?). Available: FedAvg, Local.'),
    ],
)  # fmt: skip
def test_message(value: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        make_study(value, where="s.toml")
    assert str(caught.value) == message
