"""What a silo stores between rounds: references in place of arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from silohash.base.types import UserError
from silohash.training.sites.kept import KeptArrays
from tests.runs import same_arrays


def test_a_reference_stands_for_the_arrays_of_its_round(tmp_path: Path) -> None:
    kept = KeptArrays(tmp_path / "kept")
    given = [{"own/w": np.full(3, number, np.float32), "n": np.array(number)} for number in range(3)]
    references = [kept.store(arrays, round=number, finishing=False) for number, arrays in enumerate(given)]
    later = kept.store({"own/w": np.zeros(2)}, round=1, finishing=True)
    for reference, arrays in zip(references, given, strict=True):
        assert same_arrays(kept.load(reference), arrays)
    assert same_arrays(kept.load(later), {"own/w": np.zeros(2)})
    assert sum(array.nbytes for array in references[2].values()) == 16


def test_nobody_else_reads_what_a_silo_keeps(tmp_path: Path) -> None:
    KeptArrays(tmp_path).store({"own/w": np.zeros(3, np.float32)}, round=0, finishing=False)
    assert [path.stat().st_mode & 0o077 for path in tmp_path.iterdir()] == [0]


def test_nothing_is_stored_for_no_arrays(tmp_path: Path) -> None:
    kept = KeptArrays(tmp_path / "kept")
    assert kept.store({}, round=4, finishing=False) == {}
    assert kept.load({}) == {}
    assert not (tmp_path / "kept").exists()


def test_arrays_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^Its stored own/w holds NaN or infinite values\. Lower train"):
        KeptArrays(tmp_path).store({"own/w": np.array([1.0, np.nan])}, round=0, finishing=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "reference",
    [
        {"stored": np.array([-1, 0])},
        {"stored": np.array([0, 1, 2])},
        {"stored": np.array([0.0, 1.0])},
        {"x": np.ones(2)},
    ],
)
def test_reference_of_a_server_cannot_name_another_file(tmp_path: Path, reference: dict[str, np.ndarray]) -> None:
    with pytest.raises(UserError, match="a reference to stored arrays that this silo did not make"):
        KeptArrays(tmp_path).load(reference)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="00000003-0"):
        KeptArrays(tmp_path).load({"stored": np.array([3, 0])})


def test_only_the_files_of_references_remain(tmp_path: Path) -> None:
    kept = KeptArrays(tmp_path)
    given = {"own/w": np.ones(3, np.float32)}
    references = [kept.store(given, round=number, finishing=False) for number in range(5)]
    kept.remove_all_but(references[3], references[1])
    assert sorted(path.name[:10] for path in tmp_path.iterdir()) == ["00000001-0", "00000003-0"]
    kept.remove_all_but(references[3], {})
    assert sorted(path.name[:10] for path in tmp_path.iterdir()) == ["00000003-0"]
    assert same_arrays(kept.load(references[3]), given)
    kept.remove_all_but({}, {})
    assert list(tmp_path.iterdir()) == []
