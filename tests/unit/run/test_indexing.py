"""Indexes of a run: every silo's items with the codes of the model that it deploys, and what is stored with them."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from silohash.base.errors import (
    AlreadyExists,
    ChoiceNeeded,
    InvalidName,
    NoEffect,
    NothingUsable,
    UnknownName,
    UserError,
)
from silohash.base.types import MODALITIES, Modality
from silohash.data.archive import Archive, ArchiveCard
from silohash.data.formats.folder import read_folder
from silohash.data.formats.native import read_native, write_native
from silohash.data.partitions.base import SiloRows
from silohash.data.pictures.reading import PictureFiles
from silohash.features.base import Featurizer
from silohash.features.given import GivenFeatures
from silohash.features.text import BagOfWords
from silohash.index.base import FIELDS
from silohash.index.config import IndexConfig, write_index_config
from silohash.index.listing import read_listing
from silohash.index.source import PictureSource
from silohash.index.store import Store
from silohash.run import indexing
from silohash.run.folder import Run
from silohash.run.indexing import (
    MOST_CHARACTERS,
    NOTE,
    cannot_encode,
    check_added,
    display_text,
    doubled_sentence,
    encodable_rows,
    held_out_sentence,
    index_run,
    indexed_rows,
    left_out,
    note_added,
    payload_of,
)
from tests.runs import train, write_archive, write_metadata

COUNT = 48


class Squares:
    """One gray square per item. Every fifth picture cannot be read."""

    def __len__(self) -> int:
        return COUNT

    def picture(self, row: int) -> Image.Image:
        if row % 5 == 0:
            raise [UserError, OSError, ValueError][row // 5 % 3]("broken")
        return Image.new("L", (2, 2), row)

    def digest(self) -> str:
        return "squares"


@pytest.fixture(autouse=True)
def _readable_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let stores load the engine that gives its codes back, for few items as well."""
    monkeypatch.setattr("silohash.index.store.SMALL_ITEMS", -1)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run whose silos deploy one model."""
    folder = tmp_path_factory.mktemp("indexing")
    archive = write_archive(folder / "archive", count=COUNT, text="words")
    return train(archive, folder / "run", federated={"rounds": 1})


@pytest.fixture(scope="module")
def personal(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run in which every silo deploys a personal model."""
    folder = tmp_path_factory.mktemp("personal")
    archive = write_archive(folder / "archive", count=COUNT, text="words")
    return train(archive, folder / "run", federated={"name": "local", "rounds": 1})


@pytest.fixture
def run(trained: Run, tmp_path: Path) -> Run:
    """The run with an empty folder for indexes, and with pictures to show."""
    return elsewhere(trained, tmp_path, archive=replace(trained.archive, preview=Squares()))


def elsewhere(trained: Run, folder: Path, **changes: object) -> Run:
    """Return a run in another folder, with the model, the partition and the archive of a trained run."""
    run = Run(folder, trained.resolved)
    known = {
        "model": trained.model,
        "stored_partition": trained.partition,
        "partition": trained.partition,
        "archive": trained.archive,
    }
    run.__dict__.update(known | changes)
    return run


def stored(run: Run, silo: str, modality: Modality) -> tuple[list[str], list[list[int]], list[dict], dict[str, bytes]]:
    """Return the ids, codes, payloads and previews of an index."""
    with Store(run.index_folder / silo / f"{modality}.sqlite") as store:
        index = store.load()
        ids = store.item_ids(index.keys)
        return ids, index.words(index.keys).tolist(), store.payloads(index.keys), store.previews(ids)


def gray(preview: bytes) -> object:
    return Image.open(io.BytesIO(preview)).getpixel((0, 0))


