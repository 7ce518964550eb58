"""A member's connection to the NATS server. It is encrypted, and opened again whenever it is lost."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from logging import WARNING
from secrets import randbelow
from typing import Any

from nats.aio.client import Client, Server
from nats.errors import Error as NatsError

from silohash.base.certificates import Finding, member_findings, read_certificates, subject_of
from silohash.base.errors import UserError
from silohash.base.files import check_private
from silohash.base.forms import damaged, reading
from silohash.base.optional import installed
from silohash.service.config import BusSettings
from silohash.service.logs import log_event, logged_errors

NO_FILE = "Correct the path in [bus], or make a key and a request for the certificate with --new-key."
RENEW = "Remove the key, make a new one with --new-key, and have its request signed: silohash federation sign."

CONNECT_SECONDS = 10
STOP_SECONDS = 5
DAY_SECONDS = 86_400
PING_SECONDS = 5
"""Interval between pings. A connection counts as lost after three unanswered pings."""

FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.05, 2.0
RETRY_SECONDS = 0.05


class _EncryptedClient(Client):
    """A client that disconnects from a server that does not encrypt its connections."""

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if not info.get("tls_required", False) and initial_connection:
            raise NatsError("the server does not encrypt its connections, which the config requires")
        await super()._process_info(info, initial_connection)


class Link:
    """Keep a connection to the NATS server open."""

    def __init__(
        self,
        settings: BusSettings,
        name: str,
        opened: Callable[[Client], Awaitable[None]],
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare the connection of a member, whose name is for the server's monitoring.

        ``opened`` is called with each new client, before it is used. After a lost connection a client renews its
        subscriptions by itself, so it is called again only if the server closed the connection for good. ``lost`` is called
        whenever the connection is lost, and ``restored_at`` is when it was last restored. ``problem`` is why there is none.

        Raises:
            UserError: If the key or a certificate cannot be read.
        """
        self._settings, self._name, self._opened, self._lost = settings, name, opened, lost
        self._tls = tls_context(settings)
        self._up = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._was_lost = False
        self.problem = ""
        self.client: Client | None = None
        self.restored_at: float | None = None

    async def start(self, *, wait_seconds: float | None = None) -> bool:
        """Start connecting, and return whether there is a connection after at most ``wait_seconds``."""
        self._task = asyncio.create_task(self._keep())
        self._watch = asyncio.create_task(self._watch_certificates())
        return await self.wait(wait_seconds)

    async def wait(self, seconds: float | None) -> bool:
        """Wait for the connection, and return whether there is one. There is no time limit if ``seconds`` is None."""
        if self._up.is_set():
            return True
        with suppress(TimeoutError):
            await asyncio.wait_for(self._up.wait(), seconds)
        return self._up.is_set()

    async def stop(self) -> None:
        """Close the connection, after answering the requests that have arrived."""
        for task in (self._task, self._watch):
            if task is not None:
                await _cancel(task)
        client, self.client = self.client, None
        self._up.clear()
        if client is not None:
            await _end(client)

    async def _keep(self) -> None:
        """Connect, and reconnect if the server closes the connection for good, for example after a change of its keys."""
        while True:
            closed = asyncio.Event()
            self.client = client = _EncryptedClient()
            try:
                await self._connect(client, closed)
                await self._opened(client)
                await register(client)
            except (NatsError, OSError, TimeoutError) as error:
                await self._report(error)
                await _end(client)
                await asyncio.sleep(LONGEST_WAIT_SECONDS)
                continue
            await self._mark_up("connected to the bus", client)
            await closed.wait()
            await self._mark_down()
            await asyncio.sleep(FIRST_WAIT_SECONDS)

    async def _connect(self, client: Client, closed: asyncio.Event) -> None:
        async def on_closed() -> None:
            """Make `_keep` connect with a new client."""
            closed.set()

        await client.connect(
            servers=list(self._settings.servers), name=self._name, tls=self._tls, connect_timeout=CONNECT_SECONDS,
            reconnect_time_wait=1, max_reconnect_attempts=-1, reconnect_to_server_handler=next_server,
            ping_interval=PING_SECONDS, error_cb=self._report, closed_cb=on_closed, disconnected_cb=self._mark_down,
            reconnected_cb=partial(self._mark_up, "reconnected to the bus", client),
        )  # fmt: skip

    async def _mark_up(self, event: str, client: Client) -> None:
        self.problem = ""
        if self._was_lost:
            self.restored_at = asyncio.get_running_loop().time()
        self._up.set()
        log_event(event, server=client.connected_url.netloc if client.connected_url else "")

    async def _mark_down(self) -> None:
        if self._up.is_set():
            self._up.clear()
            self._was_lost = True
            log_event("lost the connection to the bus", level=WARNING)
        self._lost()

    async def _report(self, error: Exception) -> None:
        text = explained(error, self._settings)
        if text != self.problem:
            self.problem = text
            log_event("error of the bus", level=WARNING, error=text)

    async def _watch_certificates(self) -> None:
        """Log every day which certificate ends soon, until the task is canceled."""
        while True:
            with logged_errors("the certificates cannot be checked", "checking the certificates failed"):
                for finding in findings(self._settings):
                    if not finding.good:
                        log_event("certificate", level=WARNING, file=finding.subject, state=finding.text)
            await asyncio.sleep(DAY_SECONDS)


