"""Start a run in a federation, follow its rounds, and fetch its model."""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from nvflare.apis.fl_exception import FLCommunicationError
from nvflare.apis.job_def import JobMetaKey, RunStatus
from nvflare.fuel.flare_api.api_spec import AuthenticationError, InternalError, NoConnection, NoReply, SessionClosed
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session
from pydantic import ValidationError

from silohash import __version__
from silohash.base.errors import JobFailed, JobLost, NotAKit, ServerUnreachable, TooFewSilos, UnknownName, UserError
from silohash.base.files import explaining_disk_errors, read_json, write_json
from silohash.base.forms import of_json
from silohash.base.registry import suggestion
from silohash.base.types import Notify
from silohash.run.config.load import ResolvedConfig
from silohash.run.events import Observer, RoundRecord
from silohash.training.engines.flare.controller import EARLIER, FAILED, NOTE, RESULT, ROUND
from silohash.training.engines.flare.engine import ENDED, NOT_IN_JOB, SILENT
from silohash.training.engines.flare.kits import ADMIN, CONTROLLER, EXECUTOR
from silohash.training.engines.port import Limits
from silohash.training.sites.kits import ADMIN_FILE, ENGINE, LEADER, NEW_KITS, SILOS_FILE, STARTUP

LOG = "log.txt"
TASK_REQUEST_SECONDS = 0.2
"""How long a site waits between two questions for a task. FLARE's default of 2 s is most of the time of a short round."""

START_SECONDS = 600.0
"""How long the sites wait for the server's process of a job. FLARE's default of a minute is too short on a busy machine."""

END_SECONDS = 60.0
"""How long to wait until an aborted job has ended, before a new one continues the run."""

ATTEMPTS = 3
"""A run is given up if so many jobs in a row are lost before they finish a round."""

CONNECT_SECONDS = 300.0
"""How long to wait until the silos are connected again."""

PATIENCE = 0.2
"""Share of this time after which a run continues without the silos that it does not need."""

POLL_SECONDS = 1.0
BUSY_SECONDS = 60.0
"""How long a server may leave questions about a job unanswered, before the job is given up."""

FINISHED = "FINISHED"
"""Beginning of the status of a job that has ended, in whatever way."""

DETAILS = JobMetaKey.JOB_DEPLOY_DETAIL.value
STALE_SECONDS = 45.0
"""A silo whose last sign of life is so much older than that of another one is no longer connected. Silos give one every ten
seconds, and FLARE lists them for ten minutes after the last one."""

UNANSWERED = (FLCommunicationError, ConnectionError, NoReply, InternalError, RuntimeError)
"""What is raised when a server does not answer, because it has died or its connection is busy with a large model."""

LOST = (JobLost, SessionClosed, AuthenticationError, *UNANSWERED)
"""What is raised when a server dies while a job is followed."""


