"""Check a kit before it is used: its certificate, the way to the server, and the data of a silo."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography.x509 import load_pem_x509_certificate

from silohash.base.forms import reading
from silohash.base.types import UserError
from silohash.run.folder import archive_of_data
from silohash.training.sites.kits import ADMIN_FILE, CLIENT_FILE, ENGINE, LOCAL, SERVER_FILE, SITE_FILE, STARTUP
from silohash.training.sites.settings import read_site_settings

CERTIFICATE = "server.crt"
"""The server's certificate, which no other member has."""

WARNING_DAYS = 30
CONNECT_SECONDS = 5.0


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        subject: What was checked.
        text: What was found.
        good: Whether the kit can be used as far as this is concerned.
    """

    subject: str
    text: str
    good: bool


def check_kit(kit: Path, now: datetime | None = None) -> list[Finding]:
    """Check the kit of a server, a silo, or whoever starts runs.

    Args:
        kit: The folder of the kit.
        now: The time with which certificates are compared; by default that of this machine.

    Raises:
        UserError: If the folder is not a kit.
    """
    startup, site = kit / STARTUP, kit / LOCAL / SITE_FILE
    if not any((startup / name).exists() for name in (SERVER_FILE, CLIENT_FILE, ADMIN_FILE)):
        raise UserError(f"{kit} is not the kit of a member that {ENGINE}. Make kits with: silohash federation kits")
    found = list(certificates(kit, now))
    if not (startup / CERTIFICATE).exists():
        found.append(_server(startup))
    if site.exists():
        found.append(_data(site))
    return found


def certificates(kit: Path, now: datetime | None = None) -> Iterator[Finding]:
    """Yield whether the certificates of a kit are valid, and for how long. The arguments are those of `check_kit`."""
    startup, now = kit / STARTUP, now or datetime.now(UTC)
    for path in sorted([*startup.glob("*.crt"), *startup.glob("*.pem")]):
        with reading(path, remedy="Make new kits."):
            certificate = load_pem_x509_certificate(path.read_bytes())
        left = (certificate.not_valid_after_utc - now).days
        until = f"valid until {certificate.not_valid_after_utc:%Y-%m-%d}"
        if now < certificate.not_valid_before_utc:
            begin = f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
            yield Finding(
                path.name, f"valid from {begin}, and the clock of this machine is before that. Set it.", False
            )
        elif left < WARNING_DAYS:
            yield Finding(path.name, f"{until}, {left} days from now. Make new kits: silohash federation kits", False)
        else:
            yield Finding(path.name, until, True)


def _server(startup: Path) -> Finding:
    """Return whether the server can be reached."""
    host, port = _address(startup)
    try:
        with socket.create_connection((host, port), CONNECT_SECONDS):
            return Finding("server", f"{host}:{port} can be reached", True)
    except OSError as error:
        return Finding("server", f"{host}:{port} cannot be reached ({error}). Start it: silohash server KIT", False)


def _address(startup: Path) -> tuple[str, int]:
    """Return the host and the port of the server that a kit connects to."""
    path = next(startup / name for name in (CLIENT_FILE, ADMIN_FILE) if (startup / name).exists())
    with reading(path, remedy="Make new kits."):
        about = json.loads(path.read_text(encoding="utf-8"))
        if path.name == ADMIN_FILE:
            return str(about["admin"]["host"]), int(about["admin"]["port"])
        host, _, port = about["servers"][0]["service"]["target"].rpartition(":")
        return host, int(port)


def _data(file: Path) -> Finding:
    """Return whether the archive of a silo can be read, and what it warns of."""
    try:
        archive = archive_of_data(read_site_settings(file).data)
    except UserError as error:
        return Finding("data", str(error), False)
    return Finding("data", "; ".join([f"{len(archive.split('train')):,} training items", *archive.card.warnings]), True)
