from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from silohash.base.errors import CannotEncode, IndexDiffers, ModelsDiffer, UserError
from silohash.index.listing import read_listing
from silohash.index.store import Store
from silohash.run.folder import Run
from silohash.run.model.node_files import NodeWriter, nodes_folder
from silohash.search.silos import open_node
from silohash.service.items import indexer as module
from silohash.service.items.indexer import Change, Indexer, archive_of, encoder_of, open_indexer, prepare_index
from silohash.service.items.ledger import LEDGER, Entry, Ledger
from silohash.service.items.scan import FolderItem, Scan
from tests.served import drawn, png

FIELDS = ("caption", "labels", "preview", "file")


@pytest.fixture
def indexer(run: Run, folder: Path, tmp_path: Path) -> Iterator[Indexer]:
    opened = Indexer(tmp_path / "index", "dock", folder, encoder_of(run, "dock"), FIELDS)
    yield opened
    opened.close()


def item(folder: Path, name: str, text: str = "red square", *, picture: bytes = b"", stamp: str = "1") -> FolderItem:
    if picture:
        (folder / f"{name}.png").write_bytes(picture)
    return FolderItem(name, f"{name}.png" if picture else "", text, ("red", "shape"), stamp)


def update(
    indexer: Indexer, *items: FolderItem, complete: bool = True, waiting: tuple[str, ...] = (), again: bool = False
) -> Change:
    scan = Scan({each.id: each for each in items}, set(waiting), complete=complete)
    return indexer.update(scan, indexer.ledger.stamps(again=again), lambda each: True, threading.Event())


def stored(indexer: Indexer, modality: str) -> dict[str, dict[str, object]]:
    with Store(indexer.index / f"{modality}.sqlite") as store:
        keys = np.concatenate([np.empty(0, np.int64), *(keys for keys, _ in store.codes())])
        return dict(store.rows(keys.tolist()))


def test_items_get_the_codes_that_the_model_gives_them(indexer: Indexer, run: Run, folder: Path) -> None:
    both, text = item(folder, "both", picture=png(drawn("red", "square"))), item(folder, "text", "blue frame")
    picture = item(folder, "picture", "", picture=png(drawn("blue", "frame")))
    assert update(indexer, both, text, picture) == Change(added=3)
    encoder = run.model.encoder()
    for modality, values in {
        "image": {"both": drawn("red", "square"), "picture": drawn("blue", "frame")},
        "text": {"both": "red square", "text": "blue frame"},
    }.items():
        assert stored(indexer, modality).keys() == values.keys()
        with Store(indexer.index / f"{modality}.sqlite") as store:
            assert (store.manifest.model_digest, store.manifest.silo) == (indexer.digest, "dock")
            for name, value in values.items():
                assert (store.words([name]) == encoder.encode(value, modality).words).all()
            found = store.magnitudes()
            assert found is not None
            expected = [encoder.encode(value, modality).magnitudes for value in values.values()]
            np.testing.assert_allclose(found[1], np.concatenate(expected), atol=1)  # a batch may round otherwise
    assert stored(indexer, "image")["both"] == {"caption": "red square", "labels": ["red", "shape"]}
    with Store(indexer.index / "image.sqlite") as store:
        assert store.previews(["both"])["both"][:2] == b"\xff\xd8"
    with Store(indexer.index / "text.sqlite") as store:
        assert store.previews(["both", "text"]) == {}


def test_what_changes_or_goes_is_replaced_and_removed(indexer: Indexer, folder: Path) -> None:
    first, second = item(folder, "a", picture=png()), item(folder, "b")
    update(indexer, first, second)
    assert update(indexer, first, second) == Change()
    changed = item(folder, "a", "blue", stamp="2")
    assert update(indexer, changed, second) == Change(added=1)
    assert indexer.has("a") == ("text",)
    assert stored(indexer, "text")["a"]["caption"] == "blue"
    assert update(indexer, second, waiting=("a",)) == Change(), (
        "a file that is being written is neither added nor removed"
    )
    assert update(indexer, second, complete=False) == Change(), "an incomplete look removes nothing"
    assert update(indexer, second) == Change(removed=1)
    assert (indexer.has("a"), indexer.ledger.entry("a")) == ((), None)


def test_words_of_items_that_are_replaced_or_removed_are_overwritten(indexer: Indexer, folder: Path) -> None:
    update(indexer, item(folder, "a"), item(folder, "b"), item(folder, "c"))
    with Store(indexer.index / "text.sqlite") as store:
        of_a, of_b, of_c = store.keys_of(["a", "b", "c"]).tolist()
    writer = NodeWriter(nodes_folder(indexer.index, "text"), np.arange(3))
    writer.add({"values": np.ones((3, 2, 4), np.float16)})
    writer.close()
    update(indexer, item(folder, "a", "blue", stamp="2"), item(folder, "c"))
    values = np.load(nodes_folder(indexer.index, "text") / "values.npy")
    assert [bool(values[key].any()) for key in (of_a, of_b, of_c)] == [False, False, True]


