"""Record what a Python process looks up, connects to, writes and imports, as one JSON line per event.

`tests.recorder` copies this file as ``sitecustomize.py`` to a folder on the path of the processes that it watches, so that
Python imports it at the start. What leads out of this machine is recorded, and then refused.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

EVENTS = Path(__file__).resolve().with_name("events")
HERE = ("", "localhost", "::1", "::", "0.0.0.0")  # noqa: S104  compared, and not listened on
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
NEW_PATH = {"os.mkdir": (0, 2), "os.rename": (1, 3), "os.link": (1, 3), "os.symlink": (1, 2)}
"""Events that create a path: the positions of the path and of the descriptor of its folder."""

_state = threading.local()
_seen: set[tuple[str, str]] = set()


def leads_out(host: object) -> bool:
    """Return whether a host or address is not this machine's loopback interface."""
    name = host.decode(errors="replace") if isinstance(host, bytes | bytearray) else str(host or "")
    return name not in HERE and not name.removeprefix("::ffff:").startswith("127.")


def _absolute(path: Any, folder: Any = -1) -> str:
    try:
        name = os.fsdecode(path)
    except TypeError:  # a descriptor
        return ""
    base = Path(f"/proc/self/fd/{folder}").readlink() if isinstance(folder, int) and folder >= 0 else Path.cwd()
    return str(base / name)


def _record(kind: str, what: str) -> None:
    if not what or (kind, what) in _seen:
        return
    _seen.add((kind, what))
    target = os.open(EVENTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(target, f"{json.dumps([kind, what])}\n".encode())
    os.close(target)


def _refuse(kind: str, host: object, what: str) -> None:
    if leads_out(host):
        _record(kind, what)
        raise OSError(f"The recorder permits no {kind} outside of this machine: {what}")


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "import":
        _record("import", arguments[0].partition(".")[0])
    elif event == "open" and arguments[2] & WRITES:
        _record("file", _absolute(arguments[0]))
    elif event in NEW_PATH:
        _record("file", _absolute(*(arguments[position] for position in NEW_PATH[event])))
    elif event in {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"}:
        _refuse("look-up", arguments[0], str(arguments[0]))
    elif event in {"socket.connect", "socket.sendto", "socket.sendmsg"} and isinstance(arguments[1], tuple):
        _refuse("connection", arguments[1][0], ":".join(map(str, arguments[1][:2])))


def hook(event: str, arguments: tuple[Any, ...]) -> None:
    """Record an event of `sys.addaudithook`, unless recording itself raised it."""
    if getattr(_state, "busy", False):
        return
    _state.busy = True
    try:
        _watch(event, arguments)
    finally:
        _state.busy = False


if __name__ == "sitecustomize":
    sys.addaudithook(hook)
