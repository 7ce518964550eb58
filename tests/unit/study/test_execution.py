"""A whole study with runs that only pretend: what is run, what is left out, and the exit status."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from silohash.base.errors import RepeatedValue, UserError
from silohash.study.execution import StudyOutcome
from silohash.study.jobs import Job, Outcome
from silohash.study.results import StudyResults
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
    stopped = run_here(config, tmp_path / "out", make_pool=pool, until=time.monotonic())
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
    stopped = run_here(config, tmp_path / "out", make_pool=pool, until=time.monotonic() + 60.0)
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
    with pytest.raises(RepeatedValue):
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
