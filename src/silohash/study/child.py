"""One run of a study in a process of its own (``python -m silohash.study.child``).

What to do comes as one line of JSON on standard input, which then stays open: when it ends, the study is gone or wants this
process to stop, and it does. A run that was begun is gone on with.
"""

from __future__ import annotations

import _thread
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from silohash.types import UserError

USER_ERROR = 2
INTERRUPTED = 130
GRACE_SECONDS = 10.0
"""How long a run that is told to stop may take to put its files in order."""


def main() -> None:
    """Does what standard input says. Exits with 2 after a user's error, with 130 if it was stopped."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    order: dict[str, Any] = json.loads(sys.stdin.readline())
    threading.Thread(target=_stop_when_input_ends, daemon=True).start()
    try:
        do(Path(order["folder"]), order["config"], figures=order["figures"])
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(USER_ERROR)
    except KeyboardInterrupt:
        sys.stderr.write("stopped; what was finished is kept\n")
        sys.exit(INTERRUPTED)


def do(folder: Path, config: dict[str, Any], *, figures: bool) -> None:
    """Trains a run, or goes on with it.

    Args:
        folder: the run's.
        config: what it is trained with where nothing was begun.
        figures: whether it is measured on the archive's queries in the end, and its report written.

    Raises:
        UserError: if something must be put right first, or another process works in the folder.
    """
    from silohash.study.locks import locked

    with locked(folder, f"Another process is at work in {folder}.", wait_seconds=3 * GRACE_SECONDS):
        from rich.console import Console

        from silohash.report.finish import finish_run
        from silohash.runtime import experiment
        from silohash.runtime.config import load_config
        from silohash.runtime.events import ConsoleProgress
        from silohash.runtime.run import Run

        run = Run(folder)
        observers = [ConsoleProgress(Console(stderr=True, highlight=False, width=160))]
        if run.config_path.exists():
            experiment.resume(folder, observers=observers)
        else:
            experiment.train(load_config(config), folder, observers=observers, say=_say)
        if figures:
            finish_run(run)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _stop_when_input_ends() -> None:
    while os.read(sys.stdin.fileno(), 1 << 12):
        pass
    _thread.interrupt_main()
    time.sleep(GRACE_SECONDS)
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
