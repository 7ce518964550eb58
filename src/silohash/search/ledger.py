"""What a silo remembers so that askers cannot put the codes of its items together: a secret, and the codes they asked with.

With the secret, bits of codes are inverted (`noised`) and equals are ordered, the same way each time: repeating a query, or
asking under another name, gives the same answer and thus no further information. The codes of queries are remembered so that
queries that are near each other can be counted. Whoever tries out a code bit by bit needs many of them, and people need few.

The ledger is a SQLite file, which a restart of the silo leaves as it is, and which its processes share. If the file is lost,
so are the counts, and the noise is drawn again.
"""

import hashlib
import math
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from silohash.base.errors import LimitReached, NotSearchable, UnreadableFile
from silohash.base.files import explaining_disk_errors
from silohash.base.sqlite_files import connect, transaction
from silohash.index.codes import CodeBytes, to_bytes
from silohash.index.store import Noise
from silohash.search.composed import compared_text
from silohash.search.hits import Query
from silohash.search.policy import DAY_SECONDS, Policy

FOLDER = "ledger"
"""Name of the folder in a run that holds the ledgers of its silos."""

MOST_QUERIES = 10_000
"""Most queries that are remembered of one asker. Further different ones are refused."""

MOST_PAGES = 1 << 16
"""Most pages of a ledger, of 4,096 bytes each."""

SCHEMA = Path(__file__).with_name("ledger.sql").read_text(encoding="utf-8")


class Ledger:
    """The open ledger of a silo. Threads and processes may share the file.

    Attributes:
        secret: Random bytes that never leave the silo.
    """

    def __init__(self, path: Path | None = None, *, clock: Callable[[], float] = time.time) -> None:
        """Open a ledger, which is created if it does not exist, for this user alone. Without a path it is in memory.

        Raises:
            UserError: If the file cannot be read or written, or is damaged.
        """
        self._name = "in memory" if path is None else str(path)
        self._clock, self._lock = clock, threading.Lock()
        self._cleaned_day = -1
        if path is not None:
            with explaining_disk_errors(path):
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        with self._explained():
            memory = (
                sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False) if path is None else None
            )
            self._connection = memory or connect(path or Path())
            # A change survives the end of the process, and is not waited for until it is on the disk.
            settings = f"PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA max_page_count = {MOST_PAGES};"
            self._connection.executescript(settings + SCHEMA)
            new = (secrets.token_bytes(32),)
            self._connection.execute("INSERT OR IGNORE INTO secret VALUES (0, ?)", new)
            [self.secret] = self._connection.execute("SELECT value FROM secret").fetchone()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def key_of(self, query: Query) -> bytes:
        """Return the key of the order among equals for a query, which nobody else can compute."""
        return hashlib.blake2b(query.words.tobytes(), key=self.secret, person=b"order", digest_size=16).digest()

    def noise(self, bits: int, policy: Policy, *, in_memory: bool) -> Noise | None:
        """Return what adds the noise of a policy to codes, see `noised`; None if it has none.

        Raises:
            NotSearchable: If the codes are not in memory but on a server, which compares them as they are.
        """
        if policy.code_noise == 0:
            return None
        if not in_memory:
            raise NotSearchable("Its policy sets code_noise, which codes on a server do not have. Move them to memory.")
        return partial(noised, bits=bits, share=policy.code_noise, secret=self.secret)

    def admit(self, query: Query, policy: Policy) -> None:
        """Remember a query if the policy limits those near each other, unless its asker has reached the limit.

        A query that is repeated does not count. Queries with other filters, targets or words are different ones, but the
        next pages of a query, and the same query with a radius, are not.

        Raises:
            LimitReached: If the asker has reached the limit, or more than `MOST_QUERIES` queries would be remembered.
            UserError: If the ledger cannot be read or written.
        """
        if policy.max_near_queries is None:
            return
        code, days = to_bytes(query.words[None], query.bits)[0], policy.near_days
        asker = self._digest(query.asker.encode())
        filters = "&".join(sorted(map(str, query.where)))
        typed = compared_text(query.own_text, query.text, accepted=policy.accept_query_words) or ""
        about = f"{query.target}/{query.bits}/{query.label or ''}/{filters}/{typed}".encode()
        question = self._digest(about + code.tobytes())
        limit_bits = query.bits // 4 if policy.near_bits is None else policy.near_bits
        today = int(self._clock() // DAY_SECONDS)
        with self._explained(), transaction(self._connection):
            if today != self._cleaned_day:
                self._connection.execute("DELETE FROM asked WHERE day <= ?", (today - days,))
                self._cleaned_day = today
            found = self._connection.execute("SELECT question, code FROM asked WHERE asker = ?", (asker,)).fetchall()
            if any(known == question for known, _ in found):
                return
            codes = [former for _, former in found if len(former) == len(code)]
            asked = np.frombuffer(b"".join(codes), np.uint8).reshape(len(codes), len(code))
            near = int((np.bitwise_count(asked ^ code).sum(1, np.int64) <= limit_bits).sum())
            if near >= policy.max_near_queries:
                raise LimitReached(
                    f"It limits each asker to {policy.max_near_queries:,} different searches near each other in {days:,} "
                    "days. Search for something else."
                )
            if len(found) >= MOST_QUERIES:
                raise LimitReached(f"It limits each asker to {MOST_QUERIES:,} different searches in {days:,} days.")
            self._connection.execute("INSERT INTO asked VALUES (?, ?, ?, ?)", (asker, question, code.tobytes(), today))

    def _digest(self, content: bytes) -> bytes:
        return hashlib.blake2b(content, key=self.secret, digest_size=16).digest()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Admit one thread at a time, and translate SQLite errors into messages."""
        with self._lock:
            try:
                yield
            except sqlite3.Error as error:
                raise UnreadableFile(
                    f"The ledger {self._name} cannot be read or written ({error}). Check the permissions of its folder, and "
                    "that no other program holds the file."
                ) from error


def noised(packed: CodeBytes, bits: int, *, share: float, secret: bytes) -> CodeBytes:
    """Return codes of which each bit was inverted with a probability. Equal codes are changed alike.

    However many answers were computed from the result, nobody can know more of the codes than the result tells.

    Args:
        packed: ``(n, bytes)`` codes.
        bits: Code length.
        share: Probability, which is rounded up to a multiple of 1/256.
        secret: The secret of the silo. The same one inverts the same bits of a code.

    Source: Permanent randomized response (Erlingsson et al., "RAPPOR", CCS 2014, section 3.1, step 2).
    """
    threshold = math.ceil(256 * share)
    flips = np.empty((len(packed), bits), bool)
    for row, code in enumerate(packed):
        # One byte per bit. Of the code itself, so that copies of an item do not average the noise away.
        draws = hashlib.shake_256(b"noise" + secret + code.tobytes()).digest(bits)
        flips[row] = np.frombuffer(draws, np.uint8) < threshold
    return packed ^ np.packbits(flips, axis=1, bitorder="little")
