"""JSON read element by element equals the whole file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from silohash.data.benchmarks.layouts.json_stream import elements
from silohash.types import UserError

CONTENT = {
    "info": {"year": 2014, "images": [1, {"a": None}]},
    "images": [{"id": 12, "name": 'quote " ] } , é', "area": 1.5}, {"id": 1234567, "name": ""}],
    "numbers": [12, 3456, -1.5e3, True],
    "none": [],
    "last": 17,
}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("key", ["images", "numbers", "none", "last", "missing"])
def test_streamed_json_is_what_the_file_holds(tmp_path: Path, key: str, encoding: str) -> None:
    (tmp_path / "a.json").write_text(json.dumps(CONTENT, indent=1), encoding=encoding)
    value = CONTENT.get(key)
    found = list(elements(tmp_path / "a.json", key))
    assert found == (value if isinstance(value, list) else [])
    assert [type(element) for element in found] == [type(element) for element in (value if found else [])]  # type: ignore[union-attr]


@pytest.mark.parametrize("key", ["images", "a"])
@pytest.mark.parametrize(
    "content", ['{"images": [{"id": 1}, {"id"', '{"a": [1 2]}', "[1, 2]", "", '{"a" 1}', "\x00\xff"]
)
def test_damaged_json_is_named(tmp_path: Path, content: str, key: str) -> None:
    (tmp_path / "a.json").write_text(content, encoding="latin-1")
    with pytest.raises(UserError, match=r"a\.json is damaged or not a JSON object"):
        list(elements(tmp_path / "a.json", key))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.json"):
        list(elements(tmp_path / "none.json", "images"))
