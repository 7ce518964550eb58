"""What is found in a data set's files, and which protocols they match."""

from __future__ import annotations

from pathlib import Path

import pytest

from silohash.data.benchmarks.coco import COCO
from silohash.data.benchmarks.inspection import files_of, inspect
from silohash.data.benchmarks.wikipedia import WIKIPEDIA
from silohash.types import UserError
from tests.benchmark_files import write_lists, write_wikipedia


@pytest.fixture
def wikipedia(tmp_path: Path) -> Path:
    return write_wikipedia(tmp_path / "files" / "wikipedia")


def test_inspection_tries_every_protocol(wikipedia: Path) -> None:
    folder, states = files_of(WIKIPEDIA, str(wikipedia))
    assert folder == wikipedia
    assert [state.complete for state in states] == [True, False]
    found = inspect(WIKIPEDIA, root=str(wikipedia))
    assert found.layout == "dscmr"
    assert found.protocol == "default"
    assert found.mismatches["default"] is None
    assert found.mismatches["rasiwasia"].startswith(
        'Protocol "rasiwasia" of wikipedia expects 2,866 items and found 80 of 80'
    )
    assert found.overlaps == {}
    with pytest.raises(UserError, match="expects 2,866 items"):
        inspect(WIKIPEDIA, root=str(wikipedia), protocol="rasiwasia")


def test_inspection_tells_of_overlapping_splits(tmp_path: Path) -> None:
    found = inspect(COCO, root=str(write_lists(tmp_path / "coco", overlap=True)))
    assert found.overlaps == {"query and database": 5} or found.overlaps == {"database and query": 5}
