"""Tiny studies, and pools that do their runs in this process or only pretend to."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest import mock

from rich.console import Console

from silohash.base.errors import UserError
from silohash.base.files import write_text
from silohash.base.locks import locked
from silohash.report import plots
from silohash.run.events import JsonLines, RoundRecord
from silohash.run.folder import Run
from silohash.study.config import StudyConfig, make_study
from silohash.study.execution import StudyOutcome, run_study
from silohash.study.jobs import Ending, Job
from silohash.study.worker import train_or_resume
from tests.runs import drawn_once, tiny

METHODS = [
    {"name": "FedAvg", "set": {"federated.name": "fedavg"}},
    {"name": "Local", "set": {"federated.name": "local", "federated.rounds": 2}},
]


def tiny_study(archive: Path, **more: Any) -> dict[str, Any]:
    """Return the content of a study file with two methods, two code lengths and two seeds."""
    base = tiny(archive, federated={"rounds": 2, "local_epochs": 1})
    base["local"].pop("bits")
    base["federated"].pop("name")
    base["evaluate"] |= {"measures": ["mAP@all"], "evaluations": ["GG", "PG", "XS"]}
    del base["federated"]["rounds"]
    return {
        "title": "Tiny",
        "seeds": [0, 1],
        "base": {"set": {f"{section}.{key}": value for section, keys in base.items() for key, value in keys.items()}},
        "axis": [
            {"name": "method", "choice": METHODS},
            {"name": "bits", "key": "local.bits", "values": [16, 32]},
        ],
        "where": [{"choices": {"method": "FedAvg"}, "set": {"federated.rounds": 3}}],
        "table": {"rows": ["method"], "columns": ["bits", "task"]},
        **more,
    }


def study_of(value: Mapping[str, Any]) -> StudyConfig:
    """Return the study that a file's content describes."""
    return make_study(value, where="study.toml")


class InThisProcess:
    """A pool that does each run in this process, before `submit` returns. It repeats drawings to save time."""

    def __init__(self, processes: int) -> None:
        self.processes = processes

    def submit(self, job: Job) -> Future[Ending]:
        """Do a run and return how it ended."""
        future: Future[Ending] = Future()
        future.set_result(self.do(job))
        return future

    def do(self, job: Job) -> Ending:
        """Do a run as a child process would."""
        request = job.request(1)
        try:
            with mock.patch.object(plots, "page_svg", drawn_once):
                train_or_resume(job.folder, request["config"], figures=request["figures"], drawn=request["drawn"])
        except UserError as error:
            return 2, str(error)
        return 0, ""

    def close(self) -> None:
        """Nothing runs."""


class Pretending(InThisProcess):
    """A pool whose runs write only a config and rounds, with a validation score computed from the job."""

    done: list[str]
    score: Callable[[Job], float | None]

    def do(self, job: Job) -> Ending:
        """Write the files of a finished run, or fail if its score is None."""
        self.done.append(job.name)
        run = Run(job.folder)
        score = type(self).score(job)
        if score is None:
            return 2, "it pretends to fail"
        write_text(run.config_path, job.config.to_toml())
        lines = JsonLines(run.rounds_path)
        lines.start(name="", total_rounds=1, first_round=0)
        lines.round(record(0, score / 2))
        lines.round(record(1, score))
        lines.round(record(2, score / 3))
        return 0, ""


def pretending(score: Callable[[Job], float | None]) -> type[Pretending]:
    """Return a pool that pretends; ``done`` lists the runs that it did."""
    return type("PretendingHere", (Pretending,), {"done": [], "score": staticmethod(score)})


def record(number: int, validation: float | None) -> RoundRecord:
    """Return the record of a round."""
    return RoundRecord(
        round=number, seconds=0.0, loss=1.0, terms={}, validation=validation, best=True, silos=(), uplink_bytes=0,
        downlink_bytes=0,
    )  # fmt: skip


def quiet() -> Console:
    """Return a console outside a terminal; its output is in ``file``."""
    return Console(file=io.StringIO(), width=200)


def run_here(config: StudyConfig, out: Path, console: Console | None = None, **options: Any) -> StudyOutcome:
    """Run a study in this process."""
    return run_study(config, out, console or quiet(), **{"make_pool": InThisProcess, **options})


def figures_of(out: Path) -> bytes:
    """Return the bytes of the study's figures."""
    return (out / "results.csv").read_bytes()


def rows_of(outcome: StudyOutcome) -> list[dict[str, Any]]:
    """Return every row of a study's results."""
    return [asdict(row) for run in outcome.results.runs for row in run.rows]


@contextmanager
def held_by_another_thread(folder: Path) -> Iterator[None]:
    """The lock of a folder, held by a thread that stands for another process."""
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with locked(folder):
            taken.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    try:
        yield
    finally:
        done.set()
        thread.join()
