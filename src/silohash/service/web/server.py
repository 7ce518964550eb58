"""The web server of the commands: the socket on which it listens, how it stops at a signal, and when it ends connections."""

import errno
import signal
import socket
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from silohash.base.errors import AddressUnavailable

HEAD_SECONDS, ANSWER_SECONDS = 10.0, 120.0
"""How long a connection may take to send the beginning of a request, its headers included, and to read an answer."""

MOST_HEAD_BYTES = 65_536
"""About how many bytes the beginning of a request may have."""

MOST_IDLE = 500
"""Number of connections of one address that may wait for a request at the same time."""

PROC = Path("/proc")
_LISTENING = "0A"


class Connection(HttpToolsProtocol):
    """A connection that ends if its request does not begin in time, has endless headers, or its answer is not read.

    uvicorn itself ends idle connections only after their first request.
    """

    head_bytes, since = 0, 0.0
    state: tuple[bool, bool, int] | None = None

    @property
    def waits(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        if self.head_bytes > MOST_HEAD_BYTES:
            self.transport.abort()
            return
        super().data_received(data)
        self.head_bytes = self.head_bytes + len(data) if self.waits else 0

    def is_slow(self, now: float) -> bool:
        """Return whether its peer takes too long to send the beginning of a request, or to read an answer."""
        reads = self.flow.write_paused or self.transport.is_closing()
        state = reads, self.waits and self.timeout_keep_alive_task is None, id(self.cycle)
        if state != self.state:
            self.state, self.since = state, now
        return (state[0] or state[1]) and now - self.since > (ANSWER_SECONDS if reads else HEAD_SECONDS)


class Server(uvicorn.Server):
    """A server that stops once at SIGINT or SIGTERM, however often the signal comes, and ends slow connections.

    uvicorn's own breaks off at the second signal, and raises the first one again when it has stopped.
    """

    def __init__(self, app: FastAPI, *, stop_seconds: int, proxies: Collection[object] = (), **options: Any) -> None:  # noqa: ANN401
        """Serve an application, whose last requests get ``stop_seconds``. See `uvicorn.Config` for further options.

        The web servers at the addresses ``proxies`` tell from which address a request really comes.
        """
        options = {"log_config": None, "timeout_graceful_shutdown": stop_seconds, **options}
        options |= {"proxy_headers": bool(proxies), "forwarded_allow_ips": [*map(str, proxies)]}
        fixed: dict[str, Any] = {"http": Connection, "ws": "none", "access_log": False, "server_header": False}
        super().__init__(uvicorn.Config(app, **fixed, **options))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop after the requests that are being answered."""
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """End slow connections, and idle ones of an address that has too many. It is called every tenth of a second."""
        idle: Counter[str] = Counter()
        for connection in list(self.server_state.connections) if counter % 10 == 0 else ():
            assert isinstance(connection, Connection)  # noqa: S101  no other protocol is used
            address = connection.client[0] if connection.client else ""
            idle[address] += connection.waits
            if connection.is_slow(time.monotonic()) or (connection.waits and idle[address] > MOST_IDLE):
                connection.transport.abort()
        return await super().on_tick(counter)


@contextmanager
def ignoring_signals() -> Iterator[None]:
    """Ignore SIGINT and SIGTERM, except while a server handles them, so that the process ends in good order."""
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def listening_socket(
    host: str, port: int, *, remedy: str = "Choose another with --port, or --port 0 for any that is free."
) -> socket.socket:
    """Return a socket that listens on an address. Port 0 takes any that is free.

    The remedy is the sentence of the error that says how to choose another port.

    Raises:
        UserError: If the port is taken or may not be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections inherit it. Without it, small answers are held back until the last one is acknowledged.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listening.bind((host, port))
        listening.listen()
    except OSError as error:
        listening.close()
        user = port_user(port) if error.errno == errno.EADDRINUSE else None
        reason = f"({error.strerror})" if user is None else f"because {user} uses it"
        raise AddressUnavailable(f"Port {port} of {host} cannot be used {reason}. {remedy}") from error
    return listening


def port_user(port: int, proc: Path = PROC) -> str | None:
    """Return the name and number of the process that listens on a port, as ``"python (process 17)"``.

    Returns None if the operating system does not tell, for example because the process is that of another user. Linux
    describes its processes in the folder ``proc``.
    """
    with suppress(OSError):  # a process can end between the listing of its folder and the reading of its name
        sockets = {f"socket:[{number}]" for number in _socket_numbers(port, proc)}
        if not sockets:
            return None
        for process in sorted(proc.glob("[0-9]*"), key=lambda path: int(path.name)):
            if _holds(process, sockets):
                name = (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
                return f"{name} (process {process.name})"
    return None


def _socket_numbers(port: int, proc: Path) -> set[str]:
    """Return the numbers of the sockets that listen on a port."""
    tables = [path.read_text("ascii") for name in ("tcp", "tcp6") if (path := proc / "net" / name).exists()]
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    return {row[9] for row in rows if row[3] == _LISTENING and int(row[1].rpartition(":")[2], 16) == port}


def _holds(process: Path, sockets: set[str]) -> bool:
    with suppress(OSError):  # the process has ended, or belongs to another user, whose files cannot be listed
        return any(str(link.readlink()) in sockets for link in (process / "fd").iterdir())
    return False
