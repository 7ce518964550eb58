"""Sizes and files as the command line shows them."""

from __future__ import annotations

from pathlib import Path

from silohash.cli.data_files import describe_files, files_as_json, format_size
from silohash.data.benchmarks.files import find_layout_files
from silohash.data.benchmarks.layouts.region_arrays import REGION_ARRAYS


def test_sizes_in_words() -> None:
    assert [format_size(size) for size in (0, 999, 1500, 2_500_000)] == ["0 bytes", "999 bytes", "1.5 KB", "2.5 MB"]


def test_files_are_listed_with_their_sizes_and_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "test_ims.npy").write_bytes(b"0" * 1500)
    states = (find_layout_files(REGION_ARRAYS, tmp_path),)
    lines = describe_files(states, tmp_path)
    assert lines[0] == "layout region-arrays: 1 missing"
    assert lines[1] == "  test_ims.npy: 1.5 KB  (features of 36 regions per picture)"
    assert lines[2] == "  MISSING: test_caps.txt  (5 captions per picture, one per line)"
    assert lines[3].startswith("  absent, but optional: train_ims.npy")
    (layout,) = files_as_json(states)
    assert (layout["name"], layout["complete"]) == ("region-arrays", False)
    assert [file["bytes"] for file in layout["files"]] == [1500, 0, 0, 0, 0, 0]
    assert [file["found"] for file in layout["files"]] == [1, 0, 0, 0, 0, 0]
