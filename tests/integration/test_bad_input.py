"""Everything a user can get wrong gives one clear sentence, exit code 2, and leaves nothing half-written."""

from __future__ import annotations

import errno
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from silohash import files
from silohash.runtime.indexing import index_run
from silohash.runtime.run import Run
from tests.runs import Said, silohash, train, write_archive, write_config, write_metadata

QUICK = {"federated": {"rounds": 1, "local_epochs": 1}}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_archive(tmp_path_factory.mktemp("data") / "archive", text="words")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, archive: Path) -> Run:
    """A trained and indexed run; tests that damage it work on a copy."""
    found = train(archive, tmp_path_factory.mktemp("runs") / "run", **QUICK)
    index_run(found)
    return found


@pytest.fixture
def copy(run: Run, tmp_path: Path) -> Run:
    import shutil

    return Run(shutil.copytree(run.folder, tmp_path / "copy"))


def assert_refused(said: Said, *parts: str) -> str:
    """Checks the form of a refusal and returns its sentence."""
    assert said.code == 2, said
    assert said.out == ""
    assert "Traceback" not in said.err
    sentence = said.err.strip().splitlines()[-1]
    assert sentence.startswith("silohash: ")
    for part in parts:
        assert part in sentence, sentence
    return sentence


def train_with(tmp_path: Path, archive: Path, *arguments: object, text: str = "") -> Said:
    config = write_config(tmp_path / "run.toml", archive, **QUICK)
    config.write_text(config.read_text() + text)
    said = silohash("train", config, "--out", tmp_path / "out", *arguments)
    if said.code:
        assert not (tmp_path / "out").exists()
    return said


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("train.bach=3", ('unknown key "train.bach"', 'did you mean "batch"')),
        ("fedrated.rounds=3", ('unknown key "fedrated"', 'did you mean "federated"')),
        ("train.batch=many", ("train.batch", "got 'many'")),
        ("local.bits=7", ("local.bits", "greater than or equal to 8", "got 7")),
        ("local.bits=300", ("local.bits", "less than or equal to 256", "got 300")),
        ("local.name=dcmg", ('did you mean "dcmh"',)),
        ("evaluate.ignore_labels=['parot']", ('no label "parot"', 'did you mean "parrot"')),
        ("partition.silos=4000", ("4000",)),
        ("data.path=/nowhere", ("/nowhere is not a folder", "metadata.csv")),
        ("data.name=glyfs", ("set either name",)),
        ("nonsense", ("section.key=value",)),
    ],
)
def test_wrong_config(tmp_path: Path, archive: Path, override: str, parts: tuple[str, ...]) -> None:
    assert_refused(train_with(tmp_path, archive, "--set", override), *parts)


