"""An index in a PostgreSQL server with the extension pgvector.

A table holds one row per item, its key and its code as ``bit(n)``, and ``<~>`` is the Hamming distance. Without an
approximate index, the server compares a query with every code, and the results equal those of `FlatIndex`. Codes are padded
with zeros to whole bytes, which does not change distances.

A thread that waits for the server is freed after a time limit. The server ends the statement itself
(``statement_timeout``). If it does not even do that, because it hangs or its machine is off, the connection is closed here.
"""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, LiteralString

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg import sql

from silohash.base.types import UserError
from silohash.index.base import (
    Allowed,
    Keys,
    Neighbors,
    check_k,
    check_keys,
    check_radius,
    chosen_keys,
    distinct,
    merged_answers,
)
from silohash.index.codes import CodeBytes, Words, byte_count, from_bytes, to_bytes, word_type
from silohash.index.engines import explaining_server_errors, seconds_left

ROWS = 1 << 16
EXTRA_ROWS = 256
"""Number of items that are requested beyond k, so that most queries see all ties at the cut in one scan."""

CONNECT_SECONDS = 5
"""Longest time to connect, and to find out whether an earlier connection still works."""

SEARCH_SECONDS = 30.0
"""Longest time that a search waits for the server. It is less if less is left of the time limit of its request."""

CHANGE_SECONDS = 600.0
"""Longest time that a part of the codes is added or removed, or that all are read."""

GRACE_SECONDS = 1.0
"""Time that the server has to end a statement itself, before the connection is closed."""

LOST_SECONDS = 30
"""Time without a sign from the machine of the server after which a connection counts as lost."""

SEARCH_LIST_MOST = 1000
"""The largest ``hnsw.ef_search`` of pgvector."""

HEADER = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
TRAILER = b"\xff\xff"


