"""An index in a PostgreSQL server with the extension pgvector.

A table holds one row per item, its key and its code as ``bit(n)``, and ``<~>`` is the Hamming distance. Without an
approximate index, the server compares a query with every code, and the results equal those of `FlatIndex`. Codes are padded
with zeros to whole bytes, which does not change distances.

A thread that waits for the server is freed after a time limit. The server ends the statement itself
(``statement_timeout``). If it does not even do that, because it hangs or its machine is off, the connection is closed here.
"""

import math
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, LiteralString

import numpy as np
import psycopg
from psycopg import sql

from silohash.base.errors import CopyMissing
from silohash.base.files import closed_on_error
from silohash.index.base import Answer, Distances, Keys, cut, ordered_pairs
from silohash.index.codes import CodeBytes, byte_count
from silohash.index.server import CHANGE_SECONDS, EXTRA_ROWS, SEARCH_SECONDS, ServerIndex, seconds_left

ROWS = 1 << 16
CONNECT_SECONDS = 5
"""Longest time to connect, and to find out whether an earlier connection still works."""

GRACE_SECONDS = 1.0
"""Time that the server has to end a statement itself, before the connection is closed."""

LOST_SECONDS = 30
"""Time without a sign from the machine of the server after which a connection counts as lost."""

SEARCH_LIST_MOST = 1000
"""The largest ``hnsw.ef_search`` of pgvector."""

HEADER = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
TRAILER = b"\xff\xff"


