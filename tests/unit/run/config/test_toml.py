"""TOML that is written reads back as the same values."""

from __future__ import annotations

import tomllib

from silohash.run.config.toml import to_toml, toml_value


def test_plain_keys_come_before_tables_and_empty_values_are_left_out() -> None:
    text = to_toml({"table": {"a": 1, "none": None}, "empty": {}, "plain": [1.5, "x"], "unset": None})
    assert tomllib.loads(text) == {"plain": [1.5, "x"], "table": {"a": 1}}
    assert text.index("plain") < text.index("[table]")


def test_mappings_in_lists_and_values_are_inline() -> None:
    value = [{"name": "moon", "tau": 0.5, "unset": None}, {"name": "fedprox"}]
    assert toml_value(value) == '[{name = "moon", tau = 0.5}, {name = "fedprox"}]'
    assert tomllib.loads(to_toml({"methods": value}))["methods"] == [{"name": "moon", "tau": 0.5}, {"name": "fedprox"}]