@pytest.mark.whole_run
@pytest.mark.parametrize("block", [1, 4, 50_000])
def test_an_index_holds_its_silos_database(run: Run, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "BLOCK_ROWS", block)
    lines: list[str] = []
    counts = index_run(run, notify=lines.append)
    encoder, archive = run.model.encoder(), run.archive
    for silo in run.partition.silos:
        rows = silo.split(archive, "database")
        assert counts[silo.name] == len(rows) > 4
        for modality in MODALITIES:
            ids, words, payloads, previews = stored(run, silo.name, modality)
            codes = encoder.codes(archive, rows, modality)
            assert ids == archive.ids[rows].tolist()
            assert words == codes.words.tolist()
            assert payloads == [{"caption": str(archive.text[r]), "labels": archive.labels_of(int(r))} for r in rows]
            readable = {str(archive.ids[r]): int(r) for r in rows if r % 5} if modality == "image" else {}
            assert {name: gray(content) for name, content in previews.items()} == readable
            with Store(run.index_folder / silo.name / f"{modality}.sqlite") as store:
                manifest = store.manifest
            assert (manifest.model_digest, manifest.bits, manifest.modality) == (encoder.digest, encoder.bits, modality)
    assert sum(counts.values()) == len(archive.split("database"))
    assert lines[:-1] == [f"{name}: {count} items" for name, count in counts.items()]
    assert lines[-1] == held_out_sentence(run)


@pytest.mark.whole_run
@pytest.mark.parametrize("kept", [True, False])
def test_an_index_keeps_the_outputs_of_its_items(run: Run, kept: bool) -> None:
    write_index_config(run.folder, IndexConfig(outputs=kept))
    index_run(run)
    silo = run.silo_names[0]
    encoder = run.model.encoder()
    for modality in MODALITIES:
        with Store(run.index_folder / silo / f"{modality}.sqlite") as store:
            found = store.magnitudes()
            assert (found is not None) == kept
            if found is not None:
                names = store.item_ids(found[0])
                rows = np.array([run.archive.ids.tolist().index(name) for name in names])
                expected = encoder.codes(run.archive, rows, modality).magnitudes
                assert expected is not None
                assert len(rows) == len(store)
                np.testing.assert_array_equal(found[1], expected)