class PgvectorIndex(ServerIndex):
    """Search codes in a table of a PostgreSQL server, such as ``postgresql://user@host/database``.

    An approximate index is of the type HNSW, and is built by `finish`.
    """

    service: ClassVar[str] = "pgvector"
    errors: ClassVar[tuple[type[Exception], ...]] = (psycopg.Error,)

    def close(self) -> None:
        """Close the connections. A connection in use is closed after its use."""
        self._closed = True
        self._close_idle()

    @classmethod
    def _drop(cls, url: str, collection: str) -> None:
        with _opened(url, CHANGE_SECONDS) as connection, _freed_after(connection, CHANGE_SECONDS):
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(collection)))

    def _open(self, *, create: bool) -> None:
        self._table = sql.Identifier(self._name)
        self._idle: list[psycopg.Connection[Any]] = []
        self._closed = False
        self._lock = threading.Lock()
        with self._connected(SEARCH_SECONDS) as connection:
            if create:
                self._create(connection)
            self._check_table(connection)

    def _count(self) -> int:
        with self._connected(SEARCH_SECONDS) as connection:
            return _number(connection.execute(self._sql("SELECT count(*) FROM {}")))

    def _add(self, keys: Keys, packed: CodeBytes) -> None:
        with self._connected(CHANGE_SECONDS) as connection, connection.transaction():
            connection.execute(self._sql("CREATE TEMP TABLE added (LIKE {}) ON COMMIT DROP"))
            with connection.cursor().copy("COPY added FROM STDIN (FORMAT BINARY)") as copy:
                copy.write(HEADER)
                for start in range(0, len(keys), ROWS):
                    copy.write(self._rows(keys[start : start + ROWS], packed[start : start + ROWS]))
                copy.write(TRAILER)
            connection.execute(
                self._sql("INSERT INTO {} SELECT * FROM added ON CONFLICT (key) DO UPDATE SET code = EXCLUDED.code")
            )

    def _remove(self, keys: Keys) -> int:
        with self._connected(CHANGE_SECONDS) as connection:
            return connection.execute(self._sql("DELETE FROM {} WHERE key = ANY(%s)"), [keys.tolist()]).rowcount

    def _nearest(self, queries: CodeBytes, k: int, chosen: Keys | None) -> list[Answer]:
        with self._connected(seconds_left(SEARCH_SECONDS)) as connection:
            return [self._nearest_of(connection, query, k, chosen) for query in _encoded(queries)]

    def _within(self, queries: CodeBytes, radius_bits: int, chosen: Keys | None) -> list[tuple[Keys, Distances]]:
        where, values = _filter(chosen, "code <~> {q} <= %(radius)s")
        query = self._sql("SELECT key, (code <~> {q})::int FROM {} {where} ORDER BY 2, 1", where)
        values["radius"] = radius_bits
        with self._connected(seconds_left(SEARCH_SECONDS)) as connection:
            return [
                ordered_pairs(connection.execute(query, {**values, "code": code}).fetchall())
                for code in _encoded(queries)
            ]

    def _codes(self) -> Iterator[tuple[Keys, CodeBytes]]:
        row = _row_type(byte_count(self.bits))
        with self._connected(CHANGE_SECONDS) as connection, connection.cursor() as cursor:
            query = self._sql("COPY (SELECT key, code FROM {} ORDER BY key) TO STDOUT (FORMAT BINARY)")
            with cursor.copy(query) as copy:
                waiting, start = bytearray(), len(HEADER)
                for data in copy:
                    waiting += data
                    if len(waiting) > ROWS * row.itemsize:
                        count = (len(waiting) - start) // row.itemsize
                        yield _read(waiting, start, count, row)
                        del waiting[: start + count * row.itemsize]
                        start = 0
                yield _read(waiting, start, (len(waiting) - start) // row.itemsize, row)

    def _finish(self) -> None:
        """Build the approximate index if there is one, and update the server's statistics."""
        with self._connected(None) as connection:
            if not self.exact:
                creation = sql.SQL("CREATE INDEX IF NOT EXISTS {} ON {} USING hnsw (code bit_hamming_ops)")
                connection.execute(creation.format(sql.Identifier(f"{self._name}_hnsw"), self._table))
            connection.execute(self._sql("ANALYZE {}"))

    def _create(self, connection: psycopg.Connection[Any]) -> None:
        if connection.execute("SELECT 1 FROM pg_extension WHERE extname = 'vector'").fetchone() is None:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        columns = sql.SQL("(key bigint PRIMARY KEY, code bit({}) NOT NULL)").format(sql.Literal(self._bits_stored))
        connection.execute(sql.SQL("CREATE TABLE IF NOT EXISTS {} ").format(self._table) + columns)

    def _check_table(self, connection: psycopg.Connection[Any]) -> None:
        """Check that the table exists and has the code length of the index."""
        found = connection.execute(
            "SELECT atttypmod FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname = 'code'", [self._name]
        ).fetchone()
        if found is None or found[0] != self._bits_stored:
            holds = (
                "does not exist" if found is None else f"holds codes of {found[0]} bits instead of {self._bits_stored}"
            )
            raise CopyMissing(
                f'The table "{self._name}" of the pgvector server {holds}. Run silohash index move again.'
            )

    @property
    def _bits_stored(self) -> int:
        return 8 * byte_count(self.bits)

    @contextmanager
    def _connected(self, seconds: float | None) -> Iterator[psycopg.Connection[Any]]:
        """Yield a connection that no other thread uses, for a limited time. Each statement is a transaction of its own."""
        connection = self._taken(seconds)
        try:
            with _freed_after(connection, seconds):
                yield connection
        finally:
            with self._lock:
                keep = not self._closed and not connection.broken and not connection.closed
                if keep:
                    self._idle.append(connection)
            if not keep:
                connection.close()

    def _taken(self, seconds: float | None) -> psycopg.Connection[Any]:
        """Return an idle connection that still works, or a new one. Its statements have a time limit."""
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return _opened(self._url, seconds)
            try:
                _limit(connection, seconds)
            except psycopg.Error:
                # The server may have been restarted, in which case no other connection works either.
                connection.close()
                self._close_idle()
            else:
                return connection

    def _close_idle(self) -> None:
        """Close the connections that are not in use."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _sql(self, text: LiteralString, where: LiteralString = "") -> sql.Composed:
        """Return a statement in which ``{}`` is the table, ``{q}`` the code of the query, and ``{where}`` a clause."""
        code = sql.SQL("%(code)s::bit({})").format(sql.Literal(self._bits_stored))
        return sql.SQL(text).format(self._table, q=code, where=sql.SQL(where).format(q=code))

    def _nearest_of(self, connection: psycopg.Connection[Any], query: str, k: int, chosen: Keys | None) -> Answer:
        """Return the keys and distances of the k nearest items of a query, and the number of ties left out."""
        where, values = _filter(chosen)
        values |= {"code": query, "most": k + max(k, EXTRA_ROWS)}
        order = "{where} ORDER BY 2, 1 LIMIT %(most)s"
        if not self.exact:
            order = "{where} ORDER BY code <~> {q} LIMIT %(most)s"
            self._widen(connection, k)
        rows = connection.execute(
            self._sql(f"SELECT key, (code <~> {{q}})::int FROM {{}} {order}", where),  # noqa: S608  a literal
            values,
        ).fetchall()
        keys, distances = ordered_pairs(rows)
        nearest, near, left_out = cut(keys, distances, k)
        if self.exact and len(rows) == values["most"] and distances[-1] == distances[k - 1]:
            where, values = _filter(chosen, "code <~> {q} = %(cut)s")
            values |= {"code": query, "cut": int(distances[-1])}
            at_cut = _number(connection.execute(self._sql("SELECT count(*) FROM {} {where}", where), values))
            left_out = at_cut - int(np.count_nonzero(near == distances[-1]))
        return nearest, near, left_out

    def _widen(self, connection: psycopg.Connection[Any], k: int) -> None:
        """Let an approximate search read enough of the graph for k items. Otherwise pgvector returns at most 40."""
        settings = {
            "hnsw.ef_search": max(100, min(SEARCH_LIST_MOST, k + EXTRA_ROWS)),
            "hnsw.iterative_scan": "strict_order",
            "hnsw.max_scan_tuples": max(20_000, 20 * k),
        }
        for name, value in settings.items():
            connection.execute("SELECT set_config(%s, %s, false)", [name, str(value)])

    def _rows(self, keys: Keys, packed: CodeBytes) -> bytes:
        """Return rows in PostgreSQL's binary form of ``COPY``."""
        rows = np.zeros(len(keys), _row_type(packed.shape[1]))
        rows["fields"], rows["key_bytes"], rows["code_bytes"] = 2, 8, 4 + packed.shape[1]
        rows["key"], rows["bits"], rows["code"] = keys, self._bits_stored, packed
        return rows.tobytes()


def _opened(url: str, seconds: float | None) -> psycopg.Connection[Any]:
    """Return a new connection with a time limit (`_limit`), lost after `LOST_SECONDS` without a sign of the server."""
    connection = psycopg.connect(
        url,
        autocommit=True,
        connect_timeout=CONNECT_SECONDS,
        keepalives_idle=LOST_SECONDS // 3,
        keepalives_interval=LOST_SECONDS // 3,
        keepalives_count=2,
        tcp_user_timeout=1000 * LOST_SECONDS,
    )
    with closed_on_error(connection):
        _limit(connection, seconds)
    return connection


def _limit(connection: psycopg.Connection[Any], seconds: float | None) -> None:
    """Let the server end each further statement after a time; None for no limit."""
    milliseconds = 0 if seconds is None else math.ceil(1000 * seconds)
    with _freed_after(connection, CONNECT_SECONDS if seconds is None else min(CONNECT_SECONDS, seconds)):
        connection.execute("SELECT set_config('statement_timeout', %s, false)", [str(milliseconds)])


@contextmanager
def _freed_after(connection: psycopg.Connection[Any], seconds: float | None) -> Iterator[None]:
    """Close the connection under the thread of a block that takes `GRACE_SECONDS` longer than it may, which is an error."""
    if seconds is None:
        yield
        return
    late = threading.Event()
    # The copy stays valid until it is closed here, whatever the other thread does with the connection.
    with socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM) as line:

        def free() -> None:
            """End the connection, so that whoever waits for its data gets an error."""
            late.set()
            with suppress(OSError):  # it has ended
                line.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(seconds + GRACE_SECONDS, free)
        timer.daemon = True
        timer.start()
        try:
            yield
        except psycopg.Error as error:
            if late.is_set():
                raise psycopg.OperationalError(f"it did not answer within {seconds:.3g} seconds") from error
            raise
        finally:
            timer.cancel()


