"""Ports of this machine for servers that a test starts later, or for addresses at which nothing listens."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from itertools import count

PORTS = range(20_000, 32_000)
"""Ports that no system gives to a program that asks for any port. So nothing takes one before its server starts."""
_numbers = count(7_417 * os.getpid())
"""Test processes begin at different places in `PORTS`, far from each other if their numbers are close."""


def free_port() -> int:
    """Returns a port on which nothing listens, and which this process has not returned before."""
    for _ in PORTS:
        port = PORTS[next(_numbers) % len(PORTS)]
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")