def test_numbers_of_items_are_grouped(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    many = np.arange(12_345)
    parts = iter([("north", run.archive, many % COUNT)])
    monkeypatch.setattr(indexing, "_parts", lambda *given, **options: parts)
    monkeypatch.setattr(indexing, "encodable_rows", lambda *given: {"text": many})
    monkeypatch.setattr(indexing, "_index_silo", lambda *arguments: ["text"])
    assert index_run(run, notify=lines.append) == {"north": 12_345}
    assert lines[0] == "north: 12,345 items"


@pytest.mark.whole_run
def test_earlier_indexes_are_replaced(run: Run) -> None:
    first, second, _ = (silo.name for silo in run.partition.silos)
    index_run(run)
    (run.index_folder / first / "left.over").touch()
    before = stored(run, second, "image")
    other = run.index_folder / "other"
    other.mkdir()
    index_run(run)
    assert not (run.index_folder / first / "left.over").exists()
    assert stored(run, second, "image") == before
    assert other.is_dir()


@pytest.mark.whole_run
def test_each_silo_stores_the_fields_that_it_lists(run: Run) -> None:
    names = [silo.name for silo in run.partition.silos]
    fields: Mapping[str, Collection[str]] = {names[0]: (), names[1]: ("labels", "preview")}
    index_run(run, fields=fields)
    kept = {}
    for name in names:
        _, _, payloads, previews = stored(run, name, "image")
        kept[name] = ({key for payload in payloads for key in payload}, bool(previews))
        assert stored(run, name, "text")[3] == {}
    assert kept == {
        names[0]: (set(), False),
        names[1]: ({"labels"}, True),
        names[2]: ({"caption", "labels"}, True),
    }


@pytest.mark.whole_run
def test_items_that_lack_a_modality_are_left_out_of_its_index(run: Run) -> None:
    first = run.partition.silos[0]
    rows = first.split(run.archive, "database")
    has_text = run.archive.has_text.copy()
    has_text[rows[1:]] = False
    has_image = run.archive.has_image.copy()
    has_image[rows] = False
    run.__dict__["archive"] = replace(run.archive, has_text=has_text, has_image=has_image)
    lines: list[str] = []
    assert index_run(run, notify=lines.append)[first.name] == 1
    assert lines[:2] == [
        f"{first.name}: 1 items",
        f"{first.name}: {len(rows) - 1} items are not indexed, because the model encodes items with a picture or a text and "
        "they do not have one",
    ]
    assert [path.name for path in (run.index_folder / first.name).iterdir()] == ["text.sqlite"]
    ids, _, _, previews = stored(run, first.name, "text")
    assert ids == run.archive.ids[rows[:1]].tolist()
    assert list(previews) == [name for name, row in zip(ids, rows, strict=False) if row % 5]


@pytest.mark.whole_run
def test_texts_without_a_known_word_get_no_code(run: Run) -> None:
    """One item has a picture and one does not. Neither gets a code for a text that nobody can search for."""
    first, second, _ = run.partition.silos
    rows = first.split(run.archive, "database")
    texts = run.archive.text.copy()
    texts[rows[:3]] = ["zebra quagga", "of the 7", "zebra parrot"]
    has_image = run.archive.has_image.copy()
    has_image[rows[1]] = False
    run.__dict__["archive"] = replace(run.archive, text=texts, has_image=has_image)
    lines: list[str] = []
    assert index_run(run, notify=lines.append)[first.name] == len(rows) - 1
    assert lines[:3] == [
        f"{first.name}: {len(rows) - 1} items",
        f"{first.name}: 2 texts do not contain a word that the model knows. Of these items, 1 is indexed by picture only "
        "and 1 not at all.",
        f"{second.name}: {len(second.split(run.archive, 'database'))} items",
    ]
    ids = run.archive.ids[rows].tolist()
    assert stored(run, first.name, "text")[0] == ids[2:]
    assert stored(run, first.name, "image")[0] == [ids[0], *ids[2:]]


@pytest.mark.whole_run
def test_names_of_picture_files_are_stored_with_their_folder(run: Run, tmp_path: Path) -> None:
    folder = Path(run.config.data.path) / "pictures"
    names = [f"{row}.png" if row % 7 else "" for row in range(COUNT)]
    run.__dict__["archive"] = replace(run.archive, preview=PictureFiles(folder, names))
    first, second, third = run.partition.silos
    index_run(run, fields={second.name: ("caption",)})
    rows = first.split(run.archive, "database")
    payloads = stored(run, first.name, "text")[2]
    assert [payload.get("file") for payload in payloads] == [names[row] or None for row in rows]
    assert PictureSource.read(run.index_folder / first.name) == PictureSource(folder.resolve(), "pictures")
    assert PictureSource.read(run.index_folder / second.name) is None, "its policy hides the files"
    assert all(set(payload) == {"caption"} for payload in stored(run, second.name, "image")[2])
    assert PictureSource.read(run.index_folder / third.name) is not None


@pytest.mark.whole_run
def test_an_archive_is_indexed_as_an_additional_silo(run: Run, tmp_path: Path) -> None:
    more = read_folder(write_archive(tmp_path / "more", count=30, text="words", seed=5))
    assert index_run(run, more) == {"more": 25}
    assert {path.name for path in run.index_folder.iterdir()} == {"more", "silos.json"}
    ids, words, _, _ = stored(run, "more", "text")
    rows = more.split("database")
    assert ids == more.ids[rows].tolist()
    assert words == run.model.encoder().codes(more, rows, "text").words.tolist()


@pytest.mark.whole_run
def test_an_archive_must_not_have_the_name_of_a_silo(run: Run, tmp_path: Path) -> None:
    for silo in (run.partition.silos[0], run.partition.silos[-1]):
        same = read_folder(write_archive(tmp_path / silo.name, count=30, text="words"))
        with pytest.raises(AlreadyExists, match=r"which is also the name of a silo of the run\. Give it another name"):
            index_run(run, same)
    assert not run.index_folder.exists()
    assert index_run(run, same, name="other") == {"other": 25}


@pytest.mark.whole_run
def test_queries_are_held_out_unless_all_items_are_indexed(run: Run) -> None:
    lines: list[str] = []
    assert sum(index_run(run, notify=lines.append).values()) == 40
    assert lines[-1] == (
        "8 query items of archive are held out of the indexes, because the figures of the run are measured on them. "
        f"To index all items: silohash index {run.folder} --all"
    )
    lines.clear()
    assert sum(index_run(run, all_items=True, notify=lines.append).values()) == COUNT
    assert len(lines) == 3
    for silo in run.partition.silos:
        assert stored(run, silo.name, "image")[0] == run.archive.ids[silo.rows].tolist()


def without_splits(folder: Path, count: int) -> Path:
    """Write an archive without a column ``split``."""
    write_archive(folder, count=count, text="words", seed=5)
    with (folder / "metadata.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    write_metadata(folder, [{name: value for name, value in row.items() if name != "split"} for row in rows])
    return folder


@pytest.mark.whole_run
def test_an_additional_archive_without_splits_is_indexed_as_a_whole(run: Run, tmp_path: Path) -> None:
    more = read_folder(without_splits(tmp_path / "more", 30))
    assert len(more.split("query")) == 3
    lines: list[str] = []
    assert index_run(run, more, notify=lines.append) == {"more": 30}
    assert lines == ["more: 30 items"]
    assert stored(run, "more", "text")[0] == more.ids.tolist()
    write_native(tmp_path / "native", more)
    assert index_run(run, read_native(tmp_path / "native"), name="native") == {"native": 30}


@pytest.mark.whole_run
def test_queries_of_an_additional_archive_are_held_out(run: Run, tmp_path: Path) -> None:
    more = read_folder(write_archive(tmp_path / "more", count=30, text="words", seed=5))
    lines: list[str] = []
    assert index_run(run, more, notify=lines.append) == {"more": 25}
    assert lines[-1] == (
        "5 query items of more are held out of the indexes, because the archive lists them as queries. "
        f"To index all items: silohash index {run.folder} {tmp_path / 'more'} --all"
    )
    assert index_run(run, more, all_items=True) == {"more": 30}
    one = replace(more, splits={"query": np.arange(1), "database": np.arange(1, 30), "train": np.arange(1, 30)})
    assert held_out_sentence(run, one).startswith("1 query item of more is held out")
    in_database = replace(one, splits={**one.splits, "database": np.arange(30)}, query_in_database=True)
    assert held_out_sentence(run, in_database) == ""


@pytest.mark.whole_run
def test_an_archive_of_queries_alone_is_refused(run: Run, tmp_path: Path) -> None:
    more = read_folder(write_archive(tmp_path / "more", count=12, text="words", seed=5))
    queries = replace(more, splits={"query": np.arange(12), "database": np.zeros(0, np.int64)})
    with pytest.raises(NothingUsable, match=r"12.*more"):
        index_run(run, queries)
    assert not run.index_folder.exists()
    assert index_run(run, queries, all_items=True) == {"more": 12}


@pytest.mark.whole_run
def test_an_archive_that_the_model_cannot_encode_is_refused(run: Run, tmp_path: Path) -> None:
    more = read_folder(write_archive(tmp_path / "more", count=12, text="words", seed=5))
    neither = replace(more, has_image=np.zeros(12, bool), has_text=np.zeros(12, bool))
    with pytest.raises(NothingUsable, match=r"10.*more"):
        index_run(run, neither)
    assert not run.index_folder.exists()


@pytest.mark.whole_run
def test_personal_models_encode_their_silos_items(personal: Run, tmp_path: Path) -> None:
    run = elsewhere(personal, tmp_path)
    index_run(run)
    digests = set()
    for silo in run.partition.silos:
        encoder = run.model.encoder(silo.name)
        rows = silo.split(run.archive, "database")
        assert stored(run, silo.name, "image")[1] == encoder.codes(run.archive, rows, "image").words.tolist()
        digests.add(encoder.digest)
    assert len(digests) == 3


@pytest.mark.whole_run
def test_the_model_of_an_additional_archive(personal: Run, trained: Run, tmp_path: Path) -> None:
    run = elsewhere(personal, tmp_path / "run")
    more = read_folder(write_archive(tmp_path / "more", count=12, text="words", seed=5))
    with pytest.raises(ChoiceNeeded, match="--model"):
        index_run(run, more)
    name = run.partition.silos[1].name
    index_run(run, more, model=name)
    codes = run.model.encoder(name).codes(more, more.split("database"), "image")
    assert stored(run, "more", "image")[1] == codes.words.tolist()
    with pytest.raises(UnknownName, match="north"):
        index_run(run, more, model="north")
    for each in (run, elsewhere(trained, tmp_path / "trained")):
        with pytest.raises(NoEffect, match="--model"):
            index_run(each, model=name)
        with pytest.raises(NoEffect, match="--name"):
            index_run(each, name=name)


@pytest.mark.whole_run
def test_a_silo_without_items_gets_an_empty_folder(run: Run) -> None:
    first, *rest = run.partition.silos
    parts = replace(run.partition, silos=(SiloRows(first.name, first.rows[:0]), *rest))
    run.__dict__["partition"] = parts
    assert index_run(run)[first.name] == 0
    assert list((run.index_folder / first.name).iterdir()) == []


def toy(**columns: np.ndarray) -> Archive:
    base = np.arange(3)
    return Archive(
        ids=np.array(["a", "b", "c"]), image=None, text=np.array(["LATIN A", "Über", ""]),
        labels=np.array([[1, 1], [0, 1], [0, 0]], np.uint8), label_names=("cat", "dög"), columns=columns,
        splits={"query": base[:0], "database": base, "train": base},
        card=ArchiveCard(name="toy", source="this test", license="CC0"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("row", "fields", "expected"),
    [
        (0, FIELDS, {"caption": "LATIN A", "labels": ["cat", "dög"]}),
        (1, ("caption",), {"caption": "Über"}),
        (1, ("labels", "preview"), {"labels": ["dög"]}),
        (2, FIELDS, {"caption": "", "labels": []}),
        (0, (), {}),
        (0, ("preview",), {}),
    ],
)
def test_payloads(row: int, fields: Collection[str], expected: Mapping[str, object]) -> None:
    text = payload_of(toy(), row, fields)
    assert json.loads(text) == expected
    assert "\\u" not in text


def test_all_fields_are_in_a_payload_by_default() -> None:
    assert json.loads(payload_of(toy(), 0)) == {"caption": "LATIN A", "labels": ["cat", "dög"]}


def test_a_character_comes_before_its_text() -> None:
    assert display_text(toy(), 1) == "Über"
    characters = np.array(["A", "Ü", "?"])
    assert [display_text(toy(character=characters), row) for row in range(3)] == ["A  LATIN A", "Ü  Über", "?  "]
    assert display_text(toy(script=characters), 0) == "LATIN A"
    assert json.loads(payload_of(toy(character=characters), 0))["caption"] == "A  LATIN A"


@pytest.mark.whole_run
def test_indexed_silos_are_listed_and_named_in_their_files(run: Run, tmp_path: Path) -> None:
    more = read_folder(write_archive(tmp_path / "more", count=30, text="words", image=None, seed=5))
    index_run(run, more)
    names = [silo.name for silo in run.partition.silos]
    assert read_listing(run.index_folder) == {**dict.fromkeys(names), "more": ("text",)}
    index_run(run)
    assert read_listing(run.index_folder) == {**dict.fromkeys(names, ("image", "text")), "more": ("text",)}
    for silo in (*names, "more"):
        with Store(run.index_folder / silo / "text.sqlite") as store:
            assert (store.manifest.silo, store.manifest.modality) == (silo, "text")


TEXTS = np.array(["red parrot", "zebra", "", "of the 7", "red zebra", "quagga"])
ALL = np.arange(6)


def archive() -> Archive:
    return Archive(
        ids=np.array(list("abcdef")),
        image=np.ones((6, 2), np.float32),
        text=TEXTS,
        labels=None,
        label_names=(),
        splits={"query": ALL[:0], "database": ALL, "train": ALL[:1]},
        card=ArchiveCard(name="toy", source="this test", license="CC0"),
        has_image=np.array([True, True, False, False, False, False]),
        has_text=TEXTS != "",
    )


def featurizers() -> dict[Modality, Featurizer]:
    bag = BagOfWords(buckets=16)
    return {"image": GivenFeatures("image", 2), "text": bag.fitted(bag.statistics(TEXTS, ALL[:1]))}


def lists(encodable: dict[Modality, np.ndarray]) -> dict[str, list[int]]:
    return {modality: rows.tolist() for modality, rows in encodable.items()}


def test_texts_need_a_known_word() -> None:
    found = encodable_rows(archive(), featurizers(), ALL)
    assert lists(found) == {"image": [0, 1], "text": [0, 4]}
    assert indexed_rows(found).tolist() == [0, 1, 4]
    some = encodable_rows(archive(), featurizers(), np.array([4, 1, 2]))
    assert lists(some) == {"image": [1], "text": [4]}


def test_models_of_one_modality() -> None:
    only = {"image": featurizers()["image"]}
    assert lists(encodable_rows(archive(), only, ALL)) == {"image": [0, 1]}


@pytest.mark.parametrize(
    ("rows", "sentences"),
    [
        (
            ALL,
            [
                "3 texts do not contain a word that the model knows. Of these items, 1 is indexed by picture only and 2 "
                "not at all.",
                "1 items are not indexed, because the model encodes items with a picture or a text and they do not have one",
            ],
        ),
        (
            [3, 4],
            [
                "1 text does not contain a word that the model knows. Of these items, 0 are indexed by picture only and 1 "
                "not at all."
            ],
        ),
        ([0, 4], []),
        ([], []),
    ],
)
def test_what_is_left_out_is_counted(rows: list[int], sentences: list[str]) -> None:
    chosen = np.array(rows, np.int64)
    assert list(left_out(archive(), chosen, encodable_rows(archive(), featurizers(), chosen))) == sentences


def test_texts_do_not_matter_to_a_model_of_pictures() -> None:
    encodable = encodable_rows(archive(), {"image": featurizers()["image"]}, ALL)
    assert list(left_out(archive(), ALL, encodable)) == [
        f"4 items are not indexed, because {cannot_encode(('image',))}"
    ]
    assert cannot_encode(("image",)) == "the model encodes items with a picture and they do not have one"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("added")
    archive = write_archive(folder / "archive", count=36, text="words")
    return train(archive, folder / "run", federated={"rounds": 1})


@pytest.fixture
def bare(whole: Run, tmp_path: Path) -> Run:
    """The run with an empty folder for indexes."""
    bare = Run(tmp_path / "run", whole.resolved)
    bare.__dict__["stored_partition"] = whole.partition
    return bare


def added(bare: Run, archive: Archive, name: str) -> Path:
    """Make a folder as an index of an archive leaves it."""
    folder = bare.index_folder / name
    folder.mkdir(parents=True)
    (folder / "text.sqlite").touch()
    note_added(folder, archive)
    return folder


def archive_in(folder: Path, seed: int = 5) -> Archive:
    return read_folder(write_archive(folder, count=12, text="words", seed=seed))


@pytest.mark.whole_run
@pytest.mark.parametrize(
    "name",
    ["", ".", "..", ".hidden", "a/b", "/a", "a\\b", "a\nb", "a\0b", "a\x1b[2J", "\x7f", "n" * (MOST_CHARACTERS + 1)],
)
def test_names_that_are_refused(bare: Run, tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidName, match="--name"):
        check_added(bare, archive_in(tmp_path / "more"), name)
    assert not bare.folder.exists()


@pytest.mark.whole_run
@pytest.mark.parametrize("name", ["a", "a.b", "a b", "bäume", "日本", "n" * MOST_CHARACTERS, "-x", "archive.json"])
def test_names_that_are_free(bare: Run, tmp_path: Path, name: str) -> None:
    check_added(bare, archive_in(tmp_path / "more"), name)


@pytest.mark.whole_run
@pytest.mark.parametrize("name", ["silo-1", "silo-3", "SILO-2", "silo-\u200b1"])
def test_names_of_silos_are_refused(bare: Run, tmp_path: Path, name: str) -> None:
    with pytest.raises(AlreadyExists, match="which is also the name of a silo of the run"):
        check_added(bare, archive_in(tmp_path / "more"), name)


@pytest.mark.whole_run
def test_another_archive_of_the_same_name_is_refused(bare: Run, tmp_path: Path) -> None:
    first, second = archive_in(tmp_path / "a" / "pictures"), archive_in(tmp_path / "b" / "pictures", seed=6)
    folder = added(bare, first, "pictures")
    for name in ("pictures", "Pictures"):
        with pytest.raises(AlreadyExists, match="a/pictures"):
            check_added(bare, second, name)
    check_added(bare, second, "other")
    check_added(bare, first, "pictures")
    assert sorted(path.name for path in folder.iterdir()) == [NOTE, "text.sqlite"]


@pytest.mark.whole_run
def test_the_same_folder_or_the_same_content_is_the_same_archive(bare: Run, tmp_path: Path) -> None:
    added(bare, archive_in(tmp_path / "pictures"), "pictures")
    changed = archive_in(tmp_path / "pictures", seed=6)
    check_added(bare, changed, "pictures")
    moved = archive_in(tmp_path / "elsewhere" / "pictures")
    check_added(bare, moved, "pictures")
    shutil.rmtree(tmp_path / "pictures")
    check_added(bare, moved, "pictures")


@pytest.mark.whole_run
def test_archives_without_a_folder_and_a_digest_are_different(bare: Run) -> None:
    from tests.archives import made_up_archive

    archive = made_up_archive(20)
    folder = added(bare, archive, "made-up")
    assert json.loads((folder / NOTE).read_text()) == {"digest": "", "folder": None}
    with pytest.raises(AlreadyExists, match="made-up"):
        check_added(bare, archive, "made-up")
    shutil.rmtree(folder)
    digested = archive.with_digest()
    added(bare, digested, "made-up")
    check_added(bare, digested, "made-up")


@pytest.mark.whole_run
@pytest.mark.parametrize("content", [None, "", "[]", "{", "{}"])
def test_an_index_without_a_readable_note_is_not_replaced(bare: Run, tmp_path: Path, content: str | None) -> None:
    folder = bare.index_folder / "more"
    folder.mkdir(parents=True)
    check_added(bare, archive_in(tmp_path / "more"), "more")
    (folder / "text.sqlite").touch()
    if content is not None:
        (folder / NOTE).write_text(content)
    with pytest.raises(AlreadyExists, match=r"state.*more"):
        check_added(bare, archive_in(tmp_path / "more"), "more")


@pytest.mark.whole_run
def test_an_archive_of_the_run_itself_is_found_twice(bare: Run, whole: Run, tmp_path: Path) -> None:
    assert doubled_sentence(bare, whole.archive) == "", "no silo of the run is indexed"
    (bare.index_folder / bare.silo_names[0]).mkdir(parents=True)
    assert doubled_sentence(bare, whole.archive).startswith(f"The run was trained on {whole.archive.folder}, so items")
    linked = tmp_path / "linked"
    linked.symlink_to(whole.archive.folder)
    assert doubled_sentence(bare, read_folder(linked)) != ""
    assert doubled_sentence(bare, archive_in(tmp_path / "more")) == ""
    assert doubled_sentence(bare, replace(whole.archive, folder=None)) == ""
