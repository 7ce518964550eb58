"""Start a run in a federation, follow its rounds, and fetch its model."""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TextIO

from nvflare.apis.fl_exception import FLCommunicationError
from nvflare.fuel.flare_api.api_spec import NoConnection
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from silohash.config.load import ResolvedConfig
from silohash.files import explaining_disk_errors, write_json
from silohash.runtime.engine.flare.controller import RESULT
from silohash.runtime.engine.flare.following import (
    FINISHED,
    LOST,
    POLL_SECONDS,
    Followed,
    connected_silos,
    follow,
    status_of,
)
from silohash.runtime.engine.flare.kits import ADMIN, CONTROLLER, EXECUTOR
from silohash.runtime.engine.port import Limits
from silohash.runtime.events import Observer
from silohash.runtime.sites.attempts import LostJobError, missed, train_in_jobs, wait_for
from silohash.runtime.sites.kits import ADMIN_FILE, ENGINE, LEADER, STARTUP
from silohash.types import Notify, UserError

LOG = "log.txt"
TASK_REQUEST_SECONDS = 0.2
"""How long a site waits between two questions for a task. FLARE's default of 2 s is most of the time of a short round."""

START_SECONDS = 600.0
"""How long the sites wait for the server's process of a job. FLARE's default of a minute is too short on a busy machine."""

END_SECONDS = 60.0
"""How long to wait until an aborted job has ended, before a new one continues the run."""


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
        "deadline_seconds": limits.deadline_seconds or 0.0, "quorum": limits.quorum, "start": limits.start or 0,
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
        "max_runner_sync_timeout": START_SECONDS,
        "executors": [{"tasks": ["*"], "executor": {"path": EXECUTOR, "args": {}}}],
    })  # fmt: skip


@contextmanager
def session(kit: Path, seconds: float = 20.0) -> Iterator[Session]:
    """Yield a session with the server of a federation. What FLARE prints and logs meanwhile is in ``log.txt`` of the kit.

    Raises:
        UserError: if the folder is not a kit, or the server cannot be reached.
    """
    if not (kit / STARTUP / ADMIN_FILE).is_file():
        raise UserError(
            f"{kit} is not the kit that starts runs of members that {ENGINE}. Give its folder, such as museums/{LEADER}."
        )
    with _logged(kit / LOG) as log:
        try:
            with redirect_stdout(log):
                opened = new_secure_session(ADMIN, str(kit), timeout=seconds)
        except (FLCommunicationError, NoConnection, AssertionError, OSError) as error:
            raise UserError(
                f"The server of {kit} cannot be reached ({error}). Start it: silohash server KIT"
            ) from error
        try:
            yield opened
        finally:
            with suppress(*LOST):
                opened.close()


def set_admission(kit: Path, silo: str, *, admitted: bool) -> None:
    """Lock a silo out of a federation, or let it in again. The server remembers this when it is started again.

    Args:
        kit: the kit of whoever starts runs.
        silo: name of the silo. Its connection ends, and its certificate remains valid.
        admitted: whether it may connect.

    Raises:
        UserError: if the server cannot be reached.
    """
    with session(kit) as opened:
        (opened.enable_client if admitted else opened.disable_client)(silo)


@contextmanager
def _logged(path: Path) -> Iterator[TextIO]:
    """Append what FLARE logs in this process to a file instead of showing it, and yield the file."""
    logger = logging.getLogger("nvflare")
    with explaining_disk_errors(path):
        opened = path.open("a", encoding="utf-8")
    with opened as log:
        handler, propagate = logging.StreamHandler(log), logger.propagate
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
        logger.addHandler(handler)
        logger.propagate = False
        try:
            yield log
        finally:
            logger.removeHandler(handler)
            logger.propagate = propagate


def train_in_federation(
    kit: Path,
    resolved: ResolvedConfig,
    folder: Path,
    silos: Sequence[str],
    *,
    limits: Limits,
    observers: Sequence[Observer] = (),
    notify: Notify = lambda text: None,
) -> None:
    """Train a run in a federation, and fetch it into a new folder.

    If FLARE loses the job, a new one continues after the last round, as soon as the silos are connected again.

    Args:
        kit: the kit of whoever starts runs.
        resolved: the config with its methods.
        folder: the folder of the run. Its name is the name of the run. A run of the same name continues.
        silos: names of the silos, in order; all connected ones if empty.
        limits: how long to wait for silos.
        observers: receive the records of the rounds.
        notify: called with a line when a new job continues the run, and per silo that did not store its model.

    Raises:
        UserError: if the server cannot be reached, or the run fails.
    """
    with session(kit) as opened:
        chosen = list(silos) or connected_silos(opened)
    if not chosen:
        raise UserError("No silo is connected to the server. Start the silos: silohash silo KIT")
    followed = Followed(observers, notify)
    needed = limits.start or len(chosen)
    total = resolved.config.federated.rounds

    def job() -> None:
        """Train the run in a new job."""
        with tempfile.TemporaryDirectory() as beside:
            write_job(Path(beside) / "job", folder.name, resolved, chosen, limits)
            _train_once(kit, Path(beside), folder, followed)

    def wait() -> None:
        """Wait until enough silos are connected."""
        wait_for(lambda: _connected_now(kit), chosen, limits.quorum if followed.next_round else needed)

    for observer in observers:
        observer.start(name=resolved.config.federated.name, total_rounds=total, first_round=0)
    try:
        train_in_jobs(job, lost=LOST, rounds=lambda: followed.next_round, wait=wait, notify=notify)
        for line in missed(followed.records, followed.refusals):
            notify(line)
    finally:
        for observer in observers:
            observer.finish()


def _connected_now(kit: Path) -> list[str]:
    """Return the names of the connected silos; none if the server cannot be reached."""
    with suppress(UserError, *LOST), session(kit) as opened:
        return connected_silos(opened)
    return []


def _train_once(kit: Path, beside: Path, folder: Path, followed: Followed) -> None:
    """Submit the job in a temporary folder, follow it, and fetch its result. An interruption ends the job."""
    with session(kit) as opened:
        job = opened.submit_job(str(beside / "job"))
        try:
            follow(opened, job, followed)
        except BaseException as error:
            with suppress(Exception):
                opened.abort_job(job)
                if isinstance(error, LostJobError):
                    _wait_for_end(opened, job)
            raise
        fetched = Path(opened.download_job_result(job, str(beside / "result")))
        shutil.copytree(next(fetched.rglob(RESULT)), folder, dirs_exist_ok=True)


def _wait_for_end(opened: Session, job: str) -> None:
    """Wait until a job has ended, for a limited time."""
    until = time.monotonic() + END_SECONDS
    while time.monotonic() < until and not status_of(opened, job).startswith(FINISHED):
        time.sleep(POLL_SECONDS)
