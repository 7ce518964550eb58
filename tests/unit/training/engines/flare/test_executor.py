"""What a site runs: it passes tasks to its trainer, whose death is an answer, and starts nothing that a job names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare")

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from silohash.methods.message import Message
from silohash.training.engines.flare import executor as executor_module
from silohash.training.engines.flare.engine import MESSAGE, TASK
from silohash.training.engines.flare.executor import TrainerExecutor, TrainerProcess


class Context(FLContext):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def get_engine(self, *arguments: object, **options: object) -> object:
        workspace = SimpleNamespace(get_site_config_dir=lambda: str(self.folder))
        return SimpleNamespace(get_workspace=lambda: workspace, fire_event=lambda *event: None)


class Trainer:
    """Notes what it is asked, and answers unless the task is withdrawn."""

    def __init__(self, file: Path, notify: object) -> None:
        self.file, self.asked, self.stopped = file, [], False

    def answer(self, request: bytes, withdrawn: Callable[[], bool]) -> bytes | None:
        self.asked.append(request)
        return None if withdrawn() else request + b" done"

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[TrainerExecutor, Context]:
    monkeypatch.setattr(executor_module, "TrainerProcess", Trainer)
    return TrainerExecutor(), Context(tmp_path)


def ask(executor: TrainerExecutor, context: Context, request: object, name: str = TASK, abort: Signal | None = None):
    task = Shareable()
    task[MESSAGE] = request
    return executor.execute(name, task, context, abort or Signal())


def test_the_same_trainer_answers_all_tasks_until_the_end_of_the_job(site, tmp_path: Path) -> None:
    executor, context = site
    for request in (b"a", b"b"):
        reply = ask(executor, context, request)
        assert (reply.get_return_code(), reply[MESSAGE]) == (ReturnCode.OK, request + b" done")
    assert executor.trainer.asked == [b"a", b"b"]
    assert executor.trainer.file == tmp_path / "silohash.toml"
    executor.handle_event(EventType.START_RUN, context)
    assert not executor.trainer.stopped
    executor.handle_event(EventType.END_RUN, context)
    assert executor.trainer.stopped


def test_withdrawn_task_has_no_answer(site) -> None:
    abort = Signal()
    abort.trigger(True)
    assert ask(*site, b"hang", abort=abort).get_return_code() == ReturnCode.TASK_ABORTED


def test_other_tasks_start_nothing(site) -> None:
    executor, context = site
    assert ask(executor, context, b"a", name="train").get_return_code() == ReturnCode.TASK_UNKNOWN
    assert ask(executor, context, "a").get_return_code() == ReturnCode.TASK_UNKNOWN
    assert executor.trainer is None
    executor.handle_event(EventType.END_RUN, context)


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
    script, commands, original = tmp_path / "trainer.py", [], executor_module.ProcessPool
    script.write_text(TRAINER)

    def pool(command: list[str], size: int):
        commands.append(command)
        return original([sys.executable, str(script)], size)

    monkeypatch.setattr(executor_module, "ProcessPool", pool)
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
