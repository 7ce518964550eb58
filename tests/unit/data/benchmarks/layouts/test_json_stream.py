"""JSON read element by element equals the whole file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from silohash.data.benchmarks.layouts import json_stream
from silohash.types import UserError


@pytest.mark.parametrize("chunk", [1, 3, 1 << 20])
def test_streamed_json_is_what_the_file_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(json_stream, "CHUNK", chunk)
    content = {
        "info": {"year": 2014, "more": [1, {"a": None}]},
        "images": [{"id": 12, "name": 'quote " ] } , é'}, {"id": 1234567, "name": ""}],
        "numbers": [12, 3456, -1.5e3, True],
        "none": [],
        "last": 17,
    }
    (tmp_path / "a.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
    assert list(json_stream.members(tmp_path / "a.json")) == [
        ("info", content["info"]),
        *(("images", image) for image in content["images"]),  # type: ignore[attr-defined]
        *(("numbers", number) for number in content["numbers"]),  # type: ignore[attr-defined]
        ("last", 17),
    ]


@pytest.mark.parametrize("content", ['{"images": [{"id": 1}, {"id"', '{"a": [1 2]}', "[1, 2]", "", '{"a" 1}'])
def test_damaged_json_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.json").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=r"a\.json is damaged or not a JSON object"):
        list(json_stream.members(tmp_path / "a.json"))