class PgvectorIndex:
    """Search codes in a table of a PostgreSQL server."""

    def __init__(self, url: str, table: str, bits: int, *, approximate: bool = False, create: bool = False) -> None:
        """Open a table.

        Args:
            url: URL of the database, such as ``postgresql://user@host/database``.
            table: Name of the table.
            bits: Code length.
            approximate: Whether `finish` builds an HNSW index, which makes searches faster and inexact.
            create: Create the table if it does not exist.

        Raises:
            UserError: If the server cannot be reached, or does not have the table or the extension.
        """
        word_type(bits)
        self.bits = bits
        self.exact = not approximate
        self._url = url
        self._table = sql.Identifier(table)
        self._name = table
        self._idle: list[psycopg.Connection[Any]] = []
        self._closed = False
        self._known: Keys | None = None
        self._lock = threading.Lock()
        with self._connected(SEARCH_SECONDS) as connection:
            if create:
                self._create(connection)
            self._check_table(connection)

    def __len__(self) -> int:
        if self._known is not None:
            return len(self._known)
        with self._connected(SEARCH_SECONDS) as connection:
            return _number(connection.execute(self._sql("SELECT count(*) FROM {}")))

    @property
    def keys(self) -> Keys:
        """Live keys, in ascending order, read from the server unless they are known (see `remember`)."""
        if self._known is not None:
            return self._known
        return np.concatenate([np.empty(0, np.int64), *(keys for keys, _ in self.stored())])

    def add(self, keys: Keys, words: Words) -> None:
        """Add codes under keys. An existing key gets the new code."""
        packed = to_bytes(words, self.bits)
        given = check_keys(keys, len(packed))
        self._known = None
        if not len(given):
            return
        with self._connected(CHANGE_SECONDS) as connection, connection.transaction():
            connection.execute(self._sql("CREATE TEMP TABLE added (LIKE {}) ON COMMIT DROP"))
            with connection.cursor().copy("COPY added FROM STDIN (FORMAT BINARY)") as copy:
                copy.write(HEADER)
                for start in range(0, len(given), ROWS):
                    copy.write(self._rows(given[start : start + ROWS], packed[start : start + ROWS]))
                copy.write(TRAILER)
            connection.execute(
                self._sql("INSERT INTO {} SELECT * FROM added ON CONFLICT (key) DO UPDATE SET code = EXCLUDED.code")
            )

    def remove(self, keys: Keys) -> int:
        """Remove keys, and return how many of them existed."""
        given, self._known = distinct(np.asarray(keys, np.int64)), None
        with self._connected(CHANGE_SECONDS) as connection:
            return connection.execute(self._sql("DELETE FROM {} WHERE key = ANY(%s)"), [given.tolist()]).rowcount

    def search(self, words: Words, k: int, *, allowed: Allowed | None = None) -> Neighbors:
        """Return the k nearest items of each query, ordered by (distance, key). See `FlatIndex.search`.

        If the index is approximate, ``ties_at_cut`` counts only the ties that the server has found.
        """
        check_k(k)
        queries = self._queries(words)
        chosen = self._chosen(allowed)
        with self._connected(seconds_left(SEARCH_SECONDS)) as connection:
            return merged_answers([self._nearest(connection, query, k, chosen) for query in queries], k)

    def search_radius(self, words: Words, radius_bits: int, *, allowed: Allowed | None = None) -> list[Neighbors]:
        """Return all items within a distance of each query. See `FlatIndex.search_radius`."""
        check_radius(radius_bits)
        chosen = self._chosen(allowed)
        where, values = _filter(chosen, "code <~> {q} <= %(radius)s")
        query = self._sql("SELECT key, (code <~> {q})::int FROM {} {where} ORDER BY 2, 1", where)
        answers = []
        with self._connected(seconds_left(SEARCH_SECONDS)) as connection:
            for code in self._queries(words):
                rows = connection.execute(query, {**values, "code": code, "radius": radius_bits}).fetchall()
                keys, distances = _columns(rows)
                answers.append(Neighbors(keys[None], distances[None], np.zeros(1, np.int64)))
        return answers

    def stored(self) -> Iterator[tuple[Keys, Words]]:
        """Yield the stored keys in ascending order with their codes."""
        row = _row_type(byte_count(self.bits))
        with self._connected(CHANGE_SECONDS) as connection, connection.cursor() as cursor:
            query = self._sql("COPY (SELECT key, code FROM {} ORDER BY key) TO STDOUT (FORMAT BINARY)")
            with cursor.copy(query) as copy:
                waiting, start = bytearray(), len(HEADER)
                for data in copy:
                    waiting += data
                    if len(waiting) > ROWS * row.itemsize:
                        count = (len(waiting) - start) // row.itemsize
                        yield self._read(waiting, start, count, row)
                        del waiting[: start + count * row.itemsize]
                        start = 0
                yield self._read(waiting, start, (len(waiting) - start) // row.itemsize, row)

    def remember(self, keys: Keys) -> None:
        """Take note of the live keys, in ascending order, so that they are not read from the server until a change."""
        self._known = keys

    def finish(self) -> None:
        """Build the approximate index if there is one, and update the server's statistics, after many codes were added."""
        with self._connected(None) as connection:
            if not self.exact:
                index = sql.Identifier(f"{self._name}_hnsw")
                connection.execute(
                    sql.SQL("CREATE INDEX IF NOT EXISTS {} ON {} USING hnsw (code bit_hamming_ops)").format(
                        index, self._table
                    )
                )
            connection.execute(self._sql("ANALYZE {}"))

    def close(self) -> None:
        """Close the connections. A connection in use is closed after its use."""
        self._closed = True
        self._close_idle()

    def _create(self, connection: psycopg.Connection[Any]) -> None:
        if connection.execute("SELECT 1 FROM pg_extension WHERE extname = 'vector'").fetchone() is None:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        columns = sql.SQL("(key bigint PRIMARY KEY, code bit({}) NOT NULL)").format(sql.Literal(self._bits_stored))
        connection.execute(sql.SQL("CREATE TABLE IF NOT EXISTS {} ").format(self._table) + columns)

    def _check_table(self, connection: psycopg.Connection[Any]) -> None:
        """Check that the table exists and has the code length of the index.

        Raises:
            UserError: If it does not.
        """
        found = connection.execute(
            "SELECT atttypmod FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname = 'code'", [self._name]
        ).fetchone()
        if found is None or found[0] != self._bits_stored:
            holds = (
                "does not exist" if found is None else f"holds codes of {found[0]} bits instead of {self._bits_stored}"
            )
            raise UserError(f'The table "{self._name}" of the pgvector server {holds}. Run silohash index move again.')

    @property
    def _bits_stored(self) -> int:
        return 8 * byte_count(self.bits)

    @contextmanager
    def _connected(self, seconds: float | None) -> Iterator[psycopg.Connection[Any]]:
        """Yield a connection that no other thread uses, in which each statement is a transaction of its own.

        Args:
            seconds: Time limit of the block; None for no limit.
        """
        with explaining_server_errors("pgvector", self._url, psycopg.Error):
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
            except psycopg.Error:  # the server may have been restarted, in which case no other connection works either
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

    def _queries(self, words: Words) -> list[str]:
        packed = np.ascontiguousarray(to_bytes(words, self.bits))
        return ["".join(row) for row in np.unpackbits(packed, axis=1).astype(str)]

    def _chosen(self, allowed: Allowed | None) -> list[int] | None:
        """Return the keys that pass a filter. A list of keys may contain some that do not exist."""
        keys = None if allowed is None else chosen_keys(allowed, self)
        return None if keys is None else list(map(int, keys))

    def _nearest(
        self, connection: psycopg.Connection[Any], query: str, k: int, chosen: list[int] | None
    ) -> tuple[Keys, npt.NDArray[np.int32], int]:
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
        keys, distances = _columns(rows)
        left_out = int(np.count_nonzero(distances[k:] == distances[k - 1])) if len(keys) > k else 0
        if self.exact and len(rows) == values["most"] and distances[-1] == distances[k - 1]:
            where, values = _filter(chosen, "code <~> {q} = %(cut)s")
            values |= {"code": query, "cut": int(distances[-1])}
            at_cut = _number(connection.execute(self._sql("SELECT count(*) FROM {} {where}", where), values))
            left_out = at_cut - int(np.count_nonzero(distances[:k] == distances[-1]))
        return keys[:k], distances[:k], left_out

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

    def _read(self, data: bytearray, start: int, count: int, row: np.dtype[Any]) -> tuple[Keys, Words]:
        rows = np.frombuffer(bytes(data), row, count, start)
        return rows["key"].astype(np.int64), from_bytes(rows["code"], self.bits)


def drop_table(url: str, table: str) -> None:
    """Remove a table from a server if it exists.

    Raises:
        UserError: If the server cannot be reached.
    """
    with (
        explaining_server_errors("pgvector", url, psycopg.Error),
        _opened(url, CHANGE_SECONDS) as connection,
        _freed_after(connection, CHANGE_SECONDS),
    ):
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(table)))


