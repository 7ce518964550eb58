"""``study`` and ``sweep``: the study that a command line describes, and what is printed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from silohash.cli import study as command
from silohash.study.execution import StudyOutcome
from silohash.study.jobs import Job, Outcome
from silohash.study.results import StudyResults
from tests.runs import silohash, write_config
from tests.studies import study_of, tiny_study


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Replaces the running of a study; one run failed."""
    found: list[dict[str, Any]] = []

    def run_study(config: Any, out: Path, console: Any, **options: Any) -> StudyOutcome:
        found.append({"config": config, "out": out, **options})
        job = Job("FedAvg-seed0", out / "runs" / "FedAvg-seed0", None)  # type: ignore[arg-type]
        return StudyOutcome(
            StudyResults(config, (), ("FedAvg-seed0", "Local-seed0")), [Outcome(job, 1, "out of memory")]
        )

    monkeypatch.setattr("silohash.study.execution.run_study", run_study)
    return found


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("local.bits=16,32", [16, 32]),
        ("train.learning_rate=0.1", [0.1]),
        ("federated.name=fedavg,local", ["fedavg", "local"]),
        (" local.bits = 16 ", [16]),
    ],
)
def test_axis_of_a_sweep(text: str, values: list[Any]) -> None:
    key = text.partition("=")[0].strip()
    assert command._axis(text) == {"name": key, "key": key, "values": values}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--over", "local.bits=16,abc"),
            '--over "local.bits=abc": the value must be a whole number (got "abc"). Write bits = 64.',
        ),
        (
            ("--over", "local.bits=16,32", "--set", "train.batch=abc"),
            '--set "train.batch=abc": the value must be a whole number (got "abc"). Write batch = 128.',
        ),
        (
            ("--over", "federated.robust=median,clip"),
            '--over "federated.robust=median": the value must be a table (got "median"). Write robust = {rule = "median"}.',
        ),
        (("--over", "local.bitss=1,2"), '--over "local.bitss=1": unknown key "local.bitss" (did you mean "bits"?).'),
        (("--over", ".=1,2"), '--over ".=1,2" is not of the form section.key=value,value, for example'),
    ],
)
def test_a_wrong_value_of_a_sweep_is_named_by_its_option(tmp_path: Path, arguments: Any, message: str) -> None:
    said = silohash("sweep", write_config(tmp_path / "run.toml", tmp_path / "a"), *arguments, "--out", tmp_path / "out")
    assert said.code == 2
    assert f"silohash: {message}" in said.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["local.bits", "local.bits=", "local.bits= "])
def test_sweep_without_values_is_refused(text: str, tmp_path: Path) -> None:
    said = silohash("sweep", write_config(tmp_path / "run.toml", tmp_path / "a"), "--over", text)
    assert said.code == 2
    assert f'--over "{text}" is not of the form section.key=value,value, for example local.bits=16,32.' in said.err


@pytest.mark.whole_run
def test_sweep_is_a_study_over_its_keys(calls: list[dict[str, Any]], tmp_path: Path) -> None:
    recipe = write_config(tmp_path / "run.toml", tmp_path / "a")
    said = silohash(
        "sweep", recipe, "--over", "local.bits=16,32", "--over", "train.batch=4,8", "--seeds", "0,3", "--out",
        tmp_path / "out", "--set", "model.hidden=8", "--smoke", "--processes", "2",
    )  # fmt: skip
    assert said.code == 1
    (call,) = calls
    config = call["config"]
    assert config.title == "run over local.bits and train.batch"
    assert config.axis_names == config.table.rows == ("local.bits", "train.batch")
    assert config.table.columns == ("evaluation", "task")
    assert (config.seeds, config.processes) == ((0, 3), 2)
    assert config.set == {"model.hidden": 8, "federated.rounds": 2, "federated.local_epochs": 1}
    assert (call["out"], call["smoke"], call["fresh"], [*call["only"]]) == (tmp_path / "out", True, False, [])


@pytest.mark.whole_run
def test_study_passes_its_options_on(calls: list[dict[str, Any]], tmp_path: Path) -> None:
    value = tiny_study(tmp_path / "archive", tune={"trials": 5, "of": ["method"], "parameters": {"train.batch": {
        "values": [4, 8]}}})  # fmt: skip
    file = tmp_path / "mine.toml"
    file.write_text(study_of(value).to_toml(), encoding="utf-8")
    out = tmp_path / "out"
    said = silohash("study", file, "--out", out, "--only", "method=Local", "--only", "bits=16", "--fresh", "--smoke",
                    "--processes", "3", "--hours", "1.5")  # fmt: skip
    assert said.code == 1
    assert "FedAvg-seed0 failed: out of memory" in said.err
    assert "2 of 2 runs are not finished, or were run with other settings than those of the study now." in said.err
    assert said.out == f"Figures: {out / 'results.csv'}\n"
    (call,) = calls
    assert call["only"] == ["method=Local", "bits=16"]
    assert (call["fresh"], call["config"].processes, call["config"].tune.trials) == (True, 3, 1)
    assert call["until"] - time.monotonic() == pytest.approx(5400.0, abs=60)


