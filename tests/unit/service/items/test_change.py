from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from silohash.api.runs import open_run
from silohash.base.errors import NotIndexed, SettingNeeded, UserError, WrongKindOfPath
from silohash.base.types import MODALITIES, Modality
from silohash.index.listing import is_indexed, read_listing
from silohash.index.store import Store
from silohash.run.config.load import load_resolved
from silohash.run.folder import Run
from silohash.run.model.node_files import NodeFiles, nodes_folder
from silohash.search.policy import Policy
from silohash.service import logs
from silohash.service.items import change as module
from silohash.service.items.change import BUILDING, ModelChange, Successor, successor_of
from silohash.service.items.indexer import open_indexer
from silohash.service.items.scan import FolderItem
from silohash.service.models import SiloModels
from silohash.training import experiment
from tests.regions import matching_config, write_region_set
from tests.served import write_pictures
from tests.silos import made_up_codes, made_up_node

WORDS = made_up_codes(20, 16, 1)


class Built:
    """A successor whose index is finished when a test says so."""

    def __init__(self, *, alone: bool = False) -> None:
        self.finished, self.is_searched_alone, self.silo = False, alone, "north"
        self.new = SimpleNamespace(index_folder=Path("new"))

    def unready(self, model_digest: str) -> str:
        return "It is still encoding." if model_digest == "new" else ""


class Kept:
    def __init__(self) -> None:
        self.events: list[object] = []

    def follow(self, successor: object) -> None:
        self.events.append(successor)

    def drop_old(self) -> None:
        self.events.append("dropped")


@pytest.fixture
def built() -> Built:
    return Built()


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, built: Built) -> Callable[..., Any]:
    new = made_up_node(tmp_path / "new", "north", WORDS, 16, model="new")
    keeper = Kept()
    monkeypatch.setattr(module, "LAST_QUERY_SECONDS", 0.0)
    monkeypatch.setattr(module, "successor_of", lambda config, policy: built)
    monkeypatch.setattr(module, "open_node", lambda folder, silo, policy, run: new)
    monkeypatch.setattr(ModelChange, "_keep", lambda _: keeper)

    def make(next_run: Path | None, hours: float = 1.0) -> tuple[Any, ...]:
        clock = [0.0]
        old = made_up_node(tmp_path / "old", "north", WORDS, 16, model="old")
        models = SiloModels(old, clock=lambda: clock[0])
        config: Any = SimpleNamespace(items=None, next_run=next_run, keep_old_hours=hours)
        return ModelChange(config, models, ThreadPoolExecutor(1)), models, keeper, clock

    return make


def test_the_new_index_is_opened_and_the_old_one_closed_later(begin: Callable[..., Any], built: Built) -> None:
    change, models, keeper, clock = begin(Path("new"))
    assert keeper.events == [built]
    assert models.unready("new") == "It is still encoding."
    change.look()
    assert [node.model_digest for node in models.nodes] == ["old"]
    built.finished = True
    change.look()
    assert [node.model_digest for node in models.nodes] == ["old", "new"]
    clock[0] = 3_599.0
    change.look()
    assert len(models.nodes) == 2
    oldest = models.nodes[0]
    assert oldest.codes == len(WORDS)
    clock[0] = 3_600.0
    change.look()
    assert oldest.codes == 0, "a closed index does not take memory"
    assert [node.model_digest for node in models.nodes] == ["new"]
    assert keeper.events == [built, "dropped"]
    assert change.successor is None
    change.look()


