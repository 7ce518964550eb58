"""Everything that a user can get wrong gives one clear sentence and exit code 2, and changes nothing.

The kinds of bad input are rows of the tables in ``tests/bad_input``. Below them are the cases that need more than a row.
"""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from silohash.base import files
from silohash.run.folder import Run
from tests.bad_input import configs, options
from tests.bad_input import files as damaged_files
from tests.bad_input.harness import (
    QUICK,
    Bad,
    assert_answered_without,
    assert_refused,
    copy_items,
    tree,
    write_originals,
)
from tests.runs import Said, silohash, train, write_archive, write_config, write_metadata

ROWS = [*options.rows(), *configs.rows(), *damaged_files.rows()]
LEAST_KINDS = 300


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write one intact item of each kind."""
    folder = tmp_path_factory.mktemp("originals")
    write_originals(folder)
    return folder


@pytest.fixture(scope="module")
def archive(originals: Path) -> Path:
    return originals / "archive"


@pytest.fixture
def copy(originals: Path, tmp_path: Path) -> Run:
    """A trained, measured and indexed run, to be damaged."""
    return Run(shutil.copytree(originals / "run", tmp_path / "copy"))


@pytest.mark.parametrize("bad", ROWS, ids=lambda bad: bad.name)
def test_bad_input(bad: Bad, originals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_items(originals, tmp_path, bad.items())
    bad.make(tmp_path)
    before = tree(tmp_path)
    monkeypatch.chdir(tmp_path)
    (assert_refused if bad.ends else assert_answered_without)(silohash(*bad.command), *bad.says)
    assert tree(tmp_path) == before


def test_no_kind_is_counted_twice() -> None:
    assert len({bad.name for bad in ROWS}) == len(ROWS) >= LEAST_KINDS


def test_intact_items_are_accepted(originals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_items(originals, tmp_path, ["run", "other", "archive", "native", "run.toml", "study.toml"])
    monkeypatch.chdir(tmp_path)
    for command in (
        "search run parrot", "report run", "compare run other", "evaluate run", "resume run", "data check archive",
        "data check native", "partition run.toml", "index run --remove item-001",
    ):  # fmt: skip
        said = silohash(*command.split())
        assert said.code == 0, (command, said.err)


@pytest.mark.parametrize(
    "arguments",
    [
        ("trian",), ("search",), ("search", "x", "-k", "0"), ("search", "x", "-k", "many"),
        ("search", "x", "--radius", "-1"), ("search", "x", "--offset", "-1"),
        ("search", "x", "y", "z"), ("search", "x", "--hits", "3"), ("train",),
        ("data",), ("data", "chek"), ("encode", "x"), ("sweep", "x"), ("study", "x", "--processes", "0"), ("partition",),
        ("compare",), ("index", "x", "--model"), ("doctor", "now"),
    ],
)  # fmt: skip
def test_arguments_that_a_command_does_not_take(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = silohash(*arguments)
    assert (said.code, said.out == "" or arguments == ("data",)) == (2, True)
    assert "Traceback" not in said.err
    assert list(tmp_path.iterdir()) == []


def train_with(tmp_path: Path, archive: Path, *arguments: object) -> Said:
    config = write_config(tmp_path / "run.toml", archive, **QUICK)
    said = silohash("train", config, "--out", tmp_path / "out", *arguments)
    if said.code:
        assert not (tmp_path / "out").exists()
    return said


# --- rows of a folder ---


def own_folder(folder: Path, count: int = 24) -> tuple[Path, list[dict[str, str]]]:
    """A folder of small pictures; returns it and its rows."""
    folder.mkdir()
    rows = []
    for number in range(count):
        kind = ("red", "green", "blue")[number % 3]
        Image.new("RGB", (16, 16), kind).save(folder / f"{number}.png")
        row = {"file_name": f"{number}.png", "text": f"a {kind} square", "labels": kind}
        rows.append(row | {"split": "query" if number < 3 else "train"})
    write_metadata(folder, rows)
    return folder, rows


@pytest.mark.whole_run
def test_bad_rows_are_named_and_skipped(tmp_path: Path) -> None:
    folder, rows = own_folder(tmp_path / "mine")
    (folder / "5.png").write_bytes(b"no picture at all")
    (folder / "6.png").write_bytes((folder / "7.png").read_bytes()[:40])
    rows[8]["file_name"] = "gone.png"
    rows[9]["text"] = ""
    rows[9]["file_name"] = ""
    rows[10]["labels"] = "purple"
    rows[11]["text"] = ""
    write_metadata(folder, rows)
    (folder / "labels.txt").write_text("red\ngreen\nblue\n")
    said = silohash("data", "check", folder, "--json")
    assert said.code == 0
    skipped = said.document()["skipped"]
    assert [sentence.split(":")[0] for sentence in skipped] == [
        f"metadata.csv, row {row}" for row in (7, 8, 10, 11, 12)
    ]
    for sentence, part in zip(skipped, ("5.png", "6.png", "gone.png", "neither", '"purple"'), strict=True):
        assert part in sentence
        assert sentence.endswith("; left out")
    assert said.document()["items"] == 19
    config = write_config(tmp_path / "run.toml", folder, **QUICK, features={"image": {"kind": "pixels", "size": 16}})
    trained = silohash("train", config, "--out", tmp_path / "out")
    assert trained.code == 0, trained.err
    assert [line for line in trained.err.splitlines() if line.startswith("skipped: ")] == [
        f"skipped: {s}" for s in skipped
    ]


def test_folder_without_a_usable_row(tmp_path: Path) -> None:
    folder, rows = own_folder(tmp_path / "mine", 4)
    for row in rows:
        row["file_name"], row["text"] = "", ""
    write_metadata(folder, rows)
    assert_refused(
        silohash("data", "check", folder), "None of the 4 rows", "metadata.csv", "neither a picture nor a text"
    )


def test_nan_in_features(tmp_path: Path) -> None:
    own = write_archive(tmp_path / "archive", count=60)
    values = np.load(own / "image.npy")
    values[3, 1] = np.nan
    values[4] = np.nan
    np.save(own / "image.npy", values)
    said = train_with(tmp_path, own, "--json")
    assert said.code == 0, said.err
    assert "skipped: metadata.csv, row 5: image.npy holds NaN or infinity" in said.err
    assert all(row["value"] is None or 0 <= row["value"] <= 1 for row in said.document()["results"])


def test_rows_that_do_not_match(tmp_path: Path) -> None:
    own = write_archive(tmp_path / "archive", count=60)
    np.save(own / "image.npy", np.load(own / "image.npy")[:-1])
    assert_refused(train_with(tmp_path, own), "image.npy has 59 rows and", "metadata.csv has 60", "same order")
    (own / "image.npy").write_bytes(b"\x93NUMPY")
    assert_refused(train_with(tmp_path, own), "image.npy is damaged or has another format")


def test_archive_without_labels_or_queries(tmp_path: Path) -> None:
    own = write_archive(tmp_path / "archive", count=60)
    lines = (own / "metadata.csv").read_text().splitlines()
    rows = [dict(zip(lines[0].split(","), line.split(","), strict=True)) for line in lines[1:]]
    write_metadata(own, [{**row, "labels": ""} for row in rows])
    assert_refused(
        train_with(tmp_path, own), "learns from labels", 'Add a column "labels"', "set local.name to one of cmfh"
    )
    write_metadata(own, [{**row, "split": "query"} for row in rows])
    assert_refused(train_with(tmp_path, own), "archive")


def test_silos_with_one_item_or_without_a_label(tmp_path: Path) -> None:
    own = write_archive(tmp_path / "archive", count=60)
    lines = (own / "metadata.csv").read_text().splitlines()
    rows = [dict(zip(lines[0].split(","), line.split(","), strict=True)) for line in lines[1:]]
    for number, row in enumerate(rows):
        row["place"] = "tiny" if number == 7 else "unlabeled" if number % 6 == 1 else "large"
        row["labels"] = "" if row["place"] == "unlabeled" else row["labels"]
    write_metadata(own, rows)
    column = ("--set", "partition.kind=column", "--set", "partition.column=place", "--set", "partition.minimum=1")
    said = train_with(tmp_path, own, *column, "--json")
    assert said.code == 0, said.err
    records = Run(tmp_path / "out").rounds()[0].silos
    assert {silo.silo: silo.items for silo in records}["tiny"] == 1
    assert all(silo.rejected is None for silo in records)
    assert silohash("index", tmp_path / "out").code == 0


# --- files that do not belong together ---


@pytest.mark.whole_run
def test_index_of_another_model(copy: Run, archive: Path, tmp_path: Path) -> None:
    other = train(archive, tmp_path / "other", federated={"rounds": 2})
    shutil.rmtree(copy.model_folder)
    shutil.copytree(other.model_folder, copy.model_folder)
    said = silohash("search", copy.folder, "parrot", "--json")
    assert said.code == 2, "no silo answered"
    assert said.document()["hits"] == []
    reasons = said.document()["missing_silos"]
    assert set(reasons) == {"silo-1", "silo-2"}
    assert all("model" in reason for reason in reasons.values())
    assert "silo-2 did not answer: The index was built with model" in said.err


def test_config_of_a_run_that_was_changed(copy: Run) -> None:
    shutil.rmtree(copy.model_folder)
    text = copy.config_path.read_text()
    copy.config_path.write_text(text.replace("bits = 16", "bits = 32"))
    assert_refused(silohash("resume", copy.folder), "belongs to another config", "Put config.toml back")


# --- the disk ---


@pytest.fixture
def small_disk(tmp_path: Path):
    """A disk of 256 KiB; skipped where one may not be mounted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no disk may be mounted here")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.whole_run
