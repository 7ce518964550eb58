"""A NATS server on 127.0.0.1 with keys and certificates of its own, and the files of a federation, for tests of the bus."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
import trustme

from silohash.base.files import write_bytes
from silohash.run.config.toml import to_toml
from silohash.service.config import HubConfig, SiloConfig, read_config
from silohash.service.nats_server import new_key, server_config
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
        mutual: whether members need a certificate.
        deadline_seconds: of the hub. The default is longer than any wait on a busy machine.
    """

    def __init__(
        self, folder: Path, *silos: str, run: Path = Path("run"), mutual: bool = False, deadline_seconds: float = 60.0,
        runs: dict[str, Path] | None = None,
    ) -> None:  # fmt: skip
        self.folder, self.silos, self.port = folder, silos, free_port()
        folder.mkdir(parents=True, exist_ok=True)
        authority = trustme.CA()
        authority.cert_pem.write_to_path(folder / "ca.pem")
        for name in ("server", "client"):
            issued = authority.issue_cert("127.0.0.1")
            write_bytes(folder / f"{name}-key.pem", issued.private_key_pem.bytes(), private=True)
            issued.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
        self.keys = {name: new_key(folder / f"{name}.key") for name in ("hub", *silos)}
        for silo in silos:
            file = {"silo": silo, "federation": "tests", "run": str((runs or {}).get(silo, run))}
            self._write(silo, file | {"bus": self._bus(silo, mutual=mutual)})
        nats = {"listen": f"127.0.0.1:{self.port}", "certificate": "server.pem", "certificate_key": "server-key.pem"}
        file = {"federation": "tests", "run": str(run), "deadline_seconds": deadline_seconds}
        tables = {
            "bus": self._bus("hub", mutual=mutual),
            "silos": {silo: self.keys[silo] for silo in silos},
            "nats": nats | ({"authority": "ca.pem"} if mutual else {}),
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

    def _bus(self, member: str, *, mutual: bool) -> dict[str, object]:
        own = {"certificate": "client.pem", "certificate_key": "client-key.pem"} if mutual else {}
        servers = [f"tls://127.0.0.1:{self.port}"]
        return {"servers": servers, "key": f"{member}.key", "authority": "ca.pem", **own}

    def _write(self, name: str, tables: dict[str, object]) -> None:
        (self.folder / f"{name}.toml").write_text(to_toml(tables), encoding="utf-8")
