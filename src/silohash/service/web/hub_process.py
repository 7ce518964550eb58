"""The process of a hub: it serves the API and the page over the silos behind the bus."""

import asyncio
import signal
import socket
from collections.abc import Callable
from itertools import product
from logging import WARNING
from typing import get_args

from silohash.run.folder import Run
from silohash.search.breaker import BreakerBus
from silohash.search.checks import Finding
from silohash.search.wire import WireBus
from silohash.service.accounts import Accounts
from silohash.service.backends import AdoptingBackend, HubBackend
from silohash.service.config import HubConfig
from silohash.service.exclusions import Exclusions
from silohash.service.logs import log_event
from silohash.service.metrics import Metrics
from silohash.service.nats_bus import NatsBus
from silohash.service.web.api import exclusion_calls
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
    metrics, exclusions = Metrics(config.silos), Exclusions(config)

    def found(silo: str, finding: Finding) -> None:
        """Count what was found about a silo, and log what no honest silo does."""
        metrics.findings.labels(silo, finding).inc()
        if finding in ("contradiction", "flood"):
            log_event("a silo is dishonest or damaged", level=WARNING, silo=silo, finding=finding)

    for silo, finding in product(config.silos, get_args(Finding)):
        metrics.findings.labels(silo, finding)  # present before its first event, so that Prometheus sees the rise
    bus = NatsBus(config, found)
    # Shared by the backends of both runs, so that each knows which silos hang.
    asked = WireBus(bus, metrics.silo_answered, found=found, excluded=exclusions.names)
    misses, seconds = config.deadline_misses, config.deadline_seconds
    silos = BreakerBus(asked, misses=misses, patience_seconds=seconds, observe=metrics.breaker_changed)

    def make(run: Run) -> HubBackend:
        """Return the backend of a run."""
        backend = HubBackend(run, config.silos, silos, deadline_seconds=seconds, share_words=config.share_words)
        backend.deadline_limits = config.deadline_limits_seconds
        return backend

    backend = AdoptingBackend(config, make)
    backend.warm_up()
    gate = None if accounts is None else Gate(accounts)
    app = app_for(backend, gate, config.hosts, config.picture_hosts, metrics=metrics)
    if accounts is not None:
        app.include_router(exclusion_calls(exclusions))
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
