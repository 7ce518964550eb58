"""The silos of a run on this machine: opening them with their policies, and removing items."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from silohash.index.base import IndexManifest
from silohash.index.codes import pack
from silohash.index.store import Store
from silohash.search.policy import Policy
from silohash.search.silos import open_nodes, remove_items
from silohash.types import UserError


def make_store(folder: Path, ids: list[str], modality: str = "text") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    manifest = IndexManifest(model_digest="m", bits=16, modality=modality)
    with Store.create(folder / f"{modality}.sqlite", manifest) as store:
        store.add(ids, pack(np.ones((len(ids), 16))), [json.dumps({"caption": name * 500}) for name in ids])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    index = tmp_path / "index"
    make_store(index / "north", ["a", "b"])
    make_store(index / "north", ["b", "c"], "image")
    make_store(index / "south", ["a", "d"])
    make_store(index / ".east.123.part", ["e"])
    (index / "empty").mkdir()
    return index


def test_opens_complete_indexes_only(folder: Path) -> None:
    nodes = open_nodes(folder)
    assert [node.name for node in nodes] == ["north", "south"]
    assert all(node.policy == Policy() for node in nodes)
    assert set(nodes[0]._sides) == {"image", "text"}


def test_each_silo_has_its_own_policy(folder: Path) -> None:
    policies = folder.parent / "policies"
    policies.mkdir()
    (policies / "south.toml").write_text("max_results = 3\n")
    north, south = open_nodes(folder)
    assert (north.policy.max_results, south.policy.max_results) == (1000, 3)
    (policies / "nroth.toml").write_text("")
    with pytest.raises(UserError, match='did you mean "north"'):
        open_nodes(folder)


def test_says_how_to_build_an_index(tmp_path: Path) -> None:
    for use in (open_nodes, lambda folder: remove_items(folder, ["a"])):
        with pytest.raises(UserError, match=f"silohash index {tmp_path}"):
            use(tmp_path / "index")


def test_the_engine_is_passed_on(folder: Path) -> None:
    pytest.importorskip("faiss")
    assert type(open_nodes(folder, engine="faiss")[0]._sides["text"].index).__name__ == "FaissIndex"
    assert type(open_nodes(folder)[0]._sides["text"].index).__name__ == "SmallIndex"


def test_items_are_removed_from_every_modality_of_every_silo(folder: Path) -> None:
    assert remove_items(folder, ["c", "a", "nobody", "c"]) == {"north": ["c", "a"], "south": ["a"]}
    left = {}
    for silo, modality in (("north", "text"), ("north", "image"), ("south", "text")):
        path = folder / silo / f"{modality}.sqlite"
        with Store.open(path) as store:
            left[silo, modality] = store.item_ids(store.load().keys)
        assert b"aaaa" not in path.read_bytes(), "what was removed is erased from the file"
    assert left == {("north", "text"): ["b"], ("north", "image"): ["b"], ("south", "text"): ["d"]}
    assert remove_items(folder, ["a"]) == {}
