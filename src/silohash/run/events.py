"""Events emitted during a run: the record of each round, and the observers that receive it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from silohash.base.files import TRAIN_AGAIN, explaining_disk_errors, read_text, write_text
from silohash.base.forms import damaged, fault, of_json
from silohash.base.optional import require
from silohash.base.types import ValidationBy
from silohash.base.visible import visible

QUIET_SECONDS = 30.0
"""Where there is no terminal, a round prints a line about its progress if none was printed for this long."""

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class SiloRecord:
    """One silo's part in a round.

    Attributes:
        loss: Mean loss of the local training; None if there is no finite loss.
        seconds: Duration of the local training.
        rejected: The reason why the silo's update was not used; None if it was used.
    """

    silo: str
    items: int
    loss: float | None
    seconds: float
    rejected: str | None = None


@dataclass(frozen=True)
class RoundRecord:
    """One line of ``rounds.jsonl``.

    Attributes:
        round: Number of the round, from 0.
        seconds: Wall-clock time, including aggregation and validation.
        loss: Mean over silos, weighted by their numbers of items; None if no silo reports a finite loss.
        terms: The same mean for each term of the loss.
        validation: Mean score on the silos' validation queries after the round; None without validation.
        best: Whether the model of the round is the best so far, by its score or because it is final; True without
            validation.
        silos: One record per silo that took part.
        uplink_bytes: Bytes that all silos sent, as ``downlink_bytes`` are those that they received.
        validation_by: What makes an item a right answer to a validation query.
        privacy: What all rounds so far have released; None without differential privacy.
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
    validation_by: ValidationBy = "labels"
    privacy: PrivacyRecord | None = None


@dataclass(frozen=True)
class RoundProgress:
    """How far the local training of a round has come.

    Attributes:
        round: Number of the round, from 0.
        silos_done: Number of silos that have finished their local training.
        epoch: Number of epochs that the present silo has finished; 0 if it is trained in a worker process.
        epochs: Number of epochs of the present silo's round; 0 if it is not known.
    """

    round: int
    silos: int
    silos_done: int = 0
    epoch: int = 0
    epochs: int = 0

    @property
    def share(self) -> float:
        """The finished share of the round's local training, from 0 to 1."""
        return (self.silos_done + (self.epoch / self.epochs if self.epochs else 0.0)) / self.silos

    def describe(self) -> str:
        """Return the progress in words, such as ``silo 2/5, epoch 3/10``."""
        words = f"silo {min(self.silos_done + 1, self.silos)}/{self.silos}"
        return f"{words}, epoch {min(self.epoch + 1, self.epochs)}/{self.epochs}" if self.epochs else words


class Observer:
    """An object that receives the events of a run. By default it does nothing."""

    def start(self, *, name: str, total_rounds: int, first_round: int) -> None:
        """Prepare for the first round of this process, which is later than round 0 in a resumed run."""

    def within_round(self, progress: RoundProgress) -> None:
        """Receive the progress of the local training, after every epoch of a silo and after every silo."""

    def round(self, record: RoundRecord) -> None:
        """Receive the record of a completed round."""

    def finish(self) -> None:
        """Clean up. This is called once at the end, even if the run fails."""


class ProgressReporter:
    """Count the silos and epochs of the present round, and report them to the observers of the run."""

    def __init__(self, observers: Sequence[Observer] = ()) -> None:
        self.observers = observers
        self.present = RoundProgress(round=0, silos=1)

    def counted(self, results: Iterable[_Result], *, number: int, silos: int) -> Iterator[_Result]:
        """Yield the results of a round's silos, and report each of them."""
        self.present = RoundProgress(round=number, silos=silos)
        for done, result in enumerate(results, 1):
            self._report(replace(self.present, silos_done=done, epoch=0, epochs=0))
            yield result

    def epoch_done(self, epoch: int, epochs: int) -> None:
        """Report that the present silo has finished ``epoch`` of ``epochs`` epochs."""
        self._report(replace(self.present, epoch=epoch, epochs=epochs))

    def _report(self, progress: RoundProgress) -> None:
        self.present = progress
        for observer in self.observers:
            observer.within_round(progress)


@dataclass
class JsonLines(Observer):
    """Append every round to ``rounds.jsonl``. A resumed run first removes the lines of rounds that it repeats."""

    path: Path

    def start(self, *, name: str, total_rounds: int, first_round: int) -> None:
        """Keep only the lines of earlier rounds."""
        kept = [json.dumps(asdict(record)) for record in read_rounds(self.path) if record.round < first_round]
        write_text(self.path, "".join(line + "\n" for line in kept))

    def round(self, record: RoundRecord) -> None:
        """Append one line."""
        with explaining_disk_errors(self.path), self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(record)) + "\n")


