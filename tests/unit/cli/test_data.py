"""``silohash data``: files that are found or missing, what they contain, and the folder that an import writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from PIL import Image

from silohash.cli.data import COMPARED, describe_files, files_as_json
from silohash.data import ARCHIVES
from silohash.data.benchmarks.dataset import benchmarks
from silohash.data.benchmarks.layouts.region_arrays import REGION_ARRAYS
from silohash.data.build.fetching import Polite
from silohash.data.build.icons.builder import build_icons
from silohash.data.build.museums import builder as museum_builder
from silohash.data.build.museums.builder import build_museums
from silohash.data.build.packed import builder as packed_builder
from silohash.data.catalogue import open_archive
from tests.benchmark_files import write_lists, write_wikipedia
from tests.icon_packages import split_packages
from tests.museum_files import Clock, serving, write_museums
from tests.packed_facts import store_facts
from tests.packed_sets import write_published
from tests.packed_sources import write_official
from tests.runs import silohash, write_archive, write_config


@pytest.fixture
def wikipedia(tmp_path: Path) -> Path:
    return write_wikipedia(tmp_path / "wikipedia")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SILOHASH_DATA", str(tmp_path))


def test_list_tells_of_every_archive_what_is_here(wikipedia: Path) -> None:
    entries = {entry["key"]: entry for entry in silohash("data", "list", "--json").document()["archives"]}
    assert list(entries) == ARCHIVES.names()
    assert entries["wikipedia"]["files"] == "dscmr"
    assert entries["coco"]["files"] == ""
    assert entries["glyphs"]["files"] == "embedded"
    assert entries["coco18"]["files"] == ""
    assert entries["coco"]["protocols"] == list(benchmarks()["coco"].protocols)
    plain = silohash("data", "list").out
    assert "protocols: feduch, dscmr, rasiwasia, default" in plain
    assert "files: not found" in plain


def test_check_names_the_missing_files(wikipedia: Path) -> None:
    (wikipedia / "test_img.mat").unlink()
    said = silohash("data", "check", "wikipedia", "--root", wikipedia)
    assert (said.code, said.out) == (2, "")
    assert "missing  **/test_img.mat" in said.err
    assert "present  **/test_txt.mat" in said.err
    answered = silohash("data", "check", "wikipedia", "--root", wikipedia, "--json")
    assert answered.code == 2
    (first, *_) = answered.document()["layouts"]
    assert (first["name"], first["complete"]) == ("dscmr", False)
    assert [file["pattern"] for file in first["files"] if not file["found"]] == ["**/test_img.mat"]
    assert answered.document()["items"] is None


def test_check_reads_what_is_there(wikipedia: Path) -> None:
    said = silohash("data", "check", "wikipedia")
    assert said.code == 0, said.err
    assert "layout dscmr: complete\n" in said.out
    assert "read as dscmr: 80 items" in said.out
    assert "items differ from the published number: 80" in said.out
    assert "protocol rasiwasia: Protocol" in said.out
    assert "protocol default: fits" in said.out
    assert "wikipedia: 80 items; query 20, database 60, train 60" in said.out
    document = silohash("data", "check", "wikipedia", "--protocol", "dscmr/scaled", "--json").document()
    assert document["protocol"] == "wikipedia/dscmr/scaled/80/60-20"
    assert document["splits"] == {"query": 20, "database": 20, "train": 60}
    assert document["stated"]["query"] == 20
    assert document["protocols"]["default"] is None
    refused = silohash("data", "check", "wikipedia", "--protocol", "rasiwasia")
    assert refused.code == 2
    assert "expects 2,866 items and found 80" in refused.err


def test_check_tells_of_overlapping_splits(tmp_path: Path) -> None:
    write_lists(tmp_path / "coco", overlap=True)
    assert "overlap: 5 items are in both" in silohash("data", "check", "coco").out


def test_checksums_are_written_and_compared(wikipedia: Path) -> None:
    written = silohash("data", "check", "wikipedia", "--write-checksums")
    assert written.code == 0
    assert (wikipedia / "checksums.json").exists()
    assert "train_img.mat  as noted" in silohash("data", "check", "wikipedia", "--digest").out
    write_wikipedia(wikipedia, train=61)
    changed = silohash("data", "check", "wikipedia", "--digest")
    assert changed.code == 2
    assert "train_img.mat  differs" in changed.out
    assert "files differ from" in changed.err
    assert silohash("data", "check", "wikipedia", "--digest", "--json").code == 2


def test_digests_of_a_folder_of_ones_own(tmp_path: Path) -> None:
    folder = write_archive(tmp_path / "mine", count=30)
    said = silohash("data", "check", folder, "--digest")
    assert said.out.startswith("mine: 30 items")
    assert "  metadata.csv" in said.out
    refused = silohash("data", "check", "glyphs", "--digest")
    assert refused.code == 2
    assert "digests are only checked for folders" in refused.err


def test_import_makes_a_folder_that_opens_by_its_path(tmp_path: Path) -> None:
    write_lists(tmp_path / "lists", overlap=True)
    said = silohash(
        "data", "import", "coco", "--root", tmp_path / "lists", "--protocol", "hashnet-112218/scaled", "--out", "own"
    )
    assert said.code == 0, said.err
    assert said.out.startswith("coco: 30 items; query 5, database 22, train 8")
    assert silohash("data", "check", "own").out == said.out
    card = silohash("data", "card", "own").out
    assert "protocol: coco/hashnet-112218/scaled/30/8-22" in card
    document = silohash("data", "import", write_archive(tmp_path / "mine", count=30), "--out", "copy", "--json")
    assert document.document()["items"] == 30
    assert "is only for data sets whose files you provide" in silohash(
        "data", "import", "glyphs", "--out", "x", "--protocol", "dcmh"
    ).err  # fmt: skip


def test_cards_need_no_files() -> None:
    card = silohash("data", "card", "mirflickr25k").out
    assert "title: MIRFlickr-25K" in card
    assert "layout dcmh-mat: " in card
    assert "  option concepts: " in card
    assert "protocol dcmh (default): " in card
    one = silohash("data", "card", "mirflickr25k", "--protocol", "feduch-16015").out
    assert "queries, training items, database: 2,000, 5,000, 16,015" in one
    assert "16,015 items are searched, 2,000 fewer" in one
    assert "did you mean" in silohash("data", "card", "mirflickr25k", "--protocol", "feduhc").err


def test_options_of_data_sets_are_refused_elsewhere(tmp_path: Path) -> None:
    for option, value in (("--root", tmp_path), ("--layout", "raw"), ("--protocol", "dcmh")):
        said = silohash("data", "check", "glyphs", option, value)
        assert said.code == 2
        assert f"{option} is only for data sets whose files you provide" in said.err


def test_a_folder_is_checked_and_described(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "archive", text="words")
    assert silohash("data", "check", archive).out.startswith("archive: 120 items; query 20, database 100, train 100\n")
    assert "protocol: folder/given-splits" in silohash("data", "card", archive).out
    assert "did you mean" in silohash("data", "check", "glyfs").err


def write_table(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "metadata.csv").write_text(text, encoding="utf-8")
    return folder


def test_check_says_what_is_compared_of_picture_files(tmp_path: Path) -> None:
    folder = write_table(tmp_path / "table", "file_name,text\nx.png,a square\n")
    Image.new("L", (8, 8)).save(folder / "x.png")
    assert COMPARED in silohash("data", "check", folder).out.splitlines()
    (folder / "x.png").unlink()
    assert COMPARED not in silohash("data", "check", folder).out
    assert COMPARED not in silohash("data", "check", "glyphs").out, "its pictures are not in files"


def test_check_names_unused_columns_and_likely_slips(tmp_path: Path) -> None:
    folder = write_table(tmp_path / "table", "text,filename,place\na parrot,1.jpg,here\na ship,2.jpg,there\n")
    said = silohash("data", "check", folder)
    assert said.code == 0
    assert said.out.splitlines()[2:] == [
        'Columns that are not used: "filename", "place". A partition can use one of them: kind = "column" in [partition].',
        'warning: The column "filename" is not used (did you mean "file_name"?).',
        'warning: No item has a picture: metadata.csv does not have the column "file_name", and there is no image.npy.',
    ]
    document = silohash("data", "check", folder, "--json").document()
    assert document["columns"] == ["filename", "place"]
    assert [sentence[:24] for sentence in document["warnings"]] == [
        'The column "filename" is',
        "No item has a picture: m",
    ]
    assert document["skipped"] == []
    assert "not used" not in silohash("data", "check", "glyphs").out


def test_check_and_import_follow_links_on_request(tmp_path: Path) -> None:
    folder = write_table(tmp_path / "table", "text\nx\n")
    (folder / "metadata.csv").rename(tmp_path / "elsewhere.csv")
    (folder / "metadata.csv").symlink_to(tmp_path / "elsewhere.csv")
    for command in (("check", folder), ("import", folder, "--out", tmp_path / "native")):
        refused = silohash("data", *command)
        assert refused.code == 2
        assert "outside the folder. Set follow_links = true in [data], or use --follow-links" in refused.err
        assert silohash("data", *command, "--follow-links").code == 0


def test_full_reads_named_archives_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from silohash.base.stamps import file_digests
    from silohash.cli.data import _forgotten

    monkeypatch.setenv("SILOHASH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SILOHASH_DATA", str(tmp_path))
    for name in ("coco18", "coco", "mine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.npy").write_bytes(b"a")
        os.utime(tmp_path / name / "a.npy", (1_700_000_000, 1_700_000_000))
        file_digests(tmp_path / name, ["a.npy"])
    for name in ("coco18", "coco"):
        assert set(_forgotten(name, None)[1]) == {tmp_path / name / "a.npy"}
    assert set(_forgotten(str(tmp_path / "mine"), None)[1]) == {tmp_path / "mine" / "a.npy"}
    assert _forgotten("glyphs", None)[1] == {}


def test_files_are_listed_with_their_sizes_and_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "test_ims.npy").write_bytes(b"0" * 1500)
    lines = describe_files(REGION_ARRAYS, tmp_path)
    assert lines[0] == "layout region-arrays: 1 missing"
    assert lines[1] == "  test_ims.npy: 1.5 kB  (features of 36 regions per picture)"
    assert lines[2] == "  MISSING: test_caps.txt  (5 captions per picture, one per line)"
    assert lines[3].startswith("  absent, but optional: train_ims.npy")
    layout = files_as_json(REGION_ARRAYS, tmp_path)
    assert (layout["name"], layout["complete"]) == ("region-arrays", False)
    assert [file["bytes"] for file in layout["files"]] == [1500, *[0] * 7]
    assert [file["found"] for file in layout["files"]] == [1, *[0] * 7]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("partition")
    return write_config(folder / "run.toml", write_archive(folder / "archive"))


def test_every_item_is_in_a_silo(config: Path) -> None:
    document = silohash("partition", config, "--json").document()
    assert sum(document["silos"].values()) == 120
    assert list(document["silos"]) == list(document["drift"]["silos"])
    assert len(document["drift"]["silos"]) == 3
    assert set(document["drift"]["between_silos"]) == {"total variation", "Hellinger", "Jensen-Shannon"}
    printed = silohash("partition", config).out
    assert "silo-3" in printed
    assert "between silos, mean of pairs: total variation" in printed


def test_values_can_be_overridden(config: Path) -> None:
    other = silohash("partition", config, "--set", "partition.silos=2", "--json").document()
    assert len(other["silos"]) == 2
    again = silohash("partition", config, "--set", "seed=1", "--json").document()
    assert again["digest"] != silohash("partition", config, "--json").document()["digest"]


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_partition_is_drawn(config: Path, tmp_path: Path, suffix: str) -> None:
    said = silohash("partition", config, "--plot", tmp_path / f"a.{suffix}")
    assert said.code == 0, said
    assert f"Wrote {tmp_path / f'a.{suffix}'}" in said.err
    content = (tmp_path / f"a.{suffix}").read_bytes()
    assert b"archive: iid over 3 silos, seed 0" in content


def test_archive_without_labels_has_sizes_and_no_drift(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "archive")
    rows = (archive / "metadata.csv").read_text(encoding="utf-8").splitlines()
    position = rows[0].split(",").index("labels")
    kept = [",".join(cell for place, cell in enumerate(line.split(",")) if place != position) for line in rows]
    (archive / "metadata.csv").write_text("\n".join(kept) + "\n", encoding="utf-8")
    config = write_config(tmp_path / "run.toml", archive)
    document = silohash("partition", config, "--json").document()
    assert document["drift"] is None
    assert sum(document["silos"].values()) == 120
    refused = silohash("partition", config, "--plot", tmp_path / "a.svg")
    assert refused.code == 2
    assert "no labels" in refused.err


def test_remarks_on_the_archive_are_printed(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "archive", count=30)
    table = (archive / "metadata.csv").read_text(encoding="utf-8").splitlines()
    table[0] = table[0].replace("text", "caption")
    table[5] += ",one,two"
    (archive / "metadata.csv").write_text("\n".join(table), encoding="utf-8")
    said = silohash("partition", write_config(tmp_path / "run.toml", archive), "--set", "partition.silos=2", "--json")
    assert said.code == 0, said
    assert 'warning: The column "caption" is not used (did you mean "text"?).' in said.err
    assert "skipped: metadata.csv, row 6: has 7 fields and the header has 5; left out" in said.err
    assert sum(said.document()["silos"].values()) == 29


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Small packages of icons, with which the next build is done."""
    monkeypatch.setitem(build_icons.__kwdefaults__, "tables", tmp_path / "tables")
    return split_packages(tmp_path, monkeypatch)


