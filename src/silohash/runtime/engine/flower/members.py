"""The process of a kit that Flower connects."""

from __future__ import annotations

import sys
from pathlib import Path

from silohash.runtime.engine.flower import OFFLINE
from silohash.runtime.engine.flower.kits import Connection
from silohash.runtime.sites.members import Member
from silohash.types import UserError

HOME = "flower"
"""Folder of what Flower stores, in the folder of the kit."""


def flower_member(kit: Path) -> Member:
    """Return the process of a kit.

    Raises:
        UserError: if the folder is not the kit of a server or of a silo.
    """
    connection = Connection.of(kit)
    if not (connection.is_server or connection.is_silo):
        raise UserError(f"{kit} is not the kit of a server or of a silo. Make kits with: silohash federation kits")
    module = f"silohash.runtime.engine.flower.{'superlink' if connection.is_server else 'site'}"
    command = [sys.executable, "-u", "-m", module, str(connection.kit)]
    return Member(command, {**OFFLINE, "FLWR_HOME": str(connection.kit / HOME)})
