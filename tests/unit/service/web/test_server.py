"""The web server stops once, however often a signal comes."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
import urllib.request

import uvicorn
from fastapi import FastAPI

from silohash.service.web.server import Server, ignoring_signals


def test_requests_are_answered_although_the_signal_comes_again() -> None:
    app, asked = FastAPI(), threading.Event()

    @app.get("/")
    def slow() -> str:
        asked.set()
        time.sleep(0.3)
        return "answered"

    server = Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=60))
    answers: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        serving = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        serving.start()
        asking = threading.Thread(target=lambda: answers.append(urllib.request.urlopen(address, timeout=60).read()))
        asking.start()
        assert asked.wait(60)
        for _ in range(3):
            server.handle_exit(signal.SIGINT, None)
        asking.join(60)
        serving.join(60)
    assert answers == [b'"answered"']
    assert not server.force_exit
    assert not serving.is_alive()


def test_signals_are_ignored_while_a_process_ends() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    with ignoring_signals():
        for number in numbers:
            os.kill(os.getpid(), number)
    assert [signal.getsignal(number) for number in numbers] == before
