"""Arrays on disk: they are read as they were written, only when they are used, and the file leaves nothing behind."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from silohash.methods.message import Message
from silohash.methods.stored import Spool, StoredArrays, copy_into, part_of

ARRAYS = {
    "matrix": np.arange(12, dtype=np.float32).reshape(3, 4),
    "turned": np.arange(12, dtype=np.float64).reshape(3, 4).T,
    "single": np.asarray(7),
    "flags": np.asarray([True, False, True]),
    "empty": np.zeros((0, 5), np.int8),
}


def test_arrays_are_read_as_they_were_written(tmp_path: Path) -> None:
    with Spool(0, tmp_path) as spool:
        first, second = spool.store(ARRAYS), spool.store({"matrix": -ARRAYS["matrix"]})
        assert isinstance(first, StoredArrays)
        assert list(first) == list(ARRAYS)
        assert len(first) == 5
        assert "matrix" in first
        assert "other" not in first
        for name, array in ARRAYS.items():
            assert first[name].shape == array.shape
            assert first[name].dtype == array.dtype
            assert np.array_equal(first[name], array)
        assert np.array_equal(second["matrix"], -ARRAYS["matrix"])
        assert spool.store(first) is first
        with pytest.raises(KeyError):
            first["other"]
    assert list(tmp_path.iterdir()) == []


def test_every_access_reads_a_new_array() -> None:
    with Spool(0) as spool:
        stored = spool.store(ARRAYS)
        stored["matrix"][:] = 0
        assert np.array_equal(stored["matrix"], ARRAYS["matrix"])


@pytest.mark.parametrize("name", ["matrix", "turned"])
def test_parts_are_those_of_the_flattened_array(name: str) -> None:
    with Spool(0) as spool:
        for arrays in (ARRAYS, spool.store(ARRAYS)):
            assert part_of(arrays, name, 2, 7).tolist() == ARRAYS[name].reshape(-1)[2:7].tolist()
            assert part_of(arrays, name, 0, 12).tolist() == ARRAYS[name].reshape(-1).tolist()


def test_arrays_stay_in_memory_up_to_the_limit() -> None:
    one = {"values": np.zeros(10, np.float32)}
    with Spool(80) as spool:
        stored = [spool.store(one) for _ in range(3)]
    assert [isinstance(arrays, StoredArrays) for arrays in stored] == [False, False, True]
    assert stored[0]["values"] is one["values"]


def test_arrays_that_share_memory_are_copied() -> None:
    values = np.arange(6, dtype=np.float32)
    with Spool(1 << 10) as spool:
        stored = spool.store({"half": values[:3], "all": values})
    assert stored["all"] is values
    values += 10
    assert stored["half"].tolist() == [0, 1, 2]


def test_memory_and_file_are_used_again_after_clearing(tmp_path: Path) -> None:
    with Spool(40, tmp_path) as spool:
        for number in range(3):
            spool.clear()
            first, second, third = (spool.store({"values": np.full(10, 10 * number + n, np.float32)}) for n in range(3))
            assert not isinstance(first, StoredArrays)
            assert [arrays["values"][9] for arrays in (first, second, third)] == [10 * number + n for n in range(3)]
            assert os.fstat(spool._file.fileno()).st_size == 80


@pytest.mark.parametrize("name", list(ARRAYS))
def test_arrays_are_copied_into_others(name: str) -> None:
    with Spool(0) as spool:
        for arrays in (ARRAYS, spool.store(ARRAYS)):
            for order in ("C", "F"):
                found = np.zeros(ARRAYS[name].shape, ARRAYS[name].dtype, order)
                copy_into(arrays, name, found)
                assert np.array_equal(found, ARRAYS[name])


def test_messages_keep_everything_but_the_place_of_their_arrays() -> None:
    message = Message(
        "update", "a", 2, params=ARRAYS, sums={"s": np.ones(2)}, records={"r": np.ones(1)}, weights={"w": 1.0}
    )
    with Spool(0) as spool:
        stored = spool.store_message(message)
        assert stored.encode() == message.encode()
        assert stored.size_bytes() == message.size_bytes()


def test_a_file_that_ends_early_is_noticed() -> None:
    with Spool(0) as spool:
        stored = spool.store(ARRAYS)
        spool._file.truncate(8)
        with pytest.raises(EOFError, match="ends within matrix"):
            stored["matrix"]