@pytest.mark.whole_run
def test_values_of_an_earlier_tuning_replace_the_searches(calls: list[dict[str, Any]], tmp_path: Path) -> None:
    value = tiny_study(tmp_path / "archive", tune={"trials": 5, "of": ["method"], "parameters": {"train.batch": {
        "values": [4, 8]}}})  # fmt: skip
    tuning, plain = tmp_path / "tuning.toml", tmp_path / "plain.toml"
    tuning.write_text(study_of(value).to_toml(), encoding="utf-8")
    plain.write_text(study_of(tiny_study(tmp_path / "archive")).to_toml(), encoding="utf-8")
    best = tmp_path / "best.toml"
    silohash("study", tuning, "--out", tmp_path / "out", "--tuned", best)
    config = calls[-1]["config"]
    assert (config.tune, config.tuned.file, config.tuned.of) == (None, best, ("method",))
    said = silohash("study", plain, "--out", tmp_path / "out", "--tuned", best)
    assert said.code == 2
    assert "The study does not tune" in said.err


@pytest.mark.whole_run
def test_time_limit(calls: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(study_of(tiny_study(tmp_path / "archive")).to_toml(), encoding="utf-8")
    assert silohash("study", file, "--out", tmp_path / "out", "--hours", "-1").code == 2
    assert "--hours was reached" not in silohash("study", file, "--out", tmp_path / "out").err
    assert calls[-1]["until"] == float("inf")
    stopped = StudyOutcome(StudyResults(study_of(tiny_study(tmp_path)), (), ("FedAvg-seed0",)), stopped=True)
    monkeypatch.setattr("silohash.study.execution.run_study", lambda *given, **options: stopped)
    said = silohash("study", file, "--out", tmp_path / "out", "--hours", "0.5")
    assert (said.code, "The time limit of --hours was reached. The same command continues." in said.err) == (0, True)


@pytest.mark.whole_run
def test_several_studies_share_the_time_and_a_folder(calls: list[dict[str, Any]], tmp_path: Path) -> None:
    files = [tmp_path / "one.toml", tmp_path / "two.toml"]
    for file in files:
        file.write_text(study_of(tiny_study(tmp_path / "archive")).to_toml(), encoding="utf-8")
    said = silohash("study", *files, "--out", tmp_path / "out", "--hours", "0", "--json")
    assert said.code == 1
    assert [call["out"] for call in calls] == [tmp_path / "out" / "one", tmp_path / "out" / "two"]
    assert all(call["until"] <= time.monotonic() for call in calls)
    assert [study["study"] for study in said.document()["studies"]] == [str(call["out"]) for call in calls]
    said = silohash("study", *files, "--out", tmp_path / "out")
    assert said.out == "".join(f"Figures: {tmp_path / 'out' / name / 'results.csv'}\n" for name in ("one", "two"))


@pytest.mark.whole_run
def test_studies_are_read_before_the_first_one_runs(calls: list[dict[str, Any]], tmp_path: Path) -> None:
    file = tmp_path / "one.toml"
    file.write_text(study_of(tiny_study(tmp_path / "archive")).to_toml(), encoding="utf-8")
    said = silohash("study", file, tmp_path / "none.toml")
    assert (said.code, calls) == (2, [])
    assert 'no study file "' in said.err
    other = tmp_path / "other" / "one.toml"
    other.parent.mkdir()
    other.write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    said = silohash("study", file, other, "--out", tmp_path / "out")
    assert (said.code, calls) == (2, [])
    assert f'Two of the studies would share the folder "{tmp_path / "out" / "one"}".' in said.err


@pytest.mark.whole_run
@pytest.mark.parametrize(("codes", "code"), [((0, 0), 0), ((0, 2), 2), ((2, 1), 1)])
def test_exit_status_of_several_studies(
    codes: tuple[int, ...], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, left = study_of(tiny_study(tmp_path)), list(codes)

    def run_study(*given: Any, **options: Any) -> StudyOutcome:
        ended = left.pop(0)
        failed = [Outcome(Job("a", tmp_path, None), ended)] if ended else []  # type: ignore[arg-type]
        return StudyOutcome(StudyResults(config, ()), failed)

    monkeypatch.setattr("silohash.study.execution.run_study", run_study)
    files = [tmp_path / "one.toml", tmp_path / "two.toml"]
    for file in files:
        file.write_text(config.to_toml(), encoding="utf-8")
    assert silohash("study", *files, "--out", tmp_path / "out").code == code


@pytest.mark.whole_run
def test_document_of_a_study(calls: list[dict[str, Any]], tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(study_of(tiny_study(tmp_path / "archive")).to_toml(), encoding="utf-8")
    said = silohash("study", file, "--out", tmp_path / "out", "--json")
    folder = tmp_path / "out" / "runs" / "FedAvg-seed0"
    assert said.document() == {
        "schema": 1,
        "study": str(tmp_path / "out"),
        "runs": [],
        "missing": ["FedAvg-seed0", "Local-seed0"],
        "failed": [{"run": str(folder), "said": "out of memory", "log": str(folder / "log.txt")}],
        "stopped": False,
        "plots": [],
        "undrawn": [],
    }
