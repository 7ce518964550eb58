"""Searches for parameters: the same number of trials each, judged by validation figures, and gone on with."""

from __future__ import annotations

import csv
import math
import sys
import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from silohash.base.errors import DependencyMissing, RunChanged, ValidationNeeded, WrongOverride
from silohash.study.config import Parameter
from silohash.study.execution import StudyProgress, run_study
from silohash.study.jobs import Job, run_jobs, unfinished
from silohash.study.plan import read_best
from silohash.study.tuning import Tuning, ends, is_at_end, searches
from tests.studies import Pretending, pretending, quiet, study_of, tiny_study

pytest.importorskip("optuna")

RATE = {"low": 1e-4, "high": 1e-1, "log": True}
TUNE: dict[str, Any] = {"trials": 6, "of": ["method"], "parameters": {"train.learning_rate": RATE}}


def near(job: Job) -> float:
    """A validation figure that is highest at a learning rate of 0.003."""
    return 1.0 - abs(math.log10(job.config.train.learning_rate / 0.003)) / 4


def study(tmp_path: Path, **tune: Any) -> Any:
    return study_of(tiny_study(tmp_path / "archive", tune={**TUNE, **tune}))


def tuned(
    config: Any, out: Path, workers: type[Pretending], *, processes: int = 1, fresh: bool = False
) -> dict[str, dict[str, Any]]:
    """Runs the searches with workers that pretend, and returns the best of each."""
    with closing(Tuning(config, config.tune, out, print, fresh=fresh)) as tuning:
        with StudyProgress(quiet(), "trials", tuning.left(tuning.searches)) as progress:
            run_jobs([tuning.chain(search) for search in tuning.searches], processes, progress, workers)
        return tuning.best()