def read_rounds(path: Path) -> list[RoundRecord]:
    """Read ``rounds.jsonl``, without an incomplete last line of an interrupted run. Other damage is a `UserError`."""
    if not path.exists():
        return []
    *complete, last = read_text(path, remedy=TRAIN_AGAIN).split("\n")
    records = [_record(path, number, line) for number, line in enumerate(complete, 1)]
    with suppress(ValidationError):
        records += [of_json(last, RoundRecord)] if last else []
    return records


def _record(path: Path, number: int, line: str) -> RoundRecord:
    try:
        return of_json(line, RoundRecord)
    except ValidationError as error:
        raise damaged(f"{path}, line {number}", fault(error), TRAIN_AGAIN) from error


class ConsoleProgress(Observer):
    """Show a progress bar in a terminal. Elsewhere, print one line per round, and lines within a round if it is long."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.progress: Progress | None = None
        self.status = ""

    def start(self, *, name: str, total_rounds: int, first_round: int) -> None:
        """Show the progress bar."""
        self.name, self.total_rounds, self.last_line = name, total_rounds, time.monotonic()
        if self.console.is_terminal:
            self.progress = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[status]}", markup=False),
                TimeRemainingColumn(),
                console=self.console,
            )
            self.progress.start()
            self.task = self.progress.add_task(visible(name), total=total_rounds, completed=first_round, status="")

    def within_round(self, progress: RoundProgress) -> None:
        """Move the bar, or print a line if none was printed for a while."""
        if self.progress is not None:
            status = f"{self.status}  {progress.describe()}".strip()
            self.progress.update(self.task, completed=progress.round + progress.share, status=status)
        elif time.monotonic() - self.last_line >= QUIET_SECONDS:
            self._print(f"{visible(self.name)}: round {progress.round + 1}/{self.total_rounds}  {progress.describe()}")

    def _print(self, line: str) -> None:
        self.last_line = time.monotonic()
        self.console.print(line, highlight=False, markup=False)

    def round(self, record: RoundRecord) -> None:
        """Show the loss, the validation score, rejected updates and warnings."""
        loss = "-" if record.loss is None else f"{record.loss:.4f}"
        validation = "" if record.validation is None else f"  validation {100 * record.validation:.1f}"
        self.status = f"loss {loss}{validation}{' *' if record.best and validation else ''}"
        if record.privacy is not None:
            self.status = epsilon_words(record.privacy)
        round_of = f"round {record.round + 1}/{self.total_rounds}"
        if self.progress is not None:
            self.progress.update(self.task, completed=record.round + 1, status=self.status)
        else:
            self._print(f"{visible(self.name)}: {round_of}  {self.status}  {record.seconds:.1f} s")
        for silo in record.silos:
            if silo.rejected:
                self._print(f"  {visible(f'{silo.silo}: update rejected: {silo.rejected}')}")
        for warning in record.warnings:
            self._print(f"  warning: {visible(warning)}")

    def finish(self) -> None:
        """Stop the progress bar."""
        if self.progress is not None:
            self.progress.stop()
            self.progress = None


class TensorBoard(Observer):
    """Write the loss, its terms and the validation score for TensorBoard.

    Raises:
        UserError: If TensorBoard is not installed.
    """

    def __init__(self, folder: Path) -> None:
        require("tensorboard", "Writing curves")
        self.folder = folder

    def start(self, *, name: str, total_rounds: int, first_round: int) -> None:
        """Create the folder and its log file."""
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(self.folder))

    def round(self, record: RoundRecord) -> None:
        """Add one point to each curve."""
        values: dict[str, float | None] = {"loss": record.loss, "validation": record.validation, **record.terms}
        if record.privacy is not None:
            values["epsilon"] = record.privacy.epsilon
        for name, value in values.items():
            if value is not None:
                self.writer.add_scalar(name, value, record.round)

    def finish(self) -> None:
        """Close the log file."""
        self.writer.close()


@dataclass(frozen=True)
class PrivacyRecord:
    """What all rounds so far have released under differential privacy.

    Attributes:
        unit: Whether items or silos are hidden, ``record`` or ``silo``.
        epsilon: For those who see the models of the rounds, other silos included; None if there is no guarantee.
        epsilon_server: For the server, which sees the update of each silo; None if there is no guarantee.
        delta: Probability for which both need not hold.
        repeatable: Whether the noise can be derived from the seed. Both then show only what noise of this size would give.
    """

    unit: str
    epsilon: float | None
    epsilon_server: float | None
    delta: float
    repeatable: bool = False


def epsilon_words(privacy: PrivacyRecord) -> str:
    """Return epsilon and delta in words, such as ``epsilon 2.31 (delta 1e-05)``."""
    epsilon = "infinite" if privacy.epsilon is None else f"{privacy.epsilon:.2f}"
    return f"epsilon {epsilon} (delta {privacy.delta:g})"