def test_config_that_is_not_there_or_no_toml(tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    assert_refused(silohash("train", missing), f'The config file "{missing}" does not exist', f"silohash new {missing}")
    missing.write_text("[train\n")
    assert_refused(silohash("train", missing), "none.toml is not valid TOML", "line 1")
    assert not Path("runs/none").exists()


def test_config_by_that_name_is_there_already(tmp_path: Path) -> None:
    file = tmp_path / "new.toml"
    assert silohash("new", file).code == 0
    before = file.read_bytes()
    assert_refused(silohash("new", file), "already exists", "another name")
    assert file.read_bytes() == before


def test_run_exists_already(run: Run, tmp_path: Path, archive: Path) -> None:
    before = (run.folder / "rounds.jsonl").read_bytes()
    config = write_config(tmp_path / "run.toml", archive, **QUICK)
    assert_refused(
        silohash("train", config, "--out", run.folder), "already holds a run", f"silohash resume {run.folder}"
    )
    assert (run.folder / "rounds.jsonl").read_bytes() == before


@pytest.mark.parametrize("command", [["resume"], ["evaluate"], ["index"], ["report"], ["search", "words"]])
def test_folder_that_is_no_run(tmp_path: Path, command: list[str]) -> None:
    name, *rest = command
    assert_refused(silohash(name, tmp_path, *rest), f'"{tmp_path}" does not hold a run', "silohash train CONFIG")
    assert list(tmp_path.iterdir()) == []


def test_run_that_is_not_trained_or_indexed_yet(copy: Run) -> None:
    import shutil

    shutil.rmtree(copy.index_folder)
    assert_refused(silohash("search", copy.folder, "parrot"), "There is no index in", f"silohash index {copy.folder}")
    shutil.rmtree(copy.model_folder)
    assert_refused(silohash("index", copy.folder), "has no trained model yet", f"silohash resume {copy.folder}")
    assert_refused(silohash("evaluate", copy.folder), "has no trained model yet")
    assert not copy.index_folder.exists()


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
    assert_refused(train_with(tmp_path, own), "learns from labels", 'Add a column "labels"')
    write_metadata(own, [{**row, "split": "query"} for row in rows])
    assert_refused(train_with(tmp_path, own), "archive")


def test_silos_with_one_item_or_without_a_label(tmp_path: Path) -> None:
    own = write_archive(tmp_path / "archive", count=60)
    lines = (own / "metadata.csv").read_text().splitlines()
    rows = [dict(zip(lines[0].split(","), line.split(","), strict=True)) for line in lines[1:]]
    for number, row in enumerate(rows):
        row["place"] = "tiny" if number == 7 else "unlabelled" if number % 6 == 1 else "large"
        row["labels"] = "" if row["place"] == "unlabelled" else row["labels"]
    write_metadata(own, rows)
    column = ("--set", "partition.kind=column", "--set", "partition.column=place", "--set", "partition.minimum=1")
    said = train_with(tmp_path, own, *column, "--json")
    assert said.code == 0, said.err
    records = Run(tmp_path / "out").rounds()[0].silos
    assert {silo.silo: silo.items for silo in records}["tiny"] == 1
    assert all(silo.rejected is None for silo in records)
    assert silohash("index", tmp_path / "out").code == 0


# --- questions ---


def test_questions_that_cannot_be_asked(run: Run, tmp_path: Path) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no picture")
    vector = tmp_path / "vector.npy"
    np.save(vector, np.zeros(7, np.float32))
    assert_refused(silohash("search", run.folder), "exactly one of text, image and vector; none was given")
    assert_refused(silohash("search", run.folder, "parrot", "--image", broken), "text and image was given")
    assert_refused(silohash("search", run.folder, "  "), "The text is empty")
    assert_refused(
        silohash("search", run.folder, "--image", tmp_path / "none.png"),
        f'The file "{tmp_path / "none.png"}" does not exist',
    )
    assert_refused(silohash("search", run.folder, "--image", broken), "broken.png", "cannot be read as an image")
    assert_refused(
        silohash("search", run.folder, "--vector", broken),
        "broken.png",
        "is damaged or has another format",
        "numpy.save",
    )
    assert_refused(silohash("search", run.folder, "--vector", vector), "16", "7")
    assert_refused(
        silohash("search", run.folder, "--vector", vector, "--vector-of", "sound"), '"sound" is not a modality'
    )
    assert_refused(silohash("search", run.folder, "parrot", "--find", "sounds"), '"sounds" is not a modality')


def test_measures_that_there_are_not(run: Run) -> None:
    assert_refused(silohash("evaluate", run.folder, "--measure", "mPA@all"), "mPA", "evaluate.measures")
    assert_refused(silohash("evaluate", run.folder, "--evaluation", "GX"), '"GX" is not one of GG')
    assert_refused(silohash("evaluate", run.folder, "--task", "i2v"), '"i2v" is not one of i2t')
    assert_refused(silohash("evaluate", run.folder, "--ignore-label", "parot"), 'did you mean "parrot"')
    assert not run.results_path.exists()
    assert_refused(silohash("list", "locals"), 'did you mean "local"')


def test_typers_own_refusals_have_the_same_exit_code() -> None:
    assert silohash("trian").code == 2
    assert silohash("search").code == 2
    assert silohash("search", "x", "-k", "0").code == 2


# --- damaged files ---


def test_index_of_another_model(copy: Run, archive: Path, tmp_path: Path) -> None:
    other = train(archive, tmp_path / "other", federated={"rounds": 2})
    import shutil

    shutil.rmtree(copy.model_folder)
    shutil.copytree(other.model_folder, copy.model_folder)
    said = silohash("search", copy.folder, "parrot", "--json")
    assert said.code == 2, "no silo answered"
    assert said.document()["hits"] == []
    reasons = said.document()["missing_silos"]
    assert set(reasons) == {"silo-1", "silo-2", "silo-3"}
    assert all("model" in reason for reason in reasons.values())
    assert "silo-2 did not answer: The index was built with model" in said.err


@pytest.mark.parametrize("name", ["image.sqlite"])
def test_truncated_index(copy: Run, name: str) -> None:
    """The other silos answer, and the damaged one is named. Nothing is removed from any index."""
    path = copy.index_folder / "silo-2" / name
    for content in (path.read_bytes()[:100], b"something else"):
        path.write_bytes(content)
        said = silohash("search", copy.folder, "parrot", "--json")
        assert (said.code, {hit["silo"] for hit in said.document()["hits"]}) == (0, {"silo-1", "silo-3"})
        assert set(said.document()["missing_silos"]) == {"silo-2"}
        assert f"The index {path} is damaged" in said.document()["missing_silos"]["silo-2"]
        assert f"silo-2 did not answer: The index {path} is damaged" in silohash("search", copy.folder, "parrot").err
        assert_refused(silohash("index", copy.folder, "--remove", "item-001"), str(path))


@pytest.mark.parametrize("name", ["server.safetensors", "state.json"])
def test_truncated_checkpoint(copy: Run, name: str) -> None:
    import shutil

    shutil.rmtree(copy.model_folder)
    path = copy.checkpoint / name
    path.write_bytes(path.read_bytes()[:-20])
    assert_refused(silohash("resume", copy.folder), str(path), "damaged")
    assert not copy.model_folder.exists()


def test_truncated_model_and_records(copy: Run) -> None:
    weights = copy.model_folder / "weights-000.safetensors"
    weights.write_bytes(weights.read_bytes()[:-20])
    assert_refused(
        silohash("evaluate", copy.folder), str(weights), "damaged or replaced", f"silohash resume {copy.folder}"
    )
    assert_refused(silohash("search", copy.folder, "parrot"), str(weights))


def test_config_of_a_run_that_was_changed(copy: Run) -> None:
    import shutil

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


def test_folder_that_may_not_be_written(archive: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path / "run.toml", archive, **QUICK)
    (tmp_path / "file").write_text("")
    assert_refused(
        silohash("train", config, "--out", tmp_path / "file" / "out"), "may not be written", "another folder"
    )
