"""The record of rounds: written line by line, read after a kill, shown to people."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from rich.console import Console

from silohash.runtime.events import ConsoleProgress, JsonLines, RoundRecord, SiloRecord, TensorBoard, read_rounds
from silohash.types import UserError


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
    import sys

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError, match=r"pip install 'silohash\[tensorboard\]'"):
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
