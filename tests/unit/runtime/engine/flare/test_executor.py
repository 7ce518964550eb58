"""What a site runs: it survives the death of its trainer, and starts nothing that a job names."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from silohash.exchange.message import Message

pytest.importorskip("nvflare")

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from silohash.runtime.engine.flare import executor as module
from silohash.runtime.engine.flare.engine import MESSAGE, TASK
from silohash.runtime.engine.flare.executor import TrainerExecutor

TRAINER = """
import os, signal, sys, time
from silohash.runtime.engine.processes import serve

def answer(request):
    if request == b"die":
        os.kill(os.getpid(), signal.SIGKILL)
    if request == b"hang":
        time.sleep(600)
    return request + str(os.getpid()).encode()

serve(lambda: answer)
"""


class Context(FLContext):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def get_engine(self, *arguments: object, **options: object) -> object:
        workspace = SimpleNamespace(get_site_config_dir=lambda: str(self.folder))
        return SimpleNamespace(get_workspace=lambda: workspace, fire_event=lambda *event: None)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An executor whose trainer is a script, and its context."""
    script, started = tmp_path / "trainer.py", []
    script.write_text(TRAINER)

    def pool(command: list[str], size: int):
        started.append(command)
        return original([sys.executable, str(script)], size)

    original = module.ProcessPool
    monkeypatch.setattr(module, "ProcessPool", pool)
    executor, context = TrainerExecutor(), Context(tmp_path)
    yield executor, context, started
    executor.handle_event(EventType.END_RUN, context)


def ask(executor: TrainerExecutor, context: Context, request: object, name: str = TASK, abort: Signal | None = None):
    task = Shareable()
    task[MESSAGE] = request
    return executor.execute(name, task, context, abort or Signal())


def test_trainer_is_the_installed_one_with_the_file_of_the_silo(site, tmp_path: Path) -> None:
    executor, context, started = site
    first = ask(executor, context, b"a")
    assert first.get_return_code() == ReturnCode.OK
    assert started == [[sys.executable, "-m", "silohash.runtime.sites.trainer", str(tmp_path / "silohash.toml")]]
    assert ask(executor, context, b"a")[MESSAGE] == first[MESSAGE]


def test_death_of_the_trainer_is_an_answer_and_the_next_task_starts_another(site) -> None:
    executor, context, started = site
    before = ask(executor, context, b"a")[MESSAGE]
    reply = ask(executor, context, b"die")
    assert reply.get_return_code() == ReturnCode.OK
    assert Message.decode(reply[MESSAGE]).notes == {"failure": "Its trainer ended (exit status -9)."}
    after = ask(executor, context, b"a")[MESSAGE]
    assert after.startswith(b"a")
    assert after != before
    assert len(started) == 1


def test_withdrawn_task_stops_the_trainer(site) -> None:
    executor, context, started = site
    abort = Signal()
    abort.trigger(True)
    assert ask(executor, context, b"hang", abort=abort).get_return_code() == ReturnCode.TASK_ABORTED
    assert executor.trainer is None
    assert ask(executor, context, b"a").get_return_code() == ReturnCode.OK
    assert len(started) == 2


def test_other_tasks_start_nothing(site) -> None:
    executor, context, started = site
    assert ask(executor, context, b"a", name="train").get_return_code() == ReturnCode.TASK_UNKNOWN
    assert ask(executor, context, "a").get_return_code() == ReturnCode.TASK_UNKNOWN
    assert started == []
