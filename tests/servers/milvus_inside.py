"""Run Milvus in a network namespace, and forward a Unix socket to it. `servers.milvus.started` runs this program.

    unshare --map-root-user --net python milvus_inside.py PROGRAMS FOLDER

The file ``FOLDER/ready`` appears when the server answers. Both end when this program is terminated.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

PORT = 19530
HEALTH = "http://127.0.0.1:9091/healthz"
PARENT_DEATH_SIGNAL = 1


def end_with_parent() -> None:
    """Ask the kernel to terminate this process when its parent ends."""
    ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)


def copy(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes until the source is closed."""
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
    except OSError:
        pass
    finally:
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def serve(listener: socket.socket) -> None:
    """Forward every connection to the server."""
    while True:
        client, _ = listener.accept()
        server = socket.create_connection(("127.0.0.1", PORT))
        for pair in ((client, server), (server, client)):
            threading.Thread(target=copy, args=pair, daemon=True).start()


def is_healthy() -> bool:
    """Return whether the server answers."""
    try:
        with urllib.request.urlopen(HEALTH, timeout=5) as answer:
            return b"OK" in answer.read()
    except OSError:
        return False


def main(programs: Path, folder: Path) -> None:
    """Start the server, and forward until this program is terminated."""
    end_with_parent()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    environment = {
        **os.environ,
        "DEPLOY_MODE": "STANDALONE",
        "METRICS_PORT": "9091",
        "MILVUS_RUN_DIR": str(folder / "run"),
        "LD_LIBRARY_PATH": str(programs),
    }
    server = subprocess.Popen(
        [programs / "milvus", "run", "standalone"], cwd=folder, env=environment, preexec_fn=end_with_parent
    )
    try:
        while not is_healthy():
            if server.poll() is not None:
                sys.exit(f"Milvus ended with {server.returncode}")
            time.sleep(0.1)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(folder / "socket"))
        listener.listen(64)
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        (folder / "ready").touch()
        server.wait()
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
