"""Tiny studies, and workers that do their runs in this process or only pretend to."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from silohash.files import write_text
from silohash.runtime.events import JsonLines, RoundRecord
from silohash.runtime.run import Run
from silohash.study.child import run_or_go_on
from silohash.study.conduct import Conducted, conduct
from silohash.study.grid import StudyConfig, make_study
from silohash.study.pool import Job
from silohash.types import UserError
from tests.runs import tiny

METHODS = [
    {"name": "FedAvg", "set": {"federated.name": "fedavg"}},
    {"name": "Local", "set": {"federated.name": "local", "federated.rounds": 2}},
]


def tiny_study(archive: Path, **more: Any) -> dict[str, Any]:
    """Returns what the file of a study of two methods, two lengths of codes and two seeds would hold."""
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
    """Returns a study of what a file would hold."""
    return make_study(value, where="study.toml")


class InThisProcess:
    """A worker that does a run as a process of a study does, but here, and before `begin` returns."""

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def begin(self, job: Job) -> None:
        order = job.order(1)
        try:
            run_or_go_on(job.folder, order["config"], figures=order["figures"])
            self.answer = 0, ""
        except UserError as error:
            self.answer = 2, str(error)

    def ended(self) -> tuple[int, str] | None:
        return self.answer

    def alive(self) -> bool:
        return True

    def let_go(self) -> None:
        """Nothing runs."""

    def wait(self, seconds: float) -> None:
        """Nothing runs."""


class Pretending(InThisProcess):
    """A worker whose runs are only a config and rounds, with a validation figure of the config."""

    done: list[str]
    figure: Callable[[Job], float | None]

    def begin(self, job: Job) -> None:
        self.done.append(job.name)
        run = Run(job.folder)
        score = type(self).figure(job)
        if score is None:
            self.answer = 2, "it pretends to fail"
            return
        write_text(run.config_path, job.config.to_toml())
        lines = JsonLines(run.rounds_path)
        lines.start(name="", total_rounds=1, first_round=0)
        lines.round(record(0, score / 2))
        lines.round(record(1, score))
        lines.round(record(2, score / 3))
        self.answer = 0, ""


def pretending(figure: Callable[[Job], float | None]) -> type[Pretending]:
    """Returns workers that pretend; ``done`` lists the runs they did."""
    return type("PretendingHere", (Pretending,), {"done": [], "figure": staticmethod(figure)})


def record(number: int, validation: float | None) -> RoundRecord:
    """Returns a round's record."""
    return RoundRecord(
        round=number, seconds=0.0, loss=1.0, terms={}, validation=validation, best=True, silos=(), uplink_bytes=0,
        downlink_bytes=0,
    )  # fmt: skip


def quiet() -> Console:
    """Returns a console that no terminal shows; what it printed is in ``file``."""
    return Console(file=io.StringIO(), width=200)


def run_here(config: StudyConfig, out: Path, console: Console | None = None, **options: Any) -> Conducted:
    """Runs a study in this process."""
    return conduct(config, out, console or quiet(), **{"make_worker": InThisProcess, **options})


def figures_of(out: Path) -> bytes:
    """Returns the study's figures, to the byte."""
    return (out / "results.csv").read_bytes()


def rows_of(conducted: Conducted) -> list[dict[str, Any]]:
    """Returns every row that a study found."""
    return [asdict(row) for cell in conducted.results.cells for row in cell.rows]
