"""Addresses, tokens and answers of the Python clients, against sockets on this machine."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from silohash.base.errors import RequestRefused, ServerUnreachable, UnknownItem, UserError, WrongAddress
from silohash.service.clients.calls import Connection
from tests.ports import free_port


@contextmanager
def answering(content: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Answer one request with some bytes. Yield the address, and the list that receives the request."""
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                received.append(connection.recv(10_000))
                connection.sendall(content)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", received
        thread.join()


class Service(Connection):
    kind, example, remedy = "a service", "http://b", "Start it."


def ask(url: str, token: str = "") -> dict[str, Any]:
    return Service(url, token=token)._request("GET", "/")


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:1", "ftp://a", "http://", "http://:80", "http://a:b", "http://a:0", "http://a:70000", "http://[::1"],
)
def test_an_address_that_is_not_one_is_named(url: str) -> None:
    with pytest.raises(WrongAddress) as error:
        Service(url)
    assert str(error.value) == f'"{url}" is not the address of a service. Use one such as http://b.'


@pytest.mark.parametrize("url", ["http://a", "https://a:1/b", "http://[::1]:8765/"])
def test_an_address_loses_the_slash_at_its_end(url: str) -> None:
    assert Service(url).url == url.rstrip("/")


def test_a_token_may_end_with_a_line_break() -> None:
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") as (url, received):
        assert ask(url, "secret\n") == {}
    assert b"\r\nAuthorization: Bearer secret\r\n" in received[0]


@pytest.mark.parametrize(
    ("content", "kind", "says"),
    [
        (b'{"error": {"message": "There is none."}}', RequestRefused, "There is none"),
        (b'{"error": {"message": "There is none.", "key": "unknown-item"}}', UnknownItem, "There is none"),
        (b'{"error": {"message": "There is none.", "key": "of-a-later-version"}}', RequestRefused, "There is none"),
        (b'{"error": 1}', RequestRefused, r"answered.*status.*404"),
        (b"none", ServerUnreachable, "service"),
    ],
)
def test_an_error_is_that_of_the_server(content: bytes, kind: type[UserError], says: str | None) -> None:
    head = b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n" % len(content)
    with answering(head + content) as (url, _), pytest.raises(kind, match=says):
        ask(url)


@pytest.mark.parametrize(
    "content",
    [
        b"SSH-2.0-x\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
        b"HTTP/1.1 500 x\r\nContent-Length: 9\r\n\r\n",
    ],
)
def test_another_server_or_a_broken_answer_is_named(content: bytes) -> None:
    with (
        answering(content) as (url, _),
        pytest.raises(ServerUnreachable, match="did not answer like a server of silohash"),
    ):
        ask(url)


def test_a_server_that_does_not_run_is_named() -> None:
    with pytest.raises(ServerUnreachable):
        ask(f"http://127.0.0.1:{free_port()}")
