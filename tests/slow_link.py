"""A slow link to a server of this machine: a proxy at a port that passes on a limited number of bytes per second."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock, Thread

from tests.ports import free_port

CHUNK_BYTES = 1 << 16


class Bucket:
    """A token bucket: bytes that may pass gather at a rate, up to those of a tenth of a second.

    Args:
        rate: bytes per second.
    """

    def __init__(self, rate: float) -> None:
        self.rate, self.most = rate, max(rate / 10, CHUNK_BYTES)
        self.tokens, self.filled, self.passed = self.most, time.monotonic(), 0
        self._lock = Lock()

    def take(self, count: int) -> None:
        """Waits until some bytes may pass."""
        with self._lock:
            self.passed += count
            now = time.monotonic()
            self.tokens = min(self.most, self.tokens + (now - self.filled) * self.rate) - count
            self.filled, wait = now, max(0.0, -self.tokens / self.rate)
        time.sleep(wait)


class SlowLink:
    """A proxy on 127.0.0.1 in front of another port, with a bucket per direction that all connections share.

    Args:
        target: port of the server.
        rate: bytes per second in each direction.
    """

    def __init__(self, target: int, rate: float) -> None:
        self.target, self.port = target, free_port()
        self.up, self.down = Bucket(rate), Bucket(rate)
        self._open: list[socket.socket] = []

    @contextmanager
    def running(self) -> Iterator[SlowLink]:
        """Passes on connections until the end of the block, and then ends them."""
        with socket.create_server(("127.0.0.1", self.port)) as listener:
            thread = Thread(target=self._accept, args=(listener,), daemon=True)
            thread.start()
            try:
                yield self
            finally:
                for each in [listener, *self._open]:
                    with suppress(OSError):
                        each.shutdown(socket.SHUT_RDWR)
                thread.join()
                for each in self._open:
                    each.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                near.close()  # as if nobody listened
                continue
            self._open += [near, far]
            for source, sink, bucket in ((near, far, self.up), (far, near, self.down)):
                Thread(target=self._pass_on, args=(source, sink, bucket), daemon=True).start()

    @staticmethod
    def _pass_on(source: socket.socket, sink: socket.socket, bucket: Bucket) -> None:
        with suppress(OSError):
            while content := source.recv(CHUNK_BYTES):
                bucket.take(len(content))
                sink.sendall(content)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