def test_damaged_items_are_skipped_until_they_change(indexer: Indexer, folder: Path) -> None:
    damaged = item(folder, "damaged", picture=png()[:90])
    unknown, good = item(folder, "unknown", "zzz"), item(folder, "good", picture=png())
    assert update(indexer, damaged, unknown, good) == Change(added=1, skipped=2)
    assert (indexer.has("good"), indexer.has("damaged")) == (("image", "text"), ())
    entry, other = indexer.ledger.entry("damaged"), indexer.ledger.entry("unknown")
    assert entry is not None
    assert other is not None
    assert (entry.state, other.problem) == ("skipped", "its text does not contain a word that the model knows")
    assert "damaged.png can no longer be read" in entry.problem
    assert update(indexer, damaged, unknown, good) == Change()
    assert update(indexer, item(folder, "damaged", picture=png(), stamp="2"), unknown, good) == Change(added=1)


def test_items_that_could_not_be_read_are_tried_again(
    indexer: Indexer, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The stamps remain the same, as after an error of the disk, which does not change the file."""
    fails, recovers = (item(folder, name, picture=png()[:90]) for name in ("fails", "recovers"))
    assert update(indexer, fails, recovers) == Change(skipped=2)
    (folder / "recovers.png").write_bytes(png())
    assert update(indexer, fails, recovers) == Change(), "not whenever something changes"
    caplog.clear()
    assert update(indexer, fails, recovers, again=True) == Change(added=1)
    assert (indexer.has("recovers"), indexer.has("fails")) == (("image", "text"), ())
    assert caplog.records == [], "the reason is logged once"
    assert indexer.ledger.counts() == {"indexed": 1, "skipped": 1}
    (folder / "fails.png").unlink()
    assert update(indexer, fails, recovers, again=True) == Change(skipped=1), "for another reason"
    entry = indexer.ledger.entry("fails")
    assert entry is not None
    assert "No such file" in entry.problem


def test_items_of_the_first_indexing_are_replaced_and_hidden(indexer: Indexer, folder: Path) -> None:
    indexer.add([item(folder, "a"), item(folder, "b")])
    indexer.ledger.forget(["a", "b"])  # as if ``silohash index`` had added them
    indexer.add([item(folder, "a", "blue")])
    entry = indexer.ledger.entry("a")
    assert entry is not None
    assert entry.replaced
    assert indexer.add([FolderItem("b", stamp="3", deleted=True)]) == Change(removed=1)
    assert indexer.has("b") == ()
    assert indexer.ledger.stamps()["b"] == "3"


def test_an_interrupted_batch_is_completed(indexer: Indexer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    each = item(folder, "a", picture=png())

    def killed(self: Store, *_: object) -> None:
        raise UserError("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(indexer._stores["text"], "add_codes", killed.__get__(indexer._stores["text"]))
        with pytest.raises(UserError):
            update(indexer, each)
    assert indexer.has("a") == ("image",)
    assert update(indexer, each) == Change(added=1)
    assert indexer.has("a") == ("image", "text")
    indexer.ledger.write([Entry("a", "1", "pending")])
    assert update(indexer) == Change(removed=1), "an item that vanished while it was pending is removed"
    assert indexer.has("a") == ()


def test_items_that_programs_changed_meanwhile_are_left_alone(indexer: Indexer, folder: Path) -> None:
    indexer.add([item(folder, "a", "blue", stamp="2")])
    scan = Scan({"a": item(folder, "a")})
    assert indexer.update(scan, {"a": ""}, lambda each: False, threading.Event()) == Change()
    assert indexer.update(Scan(), {"a": "2"}, lambda each: False, threading.Event()) == Change()
    assert indexer.update(Scan(), {}, lambda each: True, threading.Event()) == Change(), "added after the scan"
    assert stored(indexer, "text")["a"]["caption"] == "blue"
    stopped = threading.Event()
    stopped.set()
    assert indexer.update(scan, {"a": ""}, lambda each: True, stopped) == Change()


def test_a_long_log_is_compacted(indexer: Indexer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LOG_ENTRIES", 3)
    for number in range(4):
        indexer.add([item(folder, f"{number}")])
    indexer.compact()
    with Store(indexer.index / "text.sqlite") as store:
        assert store.version()[1:] == (1, 4)
    assert len(stored(indexer, "text")) == 4


def test_an_index_of_another_model_is_refused(run: Run, folder: Path, tmp_path: Path, indexer: Indexer) -> None:
    encoder = encoder_of(run, "dock")
    encoder.digest = "another"
    with pytest.raises(ModelsDiffer, match="another"):
        Indexer(tmp_path / "index", "dock", folder, encoder, FIELDS)
    encoder.label_sides = ("database",)
    with pytest.raises(CannotEncode, match=r"cannot.*added.*because"):
        Indexer(tmp_path / "index", "dock", folder, encoder, FIELDS)
    with pytest.raises(IndexDiffers, match="dock"):
        Indexer(tmp_path / "index", "north", folder, encoder_of(run, "dock"), FIELDS)


def test_items_are_an_archive(folder: Path) -> None:
    archive = archive_of(folder, [item(folder, "a", "", picture=png()), FolderItem("b", text="blue")])
    assert archive.ids.tolist() == ["a", "b"]
    assert (archive.has_image.tolist(), archive.has_text.tolist()) == ([True, False], [False, True])
    assert (archive.labels_of(0), archive.labels_of(1), archive.caption(1)) == (["red", "shape"], [], "blue")


def test_the_ledger_is_beside_the_index(indexer: Indexer) -> None:
    assert isinstance(indexer.ledger, Ledger)
    assert (indexer.index / LEDGER).is_file()
    assert indexer.modalities == ("image", "text")


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
