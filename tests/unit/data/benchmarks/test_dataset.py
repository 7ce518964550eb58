"""A data set: its files are read, put under a protocol, opened as an archive and inspected."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from silohash.base.errors import (
    DamagedFile,
    FilesDiffer,
    MissingFile,
    ProtocolUnmet,
    UnknownName,
    UnknownOption,
    UserError,
    WrongOverride,
    WrongValue,
)
from silohash.base.files import digest_file, write_json
from silohash.data.archive import Pictures
from silohash.data.benchmarks import dataset as module
from silohash.data.benchmarks.coco import COCO
from silohash.data.benchmarks.dataset import (
    SelectedPictures,
    benchmarks,
    compare_checksums,
    facts_of,
    folder_of,
    inspect,
    published,
)
from silohash.data.benchmarks.mirflickr import MIRFLICKR25K
from silohash.data.benchmarks.nus_wide import NUS_WIDE
from silohash.data.benchmarks.wikipedia import WIKIPEDIA
from silohash.data.catalogue import open_archive
from silohash.data.pictures.reading import GrayPictures, PictureFiles
from silohash.data.protocols.contents import Contents
from silohash.data.protocols.rule import SplitProtocol
from silohash.evaluate.measures import Measure
from silohash.run.config.load import load_config
from silohash.run.folder import archive_of
from tests.benchmark_files import write_lists, write_wikipedia


@pytest.fixture
def wikipedia(tmp_path: Path) -> Path:
    return write_wikipedia(tmp_path / "files" / "wikipedia")


def test_an_archive_under_a_protocol(wikipedia: Path) -> None:
    archive = open_archive("wikipedia", options={"root": str(wikipedia), "protocol": "feduch/scaled"})
    assert {name: len(rows) for name, rows in archive.splits.items()} == {"query": 20, "database": 60, "train": 60}
    assert archive.card.protocol == "wikipedia/feduch/scaled/80/60-60"
    assert archive.card.digest
    assert "2,173" in archive.card.notes["about the protocol"]
    assert archive.card.notes["as published, the source measures"].startswith("mAP@50[denominator=retrieved]; ")
    pairs = open_archive("wikipedia", options={"root": str(wikipedia), "protocol": "dscmr/scaled"})
    assert pairs.query_in_database
    assert pairs.split("query").tolist() == pairs.split("database").tolist()
    assert pairs.card.digest != archive.card.digest
    with pytest.raises(ProtocolUnmet, match=r"462.*2,173.*80"):
        open_archive("wikipedia", options={"root": str(wikipedia), "protocol": "feduch"})


def test_the_seed_draws_other_queries_and_stands_in_the_name(wikipedia: Path) -> None:
    options = {"root": str(wikipedia), "protocol": "feduch/drawn/scaled"}
    first, other = (open_archive("wikipedia", options={**options, "seed": seed}) for seed in (0, 5))
    assert first.ids[first.split("query")].tolist() != other.ids[other.split("query")].tolist()
    assert other.card.protocol == f"{first.card.protocol}/seed5"


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        (
            {"layout": "dscmrr"},
            UnknownName,
            r'wikipedia has no layout "dscmrr" \(did you mean "dscmr"\?\); it has: dscmr, raw, or auto',
        ),
        ({"protocol": "feduhc"}, UnknownName, r'no protocol "feduhc" \(did you mean "feduch"\?\)'),
        (
            {"overlapp": "accept"},
            UnknownOption,
            r'wikipedia has no option "overlapp" \(did you mean "overlap"\?\); its options are: root, layout',
        ),
        ({"layot": "dscmr"}, UnknownOption, "layot"),
    ],
)
def test_mistakes_are_named(wikipedia: Path, options, kind: type[UserError], says: str) -> None:
    with pytest.raises(kind, match=says):
        open_archive("wikipedia", options={"root": str(wikipedia), **options})


def test_text_features_of_the_user_replace_the_texts(wikipedia: Path) -> None:
    options = {"root": str(wikipedia), "protocol": "feduch/scaled"}
    plain = open_archive("wikipedia", options=options)
    with pytest.raises(MissingFile, match=r"lda\.npy of wikipedia are missing"):
        open_archive("wikipedia", options={**options, "text_features": "lda.npy"})
    found = np.random.default_rng(0).random((80, 12)).astype(np.float32)
    found[3] = np.nan
    np.save(wikipedia / "lda.npy", found)
    given = open_archive("wikipedia", options={**options, "text_features": "lda.npy"})
    assert given.ids.tolist() == plain.ids.tolist()
    everything = open_archive("wikipedia", options={"root": str(wikipedia), "protocol": "default"})
    rows = [everything.ids.tolist().index(name) for name in given.ids]
    np.testing.assert_array_equal(given.text, found[rows])
    assert given.has_text.tolist() == [row != 3 for row in rows]
    assert given.splits["query"].tolist() == plain.splits["query"].tolist()
    assert given.card.digest != plain.card.digest
    for wrong in (found[:-1], found[:, 0], found.astype(str)):
        np.save(wikipedia / "lda.npy", wrong)
        with pytest.raises(FilesDiffer, match="80 items"):
            open_archive("wikipedia", options={**options, "text_features": "lda.npy"})
    (wikipedia / "lda.npy").write_bytes(b"nothing")
    with pytest.raises(DamagedFile):
        open_archive("wikipedia", options={**options, "text_features": "lda.npy"})


def test_an_option_of_another_layout_is_refused(tmp_path: Path) -> None:
    folder = write_lists(tmp_path / "coco")
    with pytest.raises(
        UnknownOption, match='layout lists of coco has no option "year"; its options are: pictures, strip, classes'
    ):
        open_archive("coco", options={"root": str(folder), "year": 2014})


def test_a_protocol_hands_its_readers_options_on(monkeypatch) -> None:
    given = {}

    def read(root, **options):
        given.update(options)
        return "read"

    layout = NUS_WIDE.layouts[-1]
    assert "classes" in layout.options
    monkeypatch.setitem(vars(layout), "read", read)
    monkeypatch.setattr(type(layout), "missing", lambda self, root: [])
    choice = NUS_WIDE.protocol("ucch")
    assert NUS_WIDE.read(layout="raw", choice=choice, text="words") == "read"
    assert given == {"classes": 10, "text": "words"}
    NUS_WIDE.read(layout="raw", choice=choice, classes=21)
    assert given["classes"] == 21


def test_lists_with_their_queries_in_the_database_need_the_protocol_that_names_it(tmp_path: Path) -> None:
    overlapping = write_lists(tmp_path / "hashnet", overlap=True)
    with pytest.raises(ProtocolUnmet, match=r"5.*5.*protocol.*hashnet-112218"):
        COCO(root=str(overlapping), protocol="deephash/scaled")
    archive = COCO(root=str(overlapping), protocol="hashnet-112218/scaled")
    assert archive.query_in_database
    assert {name: len(rows) for name, rows in archive.splits.items()} == {"query": 5, "database": 22, "train": 8}
    plain = COCO(root=str(write_lists(tmp_path / "deephash")), protocol="deephash/scaled")
    assert not plain.query_in_database
    assert {name: len(rows) for name, rows in plain.splits.items()} == {"query": 5, "database": 25, "train": 8}
    assert isinstance(plain.image, PictureFiles)


def gray(count: int) -> Contents:
    pixels = np.arange(count, dtype=np.uint8)[:, None, None].repeat(4, 1).repeat(4, 2)
    labels = np.ones((count, 24), np.uint8)
    labels[1] = 0
    return Contents(
        ids=np.array([f"p{number}" for number in range(count)]),
        image=GrayPictures(pixels),
        text=np.array(["sea"] * count),
        labels=labels,
        label_names=tuple(f"class {column}" for column in range(24)),
        columns={"place": np.array([f"at {number}" for number in range(count)])},
    )


def test_pictures_go_with_their_items(tmp_path: Path) -> None:
    archive = MIRFLICKR25K.archive(gray(40), MIRFLICKR25K.protocol("dcmh-24581/scaled"))
    assert len(archive) == 39
    assert isinstance(archive.image, SelectedPictures)
    assert isinstance(archive.image, Pictures)
    row = archive.ids.tolist().index("p7")
    assert archive.image.picture(row).getpixel((0, 0)) == 7
    assert archive.columns["place"][row] == "at 7"
    whole = replace(gray(40), labels=np.ones((40, 24), np.uint8))
    assert isinstance(MIRFLICKR25K.archive(whole, MIRFLICKR25K.protocol("dcmh-24581/scaled")).image, GrayPictures)
    other = SelectedPictures(GrayPictures(np.zeros((3, 2, 2), np.uint8)), np.array([0, 2]))
    assert other.digest() != SelectedPictures(other.column, np.array([0, 1])).digest()
    for number in range(3):
        Image.new("RGB", (4, 4), (number * 90, 0, 0)).save(tmp_path / f"{number}.png")
    files = PictureFiles(tmp_path, ["0.png", "1.png", "2.png"], ["a", "b", "c"]).taken(np.array([2, 0]))
    assert files.names == ("2.png", "0.png")
    assert files.content_digest(0) == "c"


def test_a_config_names_data_set_protocol_and_folder(wikipedia: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        '[data]\nname = "wikipedia"\nprotocol = "rasiwasia/scaled"\noptions = { root = "files/wikipedia" }\n'
    )
    config = load_config(file)
    assert config.data.options["root"] == str(wikipedia)
    assert archive_of(config.data).card.protocol == "wikipedia/rasiwasia/scaled/80/60-60"
    assert load_config(file, ["data.protocol=dscmr/scaled"]).data.protocol == "dscmr/scaled"
    with pytest.raises(WrongOverride, match=r'wikipedia has no protocol "rasiwasi" \(did you mean "rasiwasia"\?\)'):
        load_config(file, ["data.protocol=rasiwasi"])
    with pytest.raises(WrongValue, match=r"glyphs.*mirflickr25k.*nus-wide"):
        load_config({"data": {"name": "glyphs", "protocol": "dcmh"}})
    with pytest.raises(WrongValue, match="a folder has no protocol"):
        load_config({"data": {"path": str(tmp_path), "protocol": "dcmh"}})


def test_inspection_tries_every_protocol(wikipedia: Path) -> None:
    assert [not layout.missing(wikipedia) for layout in WIKIPEDIA.layouts] == [True, False]
    found = inspect(WIKIPEDIA, root=str(wikipedia))
    assert found.layout == "dscmr"
    assert found.archive.card.protocol.startswith("wikipedia/default/")
    assert found.mismatches["default"] is None
    assert found.mismatches["rasiwasia"].startswith(
        'Protocol "rasiwasia" of wikipedia expects 2,866 items and found 80 of 80'
    )
    assert found.overlaps == {}
    with pytest.raises(ProtocolUnmet, match="2,866"):
        inspect(WIKIPEDIA, root=str(wikipedia), protocol="rasiwasia")


def test_inspection_tells_of_overlapping_splits(tmp_path: Path) -> None:
    found = inspect(COCO, root=str(write_lists(tmp_path / "coco", overlap=True)))
    assert found.overlaps == {"query and database": 5} or found.overlaps == {"database and query": 5}


def test_files_are_looked_for_where_one_says_then_in_the_shared_place_then_here(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("SILOHASH_DATA", raising=False)
    assert folder_of("coco") == Path("data/coco")
    assert folder_of("coco", str(tmp_path)) == tmp_path
    monkeypatch.setenv("SILOHASH_DATA", str(tmp_path))
    assert folder_of("coco") == Path("data/coco")
    (tmp_path / "coco").mkdir()
    assert folder_of("coco") == tmp_path / "coco"


def test_one_missing_file_is_named_beside_those_that_are_there(wikipedia: Path) -> None:
    (wikipedia / "test_txt.mat").unlink()
    with pytest.raises(MissingFile) as error:
        open_archive("wikipedia", options={"root": str(wikipedia), "layout": "dscmr"})
    said = str(error.value)
    assert "missing  **/test_txt.mat" in said
    assert "present  **/train_img.mat" in said
    assert "layout raw" not in said
    layout = benchmarks()["wikipedia"].layouts[0]
    assert [need.pattern for need in layout.missing(wikipedia)] == ["**/test_txt.mat"]
    assert [need.pattern for need, paths in layout.files(wikipedia).items() if not paths] == ["**/test_txt.mat"]


def test_checksums_tell_files_that_changed(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    before = {name: digest_file(tmp_path / name) for name in ("a", "b")}
    assert compare_checksums(tmp_path, before) == {}
    write_json(tmp_path / "checksums.json", before)
    (tmp_path / "b").write_text("changed")
    after = {name: digest_file(tmp_path / name) for name in ("a", "b", "c")}
    assert compare_checksums(tmp_path, after) == {"a": "as noted", "b": "differs", "c": "not noted"}
    (tmp_path / "checksums.json").write_text("[1]")
    with pytest.raises(DamagedFile, match=r"checksums\.json is damaged .*should be an object.*--write-checksums"):
        compare_checksums(tmp_path, after)


KEYS = [
    *("mirflickr25k", "nus-wide", "iapr-tc12", "coco", "wikipedia", "fashionvc", "ssense", "pascal-sentence"),
]


def of_source(name: str) -> list[SplitProtocol]:
    return [rule for key in KEYS for rule in published(key) if rule.name == name]


def test_facts_of_a_protocol_replace_those_of_its_source_and_its_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    source = {"name": "theirs", "source": "A paper", "draw": "first rows", "train": 10, "about": "Few."}
    shapes = {
        "note": "Small.",
        "train": 2,
        "query": 2,
        "protocols": [{"from": "a", "train": 3, "about": "{note} {source}"}],
    }
    monkeypatch.setattr(module, "_facts", lambda: {"sources": {"a": source}, "shapes": shapes})
    assert published("shapes") == (
        SplitProtocol(
            *("shapes", "theirs", "A paper", "Small. Few."), draw="first rows", query=2, train=3, database=None
        ),
    )
    assert (source["train"], len(shapes["protocols"])) == (10, 1)


def test_every_data_set_of_the_file_is_there_and_every_key_is_that_of_a_protocol() -> None:
    assert set(KEYS) == set(module._facts()) - {"sources"}
    assert set(KEYS) <= set(benchmarks())
    known = {field.name for field in fields(SplitProtocol)}
    assert [facts.keys() - known for key in KEYS for facts in facts_of(key) if facts.keys() - known] == []


@pytest.mark.parametrize(
    ("source", "draw", "round_by", "measure", "no_hits"),
    [
        ("fedcafe", "first rows", "queries", "mAP@all", "zero"),
        ("fedhap", "seeded", "not stated", "mAP@all", "zero"),
        ("feduch", "seeded", "not stated", "mAP@50[denominator=retrieved]", "zero"),
        ("dlffh", "seeded", "not stated", "mAP@all", "zero"),
        ("dcmh", "first rows", "last", "mAP@all", "zero"),
        ("ucch", "last rows", "queries", "mAP@all", "zero"),
        ("torchcmh", "numpy seed", "queries", "mAP@all", "zero"),
        ("hashnet-81", "stated", "last", "mAP@5000[denominator=retrieved]", "skip"),
        ("csq", "stated", "queries", "mAP@5000[denominator=retrieved]", "skip"),
        ("dscmr", "stated", "queries", "mAP@all", "zero"),
    ],
)
def test_the_rules_of_each_source(source: str, draw: str, round_by: str, measure: str, no_hits: str) -> None:
    rule = of_source(source)[0]
    assert (rule.draw, rule.round_by, rule.measure, rule.no_hits) == (draw, round_by, measure, no_hits)
    assert all(rule.source == other.source for other in of_source(source))


@pytest.mark.parametrize(("source", "train"), [("fedhap", 10_000), ("dlffh", 10_000)])
def test_sources_that_train_on_equally_many_items_everywhere(source: str, train: int) -> None:
    assert {rule.train for rule in of_source(source)} == {train}


def test_searched_items_that_a_source_states() -> None:
    assert {rule.searched for rule in of_source("dscmr")} == {"query"}
    assert {(rule.searched, rule.database) for rule in of_source("csq")} == {("neither", None)}


def test_measures_are_written_as_evaluation_reads_them() -> None:
    for measure in {rule.measure for key in KEYS for rule in published(key)}:
        assert str(Measure.parse(measure)) in {measure, "mAP@all", "Success@1"}


def test_seeded_lists_are_explained_where_a_source_uses_them() -> None:
    assert all(rule.about.startswith("Reproducible from the lists") for rule in of_source("torchcmh"))
