"""Prefetch the results of tasks in a few threads, and report progress."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from silohash.base.cores import available_cores
from silohash.base.types import Notify

if TYPE_CHECKING:
    from rich.progress import Progress

QUIET_SECONDS = 2.0
"""Tasks that take less time do not show progress."""

PLAIN_SECONDS = 30.0
"""Time between two progress lines if there is no terminal."""

MOST_THREADS = 8

_Task = TypeVar("_Task")
_Done = TypeVar("_Done")


def loader_threads() -> int:
    """Return the number of loader threads: one per core, at most `MOST_THREADS`."""
    return min(MOST_THREADS, available_cores())


def prefetched(
    tasks: Sequence[_Task], work: Callable[[_Task], _Done], *, threads: int, ahead: int
) -> Generator[_Done, None, None]:
    """Yield the result of ``work`` for each task, in order, while threads work on the next tasks.

    An exception is raised when it is the turn of its task. To bound memory, at most ``ahead`` tasks are running or have
    results that are waiting.
    """
    waiting: deque[Future[_Done]] = deque()
    left = iter(tasks)
    pool = ThreadPoolExecutor(threads, thread_name_prefix="silohash-loader")
    try:
        waiting.extend(pool.submit(work, task) for task in islice(left, ahead))
        while waiting:
            done = waiting.popleft().result()
            waiting.extend(pool.submit(work, task) for task in islice(left, 1))
            yield done
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def progress(what: str, total: int, notify: Notify) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the number of items that were completed since the last call.

    After two seconds a terminal shows a progress bar, which is removed at the end. Without a terminal ``notify`` is called
    with a line at intervals.
    """
    started = last = time.monotonic()
    done = 0
    bar: Progress | None = None

    def _advance(count: int) -> None:
        nonlocal bar, done, last
        done += count
        now = time.monotonic()
        if bar is not None:
            bar.update(bar.task_ids[0], completed=done)
        elif now - started < QUIET_SECONDS or done >= total:
            return
        elif sys.stderr.isatty():
            bar = _bar(what, total, done)
        elif last == started or now - last >= PLAIN_SECONDS:
            last = now
            notify(f"{what}: {done:,} of {total:,}")

    try:
        yield _advance
    finally:
        if bar is not None:
            bar.stop()


def _bar(what: str, total: int, done: int) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.add_task(what, total=total, completed=done)
    bar.start()
    return bar
