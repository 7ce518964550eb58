"""The silos of a run on this machine: opening them with their policies, and removing items."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from silohash.base.errors import DamagedFile, InvalidName, NotIndexed, UnknownName, UserError
from silohash.index.base import IndexManifest
from silohash.index.codes import pack
from silohash.index.listing import LISTING, note_indexed
from silohash.index.source import PictureSource
from silohash.index.store import Store
from silohash.search.hits import Query
from silohash.search.node import SiloNode
from silohash.search.policy import Policy
from silohash.search.silos import open_node, open_nodes, remove_items
from tests.silos import ask, ask_run


def make_store(folder: Path, ids: list[str], modality: str = "text", silo: str | None = None, model: str = "m") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    manifest = IndexManifest(model, 16, modality, silo=folder.name if silo is None else silo)
    with Store.create(folder / f"{modality}.sqlite", manifest) as store:
        store.add(ids, pack(np.ones((len(ids), 16))), [json.dumps({"caption": name * 500}) for name in ids])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    index = tmp_path / "index"
    make_store(index / "north", ["a", "b"])
    make_store(index / "north", ["b", "c"], "image")
    make_store(index / "south", ["a", "d"])
    make_store(index / ".east.123.456.part", ["e"])
    make_store(index / ".east.123.4f-a0.456.old", ["e"])
    (index / "empty").mkdir()
    return index


def list_silos(folder: Path) -> None:
    for silo, held in {"north": ["image", "text"], "south": ["text"], "empty": []}.items():
        note_indexed(folder, silo, held, ["north", "south", "empty"])


def answers(folder: Path, modality: str = "text") -> tuple[list[str], dict[str, str]]:
    """Return the hits as "silo/id" in alphabetical order, and the reasons of the missing silos."""
    query = Query(words=pack(np.ones((1, 16)))[0], bits=16, model_digest="m", target=modality, k=100)
    hits = ask(open_nodes(folder), query)
    return sorted(f"{hit.silo}/{hit.id}" for hit in hits), dict(hits.missing_silos)


def test_opens_complete_indexes_only(folder: Path) -> None:
    nodes = open_nodes(folder)
    assert [node.name for node in nodes] == ["north", "south"]
    assert all(node.policy == Policy() for node in nodes)
    assert set(nodes[0]._loaded) == {"image", "text"}


def test_an_index_with_a_hidden_name_is_refused(folder: Path) -> None:
    for hidden in (folder / ".east", folder / ".east.part", folder / ".1.part"):
        make_store(hidden, ["e"])
        for use in (open_nodes, lambda folder: remove_items(folder, ["a"])):
            with pytest.raises(InvalidName, match=str(hidden.name)):
                use(folder)
        hidden.rename(folder.parent / f"visible{hidden.name}")
    (folder / ".empty").mkdir()
    assert len(open_nodes(folder)) == 2


def test_one_silo_is_opened_without_the_others(folder: Path) -> None:
    shutil.rmtree(folder / "south")
    (folder.parent / "policies").mkdir()
    (folder.parent / "policies" / "north.toml").write_text("max_results = 5")
    node = open_node(folder, "north")
    assert (node.name, node.policy.max_results) == ("north", 5)
    query = Query(words=pack(np.ones((1, 16)))[0], bits=16, model_digest="m", target="item")
    assert sorted(node.answer(query).ids) == ["a", "b", "c"]
    assert open_node(folder, "north", Policy(max_results=7)).policy.max_results == 7
    with pytest.raises(NotIndexed, match="south"):
        open_node(folder, "south")


def test_a_policy_that_needs_a_ledger_keeps_it_in_the_run(folder: Path) -> None:
    policies, place = folder.parent / "policies", folder.parent / "ledger" / "south.sqlite"
    policies.mkdir()
    answers(folder)
    assert not place.parent.exists()
    (policies / "south.toml").write_text("rank_only = true\n")
    place.parent.mkdir()
    place.write_bytes(b"damaged" * 999)
    found, missing = answers(folder)
    assert "north/a" in found
    assert "ledger" in missing["south"], "without its secret the silo does not release anything"
    place.unlink()
    found, missing = answers(folder)
    assert ("south/a" in found, missing, place.exists()) == (True, {}, True)


def test_each_silo_has_its_own_policy(folder: Path) -> None:
    policies = folder.parent / "policies"
    policies.mkdir()
    (policies / "south.toml").write_text("max_results = 3\n")
    north, south = open_nodes(folder)
    assert (north.policy.max_results, south.policy.max_results) == (1000, 3)
    (policies / "nroth.toml").write_text("")
    with pytest.raises(UnknownName, match='did you mean "north"'):
        open_nodes(folder)


def test_says_how_to_build_an_index(tmp_path: Path) -> None:
    for use in (open_nodes, lambda folder: remove_items(folder, ["a"])):
        with pytest.raises(NotIndexed, match=str(tmp_path)):
            use(tmp_path / "index")


def test_the_backend_is_passed_on(folder: Path) -> None:
    pytest.importorskip("faiss")
    assert type(open_nodes(folder, backend="faiss")[0]._loaded["text"].index).__name__ == "FaissIndex"
    assert type(open_nodes(folder)[0]._loaded["text"].index).__name__ == "SmallIndex"


def test_items_are_removed_from_every_modality_of_every_silo(folder: Path) -> None:
    assert remove_items(folder, ["c", "a", "nobody", "c"]) == {"north": ["c", "a"], "south": ["a"]}
    left = {}
    for silo, modality in (("north", "text"), ("north", "image"), ("south", "text")):
        path = folder / silo / f"{modality}.sqlite"
        with Store(path) as store:
            left[silo, modality] = store.item_ids(store.load().keys)
        assert b"aaaa" not in path.read_bytes(), "what was removed is erased from the file"
    assert left == {("north", "text"): ["b"], ("north", "image"): ["b"], ("south", "text"): ["d"]}
    assert remove_items(folder, ["a"]) == {}


def test_all_silos_answer_while_nothing_is_missing(folder: Path) -> None:
    list_silos(folder)
    assert answers(folder) == (["north/a", "north/b", "south/a", "south/d"], {})
    assert answers(folder, "image") == (["north/b", "north/c"], {"south": "It does not have images to search."})


def test_a_deleted_index_is_a_missing_silo(folder: Path) -> None:
    list_silos(folder)
    shutil.rmtree(folder / "south")
    found, missing = answers(folder)
    assert found == ["north/a", "north/b"]
    assert missing == {
        "south": f"Its index {folder / 'south'} does not exist. Index it again, or remove its name from {folder / LISTING} "
        "to search without it."
    }


def test_a_deleted_file_of_one_modality_is_a_missing_silo_of_searches_for_it(folder: Path) -> None:
    list_silos(folder)
    (folder / "north" / "image.sqlite").unlink()
    assert answers(folder)[1] == {}
    found, missing = answers(folder, "image")
    assert found == []
    assert missing["north"] == f"{folder / 'north' / 'image.sqlite'} does not exist. Index the silo again."


def test_a_silo_that_was_never_indexed_is_missing(folder: Path) -> None:
    list_silos(folder)
    note_indexed(folder, "south", ["text"], ["north", "south", "west"])
    assert answers(folder)[1] == {"west": f"It is not indexed. Run: silohash index {folder.parent}"}


def test_without_a_list_the_partition_says_which_silos_there_are(folder: Path) -> None:
    names = [{"name": name} for name in ("north", "south", "empty", "west")]
    (folder.parent / "partition.json").write_text(json.dumps({"silos": names}))
    assert set(answers(folder)[1]) == {"west"}
    (folder.parent / "partition.json").write_text("[]")
    assert answers(folder)[1] == {}


def test_a_copy_under_another_name_does_not_answer_twice(folder: Path) -> None:
    list_silos(folder)
    shutil.rmtree(folder / "south")
    for name in ("south", "west"):
        shutil.copytree(folder / "north", folder / name)
    found, missing = answers(folder)
    assert found == ["north/a", "north/b"]
    assert missing == {
        name: f'The index was built for the silo "north", not for "{name}". Index "{name}" again.'
        for name in ("south", "west")
    }


def test_the_file_of_another_modality_is_not_searched(folder: Path) -> None:
    list_silos(folder)
    (folder / "north" / "text.sqlite").replace(folder / "north" / "image.sqlite")
    found, missing = answers(folder, "image")
    assert found == []
    assert missing["north"].startswith("The index holds text codes instead of image codes.")
    assert "text.sqlite does not exist" in answers(folder)[1]["north"]


def test_an_index_without_the_name_of_its_silo_is_not_searched(folder: Path) -> None:
    shutil.rmtree(folder / "south")
    make_store(folder / "south", ["x"], silo="")
    found, missing = answers(folder)
    assert found == ["north/a", "north/b"]
    assert 'built for the silo "", not for "south"' in missing["south"]


@pytest.mark.parametrize("damage", [b"", b"no database" * 100, None])
def test_a_damaged_silo_does_not_prevent_the_others_from_answering(folder: Path, damage: bytes | None) -> None:
    list_silos(folder)
    path = folder / "south" / "text.sqlite"
    path.write_bytes(path.read_bytes()[:2000] if damage is None else damage)
    found, missing = answers(folder)
    assert found == ["north/a", "north/b"]
    assert "text.sqlite is" in missing["south"]


def test_a_silo_whose_note_on_pictures_is_damaged_is_missing(folder: Path) -> None:
    list_silos(folder)
    (folder / "south" / "source.json").write_text("[]")
    found, missing = answers(folder)
    assert found == ["north/a", "north/b"]
    assert "source.json is damaged" in missing["south"]


def test_a_policy_of_a_missing_silo_is_not_an_error(folder: Path) -> None:
    list_silos(folder)
    shutil.rmtree(folder / "south")
    (folder.parent / "policies").mkdir()
    for name in ("south", "empty"):
        (folder.parent / "policies" / f"{name}.toml").write_text("max_results = 3\n")
    assert set(answers(folder)[1]) == {"south"}


def test_if_all_indexes_are_gone_every_silo_is_missing(folder: Path) -> None:
    list_silos(folder)
    for name in ("north", "south"):
        shutil.rmtree(folder / name)
    found, missing = answers(folder)
    assert (found, set(missing)) == ([], {"north", "south"})
    (folder / LISTING).unlink()
    with pytest.raises(NotIndexed):
        open_nodes(folder)


def test_a_list_of_silos_of_which_none_is_indexed_is_not_an_index(tmp_path: Path) -> None:
    note_indexed(tmp_path, "north", [], ["south"])
    with pytest.raises(NotIndexed):
        open_nodes(tmp_path)


def test_a_backend_that_is_not_installed_is_an_error(folder: Path) -> None:
    with pytest.raises(UnknownName, match="annoy"):
        open_nodes(folder, backend="annoy")


def test_nothing_is_removed_if_an_index_cannot_be_opened(folder: Path) -> None:
    (folder / "south" / "text.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(DamagedFile, match="damaged"):
        remove_items(folder, ["a"])
    assert "north/a" in answers(folder)[0]


class Models:
    """Stand in for a trained model: one model for all silos, or one per silo, each with codes of ones."""

    def __init__(self, digests: dict[str, str]) -> None:
        self.featurizers: dict[str, object] = {}
        self.digests = digests
        self.names = tuple(digests)
        self.personalized = len(digests) > 1
        self.record = SimpleNamespace(spec=SimpleNamespace(scores_pairs=False), calibration={})

    def deployed_by(self, silo: str) -> str:
        return silo if self.personalized else self.names[0]

    def name_of(self, digest: str) -> str:
        for name, known in self.digests.items():
            if known == digest:
                return name
        raise UserError(f'No model of this run has the digest "{digest}".')

    def encoder(self, name: str) -> SimpleNamespace:
        code = SimpleNamespace(words=pack(np.ones((1, 16))), bits=16, model_digest=self.digests[name], magnitudes=None)
        return SimpleNamespace(encode_all=lambda values, text_weight: code)


def run_with(folder: Path, digests: dict[str, str]) -> SimpleNamespace:
    return SimpleNamespace(index_folder=folder, model=Models(digests), data_path=None)


def test_silos_of_one_model_are_merged_by_distance(folder: Path) -> None:
    hits = ask_run(run_with(folder, {"global": "m"}), "words", "text", "text", k=3)
    assert hits.comparable
    assert hits.answered
    assert len(hits) == 3
    assert hits.folders == {}
    again = ask_run(run_with(folder, {"global": "m"}), "words", "text", "text", nodes=open_nodes(folder)[:1])
    assert set(again.silos) == {"north"}


def test_each_silo_is_asked_with_the_code_of_its_own_model(folder: Path) -> None:
    shutil.rmtree(folder / "south")
    make_store(folder / "south", ["d"], model="s")
    make_store(folder / "added", ["e"], model="s")
    make_store(folder / "unknown", ["f"], model="gone")
    hits = ask_run(run_with(folder, {"north": "m", "south": "s"}), "words", "text", "text")
    assert not hits.comparable
    assert set(hits.silos) == {"north", "south", "added"}
    assert hits.missing_silos == {"unknown": 'No model of this run has the digest "gone".'}
    (folder / "added" / "text.sqlite").write_bytes(b"damaged" * 100)
    hits = ask_run(run_with(folder, {"north": "m", "south": "s"}), "words", "text", "text")
    assert list(hits.missing_silos) == ["added", "unknown"]
    assert set(hits.silos) == {"north", "south"}


def test_hits_know_the_folders_of_pictures_on_this_machine(folder: Path, tmp_path: Path) -> None:
    PictureSource(tmp_path / "pictures").write(folder / "north")
    hits = ask_run(run_with(folder, {"global": "m"}), "words", "text", "text")
    assert hits.folders == {"north": (tmp_path / "pictures",)}
    (folder / "north" / "source.json").write_text("[]")
    hits = ask_run(run_with(folder, {"global": "m"}), "words", "text", "text")
    assert (hits.folders, set(hits.missing_silos)) == ({}, {"north"})


def test_prepared_nodes_have_loaded_all_that_queries_need(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = answers(folder)
    prepared = []
    prepare = SiloNode.prepare
    monkeypatch.setattr(SiloNode, "prepare", lambda node: prepared.append(node.name) or prepare(node))
    nodes = open_nodes(folder, prepared=True)
    assert prepared == ["north", "south"]
    query = Query(words=pack(np.ones((1, 16)))[0], bits=16, model_digest="m", target="text", k=100)
    assert sorted(f"{hit.silo}/{hit.id}" for hit in ask(nodes, query)) == plain[0]
