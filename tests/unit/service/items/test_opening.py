from __future__ import annotations

from pathlib import Path

import pytest

from silohash.index.listing import read_listing
from silohash.run.folder import Run
from silohash.search.silos import open_node
from silohash.service.items.opening import encoder_of, open_indexer, prepare_index
from silohash.service.items.scan import FolderItem


def test_a_silo_without_an_index_gets_an_empty_one(run: Run, folder: Path) -> None:
    prepare_index(run, "new")
    prepare_index(run, "new")
    listing = read_listing(run.index_folder)
    assert listing is not None
    assert listing["new"] == ("image", "text")
    node = open_node(run.index_folder, "new")
    assert node.model_digest == run.model.digest("global")
    indexer = open_indexer(run, "new", folder, ("caption",))
    indexer.add([FolderItem("a", text="red square", labels=("red",))])
    assert indexer.index == run.index_folder / "new"
    assert node.captions(10) == []
    assert len(node.loaded("text").index) == 1
    assert node.loaded("text").store.payloads(node.loaded("text").index.keys) == [{"caption": "red square"}]
    indexer.close()
    node.close()


def test_the_model_of_a_silo_is_its_own_or_that_of_its_index(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert encoder_of(run, "silo-0").digest == run.model.digest("global")
    monkeypatch.setattr(type(run.model), "personalized", True)
    prepare = run.index_folder / "silo-1" / "text.sqlite"
    assert prepare.exists()
    assert encoder_of(run, "silo-1").digest == run.model.digest("global")
