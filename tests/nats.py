"""A NATS server on 127.0.0.1 with an authority of its own, and the files of a federation, for tests of the bus."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from silohash.base.certificates import AUTHORITY, Authority, subject
from silohash.run.config.toml import to_toml
from silohash.service.config import HubConfig, SiloConfig, read_config
from silohash.service.envelope import new_key
from silohash.service.nats_server import server_config
from tests.ports import free_port

SERVER = shutil.which("nats-server", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
needs_nats = pytest.mark.skipif(
    SERVER is None, reason="nats-server is not installed (Debian: apt-get install nats-server)"
)
STARTED_SECONDS = 60


class Federation:
    """Files of a hub and of silos in a folder, and the NATS server between them.

    Args:
        folder: where the files go.
        silos: names of the silos.
        run: folder of the run, or one per silo.
        deadline_seconds: of the hub. The default is longer than any wait on a busy machine.
    """

    def __init__(
        self, folder: Path, *silos: str, run: Path = Path("run"), deadline_seconds: float = 60.0,
        runs: dict[str, Path] | None = None,
    ) -> None:  # fmt: skip
        self.folder, self.silos, self.port = folder, silos, free_port()
        folder.mkdir(parents=True, exist_ok=True)
        self.authority = Authority.new()
        self.authority.write_member(folder / "server.pem", folder / "server.key", "127.0.0.1", server=True)
        for name in ("hub", *silos):
            self.authority.write_member(folder / f"{name}.pem", folder / f"{name}.key", name)
        sealing = {name: new_key(folder / f"{name}.sealing.key") for name in ("hub", *silos)}
        for silo in silos:
            file = {"silo": silo, "federation": "tests", "run": str((runs or {}).get(silo, run))}
            tables = {"bus": self._bus(silo), "sealing": {"key": f"{silo}.sealing.key", "hub": [sealing["hub"]]}}
            self._write(silo, file | tables)
        nats = {"listen": f"127.0.0.1:{self.port}", "certificate": "server.pem", "key": "server.key"}
        file = {"federation": "tests", "run": str(run), "deadline_seconds": deadline_seconds}
        tables = {
            "bus": self._bus("hub"),
            "sealing": {"key": "hub.sealing.key", "silos": {silo: sealing[silo] for silo in silos}},
            "silos": {silo: subject(silo) for silo in silos},
            "nats": {**nats, "authority": AUTHORITY},
        }
        self._write("hub", file | tables)
        (folder / "nats.conf").write_text(server_config(self.hub), encoding="utf-8")
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def hub(self) -> HubConfig:
        """The hub's file."""
        return read_config(self.folder / "hub.toml", HubConfig)

    def silo(self, name: str) -> SiloConfig:
        """The file of a silo."""
        return read_config(self.folder / f"{name}.toml", SiloConfig)

    def __enter__(self) -> Federation:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Starts the server, and returns when it accepts connections."""
        assert SERVER is not None
        self.process = subprocess.Popen(
            [SERVER, "-c", str(self.folder / "nats.conf"), "-l", str(self.folder / "nats.log")],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        end = time.monotonic() + STARTED_SECONDS
        while time.monotonic() < end:
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise AssertionError((self.folder / "nats.log").read_text())

    def kill(self) -> None:
        """Ends the server with SIGKILL."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def log(self) -> str:
        """Returns what the server logged."""
        return (self.folder / "nats.log").read_text(encoding="utf-8")

    def _bus(self, member: str) -> dict[str, object]:
        servers = [f"tls://127.0.0.1:{self.port}"]
        return {"servers": servers, "certificate": f"{member}.pem", "key": f"{member}.key", "authority": AUTHORITY}

    def _write(self, name: str, tables: dict[str, object]) -> None:
        (self.folder / f"{name}.toml").write_text(to_toml(tables), encoding="utf-8")
