"""Nodes on disk: items share them, they are read by key, and removed items leave nothing behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from silohash.encode.node_files import NodeFiles, NodeWriter, forget_nodes
from silohash.types import UserError

PLACES = np.array([0, 0, 2, 1])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the nodes of four items, of which the first two share theirs, written in two blocks."""
    values = np.arange(24, dtype=np.float16).reshape(3, 4, 2) + 1
    mask = np.ones((3, 4), bool)
    writer = NodeWriter(tmp_path / "nodes", PLACES)
    writer.add({"values": values[:2], "mask": mask[:2]})
    writer.add({"values": values[2:], "mask": mask[2:]})
    writer.close()
    return tmp_path / "nodes"


def test_nodes_are_read_once_per_picture(folder: Path) -> None:
    files = NodeFiles(folder)
    assert files.most_shared == 2
    arrays, position = files.read([2, 0, 1])
    assert arrays["values"][position, 0, 0].tolist() == [17, 1, 1]
    assert len(arrays["values"]) == len(arrays["mask"]) == 2


def test_nodes_of_removed_items_are_overwritten_unless_others_share_them(folder: Path) -> None:
    before = np.load(folder / "values.npy")
    forget_nodes(folder, [0, 3])
    after = np.load(folder / "values.npy")
    assert (after[[0, 2]] == before[[0, 2]]).all()
    assert not after[1].any()
    forget_nodes(folder, [1])
    assert not np.load(folder / "values.npy")[0].any()
    with pytest.raises(UserError, match="Index the silo again"):
        NodeFiles(folder).read([0])


def test_folders_without_nodes_have_none_to_forget(tmp_path: Path) -> None:
    forget_nodes(tmp_path / "nodes", [0])
    assert not list(tmp_path.iterdir())


def test_damaged_files_are_named(folder: Path) -> None:
    np.save(folder / "values.npy", np.zeros((1, 4, 2), np.float16))
    with pytest.raises(UserError, match="does not hold the nodes of all 3 items"):
        NodeFiles(folder)
    (folder / "values.npy").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"values\.npy"):
        NodeFiles(folder)


def test_keys_that_were_never_written_are_refused(folder: Path) -> None:
    with pytest.raises(UserError, match="missing"):
        NodeFiles(folder).read([4])
