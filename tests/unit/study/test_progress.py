"""What a study says of how far it is."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from silohash.config.load import load_config
from silohash.study.jobs import Job, Outcome
from silohash.study.progress import StudyProgress, duration
from tests.runs import tiny
from tests.studies import quiet


@pytest.fixture
def jobs(tmp_path: Path) -> list[Job]:
    config = load_config(tiny(tmp_path, federated={"rounds": 4}))
    return [Job(name, tmp_path / name, config) for name in ("first", "second", "third")]


def go_on(progress: StudyProgress, jobs: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = [progress.started_at]
    monkeypatch.setattr("silohash.study.progress.time.monotonic", lambda: seconds[0])
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
