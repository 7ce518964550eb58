"""Child processes that answer requests: frames, replacement, renewal, and how they stop."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from silohash.training.engines.processes import (
    INTERRUPTED,
    ProcessEndedError,
    ProcessPool,
    available_threads,
    read_frame,
    write_frame,
)

SERVER = """
import os, sys, time
from pathlib import Path
from silohash.training.engines.processes import serve

def answer(request):
    print("this is not an answer")
    word, _, rest = request.decode().partition(" ")
    if word == "die":
        os._exit(int(rest))
    if word == "work":
        folder = Path(rest)
        try:
            (folder / "started").touch()  # the interruption may follow at once
            while True:
                time.sleep(0.01)
        except KeyboardInterrupt:
            if "stubborn" in folder.name:
                time.sleep(60)
            (folder / "stopped").touch()
            raise
    return f"{os.getpid()} {os.environ.get('COLOR', '')} {word}".encode()

serve(lambda: answer, grace_seconds=20)
"""
WAIT_SECONDS = 60


@pytest.fixture
def make_pool() -> Iterator[Callable[..., ProcessPool]]:
    pools: list[ProcessPool] = []

    def make(size: int, **options: object) -> ProcessPool:
        pools.append(ProcessPool([sys.executable, "-c", SERVER], size, quiet=True, **options))  # type: ignore[arg-type]
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def ask(pool: ProcessPool, text: str) -> list[str]:
    return pool.submit(lambda exchange: exchange(text.encode())).result(WAIT_SECONDS).decode().split(" ")


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} was not written"
        time.sleep(0.01)


def test_frame_holds_length_and_content() -> None:
    stream = io.BytesIO()
    for content in (b"one", b"", b"x" * 70_000):
        write_frame(stream, content)
    assert stream.getvalue()[:11] == b"\x03\0\0\0\0\0\0\0one"
    stream.seek(0)
    assert [read_frame(stream) for _ in range(3)] == [b"one", b"", b"x" * 70_000]
    with pytest.raises(EOFError):
        read_frame(stream)


@pytest.mark.parametrize("length", [1, 7, 8, 17])
def test_frame_that_is_cut_off(length: int) -> None:
    stream = io.BytesIO()
    write_frame(stream, b"0123456789")
    with pytest.raises(EOFError):
        read_frame(io.BytesIO(stream.getvalue()[:length]))
    assert read_frame(io.BytesIO(stream.getvalue()[:18])) == b"0123456789"


def test_one_process_answers_one_request_after_the_other(make_pool: Callable[..., ProcessPool]) -> None:
    pool = make_pool(2, environment={"COLOR": "green"})
    assert pool.children == []
    assert (pool.grace_seconds, pool.renew_after) == (2.0, None)
    first = ask(pool, "hello")
    assert first[1:] == ["green", "hello"]
    assert ask(pool, "again") == [first[0], "green", "again"]
    assert len(pool.children) == 1
    assert int(first[0]) != os.getpid()
    assert os.getsid(int(first[0])) == int(first[0])


def test_as_many_processes_at_a_time_as_the_pool_has(make_pool: Callable[..., ProcessPool]) -> None:
    pool = make_pool(2)
    meeting = threading.Barrier(2)
    lock = threading.Lock()
    running, most = 0, 0

    def work(exchange: Callable[[bytes], bytes]) -> bytes:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        meeting.wait(WAIT_SECONDS)
        answer = exchange(b"hello")
        with lock:
            running -= 1
        return answer

    futures = [pool.submit(work) for _ in range(6)]
    assert len({future.result(WAIT_SECONDS) for future in futures}) == 2
    assert most == 2


def test_process_that_died_is_named_and_replaced(make_pool: Callable[..., ProcessPool]) -> None:
    pool = make_pool(1)
    first = ask(pool, "hello")
    with pytest.raises(ProcessEndedError, match="exit status 7") as caught:
        ask(pool, "die 7")
    assert caught.value.status == 7
    assert ask(pool, "hello")[0] != first[0]
    child = pool.children[0]
    child.process.kill()
    with pytest.raises(ProcessEndedError) as caught:
        ask(pool, "hello")
    assert caught.value.status == -signal.SIGKILL
    assert len(pool.children) == 0


@pytest.mark.parametrize("renew_after", [1, 2])
def test_process_is_renewed_after_its_share(make_pool: Callable[..., ProcessPool], renew_after: int) -> None:
    pool = make_pool(1, renew_after=renew_after)
    answered = [ask(pool, "hello")[0] for _ in range(4)]
    assert [answered.count(process) for process in dict.fromkeys(answered)] == [renew_after] * (4 // renew_after)


def test_close_interrupts_work_and_waits_for_it(make_pool: Callable[..., ProcessPool], tmp_path: Path) -> None:
    pool = make_pool(1, grace_seconds=WAIT_SECONDS)
    work = pool.submit(lambda exchange: exchange(f"work {tmp_path}".encode()))
    never = pool.submit(lambda exchange: exchange(b"hello"))
    wait_for(tmp_path / "started")
    pool.close()
    assert (tmp_path / "stopped").exists()
    with pytest.raises(ProcessEndedError) as caught:
        work.result(WAIT_SECONDS)
    assert caught.value.status == INTERRUPTED
    with pytest.raises(CancelledError):
        never.result(WAIT_SECONDS)
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(lambda exchange: exchange(b"hello"))


def test_close_kills_a_process_that_takes_too_long(make_pool: Callable[..., ProcessPool], tmp_path: Path) -> None:
    folder = tmp_path / "stubborn"
    folder.mkdir()
    pool = make_pool(1, grace_seconds=0.2)
    work = pool.submit(lambda exchange: exchange(f"work {folder}".encode()))
    wait_for(folder / "started")
    pool.close()
    with pytest.raises(ProcessEndedError) as caught:
        work.result(WAIT_SECONDS)
    assert caught.value.status == -signal.SIGKILL


def test_second_interruption_kills_at_once(
    make_pool: Callable[..., ProcessPool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "stubborn"
    folder.mkdir()
    pool = make_pool(1, grace_seconds=10 * WAIT_SECONDS)
    work = pool.submit(lambda exchange: exchange(f"work {folder}".encode()))
    wait_for(folder / "started")
    child = pool.children[0]
    waited: list[float] = []
    stop = child.stop

    def interrupted(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 1:
            raise KeyboardInterrupt
        stop(seconds)

    monkeypatch.setattr(child, "stop", interrupted)
    pool.close()
    assert waited[0] > 9 * WAIT_SECONDS
    assert waited[1] == 0.0
    assert child.process.returncode == -signal.SIGKILL
    with pytest.raises(ProcessEndedError):
        work.result(WAIT_SECONDS)


@pytest.mark.whole_run
def test_child_stops_when_its_parent_is_gone(tmp_path: Path) -> None:
    """The parent closes the pipe without a word, as it does when it is killed."""
    child = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert child.stdin is not None
    assert child.stdout is not None
    with child:
        write_frame(child.stdin, b"hello")
        assert read_frame(child.stdout).endswith(b"hello")
        write_frame(child.stdin, f"work {tmp_path}".encode())
        wait_for(tmp_path / "started")
        child.stdin.close()
        assert child.wait(WAIT_SECONDS) == INTERRUPTED
    assert (tmp_path / "stopped").exists()


@pytest.mark.whole_run
def test_idle_child_ends_well_when_its_input_does() -> None:
    done = subprocess.run([sys.executable, "-c", SERVER], input=b"", capture_output=True, timeout=WAIT_SECONDS)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize(("limit", "threads"), [("2", 2), ("4,1", 4), (" 1 ", 1), ("", 3), ("0", 3), ("many", 3)])
def test_available_threads_follow_the_environment(monkeypatch: pytest.MonkeyPatch, limit: str, threads: int) -> None:
    monkeypatch.setattr("silohash.training.engines.processes.available_cores", lambda: 3)
    monkeypatch.setenv("OMP_NUM_THREADS", limit)
    assert available_threads() == threads
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert available_threads() == 3
