"""Studies from the file to the tables: run, stopped in every way, gone on with, failed, changed."""

from __future__ import annotations

import copy
import csv
import json
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from silohash.base.errors import UserError
from silohash.report.tables import read_results
from silohash.run.config.load import resolve
from silohash.run.config.toml import to_toml, toml_value
from silohash.run.events import Observer, read_rounds
from silohash.run.folder import Run
from silohash.study import worker
from silohash.study.config import load_study
from silohash.study.plots import write_plots
from silohash.study.results import collect
from silohash.study.tables import write_tables
from tests import interrupts
from tests.runs import silohash, write_archive
from tests.studies import (
    InThisProcess,
    figures_of,
    held_by_another_thread,
    quiet,
    rows_of,
    run_here,
    study_of,
    tiny_study,
)

GONE_SECONDS = 120
ROUNDS = 40


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_archive(tmp_path_factory.mktemp("data") / "archive", count=60)


@pytest.fixture(scope="module")
def whole(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods, two lengths, two seeds, never stopped."""
    out = tmp_path_factory.mktemp("whole") / "study"
    done = run_here(study_of(tiny_study(archive)), out)
    assert done.code == 0
    return out


def write_study(path: Path, archive: Path, **more: Any) -> Path:
    value = tiny_study(archive, **more)
    text = "".join(f"{name} = {toml_value(item)}\n" for name, item in value.items())
    path.write_text(text, encoding="utf-8")
    return path


def changed_times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


@pytest.mark.whole_run
def test_every_run_is_an_ordinary_one(archive: Path, whole: Path) -> None:
    results = collect(study_of(tiny_study(archive)), whole)
    assert results.missing == ()
    assert len(results.runs) == 8
    for found in results.runs:
        run = Run(found.folder)
        assert run.config.federated.name == found.choices["method"].lower()
        assert (run.config.local.bits, run.config.seed) == (int(found.choices["bits"]), found.seed)
        assert list(found.rows) == read_results(run.results_path)
        assert len(found.rounds) == run.config.federated.rounds
        assert set(found.per_query) == {(row.evaluation, row.task, row.measure) for row in found.rows}
        assert run.report_path.exists()
    assert len({found.queries for found in results.runs}) == 1
    names = [row.run for row in read_results(whole / "results.csv")]
    assert names[:: len(results.runs[0].rows)] == [found.folder.name for found in results.runs]


@pytest.mark.whole_run
def test_finished_runs_are_left_alone(archive: Path, whole: Path) -> None:
    before = changed_times(whole / "runs")
    assert run_here(study_of(tiny_study(archive)), whole, make_pool=None).code == 0
    assert changed_times(whole / "runs") == before


@pytest.mark.whole_run
def test_stopped_in_a_round_and_gone_on_with(archive: Path, whole: Path, tmp_path: Path) -> None:
    class Stopping(InThisProcess):
        started = 0

        def do(self, job: Any) -> Any:
            type(self).started += 1
            if self.started == 4:
                from silohash.training import experiment

                class Interrupt(Observer):
                    def round(self, record: Any) -> None:
                        raise KeyboardInterrupt

                experiment.train(resolve(job.config), job.folder, observers=[Interrupt()])
            return super().do(job)

    out = tmp_path / "study"
    with pytest.raises(KeyboardInterrupt):
        run_here(study_of(tiny_study(archive)), out, make_pool=Stopping)
    results = collect(study_of(tiny_study(archive)), out)
    assert (len(results.runs), len(results.missing)) == (3, 5)
    finished = changed_times(results.runs[0].folder)
    run_here(study_of(tiny_study(archive)), out)
    assert figures_of(out) == figures_of(whole)
    assert changed_times(results.runs[0].folder) == finished


@pytest.mark.whole_run
def test_one_failing_run_stops_no_other(archive: Path, whole: Path, tmp_path: Path) -> None:
    value = copy.deepcopy(tiny_study(archive))
    value["axis"][0]["choice"].insert(1, {"name": "Lost", "set": {"data": {"path": str(tmp_path / "nowhere")}}})
    value["axis"][0]["choice"][1]["set"]["federated.rounds"] = 1
    value["base"]["set"]["data.path"] = str(archive)
    console = quiet()
    done = run_here(study_of(value), tmp_path / "study", console, only=["method=Lost", "method=Local", "bits=16"])
    assert done.code == 2
    assert [outcome.job.name for outcome in done.failed] == ["Lost-16-seed0", "Lost-16-seed1"]
    assert "nowhere" in done.failed[0].message
    assert "Lost-16-seed0: failed: " in console.file.getvalue()
    assert [run.folder.name for run in done.results.runs] == ["Local-16-seed0", "Local-16-seed1"]
    of_whole = [row for row in read_results(whole / "results.csv") if row.run.startswith("Local-16")]
    assert [row for run in done.results.runs for row in run.rows] == of_whole
    assert len(done.results.missing) == 10


@pytest.mark.whole_run
def test_changed_study_is_refused_until_it_is_put_back_or_begun_anew(
    archive: Path, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "study"
    shutil.copytree(whole, out)
    changed = tiny_study(archive, set={"train.learning_rate": 0.01}, seeds=[0])
    with pytest.raises(
        UserError, match=r"FedAvg-16-seed0 \(and 3 more\).*train\.learning_rate was 0\.005 and is now 0\.01"
    ):
        run_here(study_of(changed), out)
    assert collect(study_of(changed), out).runs == ()
    console = quiet()
    done = run_here(study_of(changed), out, console, fresh=True, only=["method=Local", "bits=16"])
    assert console.file.getvalue().count("starts again") == 1
    assert {row["config_digest"] for row in rows_of(done)} != {
        row.config_digest for row in read_results(whole / "results.csv") if row.run == "Local-16-seed0"
    }
    assert (out / "runs" / "Local-16-seed0.aside-1" / "results.csv").exists()


@pytest.mark.whole_run
def test_broken_folder_is_done_again(archive: Path, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "study"
    shutil.copytree(whole, out)
    (out / "runs" / "Local-32-seed1" / "partition.json").write_text("{")
    (out / "runs" / "FedAvg-32-seed1" / "results.csv").write_text("run,dat")
    console = quiet()
    run_here(study_of(tiny_study(archive)), out, console)
    assert "Local-32-seed1: starts again; the old folder is now Local-32-seed1.aside-1" in console.file.getvalue()
    assert figures_of(out) == figures_of(whole)


@pytest.mark.whole_run
def test_two_studies_cannot_share_a_folder(archive: Path, tmp_path: Path) -> None:
    with (
        held_by_another_thread(tmp_path / "study"),
        pytest.raises(UserError, match=r"study is in use by process .* or choose another --out"),
    ):
        run_here(study_of(tiny_study(archive)), tmp_path / "study")


@pytest.mark.whole_run
def test_tuned_parameters_are_used(archive: Path, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    tune = {
        "trials": 3,
        "of": ["method"],
        "parameters": {"train.learning_rate": {"low": 1e-3, "high": 1e-1, "log": True}},
    }
    value = tiny_study(archive, tune=tune, seeds=[1])
    done = run_here(study_of(value), tmp_path / "study", only=["bits=16"])
    assert done.code == 0
    for found in done.results.runs:
        method = found.choices["method"]
        trials = [Run(tmp_path / "study" / "tuning" / method / f"trial-{number}") for number in range(3)]
        assert not any(trial.results_path.exists() for trial in trials)
        best = max(trials, key=lambda trial: max(record.validation or 0.0 for record in trial.rounds()))
        assert Run(found.folder).config.train.learning_rate == best.config.train.learning_rate
        assert best.config.train.learning_rate != 0.005
        assert best.config.seed == 1
    write_tables(done.results, tmp_path / "study")
    said = "Tuned for each method: train.learning_rate (best validation score of 3 trials)."
    assert all(said in path.read_text() for path in (tmp_path / "study" / "tables").glob("*.md"))
    again = run_here(study_of(value), tmp_path / "study", only=["bits=16"], make_pool=None)
    assert rows_of(again) == rows_of(done)


@pytest.mark.whole_run
def test_command_goes_on_and_writes_the_tables(archive: Path, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "study"
    shutil.copytree(whole, out)
    file = write_study(tmp_path / "study.toml", archive)
    said = silohash("study", file, "--out", out, "--json")
    assert said.code == 0, said.err
    document = said.document()
    assert [run["choices"]["bits"] for run in document["runs"][:4]] == ["16", "16", "32", "32"]
    assert (document["missing"], document["failed"]) == ([], [])
    assert list((out / "tables").iterdir())
    tables = {path.name: path.read_bytes() for path in (out / "tables").iterdir()}
    shutil.rmtree(out / "tables")
    assert silohash("study", file, "--out", out, "--tables-only").code == 0
    assert {path.name: path.read_bytes() for path in (out / "tables").iterdir()} == tables


@pytest.mark.whole_run
def test_command_says_what_is_wrong(archive: Path, tmp_path: Path) -> None:
    file = write_study(tmp_path / "study.toml", archive)
    said = silohash("study", file, "--out", tmp_path / "out", "--only", "methd=Local")
    assert said.code == 2
    assert "study.toml: --only" in said.err
    assert 'did you mean "method"' in said.err
    said = silohash("study", file, "--out", tmp_path / "out", "--set", "train.bach=2")
    assert said.code == 2
    assert 'did you mean "batch"' in said.err
    said = silohash("sweep", file, "--over", "local.bits")
    assert said.code == 2
    assert "section.key=value,value" in said.err
    assert not (tmp_path / "out").exists()


def long_study(path: Path, archive: Path) -> Path:
    """Two runs at a time whose rounds take long enough to be stopped in."""
    value = tiny_study(archive, processes=2, seeds=[0])
    value["axis"] = [{"name": "bits", "key": "local.bits", "values": [16, 32]}]
    value |= {"where": [], "table": {"rows": ["bits"]}}
    value["base"]["set"] |= {"federated.rounds": ROUNDS, "federated.local_epochs": 2}
    return write_file(path, value)


def write_file(path: Path, value: dict[str, Any]) -> Path:
    path.write_text("".join(f"{name} = {toml_value(item)}\n" for name, item in value.items()), encoding="utf-8")
    return path


def start(file: Path, out: Path) -> subprocess.Popen[str]:
    return interrupts.start("study", str(file), "--out", str(out))


def wait_for_rounds(process: subprocess.Popen[str], out: Path) -> None:
    """Waits until both runs have done a round."""
    while process.poll() is None:
        if all(read_rounds(out / "runs" / f"{bits}-seed0" / "rounds.jsonl") for bits in (16, 32)):
            return
        time.sleep(0.02)
    raise AssertionError(process.communicate())


def wait_until_free(out: Path) -> None:
    from silohash.base.locks import locked

    for folder in (out / "runs").iterdir():
        with locked(folder, wait_seconds=GONE_SECONDS):
            pass


@pytest.mark.whole_run
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_stopped_processes_leave_a_study_that_goes_on(archive: Path, tmp_path: Path, how: signal.Signals) -> None:
    file, out = long_study(tmp_path / "long.toml", archive), tmp_path / "out"
    with start(file, out) as process:
        wait_for_rounds(process, out)
        process.send_signal(how)
        _, beside = process.communicate(timeout=GONE_SECONDS)
    wait_until_free(out)
    done = {bits: len(read_rounds(out / "runs" / f"{bits}-seed0" / "rounds.jsonl")) for bits in (16, 32)}
    assert all(1 <= count < ROUNDS for count in done.values()), done
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert "Traceback" not in beside
        assert "with the same command" in beside.splitlines()[-1]
    config, console = load_study(file), quiet()
    assert run_here(config, out, console).code == 0
    assert console.file.getvalue().count("resumed after round") == 2
    run_here(config, tmp_path / "whole")
    assert figures_of(out) == figures_of(tmp_path / "whole")
    assert tables_of(config, out) == tables_of(config, tmp_path / "whole")


def tables_of(config: Any, out: Path) -> dict[str, bytes]:
    """Returns a study's tables; not those of costs, which hold seconds."""
    write_tables(collect(config, out), out)
    return {path.name: path.read_bytes() for path in (out / "tables").iterdir() if path.stem != "costs"}


@pytest.mark.whole_run
def test_runs_from_before_get_figures_that_need_their_codes(archive: Path, whole: Path, tmp_path: Path) -> None:
    shown = {"only": {"bits": ["16"], "method": ["FedAvg"]}}
    figures = [
        {"kind": "top_n", "first": [1, 5], **shown},
        {"kind": "tsne", "split": "train", "items": 20, "perplexity": 2, **shown},
        {"kind": "partition"},
        {"kind": "examples", "searches": 1, "hits": 2, **shown},
    ]
    table = {"rows": ["method"], "evaluations": ["XS"]}
    results = collect(study_of(tiny_study(archive, figures=figures, table=table)), whole)
    written, failed = write_plots(results, tmp_path)
    assert failed == []
    names = ["top-n-bits_16-XS", "tsne-bits_16", "partition", "examples-FedAvg-bits_16"]
    assert [path.stem for path in written] == [name for name in names for _ in range(3)]
    top, plane, partition, examples = (
        list(csv.DictReader((tmp_path / "plots" / f"{name}.csv").read_text("utf-8").splitlines())) for name in names
    )
    assert len(top) == 2 * 2 * 2 * 2  # seeds, tasks, precision and recall, and two N
    assert [len(plane), len(examples)] == [20, 2 * 2]
    labels = Run(results.runs[0].folder).archive.labels
    assert labels is not None
    assert sum(int(row["items"]) for row in partition) == labels.sum()
    kept = sorted(path.parent.name for path in whole.glob("runs/*/figure-data"))
    assert kept == ["FedAvg-16-seed0", "FedAvg-16-seed1"]


@pytest.mark.whole_run
@pytest.mark.slow
def test_recipe_with_every_kind_of_figure(repository: Path, tmp_path: Path) -> None:
    out = tmp_path / "study"
    said = silohash("study", repository / "recipes" / "figures.toml", "--smoke", "--out", out, "--json")
    assert said.code == 0, said.err
    document = said.document()
    assert document["undrawn"] == []
    assert len({Path(path).stem for path in document["plots"]}) == 11
    assert sorted(path.name for path in (out / "plots").glob("[!.]*")) == sorted(
        Path(path).name for path in document["plots"]
    )
    data = [path.name.split("-")[0] for path in (out / "runs" / "FedAvg-64-seed0" / "figure-data").iterdir()]
    assert sorted(data) == ["codes", "top"]
    assert not (out / "runs" / "FedAvg-16-seed0" / "figure-data").exists()
    before = {path: path.read_bytes() for path in (out / "plots").glob("[!.]*")}
    again = silohash("study", repository / "recipes" / "figures.toml", "--smoke", "--out", out, "--tables-only")
    assert again.code == 0, again.err
    assert all(f"  {path.name}" in again.out for path in before if path.suffix == ".svg")
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.whole_run
@pytest.mark.slow
def test_sweep_draws_over_its_values(archive: Path, tmp_path: Path) -> None:
    from tests.runs import tiny

    recipe = tmp_path / "run.toml"
    recipe.write_text(to_toml(tiny(archive, federated={"rounds": 1})), encoding="utf-8")
    out = tmp_path / "out"
    said = silohash(
        "sweep", recipe, "--over", "train.learning_rate=0.001,0.01", "--seeds", "0,1", "--out", out, "--json"
    )
    assert said.code == 0, said.err
    rates = [run["choices"]["train.learning_rate"] for run in said.document()["runs"]]
    assert rates == ["0.001", "0.001", "0.01", "0.01"]
    assert json.loads(json.dumps(said.document()))["study"] == str(out)
    assert any((out / "plots").iterdir())
    assert silohash("study", out / "study.toml", "--out", out, "--tables-only").code == 0


def test_child_says_why_it_fails_in_the_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert worker.FAILED != worker.USER_ERROR
    with pytest.raises(UserError):
        worker.train_or_resume(tmp_path / "run", {"data": {"path": str(tmp_path / "none")}}, figures=True)
