"""The record of rounds: written line by line, read after a kill, shown to people."""

from __future__ import annotations

import io
import json
import sys
import types
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from rich.console import Console

from silohash.base.errors import DependencyMissing, UserError
from silohash.run import events
from silohash.run.events import (
    ConsoleProgress,
    JsonLines,
    Observer,
    PrivacyRecord,
    ProgressReporter,
    RoundProgress,
    RoundRecord,
    SiloRecord,
    TensorBoard,
    epsilon_words,
    read_rounds,
)


def record(number: int) -> RoundRecord:
    return RoundRecord(
        round=number, seconds=0.5, loss=0.7 - number / 10, terms={"likelihood": 0.6}, validation=0.5, best=number == 0,
        silos=[SiloRecord("north", 27, 0.7, 0.1), SiloRecord("south", 3, None, 0.1, rejected="NaN in image.hash.weight")],
        uplink_bytes=10, downlink_bytes=20, warnings=["north: The codes have collapsed"],
    )  # fmt: skip


def written(path: Path, count: int = 3) -> Path:
    lines = JsonLines(path)
    lines.start(name="fedavg", total_rounds=5, first_round=0)
    for number in range(count):
        lines.round(record(number))
    lines.finish()
    return path


def test_round_trip(tmp_path: Path) -> None:
    path = written(tmp_path / "rounds.jsonl")
    assert [asdict(found) for found in read_rounds(path)] == [asdict(record(number)) for number in range(3)]
    assert set(json.loads(path.read_text().splitlines()[0])) == {
        "round", "seconds", "loss", "terms", "validation", "best", "silos", "uplink_bytes", "downlink_bytes", "warnings",
        "validation_by", "privacy",
    }  # fmt: skip
    assert read_rounds(tmp_path / "none.jsonl") == []


def test_last_line_cut_off_is_dropped(tmp_path: Path) -> None:
    path = written(tmp_path / "rounds.jsonl")
    path.write_text(path.read_text()[:-30])
    assert [found.round for found in read_rounds(path)] == [0, 1]


def test_other_damage_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "rounds.jsonl")
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1][:20], lines[2]]))
    with pytest.raises(UserError, match=r"rounds\.jsonl, line 2 is damaged"):
        read_rounds(path)


@pytest.mark.parametrize(
    ("cut", "first_round", "kept"), [(0, 2, [0, 1]), (0, 3, [0, 1, 2]), (30, 3, [0, 1]), (0, 0, [])]
)
def test_resumed_run_keeps_lines_of_earlier_rounds(tmp_path: Path, cut: int, first_round: int, kept: list[int]) -> None:
    path = written(tmp_path / "rounds.jsonl")
    path.write_text(path.read_text()[: len(path.read_text()) - cut])
    lines = JsonLines(path)
    lines.start(name="fedavg", total_rounds=5, first_round=first_round)
    lines.round(record(9))
    assert [found.round for found in read_rounds(path)] == [*kept, 9]
    assert [file.name for file in tmp_path.iterdir()] == ["rounds.jsonl"]


def test_plain_lines_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    shown = ConsoleProgress(Console(file=stream, width=100))
    shown.start(name="fedavg", total_rounds=5, first_round=0)
    shown.round(record(0))
    shown.round(replace(record(1), validation=None, loss=None, best=True, silos=[], warnings=[]))
    shown.finish()
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("fedavg: round 1/5  loss 0.7000  validation 50.0 *")
    assert "south: update rejected: NaN in image.hash.weight" in lines[1]
    assert "warning: north: The codes have collapsed" in lines[2]
    assert lines[3].startswith("fedavg: round 2/5  loss -  ")


def test_bar_in_a_terminal() -> None:
    stream = io.StringIO()
    shown = ConsoleProgress(Console(file=stream, width=100, force_terminal=True))
    shown.start(name="fedavg", total_rounds=2, first_round=1)
    shown.round(record(1))
    shown.finish()
    assert "2/2" in stream.getvalue()
    assert "loss 0.6000" in stream.getvalue()


def test_tensorboard_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("silohash.base.optional.installed", lambda package: package != "tensorboard")
    with pytest.raises(DependencyMissing, match=r"silohash\[tensorboard\]"):
        TensorBoard(tmp_path)


def test_names_and_warnings_are_printed_as_they_are_without_colors() -> None:
    stream = io.StringIO()
    progress = ConsoleProgress(Console(file=stream, width=200, color_system="standard", highlight=True))
    progress.start(name="[bold]fedavg[/bold]", total_rounds=5, first_round=0)
    strange = SiloRecord("[red]north[/red]", 27, None, 0.1, rejected="7 NaN")
    progress.round(replace(record(1), silos=[strange], warnings=["[b]3 items[/b]\x1b[2J\n"]))
    assert stream.getvalue().splitlines() == [
        "[bold]fedavg[/bold]: round 2/5  loss 0.6000  validation 50.0  0.5 s",
        "  [red]north[/red]: update rejected: 7 NaN",
        "  warning: [b]3 items[/b]⟨U+001B⟩[2J⟨U+000A⟩",
    ]


