"""Nodes on disk: items share them, they are read by key, and removed items leave nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from silohash.base.errors import DamagedFile, NotIndexed, UserError
from silohash.index.store import Store
from silohash.run.model.node_files import NodeFiles, NodeWriter, forgetting
from tests.silos import made_up_codes, made_up_store

PLACES = np.array([0, 0, 2, 1])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the nodes of four items, of which the first two share theirs, written in two blocks."""
    values = np.arange(24, dtype=np.float16).reshape(3, 4, 2) + 1
    mask = np.ones((3, 4), bool)
    writer = NodeWriter(tmp_path / "image-nodes", PLACES)
    writer.add({"values": values[:2], "mask": mask[:2]})
    writer.add({"values": values[2:], "mask": mask[2:]})
    writer.close()
    return tmp_path / "image-nodes"


def test_nodes_are_read_once_per_picture(folder: Path) -> None:
    files = NodeFiles(folder)
    assert files.most_shared == 2
    arrays, position = files.read([2, 0, 1])
    assert arrays["values"][position, 0, 0].tolist() == [17, 1, 1]
    assert len(arrays["values"]) == len(arrays["mask"]) == 2


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """The index of the four items and of one that was added later, beside their nodes."""
    words = made_up_codes(5, 16, seed=1)
    with made_up_store(tmp_path / "image.sqlite", words, 16, ids=["a", "b", "c", "d", "later"]) as opened:
        yield opened


def test_nodes_of_removed_items_are_overwritten_unless_others_share_them(folder: Path, store: Store) -> None:
    before = np.load(folder / "values.npy")
    with forgetting(store, ["a", "d", "later", "unknown"]):
        store.remove(["a", "d", "later"])
    after = np.load(folder / "values.npy")
    assert (after[[0, 2]] == before[[0, 2]]).all()
    assert not after[1].any()
    with forgetting(store, ["b"]):
        store.add(["b"], made_up_codes(1, 16, seed=2), ["{}"])
    assert not np.load(folder / "values.npy")[0].any(), "an item that is replaced leaves nothing behind"
    with pytest.raises(NotIndexed):
        NodeFiles(folder).read([0])


def test_nodes_stay_if_the_items_could_not_be_removed(folder: Path, store: Store) -> None:
    with pytest.raises(UserError), forgetting(store, ["c"]):
        raise UserError("The disk is full.")
    assert np.load(folder / "values.npy").all()


def test_indexes_without_nodes_have_none_to_forget(tmp_path: Path, store: Store) -> None:
    with forgetting(store, ["a"]):
        store.remove(["a"])
    assert not (tmp_path / "image-nodes").exists()


def test_damaged_files_are_named(folder: Path) -> None:
    np.save(folder / "values.npy", np.zeros((1, 4, 2), np.float16))
    with pytest.raises(NotIndexed, match="3"):
        NodeFiles(folder)
    (folder / "values.npy").write_bytes(b"nothing")
    with pytest.raises(DamagedFile, match=r"values\.npy"):
        NodeFiles(folder)


def test_keys_that_were_never_written_are_refused(folder: Path) -> None:
    with pytest.raises(NotIndexed, match="missing"):
        NodeFiles(folder).read([4])