async def register(client: Client) -> None:
    """Wait until the server knows the subscriptions of a client.

    Raises:
        nats.errors.Error: If the server does not answer within `CONNECT_SECONDS`.
    """
    # In nats-py 2, `flush` sends its ping ahead of the commands that still wait to be written, and these are written before
    # the answer arrives. So only a second ping follows them.
    for _ in range(2):
        await client.flush(CONNECT_SECONDS)


async def _end(client: Client) -> None:
    """Close a client within `STOP_SECONDS`, after the requests that have arrived are answered."""
    for close in (client.drain, client.close) if client.is_connected else (client.close,):
        if not client.is_closed:
            with suppress(NatsError, OSError, TimeoutError):
                await asyncio.wait_for(close(), STOP_SECONDS)
    # `close` of nats-py 2 cancels this task once, and a single cancellation can be lost (see `_cancel`).
    if client._reconnection_task is not None:
        await _cancel(client._reconnection_task)


async def _cancel(task: asyncio.Task[None]) -> None:
    # On Python 3.11, `asyncio.wait_for` can lose a single cancellation.
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=RETRY_SECONDS)


def next_server(servers: list[Server], _: dict[str, Any]) -> tuple[Server, float]:
    """Return the server to try next, and the delay in seconds, which grows with each failure and is partly random."""
    server = min(servers, key=lambda candidate: candidate.reconnects)
    longest = min(FIRST_WAIT_SECONDS * 2 ** min(server.reconnects, 10), LONGEST_WAIT_SECONDS)
    # Partly random, so that members do not all reconnect at the same moment.
    return server, longest * (1 + randbelow(1_000) / 1_000) / 2


def tls_context(settings: BusSettings) -> ssl.SSLContext:
    """Return the TLS settings of connections. The certificate and the host name of the server are always verified."""
    for path in filter(None, (settings.authority, settings.certificate)):
        read_certificates(path, missing=NO_FILE)
    with reading(settings.key, missing=NO_FILE):
        settings.key.read_bytes()
    check_private(settings.key)
    try:
        context = ssl.create_default_context(cafile=settings.authority)
        context.load_cert_chain(settings.certificate, settings.key, password="")
    except ssl.SSLError as error:
        remedy = f"Use PEM files, and the key {settings.key} that belongs to the certificate, without a password."
        raise damaged(settings.certificate, error.reason or str(error), remedy) from error
    return context


def findings(settings: BusSettings) -> list[Finding]:
    """Return whether the certificates of a member are valid, and belong together. See `member_findings`."""
    return list(member_findings(settings.certificate, settings.authority, RENEW))


def explained(error: Exception, settings: BusSettings) -> str:
    """Return what an error of a member's connection means. The cause that the member's own files show comes first."""
    text = str(error) or type(error).__name__
    if isinstance(error, ConnectionRefusedError):
        return f"Nothing answers at {' or '.join(settings.servers)}. Start the NATS server, or correct [bus] servers."
    ended = isinstance(error, ConnectionResetError | BrokenPipeError) or "authorization violation" in text.lower()
    if not ended and not isinstance(error, ssl.SSLError):
        return text
    with suppress(UserError):
        if bad := [f"{finding.subject}: {finding.text}" for finding in findings(settings) if not finding.good]:
            return f"{bad[0]} ({text})"
    if isinstance(error, ssl.SSLCertVerificationError):
        trusted = settings.authority or "the operating system"
        return (
            f"The server's certificate cannot be trusted ({error.verify_message}). It must be for the host in [bus] servers "
            f"and valid, and signed by the authority in {trusted}."
        )
    if isinstance(error, ssl.SSLError):
        return f"The server refuses the certificate {settings.certificate} as invalid or of another authority ({text})."
    return (
        f"The server ended the connection of the member {subject_of(settings.certificate)} ({text}). If it does so again, "
        "enter this subject in the hub's file, [silos], and write the config of the server again."
    )


def run_loop(main: Coroutine[object, object, None]) -> None:
    """Run a coroutine until it ends, on uvloop, which serves encrypted connections with less processor time than asyncio.

    uvloop does not exist for Windows. There, the loop is that of asyncio.
    """
    if not installed("uvloop"):
        asyncio.run(main)
        return
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)
