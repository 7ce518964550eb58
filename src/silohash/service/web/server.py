"""The web server of the commands: the socket on which it listens, and how it stops at a signal."""

from __future__ import annotations

import errno
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import uvicorn

from silohash.base.errors import AddressUnavailable

PROC = Path("/proc")
_LISTENING = "0A"


class Server(uvicorn.Server):
    """A server that stops once at SIGINT or SIGTERM, however often the signal comes.

    uvicorn's own breaks off at the second signal, and raises the first one again when it has stopped.
    """

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop after the requests that are being answered."""
        self.should_exit = True


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
    try:
        sockets = {f"socket:[{number}]" for number in _socket_numbers(port, proc)}
        if not sockets:
            return None
        for process in sorted(proc.glob("[0-9]*"), key=lambda path: int(path.name)):
            if _holds(process, sockets):
                name = (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
                return f"{name} (process {process.name})"
    # A process can end between the listing of its folder and the reading of its name.
    except OSError:
        pass
    return None


def _socket_numbers(port: int, proc: Path) -> set[str]:
    """Return the numbers of the sockets that listen on a port."""
    tables = [path.read_text("ascii") for name in ("tcp", "tcp6") if (path := proc / "net" / name).exists()]
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    return {row[9] for row in rows if row[3] == _LISTENING and int(row[1].rpartition(":")[2], 16) == port}


def _holds(process: Path, sockets: set[str]) -> bool:
    """Return whether a process has one of some sockets open."""
    try:
        return any(str(link.readlink()) in sockets for link in (process / "fd").iterdir())
    # The process has ended, or belongs to another user, whose files cannot be listed.
    except OSError:
        return False
