"""The trainer of a silo as a child: its death is an answer, and it is the installed one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from silohash.methods.message import Message
from silohash.training.sites import trainer_process as module
from silohash.training.sites.trainer_process import TrainerProcess

TRAINER = """
import os, signal, sys, time
from silohash.training.engines.processes import serve

def answer(request):
    if request == b"die":
        os.kill(os.getpid(), signal.SIGKILL)
    if request == b"hang":
        time.sleep(600)
    return request + str(os.getpid()).encode()

serve(lambda: answer)
"""


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The command lines of the trainers that were started. A script takes their place."""
    script, commands, original = tmp_path / "trainer.py", [], module.ProcessPool
    script.write_text(TRAINER)

    def pool(command: list[str], size: int):
        commands.append(command)
        return original([sys.executable, str(script)], size)

    monkeypatch.setattr(module, "ProcessPool", pool)
    return commands


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def trainer(started: list[list[str]], tmp_path: Path, said: list[str]) -> Iterator[TrainerProcess]:
    made = TrainerProcess(tmp_path / "silohash.toml", said.append)
    yield made
    made.stop()


def never() -> bool:
    return False


def test_trainer_is_the_installed_one_with_the_file_of_the_silo(trainer, started, tmp_path: Path) -> None:
    first = trainer.answer(b"a", never)
    assert started == [[sys.executable, "-m", "silohash.training.sites.trainer", str(tmp_path / "silohash.toml")]]
    assert trainer.answer(b"a", never) == first


def test_death_of_the_trainer_is_an_answer_and_the_next_task_starts_another(trainer, started, said) -> None:
    before = trainer.answer(b"a", never)
    died = Message.decode(trainer.answer(b"die", never))
    assert died.notes == {"failure": "Its trainer ended (exit status -9)."}
    assert said == ["The trainer ended with exit status -9."]
    after = trainer.answer(b"a", never)
    assert after.startswith(b"a")
    assert after != before
    assert len(started) == 1


def test_withdrawn_task_stops_the_trainer(trainer, started) -> None:
    assert trainer.answer(b"hang", lambda: True) is None
    assert trainer.pool is None
    assert trainer.answer(b"a", never).startswith(b"a")
    assert len(started) == 2
