"""The silos of a run on this machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from silohash.index.base import IndexManifest
from silohash.index.codes import pack
from silohash.index.store import Store
from silohash.search.silos import open_nodes
from silohash.types import UserError


def make_store(folder: Path) -> None:
    folder.mkdir(parents=True)
    with Store.create(folder / "text.sqlite", IndexManifest(model_digest="m", bits=16, modality="text")) as store:
        store.add(["a"], pack(np.ones((1, 16))))


def test_opens_whole_indexes_only(tmp_path: Path) -> None:
    for name in ("north", "south", ".east.123.part"):
        make_store(tmp_path / name)
    (tmp_path / "empty").mkdir()
    assert [node.name for node in open_nodes(tmp_path)] == ["north", "south"]


def test_says_how_to_make_an_index(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="silohash index"):
        open_nodes(tmp_path / "index")
