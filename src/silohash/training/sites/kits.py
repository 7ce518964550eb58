"""Kits of the members of a federation: the parts that the engine connecting the members does not determine."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from silohash.base.errors import NotAKit, UserError
from silohash.base.files import write_text
from silohash.base.forms import reading
from silohash.base.optional import installed
from silohash.run.folder import archive_of_data
from silohash.training.sites.settings import read_site_settings
from silohash.training.updates.encryption import KEY, SiloKey

SERVER, LEADER = "server", "leader"
"""Folders of the kits of the server and of whoever starts runs, beside one folder per silo."""

STARTUP, LOCAL = "startup", "local"
"""Folders of a kit: what the member needs to connect, and what it sets itself."""

SERVER_FILE, CLIENT_FILE, ADMIN_FILE = "fed_server.json", "fed_client.json", "fed_admin.json"
"""Files in ``startup`` of the kits that FLARE connects: those of the server, of a silo, and of whoever starts runs."""

ORGANIZATION = "silohash"
"""Name that FLARE asks for in each kit."""

ENGINE = "NVIDIA FLARE connects, which is the only engine across machines"
"""Ending of a sentence about a folder that is not a kit."""

SITE_FILE = "silohash.toml"
"""The silo's own file, in the folder ``local`` of its kit, which no run can change."""

SITE_TEMPLATE = """\
# The silo {name} in training.
silo = "{name}"
state = "../state"        # folder for what the silo stores between rounds
device = "auto"           # device that it trains on
downloads = false         # whether a run may download published networks
files = false             # whether a run may name files of this machine for features, such as a vocabulary
key = "silos.key"         # key that all silos share, and that the server must not have, for encrypted sums

[data]                    # the silo's own archive
path = "../data"          # a folder with metadata.csv, .jsonl or .parquet
"""


@dataclass(frozen=True)
class Training:
    """Where silos find the training server."""

    host: str = "127.0.0.1"
    port: int = 8002
    valid_days: int = 730


def new_silo_key() -> SiloKey | None:
    """Return a new key for encrypted sums, or None if the packages for them are not installed."""
    return SiloKey.new() if installed("tenseal") else None


def write_site(kit: Path, name: str, key: SiloKey | None) -> None:
    """Write what a silo sets itself into its kit, and the key that all silos share, if there is one."""
    write_text(kit / LOCAL / SITE_FILE, SITE_TEMPLATE.format(name=name))
    if key is not None:
        key.save(kit / LOCAL / KEY)


CERTIFICATE = "server.crt"
"""The server's certificate, which no other member has."""

WARNING_DAYS = 30
CONNECT_SECONDS = 5.0


@dataclass(frozen=True)
class Finding:
    """The result of one check of a kit, and whether the kit can be used as far as this is concerned."""

    subject: str
    text: str
    good: bool


def check_kit(kit: Path, now: datetime | None = None) -> list[Finding]:
    """Check the kit of a server, a silo, or whoever starts runs.

    Raises:
        UserError: If the folder is not a kit.
    """
    startup, site = kit / STARTUP, kit / LOCAL / SITE_FILE
    if not any((startup / name).exists() for name in (SERVER_FILE, CLIENT_FILE, ADMIN_FILE)):
        raise NotAKit(f"{kit} is not the kit of a member that {ENGINE}. Make kits with: silohash federation kits")
    found = list(certificates(kit, now))
    if not (startup / CERTIFICATE).exists():
        found.append(_server(startup))
    if site.exists():
        found.append(_data(site))
    return found


def certificates(kit: Path, now: datetime | None = None) -> Iterator[Finding]:
    """Yield whether the certificates of a kit are valid, and for how long. The arguments are those of `check_kit`."""
    # Kits are made and read without this package, which only the extra for training has.
    from cryptography.x509 import load_pem_x509_certificate

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
