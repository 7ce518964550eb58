"""Start a run in a federation, follow its rounds, and fetch its model."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from nvflare.apis.job_def import RunStatus
from nvflare.fuel.flare_api.api_spec import NoConnection
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from silohash.config.load import ResolvedConfig
from silohash.files import write_json
from silohash.forms import of_json
from silohash.runtime.engine.flare.controller import FAILED, RESULT, ROUND
from silohash.runtime.engine.flare.kits import CONTROLLER, EXECUTOR, LEADER
from silohash.runtime.engine.port import Limits
from silohash.runtime.events import Observer, RoundRecord
from silohash.types import UserError

POLL_SECONDS = 1.0
TASK_REQUEST_SECONDS = 0.2
"""How long a site waits between two questions for a task. FLARE's default of 2 s is most of the time of a short round."""


def write_job(folder: Path, run: str, resolved: ResolvedConfig, silos: Sequence[str], limits: Limits) -> None:
    """Write the job of a run. It holds settings only, no code.

    Args:
        folder: the new folder of the job.
        run: name of the run.
        resolved: the config with its methods.
        silos: names of the silos, in order.
        limits: how long to wait for silos.
    """
    arguments = {
        "run": run, "config": resolved.config.to_toml(), "silos": list(silos),
        "deadline_seconds": limits.deadline_seconds or 0.0, "quorum": limits.quorum,
    }  # fmt: skip
    config = folder / "app" / "config"
    config.mkdir(parents=True)
    write_json(folder / "meta.json", {
        "name": run, "resource_spec": {}, "min_clients": min(limits.quorum, len(silos)), "deploy_map": {"app": ["@ALL"]},
    })  # fmt: skip
    write_json(config / "config_fed_server.json", {
        "format_version": 2,
        "server": {"task_request_interval": TASK_REQUEST_SECONDS},
        "components": [],
        "workflows": [{"id": "rounds", "path": CONTROLLER, "args": arguments}],
    })  # fmt: skip
    write_json(config / "config_fed_client.json", {
        "format_version": 2,
        "components": [],
        "executors": [{"tasks": ["*"], "executor": {"path": EXECUTOR, "args": {}}}],
    })  # fmt: skip


@contextmanager
def session(kit: Path, seconds: float = 20.0) -> Iterator[Session]:
    """Yield a session with the server of a federation.

    Raises:
        UserError: if the server cannot be reached.
    """
    try:
        with redirect_stdout(sys.stderr):  # FLARE prints what it does
            opened = new_secure_session(LEADER, str(kit), timeout=seconds)
    except (NoConnection, AssertionError, OSError) as error:
        raise UserError(f"The server of {kit} cannot be reached ({error}). Start it: silohash server KIT") from error
    try:
        yield opened
    finally:
        opened.close()


def connected_silos(opened: Session) -> list[str]:
    """Return the names of the connected silos, in alphabetical order."""
    return sorted(client.name for client in opened.get_connected_client_list())


def follow(opened: Session, job: str, observers: Sequence[Observer], first: int) -> None:
    """Pass the records of the rounds to observers until the job ends.

    Args:
        opened: the session.
        job: id of the job.
        observers: receive the records.
        first: number of the first round that they do not know.

    Raises:
        UserError: if the run failed.
    """
    following = first
    while True:
        ended = str(opened.get_job_meta(job).get("status", ""))
        text = str(opened.get_job_logs(job).get("logs", {}).get("server", ""))
        for record in _records(text):
            if record.round >= following:
                following = record.round + 1
                for observer in observers:
                    observer.round(record)
        if ended.startswith("FINISHED"):
            reasons = [line.partition(FAILED)[2] for line in text.splitlines() if FAILED in line]
            if reasons:
                raise UserError(reasons[-1])
            if ended != RunStatus.FINISHED_COMPLETED.value:
                raise UserError(
                    f"FLARE ended the job ({ended}). Start the run again: it continues after its last round."
                )
            return
        time.sleep(POLL_SECONDS)


def _records(text: str) -> Iterator[RoundRecord]:
    for line in text.splitlines():
        _, found, record = line.partition(ROUND)
        if found:
            yield of_json(record, RoundRecord)


def train_in_federation(
    kit: Path,
    resolved: ResolvedConfig,
    folder: Path,
    silos: Sequence[str],
    *,
    limits: Limits,
    observers: Sequence[Observer] = (),
) -> None:
    """Train a run in a federation, and fetch it into a new folder.

    Args:
        kit: the kit of whoever starts runs.
        resolved: the config with its methods.
        folder: the folder of the run. Its name is the name of the run. A run of the same name continues.
        silos: names of the silos, in order; all connected ones if empty.
        limits: how long to wait for silos.
        observers: receive the records of the rounds.

    Raises:
        UserError: if the server cannot be reached, or the run fails.
    """
    with session(kit) as opened, tempfile.TemporaryDirectory() as beside:
        chosen = list(silos) or connected_silos(opened)
        if not chosen:
            raise UserError("No silo is connected to the server. Start the silos: silohash silo KIT")
        write_job(Path(beside) / "job", folder.name, resolved, chosen, limits)
        job = opened.submit_job(str(Path(beside) / "job"))
        for observer in observers:
            observer.start(
                name=resolved.config.federated.name, total_rounds=resolved.config.federated.rounds, first_round=0
            )
        try:
            follow(opened, job, observers, 0)
        finally:
            for observer in observers:
                observer.finish()
        fetched = Path(opened.download_job_result(job, str(Path(beside) / "result")))
        shutil.copytree(next(fetched.rglob(RESULT)), folder, dirs_exist_ok=True)
