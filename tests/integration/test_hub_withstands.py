"""The process of a hub with accounts answers although others guess passwords, upload slowly, or lock its files."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import urlencode

import pytest

from silohash.service.clients.search import Client
from tests.accounts import PASSWORD, quick_accounts
from tests.nats import Federation, needs_nats
from tests.processes import STARTED_SECONDS, Processes
from tests.served import served_run

pytestmark = [needs_nats, pytest.mark.whole_run, pytest.mark.timeout(900)]

PEOPLE = 300
PATIENCE_SECONDS = 120
HUB = """
import argon2
from silohash.cli import main
from silohash.service.accounts import Accounts
from silohash.service.web import guard, server

Accounts._hasher = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
guard.BODY_SECONDS = server.HEAD_SECONDS = 2.0
guard.LEAST_BYTES_PER_SECOND = 10_000_000
main()
"""
"""A hub that hashes with the least work, because both are measured elsewhere, and that is less patient."""


class Hub:
    """A federation of one silo and a hub with accounts, and what tests ask it."""

    def __init__(self, folder: Path, processes: Processes, token: str) -> None:
        self.folder, self.port, self.token = folder, processes.port, token
        self.processes = processes

    def ask(
        self, method: str, path: str, *, address: str = "127.0.0.1", body: str | None = None, **headers: str
    ) -> tuple[HTTPResponse, str]:
        """Return the answer to a request from an address of this machine, as from a page of the hub."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        with closing(
            HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS, source_address=(address, 0))
        ) as connection:
            connection.request(method, path, body, {"origin": f"http://127.0.0.1:{self.port}"} | sent)
            answer = connection.getresponse()
            return answer, answer.read().decode()

    def sign_in(self, name: str, password: str = PASSWORD, **options: str) -> tuple[int, str]:
        """Return the status of signing in, and the cookies that were set."""
        body = urlencode({"name": name, "password": password})
        options["content_type"] = "application/x-www-form-urlencoded"
        answer, _ = self.ask("POST", "/sign-in", body=body, **options)
        return answer.status, "; ".join(cookie.split(";")[0] for cookie in answer.headers.get_all("set-cookie", []))

    def connection(self, content: bytes, address: str = "127.0.0.1") -> socket.socket:
        """Return a connection on which something was sent."""
        opened = socket.create_connection(
            ("127.0.0.1", self.port), timeout=PATIENCE_SECONDS, source_address=(address, 0)
        )
        opened.sendall(content)
        return opened

    def stored(self) -> list[str]:
        """Return the temporary files that the process of the hub has open."""
        folder = Path(f"/proc/{self.processes.running['hub'].pid}/fd")
        links = [str(link.readlink()) for link in folder.iterdir() if link.is_symlink()]
        return [link for link in links if link.endswith("(deleted)") and link.startswith(str(self.folder))]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    run, folder = served_run(tmp_path_factory.mktemp("trained")), tmp_path_factory.mktemp("hub")
    with Federation(folder, "silo-1", run=run) as federation, quick_accounts(folder) as accounts:
        for name in ("ada", *(f"person-{number}" for number in range(PEOPLE))):
            accounts.add(name, PASSWORD)
        processes = Processes(federation)
        token = accounts.add_token("ada", {"search"})[1]
        processes.client = Client(f"http://127.0.0.1:{processes.port}", token=token, timeout_seconds=PATIENCE_SECONDS)
        command = [sys.executable, "-c", HUB, "hub", str(folder / "hub.toml"), "--port", str(processes.port)]
        try:
            processes.start("silo-1")
            with (folder / "hub.log").open("ab") as log:
                processes.running["hub"] = subprocess.Popen(
                    command,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder / "tmp")},
                )
            (folder / "tmp").mkdir()
            processes.until(processes.whole, STARTED_SECONDS)
            yield Hub(folder, processes, token)
        finally:
            for name in list(processes.running):
                processes.stop(name)


def test_300_people_behind_one_address_sign_in_while_somebody_guesses(hub: Hub) -> None:
    done = threading.Event()
    guesses: list[int] = []

    def guess() -> None:
        while not (done.is_set() and 429 in guesses):
            guesses.append(hub.sign_in(f"person-{len(guesses) % 100 + PEOPLE}", "wrong password")[0])
            guesses.append(hub.sign_in("root", "wrong password")[0])

    guessing = threading.Thread(target=guess)
    guessing.start()
    try:
        with ThreadPoolExecutor(30) as people:
            found = list(people.map(hub.sign_in, [f"person-{number}" for number in range(PEOPLE)]))
    finally:
        done.set()
        guessing.join(PATIENCE_SECONDS)
    assert [status for status, _ in found] == [303] * PEOPLE
    assert set(guesses) == {401, 429}
    assert hub.ask("GET", "/account", cookie=found[-1][1])[0].status == 200


def test_60_right_passwords_are_all_accepted(hub: Hub) -> None:
    with ThreadPoolExecutor(6) as tries:
        assert [status for status, _ in tries.map(hub.sign_in, ["ada"] * 60)] == [303] * 60


