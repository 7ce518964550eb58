"""The web server stops once, however often a signal comes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from select import select
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from silohash.base.errors import AddressUnavailable, UserError
from silohash.service.web import server
from silohash.service.web.server import Server, ignoring_signals, listening_socket, port_user


def test_requests_are_answered_although_the_signal_comes_again() -> None:
    app, asked = FastAPI(), threading.Event()

    @app.get("/")
    def slow() -> str:
        asked.set()
        time.sleep(0.3)
        return "answered"

    answering = Server(app, stop_seconds=60)
    answers: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        serving = threading.Thread(target=answering.run, kwargs={"sockets": [listening]})
        serving.start()
        asking = threading.Thread(target=lambda: answers.append(urllib.request.urlopen(address, timeout=60).read()))
        asking.start()
        assert asked.wait(60)
        for _ in range(3):
            answering.handle_exit(signal.SIGINT, None)
        asking.join(60)
        serving.join(60)
    assert answers == [b'"answered"']
    assert not answering.force_exit
    assert not serving.is_alive()


@contextmanager
def served(app: FastAPI, **options: Any) -> Iterator[tuple[str, int]]:
    """Serve an application on this machine while the block runs, and yield its address and port."""
    running = Server(app, stop_seconds=1, **options)
    with listening_socket("127.0.0.1", 0) as listening:
        serving = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
        serving.start()
        try:
            yield listening.getsockname()
        finally:
            running.should_exit = True
            serving.join(60)


@pytest.mark.parametrize(
    ("proxies", "sent", "seen"),
    [
        ((), "198.51.100.7", "127.0.0.1"),
        (("192.0.2.0/24",), "198.51.100.7", "127.0.0.1"),
        (("127.0.0.1",), "198.51.100.7", "198.51.100.7"),
        (("127.0.0.0/8",), "192.0.2.9, 198.51.100.7", "198.51.100.7"),
        (("127.0.0.1", "198.51.100.0/24"), "192.0.2.9, 198.51.100.7", "192.0.2.9"),
    ],
)
def test_only_configured_web_servers_tell_where_a_request_comes_from(
    proxies: tuple[str, ...], sent: str, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    app = FastAPI()

    @app.get("/")
    async def client(request: Request) -> str:
        assert request.client is not None
        return request.client.host

    with served(app, proxies=proxies) as (host, port):
        request = urllib.request.Request(f"http://{host}:{port}/", headers={"X-Forwarded-For": sent})
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310  of this test
            assert answer.read() == f'"{seen}"'.encode()


def test_an_answer_that_is_not_read_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "ANSWER_SECONDS", 0.5)
    app, ended = FastAPI(), threading.Event()

    async def endless() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"a" * 1_000_000
                await asyncio.sleep(0)
        finally:
            ended.set()

    @app.get("/")
    async def answer() -> StreamingResponse:
        return StreamingResponse(endless())

    with served(app) as address, socket.create_connection(address) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert ended.wait(60)


def test_idle_connections_of_an_address_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_IDLE", 3)
    with served(FastAPI()) as address, ExitStack() as opened:
        connections = [opened.enter_context(socket.create_connection(address, timeout=60)) for _ in range(5)]
        readable: set[int] = set()
        while len(readable) < 2:
            readable |= {place for place, one in enumerate(connections) if select([one], [], [], 0.05)[0]}
        others = [one for place, one in enumerate(connections) if place not in readable]
        for one in others:
            one.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            assert one.recv(12) == b"HTTP/1.1 404"


def test_signals_are_ignored_while_a_process_ends() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    with ignoring_signals():
        for number in numbers:
            os.kill(os.getpid(), number)
    assert [signal.getsignal(number) for number in numbers] == before


def test_a_taken_port_is_named_with_its_user() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError) as error:
            listening_socket("127.0.0.1", port)
        user = rf"because .* \(process {os.getpid()}\) uses it" if sys.platform == "linux" else r"\(.*\)"
        assert error.match(
            rf"^Port {port} of 127\.0\.0\.1 cannot be used {user}\. Choose another with --port, or --port 0 "
        )
        with pytest.raises(AddressUnavailable):
            listening_socket("127.0.0.1", port, remedy="Use the other.")
    with listening_socket("127.0.0.1", 0) as free:
        assert free.getsockname()[1]


def test_an_address_of_another_machine_is_refused_with_the_reason() -> None:
    with pytest.raises(AddressUnavailable, match=r"80.*192\.0\.2\.1"):
        listening_socket("192.0.2.1", 80)


def test_answers_are_not_held_back() -> None:
    with listening_socket("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def made_up_proc(folder: Path) -> Path:
    """Write the description of three processes. That with number 20 listens on port 8765 in IPv6, 7 is connected there."""
    (folder / "net").mkdir(parents=True)
    heading = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    row = "   0: {address}:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  0   0 {inode} 1\n"
    connected = row.format(address="0100007F", port=8765, state="01", inode=55)
    other = row.format(address="0100007F", port=8764, state="0A", inode=56)
    (folder / "net" / "tcp").write_text(heading + connected + other)
    (folder / "net" / "tcp6").write_text(heading + row.format(address="0" * 32, port=8765, state="0A", inode=57))
    for number, inode in ((7, 55), (20, 57), (100, 56)):
        (folder / str(number) / "fd").mkdir(parents=True)
        (folder / str(number) / "fd" / "3").symlink_to(f"socket:[{inode}]")
        (folder / str(number) / "comm").write_text(f"server-{number}\n")
    (folder / "3").mkdir()  # a process of another user, whose files cannot be listed
    return folder


def test_the_process_that_listens_is_found(tmp_path: Path) -> None:
    proc = made_up_proc(tmp_path / "proc")
    assert port_user(8765, proc) == "server-20 (process 20)"
    assert port_user(8764, proc) == "server-100 (process 100)"
    assert port_user(80, proc) is None


def test_an_unknown_user_is_none(tmp_path: Path) -> None:
    assert port_user(8765, tmp_path) is None
    proc = made_up_proc(tmp_path / "proc")
    (proc / "20" / "fd" / "3").unlink()
    assert port_user(8765, proc) is None
    (proc / "20" / "fd" / "3").symlink_to("socket:[57]")
    (proc / "20" / "comm").unlink()
    assert port_user(8765, proc) is None