def _opened(url: str, seconds: float | None) -> psycopg.Connection[Any]:
    """Return a new connection whose statements have a time limit. See `_limit`.

    It counts as lost if the machine of the server does not give a sign for about `LOST_SECONDS`.
    """
    connection = psycopg.connect(
        url,
        autocommit=True,
        connect_timeout=CONNECT_SECONDS,
        keepalives_idle=LOST_SECONDS // 3,
        keepalives_interval=LOST_SECONDS // 3,
        keepalives_count=2,
        tcp_user_timeout=1000 * LOST_SECONDS,
    )
    try:
        _limit(connection, seconds)
    except BaseException:
        connection.close()
        raise
    return connection


def _limit(connection: psycopg.Connection[Any], seconds: float | None) -> None:
    """Let the server end each further statement after a time; None for no limit.

    Raises:
        psycopg.Error: If the connection does not work.
    """
    milliseconds = 0 if seconds is None else math.ceil(1000 * seconds)
    with _freed_after(connection, CONNECT_SECONDS if seconds is None else min(CONNECT_SECONDS, seconds)):
        connection.execute("SELECT set_config('statement_timeout', %s, false)", [str(milliseconds)])


@contextmanager
def _freed_after(connection: psycopg.Connection[Any], seconds: float | None) -> Iterator[None]:
    """Close the connection under the thread of a block if the block takes too long, because the server does not answer.

    Args:
        connection: The connection that the block uses.
        seconds: Time limit, beyond which the server has `GRACE_SECONDS`; None for no limit.

    Raises:
        psycopg.OperationalError: If the block took too long.
    """
    if seconds is None:
        yield
        return
    late = threading.Event()
    with socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM) as line:  # a copy, closed here only

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
    return np.dtype(
        [
            ("fields", ">i2"),
            ("key_bytes", ">i4"),
            ("key", ">i8"),
            ("code_bytes", ">i4"),
            ("bits", ">i4"),
            ("code", "u1", (code_bytes,)),
        ]
    )


def _filter(chosen: list[int] | None, condition: LiteralString = "") -> tuple[LiteralString, dict[str, Any]]:
    """Return a ``WHERE`` clause with its values, for the keys that pass a filter and a further condition."""
    parts = [condition] if condition else []
    if chosen is not None:
        parts.append("key = ANY(%(chosen)s)")
    return ("WHERE " + " AND ".join(parts) if parts else ""), ({} if chosen is None else {"chosen": chosen})


def _number(cursor: psycopg.Cursor[Any]) -> int:
    """Return the only value of a result."""
    row = cursor.fetchone()
    return 0 if row is None else int(row[0])


def _columns(rows: list[tuple[int, int]]) -> tuple[Keys, npt.NDArray[np.int32]]:
    """Return the keys and distances of rows, ordered by (distance, key)."""
    table = np.array(rows, np.int64).reshape(-1, 2)
    order = np.lexsort((table[:, 0], table[:, 1]))
    return table[order, 0], table[order, 1].astype(np.int32)
