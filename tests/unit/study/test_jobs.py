"""The order of a study's runs, and what happens to those that fail or are interrupted."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from silohash.run.config.load import load_config
from silohash.study.jobs import (
    RUNS_PER_PROCESS,
    Chain,
    Ending,
    Job,
    JobPool,
    Outcome,
    StudyProgress,
    duration,
    run_jobs,
    single,
)
from silohash.study.worker import GRACE_SECONDS
from silohash.training.engines.processes import ProcessEndedError
from tests.runs import tiny
from tests.studies import quiet


class Recorder:
    """A display that keeps what it is shown."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.most = 0

    def started(self, job: Job, rounds: int) -> None:
        self.events.append((f"started after {rounds}", job.name))

    def ended(self, outcome: Outcome) -> None:
        self.events.append(("ended", outcome.job.name))

    def update(self, rounds: Mapping[str, int]) -> None:
        self.most = max(self.most, len(rounds))


class SlowPool:
    """A pool whose jobs end one at a time, the first first, when the display asks for news."""

    made: list[SlowPool]

    def __init__(self, processes: int) -> None:
        self.processes, self.closed = processes, False
        self.running: list[tuple[Job, Future[Ending]]] = []
        self.most = 0
        type(self).made.append(self)

    def submit(self, job: Job) -> Future[Ending]:
        assert not self.closed
        future: Future[Ending] = Future()
        self.running.append((job, future))
        self.most = max(self.most, len(self.running))
        if len(self.running) == self.processes or "last" in job.name:
            self.end_all()
        return future

    def end_all(self) -> None:
        for job, future in self.running:
            if "interrupt" in job.name:
                raise KeyboardInterrupt
            future.set_result((2 if "fails" in job.name else 0, f"{job.name} was here"))
        self.running.clear()

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def pools() -> type[SlowPool]:
    return type("SlowPoolHere", (SlowPool,), {"made": []})


@pytest.fixture
def jobs(tmp_path: Path) -> Callable[..., list[Job]]:
    config = load_config(tiny(tmp_path))
    return lambda *names: [Job(name, tmp_path / name, config) for name in names]


@pytest.mark.whole_run
def test_as_many_at_a_time_as_asked_for(jobs: Any, pools: type[SlowPool]) -> None:
    display = Recorder()
    outcomes = run_jobs(map(single, jobs("a", "b", "c", "d", "e last")), 2, display, pools)
    assert [outcome.job.name for outcome in outcomes] == ["a", "b", "c", "d", "e last"]
    assert [(outcome.code, outcome.message) for outcome in outcomes[:2]] == [(0, "a was here"), (0, "b was here")]
    assert display.events[:4] == [("started after 0", "a"), ("started after 0", "b"), ("ended", "a"), ("ended", "b")]
    assert len(display.events) == 10
    (pool,) = pools.made
    assert (pool.processes, pool.most, pool.closed) == (2, 2, True)
    assert display.most <= 2


