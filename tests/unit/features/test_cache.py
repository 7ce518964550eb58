from __future__ import annotations

import errno
import threading
import time

import numpy as np
import pytest

from silohash.base.cache import cache_folder
from silohash.base.errors import UserError
from silohash.base.files import digest_bytes
from silohash.base.locks import locked
from silohash.features.cache import BLOCK_ITEMS, NetworkVectors, PixelCache
from silohash.features.image import PixelFeatures
from tests.archives import DrawnPictures, drawn_pictures

ALL = np.arange(100)


class Counted:
    """Pictures that count how often they are decoded."""

    def __init__(self, inner: DrawnPictures) -> None:
        self.inner, self.decoded = inner, 0

    def __len__(self):
        return len(self.inner)

    def picture(self, row):
        self.decoded += 1
        return self.inner.picture(row)

    def digest(self):
        return self.inner.digest()


@pytest.fixture
def said():
    return []


@pytest.fixture
def features(tmp_path, said):
    return PixelFeatures(8, 3, cache=PixelCache(tmp_path / "pixels", said.append))


def uncached(pictures):
    return PixelFeatures(8, 3, cache=None).transform(pictures, ALL)


def test_pictures_are_decoded_once(features):
    pictures = Counted(drawn_pictures(100))
    first = features.transform(pictures, ALL)
    assert pictures.decoded == 100
    np.testing.assert_array_equal(features.transform(pictures, ALL[::-1]), first[::-1])
    features.statistics(pictures, ALL[:70])
    assert pictures.decoded == 100
    np.testing.assert_array_equal(first, uncached(drawn_pictures(100)))


def test_other_pictures_and_other_sizes_have_their_own_entry(features, tmp_path):
    features.transform(drawn_pictures(100), ALL)
    np.testing.assert_array_equal(
        features.transform(drawn_pictures(100, seed=1), ALL), uncached(drawn_pictures(100, seed=1))
    )
    PixelFeatures(9, 3, cache=features.cache).transform(drawn_pictures(100), ALL)
    assert len(list((tmp_path / "pixels").iterdir())) == 3


def test_few_pictures_are_not_worth_an_entry(features, tmp_path):
    pictures = Counted(drawn_pictures(100))
    features.transform(pictures, ALL[:10])
    assert pictures.decoded == 10
    assert not (tmp_path / "pixels").exists()


@pytest.mark.parametrize("name", ["pixels.npy", "readable.npy", "about.json"])
@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_a_damaged_entry_is_made_anew(features, tmp_path, said, name, damage, monkeypatch):
    pictures = Counted(drawn_pictures(100))
    features.transform(pictures, ALL)
    (entry,) = (tmp_path / "pixels").iterdir()
    path = entry / name
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(content[:-40] if damage == "cut" else content[:-1] + bytes([content[-1] ^ 1]))
    monkeypatch.setattr("silohash.features.cache._checked", {})
    np.testing.assert_array_equal(features.transform(pictures, ALL), uncached(drawn_pictures(100)))
    assert pictures.decoded == 200
    assert "damaged" in said[0]
    features.transform(pictures, ALL)
    assert pictures.decoded == 200


def test_a_full_disk_is_said_and_survived(features, tmp_path, said, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("silohash.features.cache._write", full)
    np.testing.assert_array_equal(features.transform(drawn_pictures(100), ALL), uncached(drawn_pictures(100)))
    assert "Continuing without a cache" in said[0]
    assert "disk is full" in said[0]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_survived(tmp_path, said):
    (tmp_path / "file").write_text("in the way")
    features = PixelFeatures(8, 3, cache=PixelCache(tmp_path / "file" / "pixels", said.append))
    np.testing.assert_array_equal(features.transform(drawn_pictures(100), ALL), uncached(drawn_pictures(100)))
    assert "Continuing without a cache" in said[0]


def test_the_environment_names_the_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("SILOHASH_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    assert PixelCache().folder == tmp_path / "pixels"


def test_a_picture_that_could_not_be_read_once_may_come_back(features):
    class Flaky(DrawnPictures):
        there = False

        def picture(self, row):
            if row == 3 and not self.there:
                raise OSError("the network folder is away")
            return super().picture(row)

    pictures = Flaky(drawn_pictures(100).drawn)
    rest = np.delete(ALL, 3)
    np.testing.assert_array_equal(features.transform(pictures, rest), uncached(drawn_pictures(100))[rest])
    Flaky.there = True
    np.testing.assert_array_equal(features.transform(pictures, ALL), uncached(drawn_pictures(100)))


def test_an_entry_that_another_process_decodes_is_waited_for(tmp_path, said):
    """The other process has the entry's lock; when it lets go, its entry is taken, and nothing is decoded again."""
    first = PixelFeatures(8, 3, cache=PixelCache(tmp_path / "pixels", said.append))
    first.transform(drawn_pictures(100), ALL)
    (entry,) = (tmp_path / "pixels").iterdir()
    entry.rename(tmp_path / "done")
    started, pictures = threading.Event(), Counted(drawn_pictures(100))

    def decode_elsewhere():
        with locked(tmp_path / "pixels" / f".{entry.name}"):
            started.set()
            while not said:
                time.sleep(0.01)
            (tmp_path / "done").rename(entry)

    thread = threading.Thread(target=decode_elsewhere)
    thread.start()
    started.wait()
    first.transform(pictures, ALL)
    thread.join()
    assert pictures.decoded == 0
    assert len(said) == 1
    assert said[0].startswith("Waiting for process ")
    assert [path.name for path in (tmp_path / "pixels").iterdir()] == [entry.name]


@pytest.mark.parametrize(("count", "lines"), [(1_999, 0), (2_000, 1)])
def test_a_long_decoding_is_reported(tmp_path, said, count, lines):
    found = PixelCache(tmp_path, said.append).decoded(
        "key", (count, 1, 1, 1), lambda row: np.full((1, 1, 1), row % 256, np.uint8)
    )
    assert found.readable.all()
    assert found.pixels[:, 0, 0, 0].tolist() == [row % 256 for row in range(count)]
    assert said == ["Decoding 2,000 pictures; the result is kept for later runs ..."] * lines


def test_pictures_that_cannot_be_decoded_are_zero(tmp_path, said):
    def draw(row):
        if row == 1:
            raise UserError("damaged")
        return np.full((3, 2, 2), 9, np.uint8)

    found = PixelCache(tmp_path, said.append).decoded("key", (3, 3, 2, 2), draw)
    assert found.readable.tolist() == [True, False, True]
    assert found.pixels.sum(axis=(1, 2, 3)).tolist() == [108, 0, 108]


def test_an_entry_of_another_shape_is_decoded_again(tmp_path, said, monkeypatch):
    for shape in ((2, 1, 2, 2), (2, 1, 4, 4)):
        monkeypatch.setattr("silohash.features.cache._checked", {})
        found = PixelCache(tmp_path, said.append).decoded(
            "key", shape, lambda row, shape=shape: np.ones(shape[1:], np.uint8)
        )
        assert found.pixels.shape == shape
    assert "damaged" in said[0]


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

    monkeypatch.setattr("silohash.features.cache.files.write_arrays", full)
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