def test_120_wrong_passwords_from_elsewhere_do_not_delay_a_right_one(hub: Hub) -> None:
    elsewhere = [f"127.0.1.{number + 1}" for number in range(40)]
    wrong = [hub.sign_in("person-7", "wrong password", address=address)[0] for address in elsewhere * 3]
    assert wrong == [401] * 120
    assert hub.sign_in("person-7", address="127.0.2.1")[0] == 303


@pytest.mark.parametrize("path", ["/picture", "/sign-in", "/api/v1/search/picture"])
def test_60_anonymous_connections_that_upload_slowly_hold_nothing_and_end(hub: Hub, path: str) -> None:
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{hub.port}\r\norigin: http://127.0.0.1:{hub.port}\r\n"
        "content-type: multipart/form-data; boundary=x\r\ncontent-length: 19000000\r\n\r\n"
        '--x\r\ncontent-disposition: form-data; name="picture_file"; filename="a.png"\r\n\r\n'
    ).encode()
    with ExitStack() as opened:
        slow = [opened.enter_context(hub.connection(head + b"a" * 300_000)) for _ in range(60)]
        assert closed(slow, lambda connection: connection.sendall(b"a" * 30_000), lambda: hub.stored() == [])


@pytest.mark.parametrize("beginning", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx: "])
def test_connections_that_do_not_send_a_request_end(hub: Hub, beginning: bytes) -> None:
    with ExitStack() as opened:
        slow = [opened.enter_context(hub.connection(beginning)) for _ in range(60)]
        assert closed(slow, lambda connection: connection.sendall(b"a" if beginning else b""))


def test_endless_headers_end(hub: Hub) -> None:
    with hub.connection(b"GET / HTTP/1.1\r\nx: ") as endless, pytest.raises(ConnectionError):
        endless.sendall(b"a" * 100_000_000)


def test_a_slow_upload_of_an_account_ends(hub: Hub) -> None:
    head = (
        f"POST /api/v1/search/picture HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {hub.token}\r\n"
        "content-type: multipart/form-data; boundary=x\r\ncontent-length: 19000000\r\n\r\n"
        '--x\r\ncontent-disposition: form-data; name="picture"; filename="a.png"\r\n\r\n'
    ).encode()
    with hub.connection(head + b"a" * 300_000) as slow:
        answer = received(slow)
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"connection: close" in answer


def test_a_locked_file_of_accounts_stops_nobody_who_is_known(hub: Hub) -> None:
    _, cookie = hub.sign_in("ada")
    with closing(sqlite3.connect(hub.folder / "accounts.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with ThreadPoolExecutor(8) as waiting:
            signing_in = [waiting.submit(hub.sign_in, "ada") for _ in range(8)]
            assert hub.ask("GET", "/healthz")[0].status == 200
            assert not hub.processes.client.search("red square", k=3).missing_silos
            assert hub.ask("GET", "/?q=red", cookie=cookie)[0].status == 200
            assert {found.result()[0] for found in signing_in} == {503}
        assert other.in_transaction
        answer, text = hub.ask("POST", "/sign-out", cookie=cookie)
        assert (answer.status, answer.headers["retry-after"]) == (503, "2")
        assert "sqlite" not in text
    assert hub.sign_in("ada")[0] == 303


def test_strangers_learn_no_names_and_no_paths(hub: Hub) -> None:
    shutil.copy(hub.folder / "accounts.sqlite", hub.folder / "copy")
    forwarded = {"x_forwarded_for": "198.51.100.7"}
    paths = ("/", "/federation", "/readyz", "/metrics", "/api/v1/status", "/nothing", "/picture", "/api/openapi.json")
    for method in ("GET", "HEAD", "POST"):
        for path in (*paths, "/api/v1/search?text=red", "/item?silo=silo-1&id=x", "/sign-in"):
            answer, text = hub.ask(method, path, **forwarded)
            known = re.sub(r"silo-1&amp;|silo%3Dsilo-1|silo=silo-1", "", f"{answer.headers}{text}")  # as it was sent
            assert "silo-1" not in known, (method, path)
            assert str(hub.folder) not in known, (method, path)
            if method == "HEAD":
                assert (answer.status, text) == (hub.ask("GET", path, **forwarded)[0].status, "")
    assert hub.ask("GET", "/readyz", **forwarded)[1] == '{"status":"ready"}'
    assert "silo-1" in hub.ask("GET", "/readyz")[1], "a program on this machine is told"


def received(connection: socket.socket) -> bytes:
    """Return what is sent on a connection until its end."""
    parts = []
    try:
        while part := connection.recv(65_536):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


def closed(
    connections: list[socket.socket], send: Callable[[socket.socket], None], holds: Callable[[], bool] = lambda: True
) -> bool:
    """Send a little on all connections until the other side has closed each, and return whether something held so long."""
    end, left = time.monotonic() + PATIENCE_SECONDS, list(connections)
    for connection in left:
        connection.settimeout(0.01)
    while left and holds():
        assert time.monotonic() < end, f"{len(left)} connections are open"
        left = [connection for connection in left if is_open(connection, send)]
        time.sleep(0.2)
    return not left


def is_open(connection: socket.socket, send: Callable[[socket.socket], None]) -> bool:
    """Return whether a connection is open, after sending something on it and dropping what has arrived."""
    try:
        send(connection)
        while connection.recv(65_536):
            pass
    except TimeoutError:
        return True
    except OSError:
        return False
    return False