def write_job(folder: Path, run: str, resolved: ResolvedConfig, silos: Sequence[str], limits: Limits) -> None:
    """Write the job of a run. It holds settings only, no code."""
    arguments = {
        "run": run, "config": resolved.config.to_toml(), "silos": list(silos),
        "deadline_seconds": limits.deadline_seconds or 0.0, "quorum": limits.quorum, "start": limits.start or 0,
        "version": __version__, "digest": resolved.config.shared_digest(),
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
        UserError: If the folder is not a kit, or the server cannot be reached.
    """
    if not (kit / STARTUP / ADMIN_FILE).is_file():
        raise NotAKit(
            f"{kit} is not the kit that starts runs of members that {ENGINE}. Give its folder, such as museums/{LEADER}."
        )
    with _logged(kit / LOG) as log:
        try:
            with redirect_stdout(log):
                opened = new_secure_session(ADMIN, str(kit), timeout=seconds)
        except (FLCommunicationError, NoConnection, AssertionError, OSError) as error:
            raise ServerUnreachable(
                f"The server of {kit} cannot be reached ({error}). Start it: silohash server KIT"
            ) from error
        try:
            yield opened
        finally:
            with suppress(*LOST):
                opened.close()


def set_admission(kit: Path, silo: str, *, admitted: bool) -> None:
    """Lock a silo out of a federation, or let it in again. The server remembers this when it is started again.

    The silo's connection ends, and its certificate remains valid.

    Raises:
        UserError: If there is no such silo, or the server cannot be reached.
    """
    with session(kit) as opened:
        silos = read_json(kit / SILOS_FILE, list[str], remedy=NEW_KITS, missing=NEW_KITS)
        if silo not in silos:
            raise UnknownName(f'There is no silo "{silo}"{suggestion(silo, silos)}. The silos are: {", ".join(silos)}.')
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

    The name of the folder is that of the run, and a run of the same name continues. Without silos, all connected ones train.

    Raises:
        UserError: If the server cannot be reached, or the run fails.
    """
    with session(kit) as opened:
        chosen = list(silos) or connected_silos(opened)
    if not chosen:
        raise TooFewSilos("No silo is connected to the server. Start the silos: silohash silo KIT")
    followed = Followed(observers, notify)
    total = resolved.config.federated.rounds
    for observer in observers:
        observer.start(name=resolved.config.federated.name, total_rounds=total, first_round=0)
    try:
        _train_in_jobs(kit, resolved, folder, chosen, limits, followed)
        for line in followed.absences():
            notify(line)
    finally:
        for observer in observers:
            observer.finish()


def _train_in_jobs(
    kit: Path, resolved: ResolvedConfig, folder: Path, silos: Sequence[str], limits: Limits, followed: Followed
) -> None:
    """Train a run in a job, and in a new one whenever a job is lost, as long as rounds are finished."""
    fruitless = 0
    while True:
        before = followed.next_round
        try:
            with tempfile.TemporaryDirectory() as beside:
                write_job(Path(beside) / "job", folder.name, resolved, silos, limits)
                _train_once(kit, Path(beside), folder, followed)
            return
        except LOST as error:
            fruitless = 0 if followed.next_round > before else fruitless + 1
            if fruitless == ATTEMPTS:
                raise JobFailed(
                    f"{ATTEMPTS} jobs in a row ended without a round ({error}). The logs in the kits have the reason."
                ) from error
            ended = f"The job has ended after {followed.next_round} rounds ({error})."
            followed.notify(f"{ended} A new one continues the run.")
        wait_for_silos(kit, silos, limits.quorum if followed.next_round else limits.start or len(silos))


def wait_for_silos(kit: Path, silos: Sequence[str], needed: int) -> None:
    """Wait until the silos are connected. If ``needed`` of them are, wait for the others at most a fifth of the time.

    Raises:
        UserError: If fewer silos than needed connect in time.
    """
    began = time.monotonic()
    while True:
        there = _connected_now(kit)
        missing = [name for name in silos if name not in there]
        waited, enough = time.monotonic() - began, len(silos) - len(missing) >= needed
        if not missing or (enough and waited > CONNECT_SECONDS * PATIENCE):
            return
        if waited > CONNECT_SECONDS:
            raise TooFewSilos(
                f"{', '.join(missing)} did not connect to the server within {CONNECT_SECONDS:g} seconds. Start them, then "
                "start the run again: it continues after its last round."
            )
        time.sleep(POLL_SECONDS)


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
                if isinstance(error, JobLost):
                    until = time.monotonic() + END_SECONDS
                    while time.monotonic() < until:
                        if str(opened.get_job_meta(job).get("status", "")).startswith(FINISHED):
                            break
                        time.sleep(POLL_SECONDS)
            raise
        fetched = Path(opened.download_job_result(job, str(beside / "result")))
        shutil.copytree(next(fetched.rglob(RESULT)), folder, dirs_exist_ok=True)


@dataclass
class Followed:
    """The rounds of a run, which observers receive once each, in whatever jobs they are trained.

    Attributes:
        next_round: Number of the first round that they have not received.
        away: The silos that do not take part in the present job, or are not waited for, according to the last round.
        heard: Time of the last sign of life of each silo that is away, when this was noticed.
        invited: How many jobs in a row were ended to take in a silo, which has not taken part since.
        refusals: Why silos do not accept the present job, such as by their policy.
    """

    observers: Sequence[Observer]
    notify: Notify = lambda text: None
    next_round: int = 0
    noted: set[str] = field(default_factory=set)
    records: list[RoundRecord] = field(default_factory=list)
    away: set[str] = field(default_factory=set)
    heard: dict[str, float] = field(default_factory=dict)
    invited: dict[str, int] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)

    def read(self, log: str) -> None:
        """Pass the records in the log of a job to the observers, and the lines for whoever started the run."""
        for line in log.splitlines():
            note = line.partition(NOTE)[2]
            if note and note not in self.noted:
                self.noted.add(note)
                self.notify(note)
            for beginning in (ROUND, EARLIER):
                _, found, text = line.partition(beginning)
                if found:
                    with suppress(ValidationError):  # the line is not complete yet
                        self._pass_on(of_json(text, RoundRecord), earlier=beginning == EARLIER)

    def _pass_on(self, record: RoundRecord, *, earlier: bool) -> None:
        """Pass a record to the observers, unless they have it, and note which silos were absent."""
        if record.round < self.next_round:
            return
        self.next_round = record.round + 1
        self.records.append(record)
        if not earlier:
            absent = {silo.silo: silo.rejected for silo in record.silos if silo.rejected is not None}
            self.away = {name for name, reason in absent.items() if reason.startswith((NOT_IN_JOB, SILENT))}
            for silo in record.silos:
                if silo.rejected is None:
                    self.invited.pop(silo.silo, None)
                    self.heard.pop(silo.silo, None)
        for observer in self.observers:
            observer.round(record)

    def absences(self) -> Iterator[str]:
        """Yield a sentence per silo that had no part in a round, with the reason that is known best."""
        found: dict[str, tuple[int, str]] = {}
        for record in self.records:
            for silo in record.silos:
                if silo.rejected is not None:
                    found[silo.silo] = (found.get(silo.silo, (0, ""))[0] + 1, silo.rejected)
        for name, (rounds, reason) in sorted(found.items()):
            why = self.refusals.get(name, reason).removesuffix(".")
            yield f"The run is partial: {name} had no part in {rounds} of {len(self.records)} rounds ({why})."

    def begin(self) -> None:
        """Begin to follow a new job, in which no silo is known to be away."""
        self.away, self.heard = set(), {}

    def returned(self, heartbeats: Mapping[str, float]) -> list[str]:
        """Return the silos that a new job can take in: those that are away, and have given a sign of life since."""
        back = []
        for name in sorted(self.away - self.refusals.keys()):
            last = heartbeats.get(name, 0.0)
            if last > self.heard.setdefault(name, last) and self.invited.get(name, 0) < ATTEMPTS:
                self.invited[name] = self.invited.get(name, 0) + 1
                back.append(name)
        return back