def test_build_writes_what_the_name_opens(packages: Path, tmp_path: Path) -> None:
    said = silohash("data", "build", "icons", "--from", packages, "--cap", 8)
    assert said.code == 0, said.err
    assert "items: 80\n" in said.out
    assert (tmp_path / "data/icons/metadata.csv").is_file()
    entry = next(one for one in silohash("data", "list", "--json").document()["archives"] if one["key"] == "icons")
    assert (entry["files"], entry["protocols"]) == ("here", ["default", "unseen"])
    assert silohash("data", "check", "icons", "--json").document()["items"] == 80
    built = silohash("data", "build", "icons", "--from", packages, "--out", tmp_path / "out", "--json").document()
    assert (built["items"], built["folder"]) == (110, str(tmp_path / "out"))


def test_a_set_is_built_from_official_files_and_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_published(tmp_path / "published")
    monkeypatch.setattr(packed_builder, "FACTS", tmp_path / "facts")
    store_facts(tmp_path / "published", tmp_path / "facts")
    official = write_official("flickr8k-1k", tmp_path / "published", tmp_path / "official")
    monkeypatch.setenv("SILOHASH_DATA", str(tmp_path / "data"))
    (tmp_path / "data/flickr8k-1k").mkdir(parents=True)
    said = silohash("data", "build", "flickr8k-1k", "--from", official)
    assert said.code == 0, said.err
    assert "items: 20\n" in said.out
    assert "not built: features/image_mobilenetv2.npy: image = mobilenet; MobileNetV2" in said.out
    archive = open_archive("flickr8k-1k", options={"image": "jpeg", "text": "bow"})
    assert (len(archive), archive.text.shape[0]) == (20, 20)
    assert "[missing-file]" in silohash("data", "check", "flickr8k-1k").err
    assert "[setting-needed]" in silohash("data", "build", "coco18").err
    assert "[no-effect]" in silohash("data", "build", "fashion", "--from", official, "--cap", 5).err
    assert "coco18" in silohash("data", "build", "--help").out


