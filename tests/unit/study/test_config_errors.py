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
            's.toml: unknown key "table.row" (did you mean "rows"?); known: rows, columns, measure, evaluations.',
        ),
        (
            {"axis": [{**AXIS, "choice": [{"name": "a"}, {"name": "b", "sets": {}}]}]},
            's.toml: axis "method", choice "b": unknown key "sets" (did you mean "set"?); known: name, recipe, set.',
        ),
        ({"axis": [AXIS], "processes": 65}, "s.toml: processes: input should be less than or equal to 64 (got 65)."),
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
