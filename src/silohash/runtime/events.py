"""Events emitted during a run: the record of a round, and the observers that receive it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from silohash.files import explaining_disk_errors, write_text
from silohash.types import UserError


@dataclass(frozen=True)
class SiloRecord:
    """One silo's part in a round; ``rejected`` says why its update was not used."""

    silo: str
    items: int
    loss: float | None
    seconds: float
    rejected: str | None = None


@dataclass(frozen=True)
class RoundRecord:
    """One line of ``rounds.jsonl``.

    Attributes:
        round: from 0.
        seconds: wall time, aggregation and validation included.
        loss: mean over silos, weighted by their items.
        terms: likewise, a term of the loss.
        validation: mean score of the silos' validation queries after the round, or None.
        best: whether no earlier round scored higher.
        uplink_bytes: what all silos sent.
        downlink_bytes: what all silos were sent.
    """

    round: int
    seconds: float
    loss: float | None
    terms: Mapping[str, float]
    validation: float | None
    best: bool
    silos: Sequence[SiloRecord]
    uplink_bytes: int
    downlink_bytes: int
    warnings: Sequence[str] = field(default_factory=tuple)


class Observer(Protocol):
    """An observer of a run."""

    def start(self, *, name: str, total_rounds: int, first_round: int) -> None:
        """Called before the first round of this process."""
        ...

    def round(self, record: RoundRecord) -> None:
        """Called after each round."""
        ...

    def finish(self) -> None:
        """Called once at the end, whether it ended well or not."""
        ...


class JsonLines:
    """Append every round to ``rounds.jsonl``; a resumed run drops lines of rounds that it runs again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def start(self, *, name: str, total_rounds: int, first_round: int) -> None:
        """Keep the lines of earlier rounds."""
        kept = [json.dumps(asdict(record)) for record in read_rounds(self.path) if record.round < first_round]
        write_text(self.path, "".join(line + "\n" for line in kept))

    def round(self, record: RoundRecord) -> None:
        """Append a line."""
        with explaining_disk_errors(self.path), self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(record)) + "\n")

    def finish(self) -> None:
        """Nothing is open."""


def read_rounds(path: Path) -> list[RoundRecord]:
    """Read ``rounds.jsonl``; a last line that was cut off by a kill is dropped.

    Raises:
        UserError: if any other line is damaged.
    """
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    records = []
    for number, line in enumerate(lines, 1):
        try:
            value: dict[str, Any] = json.loads(line)
            silos = [SiloRecord(**silo) for silo in value.pop("silos")]
            records.append(RoundRecord(**value, silos=silos))
        except (ValueError, TypeError, KeyError) as error:
            if number == len(lines):
                break
            raise UserError(f"{path}, line {number} is damaged ({error}). Run the training again.") from error
    return records


class ConsoleProgress:
    """Show one progress bar in a terminal, and one line per round elsewhere; both on standard error."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.progress: Progress | None = None

    def start(self, *, name: str, total_rounds: int, first_round: int) -> None:
        """Show the bar."""
        self.name, self.total_rounds, self.started = name, total_rounds, time.perf_counter()
        if self.console.is_terminal:
            self.progress = Progress(
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[said]}"),
                TimeRemainingColumn(), console=self.console,
            )  # fmt: skip
            self.progress.start()
            self.task = self.progress.add_task(name, total=total_rounds, completed=first_round, said="")

    def round(self, record: RoundRecord) -> None:
        """Show loss and validation score, and the updates that were rejected."""
        loss = "-" if record.loss is None else f"{record.loss:.4f}"
        validation = "" if record.validation is None else f"  validation {100 * record.validation:.1f}"
        said = f"loss {loss}{validation}{' *' if record.best and validation else ''}"
        if self.progress is not None:
            self.progress.update(self.task, completed=record.round + 1, said=said)
        else:
            self.console.print(
                f"{self.name}: round {record.round + 1}/{self.total_rounds}  {said}  {record.seconds:.1f} s",
                highlight=False, markup=False,
            )  # fmt: skip
        for silo in record.silos:
            if silo.rejected:
                self.console.print(f"  {silo.silo}: update rejected: {silo.rejected}", highlight=False, markup=False)
        for warning in record.warnings:
            self.console.print(f"  warning: {warning}", highlight=False, markup=False)

    def finish(self) -> None:
        """Remove the bar."""
        if self.progress is not None:
            self.progress.stop()
            self.progress = None


class TensorBoard:
    """Write the curves for TensorBoard.

    Raises:
        UserError: if tensorboard is not installed.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UserError("TensorBoard is not installed. Run: pip install 'silohash[tensorboard]'") from error
        self.writer = SummaryWriter(str(folder))

    def start(self, *, name: str, total_rounds: int, first_round: int) -> None:
        """Do nothing."""

    def round(self, record: RoundRecord) -> None:
        """Add a point to each curve."""
        values: dict[str, float | None] = {"loss": record.loss, "validation": record.validation, **record.terms}
        for name, value in values.items():
            if value is not None:
                self.writer.add_scalar(name, value, record.round)

    def finish(self) -> None:
        """Close the file."""
        self.writer.close()
