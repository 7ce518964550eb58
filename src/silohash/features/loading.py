"""Work that is done ahead of who needs it, in a few threads and within bounds, and how far it has come."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from silohash.types import Notify

if TYPE_CHECKING:
    from rich.progress import Progress

QUIET_SECONDS = 2.0
"""Work that is done sooner shows no progress."""

PLAIN_SECONDS = 30.0
"""Between two lines of progress where there is no terminal."""

MOST_THREADS = 8

_Task = TypeVar("_Task")
_Done = TypeVar("_Done")


def loader_threads() -> int:
    """Return how many threads load: one a core, at most `MOST_THREADS`."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST_THREADS, cores)


def prefetched(
    tasks: Sequence[_Task], work: Callable[[_Task], _Done], *, threads: int, ahead: int
) -> Generator[_Done, None, None]:
    """Yield what ``work`` makes of each task, in order, while threads are at work on the next ones.

    Args:
        tasks: what is to be done.
        work: called in the threads; what it raises is raised here when its turn has come.
        threads: how many.
        ahead: at most so many results wait or are in work at a time, so that memory stays flat.
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
    """Yield what is to be told of every further items that are done.

    After two seconds a terminal shows a bar, which vanishes at the end; elsewhere ``notify`` gets a line now and then.
    """
    started = last = time.monotonic()
    done = 0
    bar: Progress | None = None

    def advance(count: int) -> None:
        """Count further items, and shows it where it is time to."""
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
        yield advance
    finally:
        if bar is not None:
            bar.stop()


def _bar(what: str, total: int, done: int) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.add_task(what, total=total, completed=done)
    bar.start()
    return bar