def heartbeats(opened: Session) -> dict[str, float]:
    """Return when each connected silo last gave a sign of life, in seconds since 1970 on the clock of the server."""
    last = {client.name: float(client.last_connect_time or 0.0) for client in opened.get_connected_client_list()}
    newest = max(last.values(), default=0.0)
    return {name: seconds for name, seconds in last.items() if seconds >= newest - STALE_SECONDS}


def connected_silos(opened: Session) -> list[str]:
    """Return the names of the connected silos, in alphabetical order."""
    return sorted(heartbeats(opened))


def refusals_of(meta: Mapping[str, Any]) -> dict[str, str]:
    """Return why sites do not accept a job, by their names, from the data that FLARE keeps about it."""
    details = (str(detail).partition(": ") for detail in meta.get(DETAILS) or ())
    return {name: f"it refuses the job: {reason}" for name, _, reason in details if reason != "OK"}


def follow(opened: Session, job: str, followed: Followed) -> None:
    """Pass the records of the rounds to observers until the job ends.

    FLARE forgets to mark the jobs that ended with the server. The time at which the server started tells this. It does not
    take silos into a job that has begun, so a new job does when a silo is connected again.

    Raises:
        JobLost: If FLARE ended the job, the server died, or a silo can take part again.
        UserError: If the run failed for another reason.
    """
    followed.begin()
    first = None
    while True:
        meta, log, started = _look(opened, job)
        first = first or started
        ended, followed.refusals = str(meta.get("status", "")), refusals_of(meta)
        followed.read(log)
        if ended.startswith(FINISHED):
            reasons = [line.partition(FAILED)[2] for line in log.splitlines() if FAILED in line]
            if reasons and ENDED not in reasons[-1]:
                raise JobFailed(reasons[-1])
            if ended != RunStatus.FINISHED_COMPLETED.value:
                raise JobLost(f"FLARE ended the job ({ended}).")
            return
        if started != first:
            raise JobLost("The server was started again.")
        if followed.away and (back := followed.returned(heartbeats(opened))):
            raise JobLost(f"{', '.join(back)} can take part again.")
        time.sleep(POLL_SECONDS)


def _look(opened: Session, job: str) -> tuple[Mapping[str, Any], str, float]:
    """Return the data of a job, its log, and when the server started. A busy server is asked again for a while."""
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            meta = opened.get_job_meta(job)
            log = str(opened.get_job_logs(job).get("logs", {}).get("server", ""))
            return meta, log, opened.get_system_info().server_info.start_time
        except UNANSWERED:
            if time.monotonic() > until:
                raise
            time.sleep(POLL_SECONDS)