def trials_of(out: Path) -> list[dict[str, str]]:
    with (out / "tuning" / "trials.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.whole_run
def test_each_choice_gets_the_same_trials_and_its_best_is_kept(tmp_path: Path) -> None:
    config = study(tmp_path)
    workers = pretending(near)
    found = tuned(config, tmp_path / "out", workers)
    rows = trials_of(tmp_path / "out")
    assert [row["search"] for row in rows] == ["FedAvg"] * 6 + ["Local"] * 6
    assert len(workers.done) == 12
    for name in ("FedAvg", "Local"):
        mine = [row for row in rows if row["search"] == name]
        best = max(mine, key=lambda row: float(row["validation"]))
        assert found[name] == {"train.learning_rate": float(best["train.learning_rate"])}
        assert len({row["train.learning_rate"] for row in mine}) == 6
    assert found == read_best(tmp_path / "out" / "tuning" / "best.toml")
    about = tomllib.loads((tmp_path / "out" / "tuning" / "best.toml").read_text())
    assert about["Local"]["trials"] == 6
    assert about["Local"]["validation"] == max(float(row["validation"]) for row in rows[6:])


@pytest.mark.parametrize(
    ("parameter", "at_end", "within"),
    [
        ({"low": 0.0, "high": 1.0}, [0.0, 0.05, 0.95, 1.0], [0.06, 0.5, 0.94]),
        ({"low": 1e-4, "high": 1.0, "log": True}, [1e-4, 1.58e-4, 0.64, 1.0], [1.6e-4, 0.01, 0.63]),
        ({"low": 1, "high": 41}, [1, 3, 39, 41], [4, 38]),
        ({"values": [64, 16, 32]}, [16, 64], [32]),
        ({"values": [0.0, 0.5]}, [], [0.0, 0.5]),
        ({"values": ["adam", "sgd", "adamw"]}, [], ["adam", "adamw"]),
        ({"values": [True, False]}, [], [True, False]),
        ({"low": 2.0, "high": 2.0}, [], [2.0]),
    ],
)
def test_ends_of_ranges(parameter: dict[str, Any], at_end: list[Any], within: list[Any]) -> None:
    made = Parameter(**parameter)
    assert all(is_at_end(made, value) for value in at_end)
    assert not any(is_at_end(made, value) for value in within)


@pytest.mark.whole_run
def test_best_value_at_an_end_of_its_range_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    near_end = {**RATE, "low": 2.9e-3}
    tuned(study(tmp_path, parameters={"train.learning_rate": near_end}), tmp_path / "one", pretending(near))
    assert capsys.readouterr().out.startswith("FedAvg: the best train.learning_rate = 0.00")
    tuned(study(tmp_path), tmp_path / "two", pretending(near))
    assert capsys.readouterr().out == ""


@pytest.mark.whole_run
def test_figure_is_the_best_of_the_rounds(tmp_path: Path) -> None:
    config = study(tmp_path, trials=1)
    tuned(config, tmp_path / "out", pretending(lambda job: 0.75))
    assert {float(row["validation"]) for row in trials_of(tmp_path / "out")} == {0.75}


@pytest.mark.whole_run
def test_search_does_not_depend_on_processes_and_stops(tmp_path: Path) -> None:
    config = study(tmp_path, trials=4)
    tuned(config, tmp_path / "whole", pretending(near))
    tuned(config, tmp_path / "beside", pretending(near), processes=2)

    class Stopping(pretending(near)):  # type: ignore[misc]
        def do(self, job: Job) -> Any:
            if len(self.done) == 5:
                raise KeyboardInterrupt
            return super().do(job)

    with pytest.raises(KeyboardInterrupt):
        tuned(config, tmp_path / "stopped", Stopping)
    again = pretending(near)
    tuned(config, tmp_path / "stopped", again)
    assert len(again.done) == 8 - 5
    assert trials_of(tmp_path / "stopped") == trials_of(tmp_path / "whole") == trials_of(tmp_path / "beside")
    for name in ("stopped", "beside"):
        path = Path("tuning") / "best.toml"
        assert (tmp_path / name / path).read_bytes() == (tmp_path / "whole" / path).read_bytes()


@pytest.mark.whole_run
def test_first_trial_takes_what_the_config_says(tmp_path: Path) -> None:
    mu = {"low": 1e-3, "high": 1.0, "log": True}
    value = tiny_study(tmp_path / "archive", tune={**TUNE, "trials": 3, "parameters": {"train.learning_rate": RATE}})
    value["base"]["set"]["train.learning_rate"] = 0.02
    tuned(study_of(value), tmp_path / "out", pretending(near))
    firsts = [row for row in trials_of(tmp_path / "out") if row["trial"] == "0"]
    assert {float(row["train.learning_rate"]) for row in firsts} == {0.02}
    value["axis"][0] = {"name": "method", "key": "federated.name", "values": ["fedprox"]}
    value.pop("where")
    value["tune"] = {
        **TUNE,
        "trials": 2,
        "parameters": {"federated.proximal_weight": mu, "train.batch": {"values": [7, 9]}},
    }
    tuned(study_of(value), tmp_path / "prox", pretending(lambda job: 0.5))
    first, second = trials_of(tmp_path / "prox")
    assert float(first["federated.proximal_weight"]) == 0.01 != float(second["federated.proximal_weight"])
    assert first["train.batch"] in {"7", "9"}  # the config's own may not be chosen


@pytest.mark.whole_run
def test_more_trials_go_on_from_those_that_are_there(tmp_path: Path) -> None:
    tuned(study(tmp_path, trials=2), tmp_path / "out", pretending(near))
    first = trials_of(tmp_path / "out")
    more = pretending(near)
    tuned(study(tmp_path, trials=4), tmp_path / "out", more)
    assert len(more.done) == 4
    assert [row for row in trials_of(tmp_path / "out") if int(row["trial"]) < 2] == first


@pytest.mark.whole_run
def test_scored_trials_keep_neither_checkpoint_nor_model(tmp_path: Path) -> None:
    def with_files(job: Job) -> float | None:
        for name in ("checkpoint", "model"):
            (job.folder / name).mkdir(parents=True)
            (job.folder / name / "values").write_bytes(b"1")
        return None if job.name.endswith("trial 1") else near(job)

    tuned(study(tmp_path, trials=2), tmp_path / "out", pretending(with_files))
    kept = sorted(str(path.relative_to(tmp_path / "out" / "tuning")) for path in tmp_path.rglob("values"))
    assert kept == [f"{name}/trial-1/{part}/values" for name in ("FedAvg", "Local") for part in ("checkpoint", "model")]


@pytest.mark.whole_run
def test_failed_trial_counts_and_is_never_the_best(tmp_path: Path) -> None:
    def some(job: Job) -> float | None:
        return None if job.name in {"FedAvg, trial 0", "FedAvg, trial 2"} else near(job)

    found = tuned(study(tmp_path), tmp_path / "out", pretending(some))
    rows = [row for row in trials_of(tmp_path / "out") if row["search"] == "FedAvg"]
    assert [row["state"] for row in rows] == ["fail", "complete", "fail", "complete", "complete", "complete"]
    assert found["FedAvg"]["train.learning_rate"] in {
        float(row["train.learning_rate"]) for row in rows if row["validation"]
    }


def test_search_that_was_stopped_has_not_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = study(tmp_path)
    with closing(Tuning(config, config.tune, tmp_path / "out", print)) as tuning:
        tuning.job(tuning.searches[0], 0)
        assert tuning.best() == {}
    assert capsys.readouterr().out == ""


@pytest.mark.whole_run
def test_search_without_a_usable_trial_leaves_its_runs_out(tmp_path: Path) -> None:
    config = study(tmp_path, trials=2)
    workers = pretending(lambda job: None if "Local" in job.name else near(job))
    console = quiet()
    done = run_study(config, tmp_path / "out", console, make_pool=workers)
    assert done.code == 2
    assert [outcome.job.name for outcome in done.failed] == ["Local, trial 0", "Local, trial 1"]
    assert "Local: every trial failed" in console.file.getvalue()
    runs = [name for name in workers.done if "trial" not in name]
    assert runs
    assert all(name.startswith("FedAvg") for name in runs)


@pytest.mark.whole_run
def test_other_parameters_are_another_search(tmp_path: Path) -> None:
    tuned(study(tmp_path, trials=2), tmp_path / "out", pretending(near))
    other = study(tmp_path, trials=2, parameters={"train.learning_rate": {**RATE, "high": 0.5}})
    with pytest.raises(RunChanged, match="FedAvg"):
        tuned(other, tmp_path / "out", pretending(near))
    workers = pretending(near)
    tuned(other, tmp_path / "out", workers, fresh=True)
    assert len(workers.done) == 4
    assert (tmp_path / "out" / "tuning" / "FedAvg.aside-1").exists()


@pytest.mark.whole_run
def test_kinds_of_parameters(tmp_path: Path) -> None:
    parameters = {
        "train.batch": {"low": 4, "high": 8},
        "train.optimizer": {"values": ["adam", "sgd"]},
        "train.weight_decay": {"low": 0.0, "high": 0.1, "only": {"method": ["FedAvg"]}},
    }
    config = study(tmp_path, parameters=parameters)
    seen: list[Job] = []

    def figure(job: Job) -> float:
        seen.append(job)
        return 0.5

    found = tuned(config, tmp_path / "out", pretending(figure))
    assert set(found["FedAvg"]) == set(parameters)
    assert set(found["Local"]) == {"train.batch", "train.optimizer"}
    assert {job.config.train.batch for job in seen} <= set(range(4, 9))
    assert {job.config.train.weight_decay for job in seen if "Local" in job.name} == {1e-2}
    assert ends(Parameter(low=1, high=3)) == (1, 3)
    assert isinstance(ends(Parameter(low=1, high=3))[0], int)
    assert ends(Parameter(low=0.5, high=3)) == (0.5, 3)
    assert ends(Parameter(values=("a", "b"))) == ("a", "b")


def test_trials_never_ask_the_queries(tmp_path: Path) -> None:
    config = study(tmp_path, trials=1)
    with closing(Tuning(config, config.tune, tmp_path / "out", print)) as tuning:
        jobs = [tuning.job(search, 0) for search in tuning.searches]
        again = [tuning.job(search, 0) for search in tuning.searches]
    assert [job.figures for job in jobs] == [False, False]
    assert [job.config.seed for job in jobs] == [0, 0]
    assert [job.config.local.bits for job in jobs] == [16, 16]
    assert [job.config.digest() for job in again] == [job.config.digest() for job in jobs]
    assert unfinished(jobs, print) == jobs


def test_validation_is_needed(tmp_path: Path) -> None:
    value = tiny_study(tmp_path / "archive", tune=TUNE)
    value["base"]["set"]["evaluate.validation"] = 0.0
    config = study_of(value)
    assert config.tune is not None
    with pytest.raises(ValidationNeeded, match="FedAvg"):
        searches(config, config.tune)


@pytest.mark.whole_run
@pytest.mark.parametrize(("key", "high"), [("train.learning_rat", 1.0), ("train.batch", 0.5)])
def test_impossible_parameter_is_refused_before_any_trial(tmp_path: Path, key: str, high: float) -> None:
    config = study(tmp_path, parameters={key: {"low": 0.1, "high": high}})
    workers = pretending(near)
    with pytest.raises(WrongOverride, match=key):
        tuned(config, tmp_path / "out", workers)
    assert workers.done == []


def test_without_optuna_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(DependencyMissing, match=r"silohash\[tune\]"):
        Tuning(study(tmp_path), study(tmp_path).tune, tmp_path / "out", print)
