"""Worker processes: order of results, failures, and the inputs that they read."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from silohash.base.errors import JobFailed
from silohash.methods.message import Message
from silohash.training.engines.port import SiloTask
from silohash.training.engines.worker_processes import WorkerProcesses


@pytest.fixture
def worker_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes worker processes that run a script, without torch."""
    started = []

    def start(body: str, workers: int) -> WorkerProcesses:
        script = tmp_path / "worker.py"
        script.write_text(f"import sys, time\n{body}\n")
        inputs = tmp_path / "inputs"
        made = WorkerProcesses(inputs, workers, lambda folder: (folder / "inputs.txt").touch())
        assert made.pool.command == (sys.executable, "-m", "silohash.training.worker", str(inputs))
        made.pool.command = (sys.executable, str(script))
        started.append(made)
        return made

    yield start
    for made in started:
        made.stop()


ECHO = """
from silohash.methods.message import Message
from silohash.training.engines.processes import serve
from silohash.training.engines.wire import decode_task, encode_result
from silohash.training.engines.port import SiloResult

def answer(request):
    task = decode_task(Message.decode(request))
    time.sleep(0.2 if task.silo == 0 else 0.0)
    update = Message("update", str(task.silo), 0, counts={"items": 1})
    return encode_result(SiloResult(task.silo, update, {}, 0.0, {}, 0.0))

serve(lambda: answer)
"""


def tasks(count: int) -> list[SiloTask]:
    return [SiloTask("train", silo, Message("broadcast", "server", 0)) for silo in range(count)]


@pytest.mark.whole_run
def test_results_come_in_the_order_of_the_tasks(worker_processes) -> None:
    pool = worker_processes(ECHO, 2)
    for _ in range(2):
        assert [result.silo for result in pool.send(tasks(5))] == [0, 1, 2, 3, 4]


def test_worker_that_dies_is_named_with_advice(worker_processes) -> None:
    pool = worker_processes("sys.exit(9)", 1)
    with pytest.raises(JobFailed, match="0"):
        list(pool.send(tasks(2)))


def test_inputs_are_written_before_the_run_and_removed_after_it(worker_processes, tmp_path: Path) -> None:
    (tmp_path / "inputs").mkdir()
    (tmp_path / "inputs" / "of an interrupted run").touch()
    pool = worker_processes("", 1)
    pool.start(["north"])
    assert [path.name for path in (tmp_path / "inputs").iterdir()] == ["inputs.txt"]
    pool.stop()
    assert not (tmp_path / "inputs").exists()


@pytest.mark.whole_run
def test_cancelled_tasks_are_not_begun(worker_processes, tmp_path: Path) -> None:
    noting = ECHO.replace(
        "    time.sleep",
        f"    folder = {str(tmp_path)!r}\n"
        "    open(f'{folder}/{task.silo}', 'w').close()\n"
        "    while task.silo == 1 and not os.path.exists(f'{folder}/cancelled'):\n"
        "        time.sleep(0.01)\n"
        "    time.sleep",
    )
    pool = worker_processes(f"import os\n{noting}", 1)
    answers = pool.send(tasks(3))
    assert next(answers).silo == 0
    pool.cancel()
    (tmp_path / "cancelled").touch()  # task 1 may have begun; it ends only now, so task 2 cannot have begun
    assert list(answers) == []
    assert [answer.silo for answer in pool.send(tasks(1))] == [0]
    assert not (tmp_path / "2").exists()