def test_full_disk(small_disk: Path, archive: Path, tmp_path: Path) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * 200_000)
    config = write_config(tmp_path / "run.toml", archive, federated={"rounds": 3}, model={"hidden": 512})
    said = silohash("train", config, "--out", small_disk / "run")
    assert_refused(said, "The disk is full", "Free some space")
    left = [path for path in (small_disk / "run").rglob("*") if path.is_file()]
    assert not [path.name for path in left if path.name.endswith(".part")]
    for path in left:
        if path.suffix == ".json":
            json.loads(path.read_text())
    assert not (small_disk / "run" / "model").exists()


@pytest.mark.whole_run
def test_disk_that_is_full_at_the_first_write(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    config = write_config(tmp_path / "run.toml", archive, **QUICK)
    monkeypatch.setattr(files.os, "fsync", full)
    assert_refused(
        silohash("train", config, "--out", tmp_path / "out"), "The disk is full", "no partial file was left behind"
    )
    monkeypatch.undo()
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []
    assert silohash("train", config, "--out", tmp_path / "out").code == 0


@pytest.mark.whole_run
def test_folder_that_may_not_be_written(archive: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path / "run.toml", archive, **QUICK)
    (tmp_path / "file").write_text("")
    assert_refused(
        silohash("train", config, "--out", tmp_path / "file" / "out"), "may not be written", "another folder"
    )
