"""The process of a kit that FLARE connects."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from silohash.files import write_json
from silohash.runtime.engine.flare.kits import ORGANIZATION
from silohash.runtime.sites.kits import CLIENT_FILE, ENGINE, LOCAL, SERVER_FILE, SITE_FILE, STARTUP
from silohash.runtime.sites.members import Member
from silohash.runtime.sites.settings import read_site_settings
from silohash.types import UserError

LOG = "log.txt"
"""File in the folder of the kit to which FLARE writes its log."""

SLOW_LINKS = {
    "NVFLARE_STREAMING_WINDOW_SIZE": str(16 << 20),
    "NVFLARE_STREAMING_RETRY_WAIT": "120",
    "NVFLARE_STREAMING_RETRY_TIMEOUT": "900",
}
"""How FLARE sends large messages: the bytes on their way at a time, the seconds until those without a receipt are sent
again, and the seconds until it gives up.

FLARE's defaults (64 MiB, 5 s, 60 s) send everything again on links below 13 MB/s. This slows them further, until the run
fails. With these values, the bytes on their way arrive in time at 140 kB/s."""


def member_of(kit: Path) -> Member:
    """Return the process of a kit. A server then stores its jobs in the folder of its kit.

    Raises:
        UserError: if the folder is not the kit of a server or of a silo.
    """
    startup = kit / STARTUP
    if (startup / SERVER_FILE).exists():
        place_storage(kit)
        module, file, settings = "server.server_train", SERVER_FILE, []
    elif (startup / CLIENT_FILE).exists():
        name = read_site_settings(kit / LOCAL / SITE_FILE).silo
        module, file, settings = "client.client_train", CLIENT_FILE, [f"uid={name}"]
    else:
        raise UserError(
            f"{kit} is not the kit of a server or of a silo that {ENGINE}. Make kits with: silohash federation kits"
        )
    command = [
        sys.executable, "-u", "-m", f"nvflare.private.fed.app.{module}", "-m", str(kit.resolve()), "-s", file,
        "--set", "secure_train=true", f"org={ORGANIZATION}", "config_folder=config", *settings,
    ]  # fmt: skip
    environment = {name: os.environ.get(name, value) for name, value in SLOW_LINKS.items()}
    return Member(command, environment=environment, logs=(LOG,))


def place_storage(kit: Path) -> None:
    """Let a server store its jobs in the folder of its kit, wherever that is now. FLARE asks for absolute paths."""
    path = kit / LOCAL / "resources.json"
    resources = json.loads(path.read_text(encoding="utf-8"))
    storage = kit.resolve() / "storage"
    for component in resources["components"]:
        if component["id"] == "job_manager":
            component["args"]["uri_root"] = str(storage / "jobs")
    resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(storage / "snapshots")
    write_json(path, resources)
