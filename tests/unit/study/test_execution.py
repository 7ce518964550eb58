"""A whole study with runs that only pretend: what is run, what is left out, and the exit status."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from silohash.base.errors import UserError
from silohash.run.config.load import load_config
from silohash.study.execution import StudyOutcome, StudyProgress, duration
from silohash.study.jobs import Job, Outcome
from silohash.study.results import StudyResults
from tests.runs import tiny
from tests.studies import held_by_another_thread, pretending, quiet, run_here, study_of, tiny_study


def outcome(*codes: int) -> StudyOutcome:
    config = study_of(tiny_study(Path("archive")))
    job = Job("a", Path("a"), None)  # type: ignore[arg-type]
    return StudyOutcome(StudyResults(config, ()), [Outcome(job, code) for code in codes])


@pytest.mark.parametrize(("codes", "expected"), [((), 0), ((2,), 2), ((2, 2), 2), ((1,), 1), ((2, 1), 1), ((-9, 2), 1)])
def test_exit_status(codes: tuple[int, ...], expected: int) -> None:
    assert outcome(*codes).code == expected


@pytest.mark.whole_run
def test_only_the_wanted_runs_are_done_and_failures_are_returned(tmp_path: Path) -> None:
    config = study_of(tiny_study(tmp_path / "archive"))
    pool = pretending(lambda job: None if "32" in job.name else 0.5)
    console = quiet()
    done = run_here(config, tmp_path / "out", console, only=["method=Local"], make_pool=pool)
    assert pool.done == [f"Local-{bits}-seed{seed}" for bits in (16, 32) for seed in (0, 1)]
    assert [failure.job.name for failure in done.failed] == ["Local-32-seed0", "Local-32-seed1"]
    assert done.code == 2
    assert done.results.runs == ()
    assert len(done.results.missing) == 8
    assert "Local-16-seed0: done in" in console.file.getvalue()  # type: ignore[attr-defined]
    assert "Local-32-seed0: failed: it pretends to fail" in console.file.getvalue()  # type: ignore[attr-defined]
    assert (tmp_path / "out" / "study.toml").exists()
    assert (tmp_path / "out" / "results.csv").exists()


@pytest.mark.whole_run
def test_study_that_reaches_its_time_limit_starts_nothing_more(tmp_path: Path) -> None:
    config = study_of(tiny_study(tmp_path / "archive"))
    pool = pretending(lambda job: 0.5)
    stopped = run_here(config, tmp_path / "out", make_pool=pool, seconds=0.0)
    assert (stopped.stopped, stopped.code, pool.done) == (True, 0, [])
    assert len(stopped.results.missing) == 8
    later = run_here(config, tmp_path / "out", make_pool=pool)
    assert (later.stopped, len(pool.done)) == (False, 8)


@pytest.mark.whole_run
def test_runs_wait_until_the_search_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("optuna")
    tune = {"trials": 3, "of": ["method"], "parameters": {"train.learning_rate": {"low": 1e-4, "high": 1e-2}}}
    config = study_of(tiny_study(tmp_path / "archive", tune=tune))
    pool = pretending(lambda job: 0.5)
    monkeypatch.setattr("silohash.study.jobs.is_over", lambda until: until < float("inf") and len(pool.done) >= 4)
    monkeypatch.setattr("silohash.study.execution.is_over", lambda until: until < float("inf") and len(pool.done) >= 4)
    stopped = run_here(config, tmp_path / "out", make_pool=pool, seconds=60.0)
    assert stopped.stopped
    assert [name.partition(", ")[0] for name in pool.done] == ["FedAvg", "Local", "FedAvg", "Local"]
    assert not (tmp_path / "out" / "tuning" / "best.toml").exists()
    run_here(config, tmp_path / "out", make_pool=pool)
    assert len(pool.done) == 2 * 3 + 8


@pytest.mark.whole_run
def test_equal_runs_are_refused_unless_cut_short(tmp_path: Path) -> None:
    value = tiny_study(tmp_path / "archive")
    value["axis"] = [{"name": "method", "choice": [{"name": "one"}, {"name": "two"}]}]
    value |= {"where": [], "table": {}}
    with pytest.raises(UserError, match="have the same settings"):
        run_here(study_of(value), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    pool = pretending(lambda job: 0.5)
    run_here(study_of(value), tmp_path / "out", smoke=True, make_pool=pool)
    assert len(pool.done) == 4


@pytest.mark.whole_run
def test_two_studies_cannot_share_a_folder(tmp_path: Path) -> None:
    pool = pretending(lambda job: 0.5)
    with (
        held_by_another_thread(tmp_path / "study"),
        pytest.raises(UserError, match=r"study is in use by process .*\. Wait until it has finished, or .*--out"),
    ):
        run_here(study_of(tiny_study(tmp_path / "archive")), tmp_path / "study", make_pool=pool)
    assert pool.done == []


@pytest.fixture
def jobs(tmp_path: Path) -> list[Job]:
    config = load_config(tiny(tmp_path, federated={"rounds": 4}))
    return [Job(name, tmp_path / name, config) for name in ("first", "second", "third")]


def go_on(progress: StudyProgress, jobs: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = [progress.started_at]
    monkeypatch.setattr("silohash.study.execution.time.monotonic", lambda: seconds[0])
    with progress:
        progress.started(jobs[0], 0)
        progress.started(jobs[1], 2)
        seconds[0] += 30
        progress.update({"first": 3, "second": 3})
        seconds[0] += 20
        progress.ended(Outcome(jobs[0], 0, seconds=50.0))
        progress.update({"second": 3})
        progress.ended(Outcome(jobs[1], 2, "silo-1 has no items", 50.0))


def test_lines_where_there_is_no_terminal(jobs: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    console = quiet()
    configs = [job.config for job in jobs]
    go_on(StudyProgress(console, "runs", configs, finished=2), jobs, monkeypatch)
    lines = console.file.getvalue().splitlines()
    # After 50 s five rounds were done here (4 of the first, 1 of the second) and 5 are left.
    assert lines == [
        "first: started",
        "second: resumed after round 2",
        "first: done in 50 s (3/5 runs, about 50 s left)",
        f"second: failed: silo-1 has no items (log: {jobs[1].log_path})",
    ]


def test_bars_in_a_terminal(jobs: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), width=150, force_terminal=True)
    progress = StudyProgress(console, "runs", [job.config for job in jobs])
    go_on(progress, jobs, monkeypatch)
    assert progress.bars is None
    text = console.file.getvalue()
    assert "failed: silo-1 has no items" in text
    assert "2/3" in text
    assert "first: done" not in text


def test_durations() -> None:
    assert [duration(seconds) for seconds in (0, 89, 90, 5399, 5400)] == ["0 s", "89 s", "2 min", "90 min", "1.5 h"]


def test_names_are_printed_as_they_are_spelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(tiny(tmp_path, federated={"rounds": 4}))
    jobs = [Job(name, tmp_path / "run", config) for name in ("[red]a[/red]", "b\x1b[2J", "c")]
    for terminal in (False, True):
        console = Console(file=io.StringIO(), width=150, force_terminal=terminal)
        with StudyProgress(console, "runs", [config] * 3) as progress:
            progress.started(jobs[0], 0)
            progress.started(jobs[1], 0)
        text = console.file.getvalue()
        assert "[red]a[/red]" in text
        assert "b⟨U+001B⟩[2J" in text
        assert "b\x1b[2J" not in text
