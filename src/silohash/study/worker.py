"""Runs of a study, one after the other, in a process of their own (``python -m silohash.study.worker``).

A request is a JSON object with the run's folder, its config and whether to evaluate it; the answer holds an exit code.
A run that was started before is resumed.
"""

import json
import os
import shutil
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from silohash.base.errors import UserError
from silohash.base.visible import visible_lines
from silohash.training.engines.processes import serve

FAILED = 1
USER_ERROR = 2
GRACE_SECONDS = 10.0
"""How long an interrupted run may take to put its files in order."""
LOCK_SECONDS = 3 * GRACE_SECONDS
LOG = "log.txt"


def main() -> None:
    """Do the runs on standard input until it ends."""
    serve(lambda: answer, grace_seconds=GRACE_SECONDS)


def answer(request: bytes) -> bytes:
    """Do the run of one request and return how it ended."""
    order: dict[str, Any] = json.loads(request)
    code = attempt(Path(order["folder"]), order["config"], figures=order["figures"], drawn=order["drawn"])
    return json.dumps({"code": code}).encode()


def attempt(folder: Path, config: Mapping[str, Any], *, figures: bool, drawn: Sequence[Mapping[str, Any]] = ()) -> int:
    """Call `train_or_resume` with all output going to the run's log. Return 0, 2 after a user's error, or 1 after another.

    Raises:
        KeyboardInterrupt: If the run is interrupted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOG).open("ab") as log:
        # The descriptors themselves are replaced, because compiled libraries write to them directly.
        sys.stdout.flush()
        for stream in (sys.stdout, sys.stderr):
            os.dup2(log.fileno(), stream.fileno())
    try:
        train_or_resume(folder, config, figures=figures, drawn=drawn)
    except UserError as error:
        _print(str(error))
        return USER_ERROR
    except KeyboardInterrupt:
        _print("Interrupted. Finished rounds are kept.")
        raise
    except Exception as error:
        traceback.print_exception(error)
        return FAILED
    return 0


def train_or_resume(
    folder: Path, config: Mapping[str, Any], *, figures: bool, drawn: Sequence[Mapping[str, Any]] = ()
) -> None:
    """Train a run, or resume it with its own config. Its peak memory is noted where the system measures it.

    With ``figures``, the run is evaluated and keeps what the figures ``drawn`` need, given as in a study's file.
    A finished run does not keep its checkpoint, which is much larger than its model.

    Raises:
        UserError: If the user must correct something first, or another process works in the folder.
    """
    from silohash.base.locks import locked

    with locked(folder, wait_seconds=LOCK_SECONDS):
        from rich.console import Console

        from silohash.base.memory import peak_bytes, start_measuring, write_peak
        from silohash.run.config.load import load_resolved
        from silohash.run.events import ConsoleProgress
        from silohash.run.folder import Run
        from silohash.training import experiment

        run = Run(folder)
        is_measured = start_measuring()
        observers = [ConsoleProgress(Console(stderr=True, highlight=False, width=160))]
        if run.config_path.exists():
            run = experiment.resume(run, observers=observers)
        else:
            run = experiment.train(load_resolved(config), folder, observers=observers, notify=_print)
        if figures:
            from silohash.report.finish import finish_run

            finish_run(run)
            shutil.rmtree(run.checkpoint, ignore_errors=True)
        if is_measured and (peak := peak_bytes()) is not None:
            write_peak(run.memory_path, peak)
        if figures and drawn:
            from silohash.study.figures import Figure
            from silohash.study.run_data import store

            store(run, [Figure.model_validate(figure) for figure in drawn])


def _print(text: str) -> None:
    sys.stderr.write(f"{visible_lines(text)}\n")


if __name__ == "__main__":
    main()
