"""Pictures by address: only the hosts that are allowed, only public ones, and nothing of what they redirect to."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest
import trustme

from silohash.base.errors import UploadRefused
from silohash.service.web import addresses
from silohash.service.web.addresses import fetch_picture
from tests.served import MadeUpBackend, client_of, png

HOST = "images.example.org"
ADDRESS = f"https://{HOST}/a%20boat.png?size=2"


class Handler(BaseHTTPRequestHandler):
    asked: ClassVar[list[tuple[str, str]]] = []

    def do_GET(self) -> None:
        self.asked.append((self.headers["host"], self.path))
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("location", ADDRESS)
            self.end_headers()
            return
        self.send_response(404 if self.path == "/missing" else 200)
        self.end_headers()
        for part in [b"x" * 1000] * 100 if self.path == "/large" else [png()]:
            self.wfile.write(part)
        if self.path == "/slow":
            for _ in range(100):
                self.wfile.write(b"x")
                self.wfile.flush()
                time.sleep(0.02)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Handler]]:
    """A server on this machine, with the certificate of a host and an address that passes for a public one."""
    authority = trustme.CA()
    of_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(HOST).configure_cert(of_server)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.socket = of_server.wrap_socket(running.socket, server_side=True)
        threading.Thread(target=running.serve_forever, daemon=True).start()
        trusting = ssl.create_default_context()
        authority.configure_trust(trusting)
        monkeypatch.setattr(ssl, "create_default_context", lambda: trusting)
        monkeypatch.setattr(addresses, "PORT", running.server_port)
        monkeypatch.setattr(addresses, "_public_address", lambda host: "127.0.0.1")
        Handler.asked = []
        yield Handler
        running.shutdown()


def test_a_picture_is_fetched_from_an_allowed_host(server: type[Handler]) -> None:
    assert fetch_picture(ADDRESS, {HOST}) == png()
    [(host, path)] = server.asked
    assert (host.partition(":")[0], path) == (HOST, "/a%20boat.png?size=2")


@pytest.mark.parametrize("path", ["moved", "missing"])
def test_only_the_picture_itself_counts(server: type[Handler], path: str) -> None:
    with pytest.raises(UploadRefused, match="HTTP status"):
        fetch_picture(f"https://{HOST}/{path}", {HOST})
    assert len(server.asked) == 1


def test_large_and_slow_pictures_are_refused(server: type[Handler], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "MOST_BYTES", 50_000)
    with pytest.raises(UploadRefused) as refused:
        fetch_picture(f"https://{HOST}/large", {HOST})
    assert refused.value.status == 413
    monkeypatch.setattr(addresses, "MOST_SECONDS", 0.3)
    with pytest.raises(UploadRefused, match=r"within 0\.3 s"):
        fetch_picture(f"https://{HOST}/slow", {HOST})


def test_the_certificate_must_be_that_of_the_host(server: type[Handler]) -> None:
    with pytest.raises(UploadRefused, match="CERTIFICATE"):
        fetch_picture("https://other.example.org/a.png", {"other.example.org"})
    assert server.asked == []


@pytest.mark.parametrize(
    "address",
    [
        "http://images.example.org/a.png", "https://elsewhere.example.org/a.png", "https://images.example.org:8443/a.png",
        "https://user@images.example.org/a.png", "https://images.example.org@localhost/a.png", "https:///a.png", "a.png",
        "https://images.example.org/a\r\nX: b", "https://[", "file:///etc/passwd", "",
    ],
)  # fmt: skip
def test_nothing_is_asked_at_other_addresses(server: type[Handler], address: str) -> None:
    with pytest.raises(UploadRefused):
        fetch_picture(address, {HOST})
    assert server.asked == []


@pytest.mark.parametrize(
    "found",
    [["127.0.0.1"], ["10.1.2.3"], ["169.254.169.254"], ["192.168.1.1"], ["::1"], ["fd00::1"], ["::ffff:10.0.0.1"],
     ["93.184.216.34", "10.1.2.3"], []],
)  # fmt: skip
def test_a_host_in_a_private_network_is_refused_although_it_is_allowed(
    monkeypatch: pytest.MonkeyPatch, found: list[str]
) -> None:
    def resolve(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    def connect(*_: object) -> None:
        pytest.fail("a connection was opened")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(UploadRefused, match="private"):
        fetch_picture(ADDRESS, {HOST})


def test_the_api_searches_for_a_picture_by_its_address(server: type[Handler]) -> None:
    backend = MadeUpBackend()
    allowing = client_of(backend, picture_hosts=[HOST.upper()])
    assert allowing.get("/api/v1/search/picture", params={"address": ADDRESS}).status_code == 200
    assert backend.requests[-1].value.size == (24, 24)
    none = allowing.get("/api/v1/search/picture")
    assert (none.status_code, none.json()["error"]["code"]) == (422, "invalid")
    refusing = client_of(backend).get("/api/v1/search/picture", params={"address": ADDRESS})
    assert (refusing.status_code, refusing.json()["error"]["key"]) == (422, "upload-refused")
