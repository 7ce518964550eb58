"""Runs of a study, one after the other, in a process of their own (``python -m silohash.study.child``).

What to do comes as a line of JSON on standard input, a run each; how it ended goes as a line to standard output. When the
input ends, the study is gone or wants this process to stop, and it does. A run that was begun before is gone on with.
"""

from __future__ import annotations

import _thread
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from silohash.types import UserError

FAILED = 1
USER_ERROR = 2
INTERRUPTED = 130
GRACE_SECONDS = 10.0
"""How long a run that is told to stop may take to put its files in order."""
LOCK_SECONDS = 3 * GRACE_SECONDS
LOG = "log.txt"


def main() -> None:
    """Does what standard input says until it ends."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    orders: SimpleQueue[str] = SimpleQueue()
    try:
        threading.Thread(target=_read, args=(orders,), daemon=True).start()
        while order := orders.get():
            read: dict[str, Any] = json.loads(order)
            code = attempt(Path(read["folder"]), read["config"], figures=read["figures"])
            answers.write(f"{json.dumps({'code': code})}\n")
    except (KeyboardInterrupt, BrokenPipeError):
        os._exit(INTERRUPTED)


def attempt(folder: Path, config: Mapping[str, Any], *, figures: bool) -> int:
    """Does `run_or_go_on`; whatever is said goes to the run's log.

    Returns:
        0, 2 after a user's error, 1 after any other.

    Raises:
        KeyboardInterrupt: if it was stopped.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOG).open("ab") as log:
        sys.stdout.flush()
        for stream in (sys.stdout, sys.stderr):
            os.dup2(log.fileno(), stream.fileno())
    try:
        run_or_go_on(folder, config, figures=figures)
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        return USER_ERROR
    except KeyboardInterrupt:
        sys.stderr.write("stopped; what was finished is kept\n")
        raise
    except Exception as error:
        traceback.print_exception(error)
        return FAILED
    return 0


def run_or_go_on(folder: Path, config: Mapping[str, Any], *, figures: bool) -> None:
    """Trains a run, or goes on with it.

    Args:
        folder: the run's.
        config: what it is trained with where nothing was begun.
        figures: whether it is measured on the archive's queries in the end, and its report written.

    Raises:
        UserError: if something must be put right first, or another process works in the folder.
    """
    from silohash.study.locks import locked

    with locked(folder, f"Another process is at work in {folder}.", wait_seconds=LOCK_SECONDS):
        from rich.console import Console

        from silohash.runtime import experiment
        from silohash.runtime.config import load_config
        from silohash.runtime.events import ConsoleProgress
        from silohash.runtime.run import Run

        run = Run(folder)
        observers = [ConsoleProgress(Console(stderr=True, highlight=False, width=160))]
        if run.config_path.exists():
            experiment.resume(folder, observers=observers)
        else:
            experiment.train(load_config(config), folder, observers=observers, notify=_notify)
        if figures:
            from silohash.report.finish import finish_run

            finish_run(run)


def _notify(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _read(orders: SimpleQueue[str]) -> None:
    """Passes orders on; when they end, stops the run that is at work."""
    for line in sys.stdin:
        orders.put(line)
    orders.put("")
    _thread.interrupt_main()
    time.sleep(GRACE_SECONDS)
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
