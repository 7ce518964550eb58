"""Kits of the members of a federation: the parts that the engine connecting the members does not determine."""

import json
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from silohash.base.certificates import Finding, member_findings
from silohash.base.errors import NotAKit, UserError
from silohash.base.files import write_text
from silohash.base.forms import reading
from silohash.base.optional import installed
from silohash.run.folder import archive_of
from silohash.training.sites.settings import read_site_settings
from silohash.training.updates.encryption import KEY, SiloKey

SERVER, LEADER = "server", "leader"
"""Folders of the kits of the server and of whoever starts runs, beside one folder per silo."""

STARTUP, LOCAL = "startup", "local"
"""Folders of a kit: what the member needs to connect, and what it sets itself."""

SERVER_FILE, CLIENT_FILE, ADMIN_FILE = "fed_server.json", "fed_client.json", "fed_admin.json"
"""Files in ``startup`` of the kits that FLARE connects: those of the server, of a silo, and of whoever starts runs."""

ENGINE = "NVIDIA FLARE connects, which is the only engine across machines"
"""Ending of a sentence about a folder that is not a kit."""

SITE_FILE = "silohash.toml"
"""The silo's own file, in the folder ``local`` of its kit, which no run can change."""

SILOS_FILE = "local/silos.json"
"""File in the kit of whoever starts runs, with the names of all silos."""

SITE_TEMPLATE = Path(__file__).with_name("silo.toml.in")
"""The silo's own file without its name."""


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
    write_text(kit / LOCAL / SITE_FILE, SITE_TEMPLATE.read_text(encoding="utf-8").format(name=name))
    if key is not None:
        key.save(kit / LOCAL / KEY)


CERTIFICATES, ROOT = ("server.crt", "client.crt"), "rootCA.pem"
"""The certificates in ``startup``: that of the server or of another member, and that of the authority."""

NEW_KITS = "Make new kits: silohash federation kits"
CONNECT_SECONDS = 5.0
REFUSAL_SECONDS = 1.0
"""How long a server may take to refuse a certificate. With TLS 1.3 it does so after the handshake."""


def check_kit(kit: Path, now: datetime | None = None) -> list[Finding]:
    """Check the kit of a server, a silo, or whoever starts runs; other folders are refused.

    Raises:
        UserError: If the folder is not a kit.
    """
    startup, site = kit / STARTUP, kit / LOCAL / SITE_FILE
    if not any((startup / name).exists() for name in (SERVER_FILE, CLIENT_FILE, ADMIN_FILE)):
        raise NotAKit(f"{kit} is not the kit of a member that {ENGINE}. Make kits with: silohash federation kits")
    found = [*certificates(kit, now), *server(kit)]
    if site.exists():
        try:
            archive = archive_of(read_site_settings(site).data)
            about = "; ".join([f"{len(archive.split('train')):,} training items", *archive.card.warnings])
            found.append(Finding("data", about, True))
        except UserError as error:
            found.append(Finding("data", str(error), False))
    return found


def certificates(kit: Path, now: datetime | None = None) -> list[Finding]:
    """Return whether the certificates of a kit are valid and fit each other. The arguments are those of `check_kit`."""
    startup = kit / STARTUP
    return [
        finding
        for name in CERTIFICATES
        if (startup / name).exists()
        for finding in member_findings(startup / name, startup / ROOT, NEW_KITS, now)
    ]


def server(kit: Path) -> list[Finding]:
    """Return whether the server of a kit can be reached, and the two accept each other's certificates; empty for its own."""
    startup = kit / STARTUP
    if (startup / CERTIFICATES[0]).exists():
        return []
    host, port = _address(startup)
    context = ssl.create_default_context(cafile=startup / ROOT)
    context.check_hostname = False
    context.load_cert_chain(startup / CERTIFICATES[1], startup / "client.key")
    try:
        with (
            socket.create_connection((host, port), CONNECT_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            secure.settimeout(REFUSAL_SECONDS)
            with suppress(TimeoutError):  # the server waits for a request
                secure.recv(1)
    except ssl.SSLError as error:
        text = f"{host}:{port} and this kit have certificates of different authorities ({error.reason}). {NEW_KITS}"
        return [Finding("authority", text, False)]
    except OSError as error:
        text = f"{host}:{port} cannot be reached ({error}). Start it: silohash server KIT"
        return [Finding("server", text, False)]
    return [Finding("server", f"{host}:{port} can be reached", True)]


def _address(startup: Path) -> tuple[str, int]:
    """Return the host and the port of the server that a kit connects to."""
    path = next(startup / name for name in (CLIENT_FILE, ADMIN_FILE) if (startup / name).exists())
    with reading(path, remedy="Make new kits."):
        about = json.loads(path.read_text(encoding="utf-8"))
        if path.name == ADMIN_FILE:
            return str(about["admin"]["host"]), int(about["admin"]["port"])
        host, _, port = about["servers"][0]["service"]["target"].rpartition(":")
        return host, int(port)