@pytest.mark.whole_run
def test_duration_is_from_the_start_of_a_job_to_its_end(
    jobs: Any, pools: type[SlowPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([100.0, 130.0, 200.0, 205.5])
    monkeypatch.setattr("silohash.study.jobs.time", SimpleNamespace(monotonic=lambda: next(times)))
    outcomes = run_jobs(map(single, jobs("a", "b")), 1, Recorder(), pools)
    assert [outcome.seconds for outcome in outcomes] == [30.0, 5.5]
    assert Outcome(outcomes[0].job, 0).seconds == 0.0


@pytest.mark.whole_run
@pytest.mark.parametrize(("until", "count"), [(0.0, 0), (10.0, 1), (11.0, 2), (31.0, 3), (1e9, 3), (float("inf"), 3)])
def test_jobs_are_stopped_at_a_time(
    jobs: Any, pools: type[SlowPool], monkeypatch: pytest.MonkeyPatch, until: float, count: int
) -> None:
    now = [0.0]
    monkeypatch.setattr("silohash.study.jobs.time", SimpleNamespace(monotonic=lambda: now[0]))

    class Clock(Recorder):
        def ended(self, outcome: Outcome) -> None:
            super().ended(outcome)
            now[0] += 10.0

    outcomes = run_jobs(map(single, jobs("a", "b", "c")), 1, Clock(), pools, until=until)
    assert [outcome.job.name for outcome in outcomes] == ["a", "b", "c"][:count]
    assert pools.made[0].closed


@pytest.mark.whole_run
def test_failures_stop_nothing(jobs: Any, pools: type[SlowPool]) -> None:
    outcomes = run_jobs(map(single, jobs("a fails", "b", "c fails")), 1, Recorder(), pools)
    assert [(outcome.job.name, outcome.code) for outcome in outcomes] == [("a fails", 2), ("b", 0), ("c fails", 2)]


@pytest.mark.whole_run
def test_chain_gets_the_outcome_of_each_job(jobs: Any, pools: type[SlowPool]) -> None:
    seen = []

    def chain() -> Chain:
        first, second = jobs("first fails", "second last")
        seen.append((yield first).code)
        seen.append((yield second).code)

    def nothing() -> Chain:
        yield from ()

    outcomes = run_jobs([chain(), nothing(), *map(single, jobs("beside"))], 2, Recorder(), pools)
    assert seen == [2, 0]
    assert [outcome.job.name for outcome in outcomes] == ["first fails", "beside", "second last"]


@pytest.mark.whole_run
def test_nothing_to_do_starts_no_pool(pools: type[SlowPool]) -> None:
    assert run_jobs([], 2, Recorder(), pools) == []
    assert pools.made == []


@pytest.mark.whole_run
def test_interruption_closes_the_pool(jobs: Any, pools: type[SlowPool]) -> None:
    display = Recorder()
    with pytest.raises(KeyboardInterrupt):
        run_jobs(map(single, jobs("a", "interrupt", "never")), 2, display, pools)
    assert pools.made[0].closed
    assert "never" not in [name for _, name in display.events]


@pytest.mark.whole_run
def test_finished_rounds_are_counted_from_the_file(jobs: Any, pools: type[SlowPool]) -> None:
    (job,) = jobs("a")
    assert job.rounds_done() == 0
    job.folder.mkdir()
    (job.folder / "rounds.jsonl").write_bytes(b"{}\n{}\n{}")
    assert job.rounds_done() == 2
    display = Recorder()
    run_jobs([single(job)], 1, display, pools)
    assert display.events[0] == ("started after 2", "a")


def test_run_gets_its_share_of_the_threads(jobs: Any, tmp_path: Path) -> None:
    (job,) = jobs("a")
    assert job.request(8)["config"]["train"]["threads"] == 1
    for workers_of_run, expected in ((1, 8), (2, 4), (16, 1)):
        config = load_config(tiny(tmp_path, train={"threads": 0, "workers": workers_of_run}))
        request = Job("b", tmp_path / "b", config, figures=False).request(8)
        assert request["config"]["train"]["threads"] == expected
        assert load_config(request["config"]).digest() == config.digest()
        assert json.loads(json.dumps(request))["folder"] == str(tmp_path / "b")
        assert request["figures"] is False


@pytest.mark.parametrize(("processes", "threads"), [(1, 6), (2, 3), (4, 1), (16, 1)])
def test_processes_share_the_cores(processes: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("silohash.study.jobs.available_threads", lambda: 6)
    pool = JobPool(processes)
    assert pool.threads == threads
    assert pool.pool.environment["OMP_NUM_THREADS"] == pool.pool.environment["NUMBA_NUM_THREADS"] == str(threads)
    assert pool.pool.renew_after == RUNS_PER_PROCESS == 24
    assert pool.pool.grace_seconds == GRACE_SECONDS + 2
    assert pool.pool.stderr == subprocess.DEVNULL
    pool.close()


@pytest.mark.parametrize(("status", "code"), [(-9, -9), (3, 3), (0, 1)])
def test_process_that_ended_has_failed(status: int, code: int, jobs: Any) -> None:
    def dies(request: bytes) -> bytes:
        raise ProcessEndedError(status)

    (job,) = jobs("a")
    pool = JobPool(1)
    found, message = pool._do(job, dies)
    assert found == code
    assert message == f"its process ended with exit status {status}, perhaps for lack of memory"
    job.folder.mkdir()
    job.log_path.write_text("one\ntwo \n\n")
    assert pool._do(job, dies)[1] == f"{message}; last log line: two"
    pool.close()


def test_last_line_is_looked_for_in_the_last_16384_bytes_of_a_log(jobs: Any) -> None:
    (job,) = jobs("a")
    pool = JobPool(1)
    job.folder.mkdir()

    def last_line(log: str) -> str:
        job.log_path.write_text(log, encoding="utf-8")
        return pool._do(job, lambda request: b'{"code": 2}')[1]

    assert last_line("early\n" + "last " * 4) == "last last last last"
    assert last_line("early\n" + "x" * 20_000) == "x" * (1 << 14)
    assert last_line("early" + "\n" * ((1 << 14) - 5)) == "early"
    assert last_line("early" + "\n" * ((1 << 14) - 4)) == "arly"
    assert last_line("early" + "\n" * (1 << 14)) == ""
    pool.close()


@pytest.mark.whole_run
def test_real_process_reports_failures_and_does_another(tmp_path: Path) -> None:
    """The archive is missing: both runs fail, one after the other in the same process."""
    config = load_config(tiny(tmp_path / "none"))
    pool = JobPool(1)
    try:
        processes = []
        for name in ("a", "b"):
            job = Job(name, tmp_path / name, config)
            code, message = pool.submit(job).result(300)
            assert code == 2
            assert "none" in message
            assert message in job.log_path.read_text()
            assert not (tmp_path / name / "config.toml").exists()
            processes += [child.process.pid for child in pool.pool.children]
        assert len(set(processes)) == 1
    finally:
        pool.close()


@pytest.fixture
def three_jobs(tmp_path: Path) -> list[Job]:
    config = load_config(tiny(tmp_path, federated={"rounds": 4}))
    return [Job(name, tmp_path / name, config) for name in ("first", "second", "third")]


def go_on(progress: StudyProgress, jobs: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = [progress.started_at]
    monkeypatch.setattr("silohash.study.jobs.time.monotonic", lambda: seconds[0])
    with progress:
        progress.started(jobs[0], 0)
        progress.started(jobs[1], 2)
        seconds[0] += 30
        progress.update({"first": 3, "second": 3})
        seconds[0] += 20
        progress.ended(Outcome(jobs[0], 0, seconds=50.0))
        progress.update({"second": 3})
        progress.ended(Outcome(jobs[1], 2, "silo-1 has no items", 50.0))


def test_lines_where_there_is_no_terminal(three_jobs: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    console = quiet()
    configs = [job.config for job in three_jobs]
    go_on(StudyProgress(console, "runs", configs, finished=2), three_jobs, monkeypatch)
    lines = console.file.getvalue().splitlines()
    # After 50 s five rounds were done here (4 of the first, 1 of the second) and 5 are left.
    assert lines == [
        "first: started",
        "second: resumed after round 2",
        "first: done in 50 s (3/5 runs, about 50 s left)",
        f"second: failed: silo-1 has no items (log: {three_jobs[1].log_path})",
    ]


def test_bars_in_a_terminal(three_jobs: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), width=150, force_terminal=True)
    progress = StudyProgress(console, "runs", [job.config for job in three_jobs])
    go_on(progress, three_jobs, monkeypatch)
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
