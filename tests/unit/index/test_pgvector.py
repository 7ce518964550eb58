"""The index in PostgreSQL without a server: errors and the form of rows. Searches are in tests/contract."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from silohash.base.errors import OutOfRange, ServerUnreachable
from silohash.index.server import time_limit

pytest.importorskip("psycopg")

from silohash.index import pgvector
from silohash.index.pgvector import PgvectorIndex, _filter, _row_type

BITS = 64
OPENING = 2
"""Number of statements with which an index is opened."""


def reply(kind: bytes, content: bytes = b"") -> bytes:
    """Return a message of PostgreSQL's protocol."""
    return kind + struct.pack(">i", 4 + len(content)) + content


READY = reply(b"Z", b"I")
PREPARED = reply(b"1") + reply(b"2")
ROW = b"".join(
    [
        reply(b"T", struct.pack(">h", 1) + b"n\0" + struct.pack(">ihihih", 0, 0, 23, 4, -1, 0)),
        reply(b"D", struct.pack(">hi", 1, 2) + b"%d" % BITS),
        *(reply(b"C", b"SELECT 1\0"), READY),
    ]
)
"""The answer to a statement: one row with the number `BITS`."""


def received(line: socket.socket, count: int) -> bytes:
    content = b""
    while len(content) < count:
        part = line.recv(count - len(content))
        if not part:
            raise ConnectionError
        content += part
    return content


def serve(line: socket.socket, answered: int) -> None:
    """Let a client in, answer its first statements, and then only read."""
    with line:
        try:
            while True:  # a request for encryption may come first
                [size, code] = struct.unpack(">ii", received(line, 8))
                received(line, size - 8)
                if code == 196608:
                    break
                line.sendall(b"N")
            line.sendall(reply(b"R", struct.pack(">i", 0)) + READY)
            while True:
                kind, size = struct.unpack(">ci", received(line, 5))
                received(line, size - 4)
                if kind in b"QS" and answered:  # a statement alone, or the last message of one with parameters
                    answered -= 1
                    line.sendall(ROW if kind == b"Q" else PREPARED + ROW)
        except OSError:
            return


@contextmanager
def silent_server(*answered: int | None) -> Iterator[str]:
    """Yield the URL of a server that stops to answer.

    Args:
        answered: for each connection the number of statements that are answered, or None if not even the first byte is. The
            last one is for all further connections.
    """
    lines: list[socket.socket] = []

    def accept(server: socket.socket) -> None:
        while True:
            try:
                line, _ = server.accept()
            except OSError:
                return
            wanted = answered[min(len(lines), len(answered) - 1)]
            lines.append(line)
            if wanted is not None:
                threading.Thread(target=serve, args=(line, wanted), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=accept, args=(server,), daemon=True)
        thread.start()
        yield f"postgresql://me:s3cret@127.0.0.1:{server.getsockname()[1]}/x"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(60)
    for line in lines:
        line.close()


def shorten(patch: pytest.MonkeyPatch, **waits: float) -> None:
    """Wait less for what never comes. What comes may take more than a second longer on a busy machine."""
    for name, seconds in {"connect": 2, "search": 0.2, "change": 0.2, "grace": 1.0, **waits}.items():
        patch.setattr(pgvector, f"{name.upper()}_SECONDS", seconds)


def test_rows_have_the_binary_form_of_copy() -> None:
    index = PgvectorIndex.__new__(PgvectorIndex)
    index.bits = 12
    packed = np.array([[1, 2], [255, 0]], np.uint8)
    rows = index._rows(np.array([7, 2**40]), packed)
    assert rows == b"".join(
        struct.pack(">hiqii", 2, 8, key, 6, 16) + code for key, code in ((7, b"\x01\x02"), (2**40, b"\xff\x00"))
    )
    keys, codes = pgvector._read(bytearray(b"head" + rows), 4, 2, _row_type(2))
    assert keys.tolist() == [7, 2**40]
    assert codes.tolist() == [[1, 2], [255, 0]]


def test_filters_are_parameters_of_the_statement() -> None:
    assert _filter(None) == ("", {})
    assert _filter(np.array([3, 4])) == ("WHERE key = ANY(%(chosen)s)", {"chosen": [3, 4]})
    assert _filter(np.array([]), "code = 1") == ("WHERE code = 1 AND key = ANY(%(chosen)s)", {"chosen": []})


def test_a_server_that_does_not_answer_is_named_without_its_password() -> None:
    url = "postgresql://me:s3cret@127.0.0.1:9/x"
    for use in (lambda: PgvectorIndex(url, "x", 64), lambda: PgvectorIndex.drop(url, "x")):
        with pytest.raises(ServerUnreachable, match="pgvector") as caught:
            use()
        assert "s3cret" not in str(caught.value)
    with pytest.raises(OutOfRange):
        PgvectorIndex(url, "x", 7)


@pytest.mark.parametrize("answered", [None, 0])
def test_a_server_that_accepts_and_never_answers_frees_the_thread(
    monkeypatch: pytest.MonkeyPatch, answered: int | None
) -> None:
    shorten(monkeypatch)
    with silent_server(answered) as url:
        for use in (lambda: PgvectorIndex(url, "x", BITS), lambda: PgvectorIndex.drop(url, "x")):
            with pytest.raises(ServerUnreachable, match=r"connection timeout|did not answer within") as caught:
                use()
            assert "s3cret" not in str(caught.value)


def test_a_server_that_hangs_during_a_search_frees_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection answers while the index is opened and once more, and the search that follows hangs."""
    words, key = np.zeros((1, 1), np.uint64), np.zeros(1, np.int64)
    for use in (
        lambda index: index.search(words, 3),
        lambda index: index.search_radius(words, 3),
        lambda index: index.add(key, words),
        lambda index: index.remove(key),
        lambda index: list(index.stored()),
        lambda index: len(index),
    ):
        with silent_server(OPENING + 1) as url:
            index = PgvectorIndex(url, "x", BITS)
            with monkeypatch.context() as patch:
                shorten(patch)
                with pytest.raises(ServerUnreachable, match=r"0\.2"):
                    use(index)
            assert index._idle == [], "a connection that hangs is not used again"


def test_a_search_ends_with_the_time_limit_of_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    words = np.zeros((1, 1), np.uint64)
    with silent_server(OPENING + 1) as url:
        index = PgvectorIndex(url, "x", BITS)
        shorten(monkeypatch, search=1e6)
        with time_limit(1.0), pytest.raises(ServerUnreachable):
            index.search(words, 3)
        with time_limit(0), pytest.raises(ServerUnreachable):
            index.search(words, 3)


def test_idle_connections_that_hang_are_replaced_together(monkeypatch: pytest.MonkeyPatch) -> None:
    with silent_server(OPENING + 1, 1, 100) as url:
        index = PgvectorIndex(url, "x", BITS)
        with index._connected(None) as first:
            second = pgvector._opened(url, None)
            index._idle.append(second)
        shorten(monkeypatch, search=30.0)
        assert len(index) == BITS, "answered by a new connection"
        assert (first.closed, second.closed) == (True, True)
        assert len(index._idle) == 1
        index.close()
