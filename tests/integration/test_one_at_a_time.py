"""Several processes that want to write to the same run, and processes that are killed while they write."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from silohash.base.files import PART
from silohash.run.folder import Run
from tests.runs import Said, silohash, train, write_archive, write_config, write_metadata

QUICK = {"federated": {"rounds": 1, "local_epochs": 1}}
COMMAND = "import sys; from silohash.cli.app import main; sys.argv[0] = 'silohash'; main()"
KILLED = """
import os, pathlib, signal, sys
name, replace = sys.argv.pop(1), pathlib.Path.replace

def replace_or_die(self, target):
    if pathlib.Path(target).name == name:
        os.kill(os.getpid(), signal.SIGKILL)
    return replace(self, target)

pathlib.Path.replace = replace_or_die
"""
"""Kills the process just before it puts a file or a folder of some name in place."""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_archive(tmp_path_factory.mktemp("data") / "archive", count=60, text="words")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, archive: Path) -> Run:
    """A trained, measured and indexed run."""
    folder = tmp_path_factory.mktemp("runs")
    config = write_config(folder / "run.toml", archive, **QUICK)
    assert silohash("train", config, "--out", folder / "run").code == 0
    return Run.open(folder / "run")


@pytest.fixture
def copy(trained: Run, tmp_path: Path) -> Run:
    import shutil

    return Run.open(shutil.copytree(trained.folder, tmp_path / "copy"))


@contextmanager
def training(config: Path, out: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that trains a run, from its first round on."""
    command = [sys.executable, "-c", COMMAND, "train", str(config), "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 300
        while not (out / "rounds.jsonl").exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        try:
            yield process
        finally:
            process.kill()


def killed_at(name: str, *arguments: object) -> None:
    """Runs a command that is killed just before it puts ``name`` in place."""
    command = [sys.executable, "-c", f"{KILLED}\n{COMMAND}", name, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


def unfinished(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if PART.fullmatch(path.name)]


def content(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(said: Said, *parts: str) -> None:
    assert (said.code, said.out) == (2, ""), said
    *_, sentence, _ = said.err.splitlines()  # the last line is the key of the error
    for part in parts:
        assert part in sentence, sentence


@pytest.mark.whole_run
def test_while_a_run_is_trained_no_other_command_writes_to_it(archive: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path / "run.toml", archive, federated={"rounds": 5000, "local_epochs": 1})
    out = tmp_path / "run"
    with training(config, out) as process:
        holder = f"{out} is in use by process {process.pid} on "
        who = (holder, " since 20", f"(silohash train {config} --out {out})", "Wait until it has finished")
        for command in (("resume", out), ("train", config, "--out", out), ("evaluate", out), ("index", out)):
            refused(silohash(*command), *who)
        process.kill()
        process.wait()
    refused(silohash("train", config, "--out", out), "already holds a run", f"silohash resume {out}")
    refused(silohash("evaluate", out), "has no trained model yet")
    assert not (out / "results.csv").exists()


@pytest.mark.whole_run
def test_a_run_is_searched_while_another_process_writes_to_it(copy: Run) -> None:
    hold = (
        "import sys, pathlib; from silohash.base.locks import locked_run\nwith locked_run(pathlib.Path(sys.argv[1])):"
    )
    command = [sys.executable, "-c", f"{hold}\n print('held', flush=True); sys.stdin.read()", str(copy.folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        refused(silohash("index", copy.folder, "--remove", "item-001"), f"in use by process {process.pid}")
        found = silohash("search", copy.folder, "parrot", "--json")
        assert found.code == 0, found
        assert found.document()["hits"]
        process.kill()


@pytest.mark.whole_run
@pytest.mark.parametrize(
    ("name", "killed", "then"),
    [
        ("model", ("resume",), ("resume",)),
        ("checkpoint", ("resume",), ("evaluate",)),
        ("silo-2", ("index",), ("index",)),
        ("silo-2", ("index",), ("evaluate",)),
        ("results.csv", ("evaluate",), ("index",)),
    ],
)
def test_what_a_killed_command_left_is_removed_by_the_next(
    copy: Run, name: str, killed: tuple[str, ...], then: tuple[str, ...]
) -> None:
    if name == "checkpoint":  # a trained run writes no checkpoint
        (copy.checkpoint / "state.json").unlink()
        copy.rounds_path.unlink()
    killed_at(name, *killed, copy.folder)
    assert unfinished(copy.folder)
    done = silohash(*then, copy.folder)
    assert done.code == 0, done
    assert unfinished(copy.folder) == []
    assert silohash("search", copy.folder, "parrot").code == 0


@pytest.mark.whole_run
def test_a_killed_training_is_started_again_in_the_same_folder(archive: Path, tmp_path: Path) -> None:
    """The config is written last, so that without it there is no run yet."""
    config = write_config(tmp_path / "run.toml", archive, **QUICK)
    out = tmp_path / "run"
    killed_at("config.toml", "train", config, "--out", out)
    assert not Run(out).config_path.exists()
    assert (out / "partition.json").exists()
    done = silohash("train", config, "--out", out)
    assert done.code == 0, done
    assert unfinished(out) == []


@pytest.mark.whole_run
@pytest.mark.parametrize("name", ["report.html", "config.toml", "results.csv", "notes.txt"])
def test_a_folder_of_the_user_is_not_written_to(archive: Path, tmp_path: Path, name: str) -> None:
    config = write_config(tmp_path / "run.toml", archive, **QUICK)
    study = tmp_path / "study.toml"
    study.write_text(f'[base]\nrecipe = "{config}"\n[[axis]]\nname = "bits"\nkey = "local.bits"\nvalues = [16]\n')
    out = tmp_path / "mine"
    out.mkdir()
    (out / name).write_text("mine")
    for command in (("train", config), ("study", study), ("demo",), ("sweep", config, "--over", "local.bits=16")):
        refused(silohash(*command, "--out", out), str(out), f"{name}", "--out")
        assert content(out) == {Path(name): b"mine"}
    (out / "seed-1").mkdir()
    (out / "seed-1" / name).write_text("mine")
    refused(silohash("train", config, "--out", out, "--seeds", "0,1"), "seed-1", name)
    assert not (out / "seed-0").exists()


@pytest.mark.whole_run
def test_a_file_of_the_user_is_not_replaced(trained: Run, tmp_path: Path) -> None:
    for name, command in (("a.html", "report"), ("a.csv", "encode"), ("a.npz", "encode")):
        path = tmp_path / name
        path.write_text("mine")
        options = ("--modality", "text") if command == "encode" else ()
        refused(silohash(command, trained.folder, "--out", path, *options), str(path), "was not written by silohash")
        assert path.read_text() == "mine"
        path.unlink()
        for _ in range(2):  # what silohash wrote is replaced
            done = silohash(command, trained.folder, "--out", path, *options)
            assert done.code == 0, done
    assert silohash("report", trained.folder).code == 0


@pytest.mark.whole_run
@pytest.mark.parametrize("wrong", [("--set", "local.bits=7"), ("--set", "partition.silos=1000")])
def test_a_refused_config_leaves_no_folder(archive: Path, tmp_path: Path, wrong: tuple[str, str]) -> None:
    config = write_config(tmp_path / "run.toml", archive, **QUICK)
    out = tmp_path / "runs" / "mine"
    assert silohash("train", config, "--out", out, *wrong, "--tensorboard").code == 2
    assert not out.parent.exists()
    out.mkdir(parents=True)
    assert silohash("train", config, "--out", out, *wrong).code == 2
    assert list(out.iterdir()) == []


@pytest.mark.whole_run
def test_a_changed_archive_is_refused_by_all_that_use_it(tmp_path: Path) -> None:
    import csv

    folder = write_archive(tmp_path / "birds", count=60, text="words")
    run = train(folder, tmp_path / "run", **QUICK)
    assert silohash("index", run.folder).code == 0
    with (folder / "metadata.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    labels = rows[5]["labels"]
    rows[5]["labels"] = "violin" if labels != "violin" else "tram"
    write_metadata(folder, rows)
    before = content(run.folder)
    for command in ("resume", "evaluate", "index", "report"):
        refused(
            silohash(command, run.folder), '"birds" has changed', "1 item with other labels (item-005)", "Restore it"
        )
    assert content(run.folder) == before
    assert silohash("search", run.folder, "parrot").code == 0
    assert silohash("index", run.folder, folder, "--name", "as-it-is-now").code == 0
    rows[5]["labels"] = labels
    write_metadata(folder, rows)
    assert silohash("evaluate", run.folder).code == 0


@pytest.mark.whole_run
def test_a_moved_archive_is_the_same_run(tmp_path: Path) -> None:
    import shutil

    folder = write_archive(tmp_path / "birds", count=60, text="words")
    run = train(folder, tmp_path / "run", **QUICK)
    shutil.copytree(folder, tmp_path / "elsewhere" / "birds", copy_function=shutil.copyfile)
    shutil.rmtree(folder)
    refused(silohash("resume", run.folder), f"{folder}, does not exist", f"[data] of {run.config_path}")
    text = run.config_path.read_text()
    run.config_path.write_text(text.replace(str(folder), str(tmp_path / "elsewhere" / "birds")))
    for command in ("resume", "evaluate", "index"):
        done = silohash(command, run.folder)
        assert done.code == 0, done


def test_contents_are_read_again_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture changes, and its size and time are put back."""
    import os

    from PIL import Image

    monkeypatch.setenv("SILOHASH_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "birds"
    folder.mkdir()
    rows = [{"file_name": f"{number}.bmp", "text": f"bird {number}"} for number in range(4)]
    for row in rows:
        Image.new("RGB", (8, 8), "red").save(folder / row["file_name"])
        os.utime(folder / row["file_name"], (1_700_000_000, 1_700_000_000))
    write_metadata(folder, rows)
    assert silohash("data", "check", folder, "--full", "--json").document()["silently_changed"] == []
    Image.new("RGB", (8, 8), "blue").save(folder / "2.bmp")
    os.utime(folder / "2.bmp", (1_700_000_000, 1_700_000_000))
    digests = [line for line in silohash("data", "card", folder).out.splitlines() if line.startswith("digest")]
    done = silohash("data", "check", folder, "--full")
    assert done.code == 0
    assert f"{folder / '2.bmp'}: the content has changed, but not the size and the time" in done.out.splitlines()
    again = [line for line in silohash("data", "card", folder).out.splitlines() if line.startswith("digest")]
    assert digests != again
    assert "not the size" not in silohash("data", "check", folder, "--full").out
