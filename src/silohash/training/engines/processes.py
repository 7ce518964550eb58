"""A pool of child processes that answer requests.

Requests and answers are frames of bytes on a child's standard input and output; nothing is pickled. A child stops when
its input ends. That also happens when this process ends, in whatever way, so no child outlives it.
"""

from __future__ import annotations

import _thread
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import LifoQueue, SimpleQueue
from typing import IO, TypeAlias, TypeVar

from silohash.base.cores import available_cores

LENGTH_BYTES = 8
INTERRUPTED = 130
"""Exit status of a child that was stopped while it worked on an answer."""

Exchange: TypeAlias = Callable[[bytes], bytes]
"""Sends a request to a child process and returns its answer."""

_Result = TypeVar("_Result")


class ProcessEndedError(Exception):
    """A child process ended before it answered. A negative status is the number of the signal that killed it."""

    def __init__(self, status: int) -> None:
        super().__init__(f"The process ended with exit status {status}.")
        self.status = status


class ProcessPool:
    """A fixed number of child processes that answer requests, each one request at a time.

    A process starts when it is first needed. One that has ended is replaced at the next request.

    Args:
        command: The command line of a child, which calls `serve`.
        environment: Variables to set over those of this process.
        renew_after: Number of requests after which a process is replaced; None for no limit.
        grace_seconds: How long a process may take to stop after its input has ended, before it is killed.
        quiet: Whether the children's standard error is discarded.
    """

    def __init__(
        self,
        command: Sequence[str],
        size: int,
        *,
        environment: Mapping[str, str] | None = None,
        renew_after: int | None = None,
        grace_seconds: float = 2.0,
        quiet: bool = False,
    ) -> None:
        self.command = tuple(command)
        path = os.pathsep.join(part for part in sys.path if part)
        self.environment = {**os.environ, "PYTHONPATH": path, **(environment or {})}
        self.renew_after = renew_after
        self.grace_seconds = grace_seconds
        self.stderr = subprocess.DEVNULL if quiet else None
        self.children: list[_Child] = []
        self.closed = False
        self._lock = threading.Lock()
        self._free: LifoQueue[_Child | None] = LifoQueue()
        for _ in range(size):
            self._free.put(None)
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="silohash-process")

    def submit(self, work: Callable[[Exchange], _Result]) -> Future[_Result]:
        """Run ``work`` in a thread, with the `Exchange` of a process of its own, as soon as one is free."""
        return self._threads.submit(self._run, work)

    def _run(self, work: Callable[[Exchange], _Result]) -> _Result:
        child = self._free.get()
        try:
            if child is None:
                child = self._start()
            return work(child.exchange)
        finally:
            worn = child is not None and self.renew_after is not None and child.count >= self.renew_after
            if child is not None and (worn or child.process.poll() is not None):
                # Stop a child, unless `close` already does.
                with self._lock:
                    listed = child in self.children
                    if listed:
                        self.children.remove(child)
                if listed:
                    child.stop(self.grace_seconds)
                child = None
            self._free.put(child)

    def _start(self) -> _Child:
        with self._lock:
            if self.closed:
                raise ProcessEndedError(INTERRUPTED)
            child = _Child(self.command, self.environment, self.stderr, self.grace_seconds)
            self.children.append(child)
        return child

    def close(self) -> None:
        """Stop all processes and wait for them. A second Ctrl-C meanwhile kills those that are left."""
        with self._lock:
            self.closed = True
            left, self.children = self.children, []
        self._threads.shutdown(wait=False, cancel_futures=True)
        for child in left:
            child.end_input()
        deadline = time.monotonic() + self.grace_seconds
        while left:
            try:
                left[-1].stop(max(0.0, deadline - time.monotonic()))
                left.pop()
            except KeyboardInterrupt:
                deadline = time.monotonic()


class _Child:
    """One child process, in a session of its own, so that Ctrl-C in the terminal reaches this process only."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], stderr: int | None, grace_seconds: float
    ) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, env=environment,
            start_new_session=True,
        )  # fmt: skip
        assert self.process.stdin is not None  # noqa: S101  both are pipes
        assert self.process.stdout is not None  # noqa: S101
        self.requests, self.answers = self.process.stdin, self.process.stdout
        self.grace_seconds = grace_seconds
        self.count = 0

    def exchange(self, request: bytes) -> bytes:
        """Send a request and return its answer; raise `ProcessEndedError` if the process ends first."""
        self.count += 1
        try:
            write_frame(self.requests, request)
            return read_frame(self.answers)
        except (OSError, EOFError, ValueError) as error:  # ValueError: `close` has closed the pipe
            self.stop(self.grace_seconds)
            raise ProcessEndedError(self.process.returncode) from error

    def end_input(self) -> None:
        """Ask the process to stop."""
        with suppress(OSError):  # a process that has died leaves a broken pipe
            self.requests.close()

    def stop(self, seconds: float) -> None:
        """Wait until the process has stopped, and kill it after ``seconds``."""
        self.end_input()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.answers.close()


def serve(prepare: Callable[[], Callable[[bytes], bytes]], *, grace_seconds: float = 0.0) -> None:
    """Answer every frame on standard input with one on standard output, then end this process.

    ``prepare`` is called once and returns the function that computes the answer to a request. Everything else that is
    printed goes to standard error. If the input ends while an answer is computed, `KeyboardInterrupt` is raised there, and
    the answer may take ``grace_seconds`` to stop.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    answer = prepare()
    requests: SimpleQueue[bytes | None] = SimpleQueue()
    idle = threading.Event()
    idle.set()
    threading.Thread(target=_read_requests, args=(requests, idle, grace_seconds), daemon=True).start()
    status = 0
    try:
        while (request := requests.get()) is not None:
            result = answer(request)
            idle.set()  # before the answer is sent: the next request, which clears it, may follow at once
            write_frame(answers, result)
    except (KeyboardInterrupt, BrokenPipeError):
        status = INTERRUPTED
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def _read_requests(requests: SimpleQueue[bytes | None], idle: threading.Event, grace_seconds: float) -> None:
    """Pass requests to the main thread. When the input ends, stop an answer that is being computed."""
    with suppress(EOFError):
        while True:
            request = read_frame(sys.stdin.buffer)
            idle.clear()
            requests.put(request)
    requests.put(None)
    if not idle.is_set():
        _thread.interrupt_main()
        time.sleep(grace_seconds)
        os._exit(INTERRUPTED)


def write_frame(stream: IO[bytes], content: bytes) -> None:
    """Write a frame: the length of the content in 8 bytes (little-endian), then the content."""
    stream.write(len(content).to_bytes(LENGTH_BYTES, "little"))
    stream.write(content)
    stream.flush()


def read_frame(stream: IO[bytes]) -> bytes:
    """Read one frame and return its content; raise `EOFError` if the stream ends before the frame does."""
    head = stream.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        raise EOFError
    size = int.from_bytes(head, "little")
    content = stream.read(size)
    if len(content) < size:
        raise EOFError
    return content


def available_threads() -> int:
    """Return how many threads this process should compute with: ``OMP_NUM_THREADS`` if it is set, else one per core."""
    limit = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(limit) if limit.isdecimal() and int(limit) > 0 else available_cores()
