"""What a study does with folders that it finds: goes on, leaves alone, sets aside, or refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from silohash.base.errors import RunChanged
from silohash.report.finish import finish_run
from silohash.run.config.load import load_config
from silohash.run.folder import Run
from silohash.study.jobs import Job, difference, set_aside, state_of, unfinished
from tests.runs import tiny, train, write_archive

SECTIONS: dict[str, Any] = {"federated": {"rounds": 2, "local_epochs": 1}}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_archive(tmp_path_factory.mktemp("data") / "archive", count=60)


@pytest.fixture(scope="module")
def finished(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = train(archive, tmp_path_factory.mktemp("run") / "run", **SECTIONS)
    finish_run(run)
    return run.folder


@pytest.fixture
def job(archive: Path, finished: Path, tmp_path: Path) -> Job:
    shutil.copytree(finished, tmp_path / "run")
    return Job("the run", tmp_path / "run", load_config(tiny(archive, **SECTIONS)))


def look(job: Job, *, fresh: bool = False) -> tuple[bool, list[str]]:
    """Returns whether there is something to do, and what was said."""
    said: list[str] = []
    return bool(unfinished([job], said.append, fresh=fresh)), said


@pytest.mark.whole_run
def test_finished_run_is_left_alone(job: Job) -> None:
    before = {path: path.read_bytes() for path in job.folder.rglob("*") if path.is_file() and path.name != ".lock"}
    assert state_of(job) == "finished"
    assert look(job) == (False, [])
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.whole_run
def test_nothing_there_is_new(job: Job, tmp_path: Path) -> None:
    other = Job("other", tmp_path / "other", job.config)
    assert state_of(other) == "new"
    assert look(other) == (True, [])
    assert not other.folder.exists()


@pytest.mark.whole_run
@pytest.mark.parametrize("name", ["results.csv", "per_query.safetensors", "report.html"])
@pytest.mark.parametrize("cut", [False, True])
def test_missing_figures_are_made_from_what_was_trained(job: Job, name: str, cut: bool) -> None:
    path = job.folder / name
    if cut and name != "report.html":
        path.write_bytes(path.read_bytes()[:-5])
    else:
        path.unlink()
    assert state_of(job) == "started"
    assert look(job) == (True, [])
    assert (job.folder / "checkpoint").exists()


@pytest.mark.whole_run
def test_trial_is_finished_when_it_is_trained(job: Job) -> None:
    trial = Job("trial", job.folder, job.config, figures=False)
    for name in ("results.csv", "per_query.safetensors", "report.html"):
        (job.folder / name).unlink()
    assert state_of(trial) == "finished"
    (job.folder / "model" / "model.json").unlink()
    assert state_of(trial) == "started"


@pytest.mark.whole_run
@pytest.mark.parametrize(
    "name", ["config.toml", "partition.json", "rounds.jsonl", "checkpoint/state.json", "checkpoint/server.safetensors"]
)
def test_damaged_run_is_set_aside_with_a_word(job: Job, name: str) -> None:
    path = job.folder / name
    content = path.read_bytes()
    path.write_bytes(b"{" + content[: len(content) // 2])
    if name == "rounds.jsonl":
        path.write_bytes(b"{damaged\n" + content)
    (job.folder / "model" / "model.json").unlink()
    todo, said = look(job)
    assert todo
    assert len(said) == 1
    assert "the run: starts again; the old folder is now run.aside-1" in said[0]
    assert path.name in said[0]
    assert not job.folder.exists()
    assert (job.folder.parent / "run.aside-1" / name).exists()


@pytest.mark.whole_run
def test_a_trained_run_does_not_need_its_checkpoint(job: Job) -> None:
    (job.folder / "checkpoint" / "server.safetensors").unlink()
    assert look(job) == (False, [])


@pytest.mark.whole_run
def test_checkpoint_without_a_config_is_not_gone_on_with(job: Job) -> None:
    (job.folder / "config.toml").unlink()
    _, said = look(job)
    assert "it has checkpoint but no config.toml" in said[0]


@pytest.mark.whole_run
def test_changed_settings_are_refused_and_named(job: Job, archive: Path) -> None:
    changed = {"federated": {"rounds": 5, "local_epochs": 1}, "local": {"bits": 32, "name": "dcmh"}}
    other = Job("the run", job.folder, load_config(tiny(archive, **changed)))
    with pytest.raises(RunChanged) as caught:
        look(other)
    text = str(caught.value)
    assert "the run was started with other settings" in text
    assert "local.bits was 16 and is now 32; federated.rounds was 2 and is now 5" in text
    assert "--fresh" in text
    assert job.folder.exists()


@pytest.mark.whole_run
def test_nothing_is_moved_when_one_run_is_refused(job: Job, archive: Path, tmp_path: Path) -> None:
    shutil.copytree(job.folder, tmp_path / "broken")
    (tmp_path / "broken" / "partition.json").unlink()
    broken = Job("broken", tmp_path / "broken", job.config)
    changed = Job("changed", job.folder, load_config(tiny(archive, federated={"rounds": 5})))
    with pytest.raises(RunChanged):
        unfinished([broken, changed], print)
    assert (tmp_path / "broken" / "config.toml").exists()


@pytest.mark.whole_run
def test_changed_run_is_begun_anew_when_asked(job: Job, archive: Path) -> None:
    other = Job("the run", job.folder, load_config(tiny(archive, federated={"rounds": 5})))
    todo, said = look(other, fresh=True)
    assert todo
    assert "its settings have changed" in said[0]
    assert not job.folder.exists()
    assert (job.folder.parent / "run.aside-1" / "results.csv").exists()


@pytest.mark.whole_run
def test_machine_settings_are_no_change(job: Job, archive: Path) -> None:
    sections = {**SECTIONS, "train": {"threads": 7, "workers": 3}}
    assert look(Job("the run", job.folder, load_config(tiny(archive, **sections)))) == (False, [])


def test_many_differences_are_counted(archive: Path) -> None:
    before = load_config(tiny(archive))
    now = load_config(
        tiny(archive, local={"bits": 32}, model={"hidden": 32, "dropout": 0.2}, train={"batch": 8, "threads": 4})
    )
    assert difference(before, now).count(" was ") == 3
    assert difference(before, now).endswith("and 1 more")


def test_names_aside_are_free_ones(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "which.json").write_text(json.dumps(number))
        assert set_aside(tmp_path / "run").name == f"run.aside-{number}"
    assert json.loads((tmp_path / "run.aside-2" / "which.json").read_text()) == 2
    assert not Run(tmp_path / "run").config_path.exists()
