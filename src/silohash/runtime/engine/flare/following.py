"""Follow the rounds of a run in the jobs that train it, and notice when a new job must continue it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from nvflare.apis.fl_exception import FLCommunicationError
from nvflare.apis.job_def import JobMetaKey, RunStatus
from nvflare.fuel.flare_api.api_spec import AuthenticationError, InternalError, NoReply, SessionClosed
from nvflare.fuel.flare_api.flare_api import Session
from pydantic import ValidationError

from silohash.forms import of_json
from silohash.runtime.engine.flare.controller import EARLIER, FAILED, NOTE, ROUND
from silohash.runtime.engine.flare.engine import ENDED, NOT_IN_JOB, SILENT
from silohash.runtime.events import Observer, RoundRecord
from silohash.runtime.sites.attempts import ATTEMPTS, LostJobError
from silohash.types import Notify, UserError

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

LOST = (LostJobError, SessionClosed, AuthenticationError, *UNANSWERED)
"""What is raised when a server dies while a job is followed."""


@dataclass
class Followed:
    """The rounds of a run, which observers receive once each, in whatever jobs they are trained.

    Attributes:
        observers: receive the records.
        notify: called once with each line for whoever started the run.
        next_round: number of the first round that they have not received.
        noted: the lines that were passed on.
        records: the records that were passed on.
        away: the silos that do not take part in the present job, or are not waited for, according to the last round.
        heard: time of the last sign of life of each silo that is away, when this was noticed.
        invited: how many jobs in a row were ended to take in a silo, which has not taken part since.
        refusals: why silos do not accept the present job, such as by their policy.
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

    def begin(self) -> None:
        """Begin to follow a new job, in which no silo is known to be away."""
        self.away, self.heard = set(), {}

    def returned(self, heartbeats: Mapping[str, float]) -> list[str]:
        """Return the silos that a new job can take in: those that are away, and have given a sign of life since.

        Args:
            heartbeats: what `heartbeats` returns.
        """
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


def status_of(opened: Session, job: str) -> str:
    """Return the status of a job."""
    return str(opened.get_job_meta(job).get("status", ""))


def refusals_of(meta: Mapping[str, Any]) -> dict[str, str]:
    """Return why sites do not accept a job, by their names, from the data that FLARE keeps about it."""
    details = (str(detail).partition(": ") for detail in meta.get(DETAILS) or ())
    return {name: f"it refuses the job: {reason}" for name, _, reason in details if reason != "OK"}


def follow(opened: Session, job: str, followed: Followed) -> None:
    """Pass the records of the rounds to observers until the job ends.

    FLARE forgets to mark the jobs that ended with the server. The time at which the server started tells this. It does not
    take silos into a job that has begun, so a new job does when a silo is connected again.

    Args:
        opened: the session.
        job: id of the job.
        followed: the rounds that the observers have received, which is changed here.

    Raises:
        LostJobError: if FLARE ended the job, the server died, or a silo can take part again.
        UserError: if the run failed for another reason.
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
                raise UserError(reasons[-1])
            if ended != RunStatus.FINISHED_COMPLETED.value:
                raise LostJobError(f"FLARE ended the job ({ended}).")
            return
        if started != first:
            raise LostJobError("The server was started again.")
        if followed.away and (back := followed.returned(heartbeats(opened))):
            raise LostJobError(f"{', '.join(back)} can take part again.")
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
