"""What a site runs: it passes tasks to its trainer, and starts nothing that a job names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare")

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from silohash.training.engines.flare import executor as executor_module
from silohash.training.engines.flare.engine import MESSAGE, TASK
from silohash.training.engines.flare.executor import TrainerExecutor


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
