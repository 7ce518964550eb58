"""Text tables are aligned by their widest cell."""

from __future__ import annotations

from silohash.data.partition.table import aligned


def test_columns_are_as_wide_as_their_widest_cell():
    lines = [["silo", "items", "note"], ["a", "10,000", ""], ["long name", "7", "x"]]
    assert aligned(lines, right={1}) == ["silo        items  note", "a          10,000", "long name       7  x"]
