"""Check a silo or a hub: its certificates, the way to the NATS server, and the versions of the silos."""

import asyncio
from pathlib import Path

from nats.aio.client import Client

from silohash import __version__
from silohash.base.certificates import Finding, member_findings
from silohash.base.files import read_toml
from silohash.search.requests import Refusal, SiloStatus, StatusRequest
from silohash.search.wire import WireBus
from silohash.service.config import MISSING, REMEDY, HubConfig, SiloConfig, read_config
from silohash.service.envelope import read_key
from silohash.service.link import RENEW, Link, findings
from silohash.service.nats_bus import NatsBus

CONNECT_SECONDS = 5.0


def check_member(path: Path) -> list[Finding]:
    """Check the member that a file describes: a hub, if it lists silos."""
    is_hub = "silos" in read_toml(path, remedy=REMEDY, missing=MISSING)
    config = read_config(path, HubConfig) if is_hub else read_config(path, SiloConfig)
    read_key(config.sealing.key)
    found = findings(config.bus)
    # The server, whose files the hub's file names, may be on another machine.
    if isinstance(config, HubConfig) and config.nats is not None and config.nats.certificate.exists():
        found += member_findings(config.nats.certificate, config.nats.authority, RENEW)
    return found + asyncio.run(_check_connection(config))


async def _check_connection(config: HubConfig | SiloConfig) -> list[Finding]:
    """Return whether the server accepts the member and, for a hub, whether the silos answer with its version."""
    bus = NatsBus(config) if isinstance(config, HubConfig) else None
    link = Link(config.bus, f"check of {config.federation}", _nothing) if bus is None else bus.link
    try:
        if not await link.start(wait_seconds=CONNECT_SECONDS):
            return [Finding("server", link.problem or "The server does not answer.", False)]
        found = [Finding("server", f"{', '.join(config.bus.servers)} accepts this member", True)]
        if bus is None or isinstance(config, SiloConfig):
            return found
        replies = await WireBus(bus).ask(dict.fromkeys(config.silos, StatusRequest()), CONNECT_SECONDS)
    finally:
        await link.stop()
    for silo in config.silos:
        answer = replies.answers.get(silo)
        if isinstance(answer, SiloStatus):
            text = f"has silohash {answer.version or 'of an unknown version'}, and the hub {__version__}"
            found.append(Finding(silo, text, answer.version == __version__))
        else:
            # A silo that refuses says so, for example, if the clocks differ.
            text = answer.reason if isinstance(answer, Refusal) else replies.reasons.get(silo, "It refuses to answer.")
            found.append(Finding(silo, str(text), False))
    return found


async def _nothing(client: Client) -> None:
    """Subscribe to nothing, so that no request to the silo arrives here."""
