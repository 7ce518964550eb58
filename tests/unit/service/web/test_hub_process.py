"""The process of a hub starts, serves and ends cleanly, and explains a folder without a run."""

from __future__ import annotations

import os
import signal
import socket
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from silohash.base.errors import NotARun
from silohash.service.config import HubConfig
from silohash.service.link import run_loop
from silohash.service.web import hub_process
from silohash.service.web.hub_process import serve_hub
from tests.nats import Federation, needs_nats
from tests.served import served_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return served_run(tmp_path_factory.mktemp("served"))


def answer_of(config: HubConfig, stop: signal.Signals) -> tuple[int, str]:
    """Return the answer of a hub to a search, as status and text, after which a signal ends the hub.

    The hub runs in this process, whose signal handlers it uses, while a thread asks it and then stops it.
    """
    seen = []
    listening = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{listening.getsockname()[1]}/api/v1/search?text=red"

    def ask_and_stop() -> None:
        try:
            with urllib.request.urlopen(address, timeout=60) as answer:
                seen.append((answer.status, answer.read().decode()))
        except urllib.error.HTTPError as error:
            seen.append((error.code, error.read().decode()))
        finally:
            os.kill(os.getpid(), stop)

    thread = threading.Thread(target=ask_and_stop)
    run_loop(serve_hub(config, listening, ready=thread.start))
    thread.join(60)
    assert not thread.is_alive()
    return seen[0]


@needs_nats
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_hub_serves_until_a_signal_and_ends_cleanly(folder, tmp_path, monkeypatch, stop):
    monkeypatch.setattr(hub_process, "FIRST_CONNECTION_SECONDS", 60.0)
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Federation(tmp_path, "silo-1", run=folder) as federation:
        status, text = answer_of(federation.hub, stop)
    assert status == 503
    assert "It is not running, or cannot be reached." in text
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_hub_without_a_bus_says_so(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(hub_process, "FIRST_CONNECTION_SECONDS", 0.1)
    federation = Federation(tmp_path, "silo-1", run=folder, deadline_seconds=0.1)
    status, text = answer_of(federation.hub, signal.SIGTERM)
    assert status == 503
    assert "The hub cannot reach the silos, because it is not connected to the message server (NATS)." in text


def test_a_folder_without_a_run_is_explained(tmp_path):
    federation = Federation(tmp_path, "north", run=tmp_path / "none")
    with socket.create_server(("127.0.0.1", 0)) as listening, pytest.raises(NotARun):
        run_loop(serve_hub(federation.hub, listening))