def test_museums_are_built_from_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SILOHASH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SILOHASH_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(museum_builder, "LEAST_ITEMS", 6)
    (tmp_path / "data/museums").mkdir(parents=True)
    clock = Clock()
    with serving() as server:
        files, tables = write_museums(tmp_path, server.address)
        monkeypatch.setitem(build_museums.__kwdefaults__, "tables", tables)
        monkeypatch.setitem(build_museums.__kwdefaults__, "polite", Polite(clock.now, clock.wait))
        said = silohash("data", "build", "museums", "--from", files, "--cap", 5)
    assert said.code == 0, said.err
    assert "items: 25\n" in said.out
    assert server.address in said.err
    assert silohash("data", "check", "museums", "--json").document()["items"] == 25
    assert "never built" in silohash("data", "card", "museums").out
    said = silohash("data", "build", "museums", "--from", tmp_path / "data")
    assert "[missing-file]" in said.err
    assert "MetObjects.csv of https://github.com/metmuseum/openaccess" in said.err
    assert "[no-effect]" in silohash("data", "build", "museums", "--from", files, "--registry", "http://a.example").err


def test_build_says_what_is_missing(packages: Path, tmp_path: Path) -> None:
    assert "[unknown-name]" in silohash("data", "build", "icon").err
    assert "[missing-file]" in silohash("data", "build", "icons", "--from", tmp_path / "tables").err
    assert "[out-of-range]" in silohash("data", "build", "icons", "--from", packages, "--cap", -1).err
    assert "[wrong-address]" in silohash("data", "build", "icons", "--registry", "registry").err
    entry = next(one for one in silohash("data", "list", "--json").document()["archives"] if one["key"] == "icons")
    assert (entry["files"], entry["protocols"]) == ("", ["default", "unseen"])
    assert "silohash data build icons" in silohash("data", "check", "icons").err
    assert "license: MIT" in silohash("data", "card", "icons").out