def _row_type(code_bytes: int) -> np.dtype[Any]:
    """Return the form of a row of ``COPY``: a count of fields, then each field after its number of bytes."""
    names = ["fields", "key_bytes", "key", "code_bytes", "bits", "code"]
    return np.dtype({"names": names, "formats": [">i2", ">i4", ">i8", ">i4", ">i4", ("u1", (code_bytes,))]})


def _read(data: bytearray, start: int, count: int, row: np.dtype[Any]) -> tuple[Keys, CodeBytes]:
    """Return the keys and codes of rows in the form of ``COPY``."""
    rows = np.frombuffer(bytes(data), row, count, start)
    return rows["key"].astype(np.int64), rows["code"]


def _encoded(queries: CodeBytes) -> list[str]:
    """Return each query as a string of zeros and ones."""
    return ["".join(row) for row in np.unpackbits(np.ascontiguousarray(queries), axis=1).astype(str)]


def _filter(chosen: Keys | None, condition: LiteralString = "") -> tuple[LiteralString, dict[str, Any]]:
    """Return a ``WHERE`` clause with its values, for the keys that pass a filter and a further condition."""
    parts = [condition] if condition else []
    if chosen is not None:
        parts.append("key = ANY(%(chosen)s)")
    return ("WHERE " + " AND ".join(parts) if parts else ""), ({} if chosen is None else {"chosen": chosen.tolist()})


def _number(cursor: psycopg.Cursor[Any]) -> int:
    row = cursor.fetchone()
    return 0 if row is None else int(row[0])
