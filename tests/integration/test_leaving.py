"""A silo leaves a federation of processes: the hub does not ask it any more, and the NATS server does not let it in."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from silohash.base.errors import UserError
from silohash.service.clients.search import Client
from tests.docs.test_two_silos import started
from tests.nats import needs_nats
from tests.ports import free_port
from tests.processes import STARTED_SECONDS
from tests.runs import silohash
from tests.served import served_run

pytestmark = [needs_nats, pytest.mark.whole_run, pytest.mark.timeout(900)]


def test_a_silo_that_leaves_is_neither_asked_nor_let_in(tmp_path: Path) -> None:
    run, folder = served_run(tmp_path / "trained"), tmp_path / "museums"
    server, port = f"tls://127.0.0.1:{free_port()}", free_port()
    assert silohash("federation", "init", run, folder, "--server", server).code == 0
    client, hub, log = Client(f"http://127.0.0.1:{port}"), folder / "hub" / "hub.toml", tmp_path / "silo-2.log"

    def asked() -> dict[str, str] | None:
        """Return the silos that did not answer; None if the hub does not answer yet."""
        try:
            return dict(client.search("red square", k=40).missing_silos)
        except UserError:
            return None

    with ExitStack() as processes:
        nats = processes.enter_context(
            started(["cd", str(folder / "nats"), "&&", "nats-server", "-c", "nats.conf"], tmp_path / "nats.log")
        )
        for silo in ("silo-1", "silo-2"):
            file = folder / silo / "silo.toml"
            processes.enter_context(started(["silohash", "silo", str(file)], tmp_path / f"{silo}.log"))
        serving = processes.enter_context(
            started(["silohash", "hub", str(hub), "--port", str(port)], tmp_path / "hub.log")
        )
        wait(lambda: asked() == {})
        said = silohash("federation", "leave", hub, "silo-2")
        assert said.code == 0, said.err
        nats.send_signal(signal.SIGHUP)
        wait(lambda: "uthorization" in log.read_text())
        wait(lambda: set(asked() or ()) == {"silo-2"})
        serving.send_signal(signal.SIGHUP)
        wait(lambda: asked() == {})
        hits = client.search("red square", k=40)
        assert set(hits.silos) == {"silo-1"}
        wait(lambda: [silo["name"] for silo in client.status()["silos"]] == ["silo-1"])
        with pytest.raises(UserError):
            client.search("red square", silos=["silo-2"])
        assert log.read_text().count("connected to the bus") == 1, log.read_text()


def wait(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + STARTED_SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)
