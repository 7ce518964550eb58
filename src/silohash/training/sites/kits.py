"""Kits of the members of a federation: the parts that the engine connecting the members does not determine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from silohash.base.files import write_text
from silohash.base.optional import installed
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
    """Where silos find the training server.

    Attributes:
        host: Name or address of the server, which its certificate holds.
        port: Port of the server.
        valid_days: Days for which the certificates are valid.
    """

    host: str = "127.0.0.1"
    port: int = 8002
    valid_days: int = 730


def new_silo_key() -> SiloKey | None:
    """Return a new key for encrypted sums, or None if the packages for them are not installed."""
    return SiloKey.new() if installed("tenseal") else None


def write_site(kit: Path, name: str, key: SiloKey | None) -> None:
    """Write what a silo sets itself into its kit.

    Args:
        kit: The folder of the kit.
        name: Name of the silo.
        key: The key that all silos share, or None for none.
    """
    write_text(kit / LOCAL / SITE_FILE, SITE_TEMPLATE.format(name=name))
    if key is not None:
        key.save(kit / LOCAL / KEY)
