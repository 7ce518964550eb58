"""Runs of a federation that wait at a chosen moment, so that a test can interrupt them there and nowhere else."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

HELD_SILO = "place-2"
"""The silo that waits inside rounds."""

HOOK = f"""
import sys, time
from pathlib import Path

command, folder = " ".join(sys.orig_argv), Path(__file__).parent


def pause(moment):
    hold = folder / "hold"
    if hold.exists() and hold.read_text() == moment:
        (folder / "reached").touch()
        while hold.exists():
            time.sleep(0.05)


if "silohash.training.sites.trainer" in command and "/{HELD_SILO}/" in command:
    from silohash.training.engines import wire

    def sent(result):
        if result.update.kind == "update":
            with (folder / "trained").open("a") as log:
                print(result.update.round, file=log)
            pause(f"inside round {{result.update.round}}")
        return encode(result)

    encode, wire.encode_result = wire.encode_result, sent
elif "server.runner_process" in command:
    from silohash.training import rounds

    def begun(state, *args, **named):
        pause(f"before round {{state.round}}")
        return trained(state, *args, **named)

    trained, rounds.trained = rounds.trained, begun
"""


class Moments:
    """What the processes of a federation are told by files.

    Inside a round, a silo waits once it has trained, before it answers. Before a round, the server waits once it has stored
    the previous one, before it sends anything.

    Args:
        folder: an empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "sitecustomize.py").write_text(HOOK)

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables with which the processes are started."""
        return {"PYTHONPATH": f"{self.folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}

    @property
    def reached(self) -> bool:
        """Whether a process waits."""
        return (self.folder / "reached").exists()

    @property
    def trained(self) -> list[int]:
        """The rounds that `HELD_SILO` has trained since `held`, in order."""
        log = self.folder / "trained"
        return [int(line) for line in log.read_text().split()] if log.exists() else []

    def release(self) -> None:
        """Lets the process go on that waits."""
        (self.folder / "hold").unlink(missing_ok=True)

    @contextmanager
    def held(self, moment: str) -> Iterator[None]:
        """Makes the next process wait that reaches a moment, such as ``before round 2`` or ``inside round 2``."""
        for name in ("reached", "trained"):
            (self.folder / name).unlink(missing_ok=True)
        (self.folder / "hold").write_text(moment)
        try:
            yield
        finally:
            self.release()
