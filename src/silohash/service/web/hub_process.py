"""The process of a hub: it serves the API and the page over the silos behind the bus."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from logging import WARNING

from silohash.run.folder import Run
from silohash.search.breaker import BreakerBus
from silohash.search.wire import WireBus
from silohash.service.accounts import Accounts
from silohash.service.backends import AdoptingBackend, HubBackend
from silohash.service.config import HubConfig
from silohash.service.logs import log_event
from silohash.service.metrics import Metrics
from silohash.service.nats_bus import NatsBus
from silohash.service.web.auth import Gate, app_for
from silohash.service.web.server import Server, ignoring_signals

FIRST_CONNECTION_SECONDS = 2.0
"""Maximum time to wait for the bus at the start. After it, a hub without a bus reports all silos as missing."""

LAST_REQUESTS_SECONDS = 3
"""Maximum time to wait for requests in progress when the process is stopped."""


async def serve_hub(
    config: HubConfig,
    listening: socket.socket,
    *,
    accounts: Accounts | None = None,
    ready: Callable[[], None] = lambda: None,
    read_again: Callable[[], HubConfig] | None = None,
) -> None:
    """Serve the API and the page until the process gets SIGINT or SIGTERM.

    Without accounts, everyone on this machine is allowed. After SIGHUP the file of the hub is read again, to find a new
    run. ``ready`` is called when the model is loaded and the process begins to serve.

    Raises:
        UserError: If the folder does not hold a trained run, or the key or a certificate cannot be read.
    """
    metrics = Metrics(config.silos)
    forged = {silo: metrics.forged.labels(silo) for silo in config.silos}
    bus = NatsBus(config, lambda silo: forged[silo].inc())
    # Shared by the backends of both runs, so that each knows which silos hang.
    silos = BreakerBus(
        WireBus(bus, metrics.silo_answered),
        misses=config.deadline_misses,
        patience_seconds=config.deadline_seconds,
        observe=metrics.breaker_changed,
    )

    def make(run: Run) -> HubBackend:
        """Return the backend of a run."""
        backend = HubBackend(run, config.silos, silos, deadline_seconds=config.deadline_seconds)
        backend.deadline_limits = config.deadline_limits_seconds
        return backend

    backend = AdoptingBackend(config, make)
    backend.warm_up()
    app = app_for(backend, None if accounts is None else Gate(accounts), config.hosts, metrics=metrics)
    await bus.link.start(wait_seconds=FIRST_CONNECTION_SECONDS)
    ready()
    log_event("hub started", federation=config.federation, silos=sorted(config.silos))
    if config.hosts and not config.proxies:
        log_event("all people behind a web server have one address, because proxies is not set", level=WARNING)
    if read_again is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, backend.reload, read_again)
    adopting = asyncio.create_task(backend.keep_looking())
    with ignoring_signals():
        try:
            await Server(app, stop_seconds=LAST_REQUESTS_SECONDS, proxies=config.proxies).serve(sockets=[listening])
        finally:
            adopting.cancel()
            await bus.link.stop()
            backend.close()
    log_event("hub stopped", federation=config.federation)
