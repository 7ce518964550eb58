"""The port: every engine of this machine offers its six calls with the same names and defaults."""

from __future__ import annotations

import inspect

import pytest

from silohash.training.engines.in_process import InProcess
from silohash.training.engines.port import WAIT_FOR_ALL, Engine
from silohash.training.engines.worker_processes import WorkerProcesses

CALLS = {"start", "live", "send", "cancel", "status", "stop"}


@pytest.mark.parametrize("engine", [InProcess, WorkerProcesses])
def test_engines_offer_the_six_calls(engine: type) -> None:
    assert {name for name in vars(Engine) if not name.startswith("_")} == CALLS
    for call in CALLS:
        assert inspect.signature(getattr(engine, call)) == inspect.signature(getattr(Engine, call))


def test_by_default_all_silos_are_waited_for() -> None:
    assert WAIT_FOR_ALL.deadline_seconds is None
    assert WAIT_FOR_ALL.quorum == 1