def test_a_new_run_is_found_in_the_config(
    begin: Callable[..., Any], built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[tuple[str, dict[str, Any]]] = []
    for place in (module, logs):
        monkeypatch.setattr(place, "log_event", lambda event, **fields: logged.append((event, fields)))
    change, _, kept, _ = begin(None)
    change.look()
    assert (change.keeper, change.successor, kept.events) == (None, None, [])

    def broken() -> Any:
        raise UserError("north.toml is not valid.")

    asyncio.run(change.reload(broken))
    assert change.successor is None
    assert [event for event, _ in logged] == ["the config cannot be read again"]
    asyncio.run(change.reload(lambda: SimpleNamespace(next_run=Path("new"), keep_old_hours=1.0)))
    assert (change.successor, kept.events) == (built, [built])
    logged.clear()
    asyncio.run(change.reload(lambda: SimpleNamespace(next_run=Path("newer"), keep_old_hours=1.0)))
    assert kept.events == [built], "one change at a time"
    [(event, fields)] = logged
    assert event == "the config cannot be read again"
    assert "next_run was changed while the silo changes to the model of new" in fields["reason"]


def test_a_change_that_is_over_is_not_begun_again(begin: Callable[..., Any], built: Built) -> None:
    built.is_searched_alone = True
    change, _, keeper, _ = begin(Path("new"))
    assert (change.successor, keeper.events) == (None, [])


def test_a_successor_needs_a_new_run(tmp_path: Path) -> None:
    config: Any = SimpleNamespace(next_run=None)
    with pytest.raises(SettingNeeded):
        successor_of(config, Policy())


FIELDS = ("caption", "labels", "preview")
GO_ON = threading.Event()


def renamed_model(run: Run, folder: Path, digest: str = "new") -> Run:
    """A copy of a run whose model counts as another one."""
    shutil.copytree(run.folder, folder, ignore=shutil.ignore_patterns("index", "checkpoint"))
    path = folder / "model" / "model.json"
    record = json.loads(path.read_text())
    record["model_digests"] = {name: f"{digest}-{name}" for name in record["weights"]}
    path.write_text(json.dumps(record))
    return Run.open(folder)


@pytest.fixture
def old(run: Run, folder: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """The run with the index of an additional silo, to which a program has added one item and hidden another."""
    pictures = write_pictures(tmp_path / "museum", each=2)
    with open_run(run.folder) as opened:
        opened.index(pictures, name=request.node.name)
    indexer = open_indexer(run, request.node.name, folder, FIELDS)
    indexer.add([FolderItem("added", text="red square", stamp="1")])
    indexer.add([FolderItem("red-square-0", stamp="2", deleted=True)])
    indexer.close()
    return run


@pytest.fixture
def successor(old: Run, folder: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Successor:
    return Successor(old, renamed_model(old, tmp_path / "new"), request.node.name, folder=folder, fields=FIELDS)


def contents(folder: Path, modality: str) -> dict[str, tuple[Any, ...]]:
    with Store(folder / f"{modality}.sqlite") as store:
        keys = np.concatenate([np.empty(0, np.int64), *(keys for keys, _ in store.codes())])
        rows = store.rows(keys.tolist())
        previews = store.previews([name for name, _ in rows])
        return {name: (payload, store.words([name]).tolist(), previews.get(name)) for name, payload in rows}


def test_all_items_of_the_archive_are_encoded_again(successor: Successor) -> None:
    before = successor.old.index_folder / successor.silo
    assert successor.unready("new-global").endswith("with the new model.")
    indexer = successor.build(GO_ON)
    assert (successor.finished, indexer.index) == (False, successor.new.folder / BUILDING / successor.silo)
    assert successor.unready("new-global").endswith("with the new model (23 of 23 are done).")
    assert successor.unready("old") == ""
    finished = successor.finish(indexer)
    assert (successor.finished, successor.is_searched_alone) == (True, False)
    for modality in ("image", "text"):
        expected = {name: value for name, value in contents(before, modality).items() if name != "added"}
        for payload, _, _ in expected.values():
            payload.pop("file", None)
        assert contents(successor.index, modality) == expected
        with Store(successor.index / f"{modality}.sqlite") as store:
            assert (store.manifest.model_digest, store.manifest.silo) == ("new-global", successor.silo)
    for name in ("source.json", "archive.json"):
        assert (successor.index / name).read_bytes() == (before / name).read_bytes()
    listing = read_listing(successor.new.index_folder)
    assert listing is not None
    assert listing[successor.silo] == ("image", "text")
    assert not (successor.new.folder / BUILDING / successor.silo).exists()
    finished.close()
    successor.remove_old()
    assert not is_indexed(successor.old.index_folder, successor.silo)
    assert successor.is_searched_alone


def test_an_interrupted_build_goes_on(successor: Successor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_ROWS", 5)
    stopped = threading.Event()
    real = module.Indexer.add_rows
    added: list[int] = []

    def counting(self: Any, archive: Any, rows: Any, modality: Any, fields: Any) -> None:
        before = len(self._stores[modality])
        real(self, archive, rows, modality, fields)
        added.append(len(self._stores[modality]) - before)
        if len(added) == 3:
            stopped.set()

    monkeypatch.setattr(module.Indexer, "add_rows", counting)
    successor.build(stopped).close()
    assert added == [5, 5, 5, 5]
    indexer = successor.build(GO_ON)
    assert added[4:8] == [0, 0, 0, 0]
    assert sum(added) == 46
    indexer.close()


def test_items_that_were_removed_meanwhile_are_left_out(successor: Successor) -> None:
    indexer = successor.build(GO_ON)
    with Store(successor.old.index_folder / successor.silo / "image.sqlite") as store:
        store.remove(["blue-frame-1"])
    with Store(successor.old.index_folder / successor.silo / "text.sqlite") as store:
        store.remove(["blue-frame-1"])
    indexer.add([FolderItem("later", text="blue")])
    successor.finish(indexer).close()
    held = contents(successor.index, "text")
    assert "blue-frame-1" not in held
    assert {"later", "blue-frame-0"} <= held.keys()


def test_items_that_cannot_be_encoded_again_are_logged(
    successor: Successor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    [picture] = (tmp_path / "museum").rglob("*blue-frame-1*.png")
    picture.write_bytes(b"damaged")
    with caplog.at_level("WARNING"):
        successor.finish(successor.build(GO_ON)).close()
    assert "blue-frame-1" not in contents(successor.index, "image")
    entries = [record for record in caplog.records if "are not in the new one" in record.getMessage()]
    assert [entry.getMessage().split()[0] for entry in entries] == ["images", "texts"]
    assert all(vars(entry)["fields"]["items"] == 1 for entry in entries)
    assert all(vars(entry)["fields"]["examples"] == ["blue-frame-1"] for entry in entries)


def test_a_build_of_another_model_is_begun_again(successor: Successor, old: Run, folder: Path, tmp_path: Path) -> None:
    successor.build(GO_ON).close()
    record = successor.new.model_folder / "model.json"
    record.write_text(record.read_text().replace("new-global", "newer-global"))
    again = Successor(old, Run.open(tmp_path / "new"), successor.silo, folder=folder, fields=FIELDS)
    indexer = again.build(GO_ON)
    assert indexer.digest == "newer-global"
    indexer.close()


def test_an_archive_that_is_gone_is_named_and_may_be_elsewhere(
    successor: Successor, old: Run, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "museum").rename(tmp_path / "moved")
    with pytest.raises(WrongKindOfPath, match="museum"):
        successor.build(GO_ON)
    (tmp_path / "moved" / "red-frame-0.png").write_bytes(b"damaged")
    moved = Successor(old, successor.new, successor.silo, folder=folder, fields=FIELDS, archive=tmp_path / "moved")
    indexer = moved.build(GO_ON)
    assert len(contents(indexer.index, "image")) == 22
    indexer.close()


@pytest.mark.whole_run
def test_words_and_regions_are_stored_for_a_model_that_scores_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SILOHASH_DATA", str(write_region_set(tmp_path / "data", pictures=24)))
    first, second = (
        experiment.train(
            load_resolved(matching_config(federated={"rounds": 1, "local_epochs": 1}, train={"learning_rate": rate})),
            tmp_path / f"{rate}",
        )
        for rate in (0.01, 0.02)
    )
    with open_run(first.folder) as opened:
        opened.index()
    successor = Successor(first, second, "silo-1", folder=tmp_path / "items", fields=FIELDS)
    building = second.folder / BUILDING / "silo-1"
    nodes_folder(building, "text").mkdir(parents=True)  # an earlier attempt was interrupted here
    indexer = successor.build(GO_ON)
    indexer.add([FolderItem("added", text="A dog and a cat.", stamp="1")])
    successor.finish(indexer).close()
    built = tmp_path / "built"
    shutil.copytree(successor.index, built)
    with open_run(second.folder) as opened:
        opened.index()
    for modality in MODALITIES:
        with Store(successor.index / f"{modality}.sqlite") as store:
            ids = store.item_ids(np.arange(len(store)))
        found, expected = (of_items(folder, modality, ids) for folder in (built, successor.index))
        assert len(expected) == len(ids)
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(NotIndexed):
        of_items(built, "text", ["added"])


def of_items(folder: Path, modality: Modality, ids: list[str]) -> npt.NDArray[np.generic]:
    """Return the nodes of items of an index."""
    with Store(folder / f"{modality}.sqlite") as store:
        keys = store.keys_of(ids).tolist()
    arrays, position = NodeFiles(nodes_folder(folder, modality)).read(keys)
    return arrays["values"][position]