class Follower(Observer):
    """Keeps the progress that it receives."""

    def __init__(self) -> None:
        self.seen: list[RoundProgress] = []

    def within_round(self, progress: RoundProgress) -> None:
        self.seen.append(progress)


def test_silos_and_epochs_of_a_round_are_counted(tmp_path: Path) -> None:
    follower = Follower()
    reporter = ProgressReporter([JsonLines(tmp_path / "rounds.jsonl"), follower])

    def silos():
        for name in ("north", "south"):
            for epoch in (1, 2, 3, 4):
                reporter.epoch_done(epoch, 4)
            yield name

    assert list(reporter.counted(silos(), number=6, silos=2)) == ["north", "south"]
    assert [moment.share for moment in follower.seen] == [
        0.125, 0.25, 0.375, 0.5, 0.5,  # the first silo's four epochs, and its end
        0.625, 0.75, 0.875, 1.0, 1.0,
    ]  # fmt: skip
    assert {moment.round for moment in follower.seen} == {6}
    words = [moment.describe() for moment in follower.seen]
    assert words[:5] == [*(f"silo 1/2, epoch {epoch}/4" for epoch in (2, 3, 4, 4)), "silo 2/2"]
    assert words[-1] == "silo 2/2"
    reporter.epoch_done(1, 4)
    assert list(reporter.counted(["west"], number=7, silos=3)) == ["west"]
    assert follower.seen[-1] == RoundProgress(round=7, silos=3, silos_done=1)


def test_bar_moves_within_a_round() -> None:
    stream = io.StringIO()
    shown = ConsoleProgress(Console(file=stream, width=100, force_terminal=True))
    shown.start(name="fedavg", total_rounds=2, first_round=0)
    assert shown.progress is not None
    (task,) = shown.progress.tasks
    shown.within_round(RoundProgress(round=0, silos=4, silos_done=1, epoch=1, epochs=2))
    assert (task.completed, task.fields["status"]) == (0.375, "silo 2/4, epoch 2/2")
    shown.round(record(0))
    shown.within_round(RoundProgress(round=1, silos=4, silos_done=2))
    assert (task.completed, task.fields["status"]) == (1.5, "loss 0.7000  validation 50.0 *  silo 3/4")
    shown.finish()


def test_lines_within_a_long_round_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(events.time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    shown = ConsoleProgress(Console(file=stream, width=100))
    shown.start(name="fedavg", total_rounds=5, first_round=0)
    for seconds, silo in ((10.0, 1), (29.9, 1), (30.0, 2), (59.9, 2), (60.0, 3)):
        now[0] = 100.0 + seconds
        shown.within_round(RoundProgress(round=2, silos=4, silos_done=silo, epoch=1, epochs=3))
    assert stream.getvalue().splitlines() == [
        "fedavg: round 3/5  silo 3/4, epoch 2/3",
        "fedavg: round 3/5  silo 4/4, epoch 2/3",
    ]


def test_tensorboard_gets_one_point_per_known_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points: list[tuple[object, ...]] = []

    class Writer:
        def __init__(self, folder: str) -> None:
            self.folder = folder

        def add_scalar(self, *point: object) -> None:
            points.append(point)

        def close(self) -> None:
            points.append(("closed", self.folder))

    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    monkeypatch.setattr("silohash.base.optional.installed", lambda package: True)
    board = TensorBoard(tmp_path)
    board.start(name="fedavg", total_rounds=5, first_round=0)
    board.round(record(3))
    board.round(replace(record(4), loss=None, validation=None))
    board.finish()
    assert points == [
        ("loss", pytest.approx(0.4), 3), ("validation", 0.5, 3), ("likelihood", 0.6, 3), ("likelihood", 0.6, 4),
        ("closed", str(tmp_path)),
    ]  # fmt: skip


def test_a_score_that_is_not_the_best_has_no_star() -> None:
    stream = io.StringIO()
    shown = ConsoleProgress(Console(file=stream, width=100))
    shown.start(name="a", total_rounds=3, first_round=0)
    for best in (True, False):
        shown.round(replace(record(1), validation=0.25, best=best, silos=[], warnings=[]))
    shown.round(replace(record(2), validation=None, best=True, silos=[], warnings=[]))
    assert [line.split("  ")[1:-1] for line in stream.getvalue().splitlines()] == [
        ["loss 0.6000", "validation 25.0 *"],
        ["loss 0.6000", "validation 25.0"],
        ["loss 0.5000"],
    ]


def test_a_damaged_line_is_counted_from_one(tmp_path: Path) -> None:
    path = written(tmp_path / "rounds.jsonl", count=1)
    path.write_text("{}\n" + path.read_text())
    with pytest.raises(UserError, match=r"rounds\.jsonl, line 1 is damaged"):
        read_rounds(path)


@pytest.mark.parametrize(
    ("epsilon", "words"), [(2.314, "epsilon 2.31 (delta 1e-05)"), (None, "epsilon infinite (delta 1e-05)")]
)
def test_epsilon_in_words(epsilon: float | None, words: str) -> None:
    assert epsilon_words(PrivacyRecord("record", epsilon, None, 1e-5)) == words
