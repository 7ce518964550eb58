"""Data sets in circulation: found, read, put under a protocol; what is missing is named."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from silohash.data.archive import Pictures
from silohash.data.benchmarks.datasets import DATASETS, SomePictures, archive_under, open_dataset, read_raw
from silohash.data.benchmarks.files import compared, digests, folder_of, state_of, write_checksums
from silohash.data.benchmarks.inspection import files_of, read, size_in_words
from silohash.data.benchmarks.raw import Raw
from silohash.data.catalogue import ARCHIVES, open_archive
from silohash.data.pictures.decoding import GreyPictures
from silohash.data.pictures.packing import PictureFiles
from silohash.data.protocols.apply import protocol_of
from silohash.runtime.config import load_config
from silohash.runtime.run import archive_of
from silohash.types import UserError
from tests.community_files import write_lists, write_wikipedia


@pytest.fixture
def wikipedia(tmp_path: Path) -> Path:
    return write_wikipedia(tmp_path / "files" / "wikipedia")


def test_every_data_set_is_an_archive_with_layouts_and_protocols() -> None:
    assert set(DATASETS) == {
        "mirflickr25k",
        "nus-wide",
        "iapr-tc12",
        "coco",
        "wikipedia",
        "fashionvc",
        "ssense",
        "pascal-sentence",
    }
    for key, dataset in DATASETS.items():
        assert key in ARCHIVES
        assert dataset.default_protocol in dataset.protocols
        assert "default" in dataset.protocols
        assert len({layout.name for layout in dataset.layouts}) == len(dataset.layouts) > 0
        for layout in dataset.layouts:
            module, _, attribute = layout.reader.partition(":")
            assert callable(getattr(importlib.import_module(module), attribute))
            assert any(not need.optional for need in layout.needs)


@pytest.mark.parametrize("key", list(DATASETS))
def test_without_its_files_every_layouts_are_named_with_their_place(key, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SILOHASH_DATA", str(tmp_path))
    with pytest.raises(UserError, match=rf"The files of {key} are not here") as error:
        open_archive(key)
    said = str(error.value)
    assert str(tmp_path / "data" / key) in said
    for layout in DATASETS[key].layouts:
        assert f"layout {layout.name}: " in said
        assert all(f"missing   {need.pattern}" in said for need in layout.needs if not need.optional)


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
    with pytest.raises(UserError) as error:
        open_archive("wikipedia", options={"root": str(wikipedia), "layout": "dscmr"})
    said = str(error.value)
    assert "missing   **/test_txt.mat" in said
    assert "is there  **/train_img.mat" in said
    assert "layout raw" not in said
    state = state_of(DATASETS["wikipedia"].layouts[0], wikipedia)
    assert [entry.need.pattern for entry in state.found if entry.missing] == ["**/test_txt.mat"]
    assert not state.complete


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
    with pytest.raises(UserError, match=r"needs 462 queries and 2,173 items to train on, and the files hold 80"):
        open_archive("wikipedia", options={"root": str(wikipedia), "protocol": "feduch"})


def test_the_seed_draws_other_queries_and_stands_in_the_name(wikipedia: Path) -> None:
    options = {"root": str(wikipedia), "protocol": "feduch/drawn/scaled"}
    first, other = (open_archive("wikipedia", options={**options, "seed": seed}) for seed in (0, 5))
    assert first.ids[first.split("query")].tolist() != other.ids[other.split("query")].tolist()
    assert other.card.protocol == f"{first.card.protocol}/seed5"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"layout": "dscmrr"},
            r'wikipedia has no layout "dscmrr" \(did you mean "dscmr"\?\); it has: dscmr, raw, or auto',
        ),
        ({"protocol": "feduhc"}, r'no protocol "feduhc" \(did you mean "feduch"\?\)'),
        (
            {"overlapp": "accept"},
            r'wikipedia has no option "overlapp" \(did you mean "overlap"\?\); it has: root, layout',
        ),
        ({"layot": "dscmr"}, r'no option "layot" \(did you mean "layout"\?\)'),
    ],
)
def test_mistakes_are_named(wikipedia: Path, options, says) -> None:
    with pytest.raises(UserError, match=says):
        open_archive("wikipedia", options={"root": str(wikipedia), **options})


def test_an_option_of_another_layout_is_refused(tmp_path: Path) -> None:
    folder = write_lists(tmp_path / "coco")
    with pytest.raises(UserError, match='layout lists of coco has no option "year"; it has: pictures, strip, classes'):
        open_archive("coco", options={"root": str(folder), "year": 2014})


def test_a_protocol_hands_its_readers_options_on(monkeypatch) -> None:
    given = {}

    def reader(self, root, **options):
        given.update(options)
        return "read"

    layout = DATASETS["nus-wide"].layouts[-1]
    assert "classes" in layout.options
    monkeypatch.setattr(type(layout), "read", reader)
    monkeypatch.setattr(type(layout), "missing", lambda self, root: [])
    choice = protocol_of("nus-wide", "ucch")
    assert read_raw("nus-wide", layout="raw", choice=choice, text="words") == "read"
    assert given == {"classes": 10, "text": "words"}
    read_raw("nus-wide", layout="raw", choice=choice, classes=21)
    assert given["classes"] == 21


def test_lists_with_their_queries_in_the_database_need_the_protocol_that_names_it(tmp_path: Path) -> None:
    overlapping = write_lists(tmp_path / "hashnet", overlap=True)
    with pytest.raises(UserError, match=r"5 of the 5 that the files state are\. Set protocol = hashnet-112218"):
        open_dataset("coco", root=str(overlapping), protocol="deephash/scaled")
    archive = open_dataset("coco", root=str(overlapping), protocol="hashnet-112218/scaled")
    assert archive.query_in_database
    assert {name: len(rows) for name, rows in archive.splits.items()} == {"query": 5, "database": 22, "train": 8}
    plain = open_dataset("coco", root=str(write_lists(tmp_path / "deephash")), protocol="deephash/scaled")
    assert not plain.query_in_database
    assert {name: len(rows) for name, rows in plain.splits.items()} == {"query": 5, "database": 25, "train": 8}
    assert isinstance(plain.image, PictureFiles)


def grey(count: int) -> Raw:
    pixels = np.arange(count, dtype=np.uint8)[:, None, None].repeat(4, 1).repeat(4, 2)
    labels = np.ones((count, 24), np.uint8)
    labels[1] = 0
    return Raw(
        ids=np.array([f"p{number}" for number in range(count)]),
        image=GreyPictures(pixels),
        text=np.array(["sea"] * count),
        labels=labels,
        label_names=tuple(f"class {column}" for column in range(24)),
        columns={"place": np.array([f"at {number}" for number in range(count)])},
    )


def test_pictures_go_with_their_items(tmp_path: Path) -> None:
    archive = archive_under(grey(40), protocol_of("mirflickr25k", "dcmh-24581/scaled"))
    assert len(archive) == 39
    assert isinstance(archive.image, SomePictures)
    assert isinstance(archive.image, Pictures)
    row = archive.ids.tolist().index("p7")
    assert archive.image.picture(row).getpixel((0, 0)) == 7
    assert archive.columns["place"][row] == "at 7"
    whole = replace(grey(40), labels=np.ones((40, 24), np.uint8))
    assert isinstance(archive_under(whole, protocol_of("mirflickr25k", "dcmh-24581/scaled")).image, GreyPictures)
    other = SomePictures(GreyPictures(np.zeros((3, 2, 2), np.uint8)), np.array([0, 2]))
    assert other.digest() != SomePictures(other.whole, np.array([0, 1])).digest()
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
    assert archive_of(config).card.protocol == "wikipedia/rasiwasia/scaled/80/60-60"
    assert load_config(file, ["data.protocol=dscmr/scaled"]).data.protocol == "dscmr/scaled"
    with pytest.raises(UserError, match=r'wikipedia has no protocol "rasiwasi" \(did you mean "rasiwasia"\?\)'):
        load_config(file, ["data.protocol=rasiwasi"])
    with pytest.raises(UserError, match=r"glyphs brings its own splits; protocols are of mirflickr25k, nus-wide"):
        load_config({"data": {"name": "glyphs", "protocol": "dcmh"}})
    with pytest.raises(UserError, match="a folder of your own has no protocol"):
        load_config({"data": {"path": str(tmp_path), "protocol": "dcmh"}})


def test_inspection_tries_every_protocol(wikipedia: Path) -> None:
    folder, states = files_of("wikipedia", str(wikipedia))
    assert folder == wikipedia
    assert [state.complete for state in states] == [True, False]
    found = read("wikipedia", root=str(wikipedia))
    assert found.layout == "dscmr"
    assert found.protocol == "default"
    assert found.fits["default"] is None
    assert found.fits["rasiwasia"].startswith(
        'Protocol "rasiwasia" of wikipedia expects 2,866 items and found 80 of 80'
    )
    assert found.overlaps == {}
    with pytest.raises(UserError, match="expects 2,866 items"):
        read("wikipedia", root=str(wikipedia), protocol="rasiwasia")


def test_inspection_tells_of_overlapping_splits(tmp_path: Path) -> None:
    found = read("coco", root=str(write_lists(tmp_path / "coco", overlap=True)))
    assert found.overlaps == {"query and database": 5} or found.overlaps == {"database and query": 5}


def test_checksums_tell_files_that_changed(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    before = digests(tmp_path, [tmp_path / "a", tmp_path / "b"])
    assert compared(tmp_path, before) == {}
    write_checksums(tmp_path, before)
    (tmp_path / "b").write_text("changed")
    after = digests(tmp_path, [tmp_path / name for name in ("a", "b", "c")])
    assert compared(tmp_path, after) == {"a": "as noted", "b": "differs", "c": "not noted"}
    (tmp_path / "checksums.json").write_text("[1]")
    with pytest.raises(UserError, match="no table of files and digests"):
        compared(tmp_path, after)


def test_sizes_in_words() -> None:
    assert [size_in_words(size) for size in (0, 999, 1500, 2_500_000)] == ["0 bytes", "999 bytes", "1.5 KB", "2.5 MB"]
