from __future__ import annotations

import errno

import numpy as np
import pytest

from silohash.base.files import digest_bytes
from silohash.features.vector_cache import BLOCK_ITEMS, NetworkVectors

WIDTH = 3


def digests(*numbers: int) -> list[str]:
    return [digest_bytes(str(number).encode()) for number in numbers]


def vectors(*numbers: int) -> np.ndarray:
    return np.array([[number, number / 2, -number] for number in numbers], np.float32)


def opened(folder, **options) -> tuple[NetworkVectors, list[str]]:
    said: list[str] = []
    return NetworkVectors(folder / "key", WIDTH, notify=said.append, **options), said


def filled(folder, count: int = 2 * BLOCK_ITEMS + 10, *, flush: bool = True) -> None:
    cache, _ = opened(folder)
    cache.add(digests(*range(count)), vectors(*range(count)))
    if flush:
        cache.flush()


def test_vectors_come_back_in_any_order(tmp_path):
    filled(tmp_path)
    cache, said = opened(tmp_path)
    wanted = (1030, 0, 511, 512, 0)
    assert cache.missing(digests(*wanted)) == []
    np.testing.assert_array_equal(cache.take(digests(*wanted)), vectors(*wanted))
    assert not said


def test_only_what_is_new_is_lacking_and_each_content_once(tmp_path):
    filled(tmp_path, 20)
    cache, _ = opened(tmp_path)
    assert cache.missing(digests(5, 21, 6, 22, 21)) == [1, 3]


def test_a_run_that_is_cut_off_loses_less_than_a_block(tmp_path):
    filled(tmp_path, 2 * BLOCK_ITEMS + 10, flush=False)
    cache, _ = opened(tmp_path)
    assert cache.missing(digests(*range(2 * BLOCK_ITEMS + 10))) == [2 * BLOCK_ITEMS + n for n in range(10)]


def test_what_is_not_yet_written_can_be_taken(tmp_path):
    cache, _ = opened(tmp_path)
    cache.add(digests(1, 2), vectors(1, 2))
    assert cache.missing(digests(1, 2)) == []
    np.testing.assert_array_equal(cache.take(digests(2, 1)), vectors(2, 1))


@pytest.mark.parametrize("damage", ["cut", "changed", "emptied"])
def test_a_damaged_block_is_made_anew(tmp_path, damage):
    filled(tmp_path, BLOCK_ITEMS + 5)
    block = max((tmp_path / "key").iterdir(), key=lambda path: path.stat().st_size)
    content = bytearray(block.read_bytes())
    content[-1] ^= 1
    block.write_bytes({"cut": content[:-7], "changed": content, "emptied": b""}[damage])
    cache, said = opened(tmp_path)
    numbers = range(BLOCK_ITEMS + 5)
    assert cache.missing(digests(*numbers)) == list(range(BLOCK_ITEMS))
    assert "damaged" in said[0]
    cache.add(digests(*range(BLOCK_ITEMS)), vectors(*range(BLOCK_ITEMS)))
    again, said = opened(tmp_path)
    assert again.missing(digests(*numbers)) == []
    np.testing.assert_array_equal(again.take(digests(*numbers)), vectors(*numbers))
    assert not said


def test_a_full_disk_is_no_end(tmp_path, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("silohash.features.vector_cache.write_arrays", full)
    cache, said = opened(tmp_path)
    numbers = range(2 * BLOCK_ITEMS + 3)
    cache.add(digests(*numbers), vectors(*numbers))
    cache.flush()
    assert cache.missing(digests(*numbers)) == []
    np.testing.assert_array_equal(cache.take(digests(*numbers)), vectors(*numbers))
    assert said == ["Continuing without a cache of vectors: [Errno 28] No space left on device"]


def test_another_process_adds_blocks(tmp_path):
    mine, _ = opened(tmp_path)
    assert mine.missing(digests(0)) == [0]
    filled(tmp_path, 4)
    assert mine.missing(digests(0, 3)) == []
    np.testing.assert_array_equal(mine.take(digests(3)), vectors(3))


def test_half_takes_half_the_space(tmp_path):
    cache, _ = opened(tmp_path, half=True)
    cache.add(digests(1), np.array([[0.1, 1e9, 1 / 3]], np.float32))
    cache.flush()
    found, _ = opened(tmp_path, half=True)
    assert found.missing(digests(1)) == []
    np.testing.assert_array_equal(found.take(digests(1)), np.float32(np.float16([[0.1, 65_504, 1 / 3]])))


def test_vectors_of_another_width_are_not_taken(tmp_path):
    filled(tmp_path, 4)
    other = NetworkVectors(tmp_path / "key", WIDTH + 1, notify=lambda line: None)
    assert other.missing(digests(0)) == [0]
