"""Every index backend against an oracle that compares all codes: the same multiset of distances, exact ones the same keys.

The backends on servers run against real servers, which the tests start.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import numpy as np
import pytest

from silohash.base.errors import UserError
from silohash.index import IN_MEMORY, SERVERS, trie
from silohash.index.base import Allowed, Index
from silohash.index.codes import pack, unpack
from silohash.index.small import SmallIndex
from tests import servers
from tests.unit.index.stores import mistakes

COUNT = 3_000
Make = Callable[[int], Index]
numbers = itertools.count()
EXACT = ("small", *IN_MEMORY.table, *SERVERS.table)
SLOW_TO_START = set(SERVERS.table) - {"pgvector"}


@pytest.fixture(scope="module")
def server_url() -> Iterator[Callable[[str], str]]:
    """Return a function that returns the URL of a backend's server, which is started once."""
    with ExitStack() as stack:
        yield cache(lambda name: stack.enter_context(servers.started(name)))


def backend(name: str, *more: object) -> Any:
    """Return a backend as a parameter, with further parameters."""
    slow = name.partition("-")[0] in SLOW_TO_START
    return pytest.param(name, *more, marks=[pytest.mark.whole_run] if slow else [])


@pytest.fixture(params=[backend(name) for name in EXACT])
def make(
    request: pytest.FixtureRequest, server_url: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Make]:
    """Return a function that creates an empty index."""
    name, _, approximate = request.param.partition("-")
    if name == "small":
        yield SmallIndex
        return
    if name in IN_MEMORY.table:
        if name == "faiss":
            pytest.importorskip("faiss")
        if name == "trie":
            monkeypatch.setattr(trie, "TRIE_ITEMS", 1_000)
        yield IN_MEMORY.resolve(name)
        return
    opened = []

    def create(bits: int) -> Index:
        url, table = server_url(name), f"contract_{next(numbers)}"
        opened.append(SERVERS.resolve(name)(url, table, bits, approximate=bool(approximate), create=True))
        return opened[-1]

    yield create
    for index in opened:
        index.close()


def clustered(count: int, bits: int, seed: int) -> np.ndarray:
    """Return signs around twelve centers, with many codes at the same distance of one another."""
    generator = np.random.default_rng(seed)
    centers = np.where(np.random.default_rng(9).random((12, bits)) < 0.5, -1, 1)
    return centers[generator.integers(0, 12, count)] * np.where(generator.random((count, bits)) < 0.08, -1, 1)


class Oracle:
    """All codes by key, compared with a matrix product in float64."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.codes: dict[int, np.ndarray] = {}

    def ordered(self, query: np.ndarray, allowed: Allowed | None = None) -> list[tuple[int, int]]:
        """Return (distance, key) of all items that pass a filter, in order."""
        keys = sorted(self.codes)
        if allowed is not None:
            chosen = np.asarray(allowed)
            passing = np.array(keys)[chosen].tolist() if chosen.dtype == bool else chosen.tolist()
            keys = sorted(set(keys) & set(passing))
        if not keys:
            return []
        dots = np.array([self.codes[key] for key in keys], np.float64) @ query.astype(np.float64)
        return sorted((round((self.bits - dot) / 2), key) for dot, key in zip(dots.tolist(), keys, strict=True))


def filled(make: Make, bits: int) -> tuple[Index, Oracle]:
    """Return an index and an oracle to which items were added in parts, replaced and removed."""
    index, oracle = make(bits), Oracle(bits)
    keys = np.random.default_rng(1).permutation(3 * COUNT)[:COUNT]
    signs = clustered(COUNT, bits, 2)
    for part in (slice(0, 1_000), slice(1_000, COUNT)):
        index.add(keys[part], pack(signs[part]))
    oracle.codes.update(zip(keys.tolist(), signs, strict=True))
    assert index.remove(np.concatenate([keys[:50], keys[:3], [10**9]])) == 50
    assert index.remove(keys[:50]) == 0
    index.add(keys[40:60], pack(signs[100:120]))
    for key in keys[:40].tolist():
        del oracle.codes[key]
    oracle.codes.update(zip(keys[40:60].tolist(), signs[100:120], strict=True))
    getattr(index, "finish", lambda: None)()
    return index, oracle


@pytest.mark.whole_run
@pytest.mark.parametrize(
    ("make", "bits"),
    [
        *(backend(name, bits) for name in EXACT for bits in (12, 64)),
        *(backend(f"{name}-approximate", 64) for name in SERVERS.table),
    ],
    indirect=["make"],
)
def test_equals_the_oracle(make: Make, bits: int) -> None:
    index, oracle = filled(make, bits)
    assert len(index) == len(oracle.codes)
    assert index.keys.tolist() == sorted(oracle.codes)
    queries = clustered(4, bits, 3)
    packed = pack(queries)
    mask = np.random.default_rng(4).random(len(index)) < 0.3
    some = index.keys[mask][::-1]
    for k, allowed in ((1, None), (50, None), (4_000, None), (50, mask), (50, some), (5, np.array([-3, int(some[0])]))):
        found = index.search(packed, k, allowed=allowed)
        for row, query in enumerate(queries):
            expected = oracle.ordered(query, allowed)
            check_row(index.exact, k, expected, found.keys[row], found.distances[row], int(found.ties_at_cut[row]))
    assert index.search(packed, 3, allowed=np.zeros(0, np.int64)).keys.tolist() == [[-1] * 3] * 4
    for radius in (0, bits // 4, bits):
        for query, answer in zip(queries, index.search_radius(packed, radius), strict=True):
            expected = [pair for pair in oracle.ordered(query) if pair[0] <= radius]
            got = list(zip(answer.distances[0].tolist(), answer.keys[0].tolist(), strict=True))
            assert got == expected if index.exact else set(got) <= set(expected)


def check_row(
    exact: bool, k: int, expected: list[tuple[int, int]], keys: np.ndarray, distances: np.ndarray, ties: int
) -> None:
    """Check the answer to one query."""
    depth = min(k, len(expected))
    assert (keys[depth:] == -1).all()
    assert (distances[depth:] == -1).all()
    found = list(zip(distances[:depth].tolist(), keys[:depth].tolist(), strict=True))
    if exact:
        assert found == expected[:depth]
        assert ties == sum(distance == expected[depth - 1][0] for distance, _ in expected[depth:])
        return
    real = [pair for pair in found if pair[1] >= 0]
    assert set(real) <= set(expected)
    near = sum(distance <= expected[depth - 1][0] for distance, _ in real)
    assert near >= 0.9 * depth
    assert ties <= sum(distance == expected[depth - 1][0] for distance, _ in expected[depth:]) or near < depth


@pytest.mark.whole_run
def test_an_empty_index_and_no_queries(make: Make) -> None:
    index = make(64)
    query = pack(np.ones((2, 64)))
    assert len(index) == 0
    assert index.keys.tolist() == []
    assert index.remove(np.array([3])) == 0
    assert index.search(query, 2).keys.tolist() == [[-1, -1]] * 2
    assert [answer.keys.shape for answer in index.search_radius(query, 64)] == [(1, 0)] * 2
    index.add(np.array([7]), query[:1])
    assert index.search(query[:0], 3).keys.shape == (0, 3)
    assert index.search_radius(query[:0], 3) == []
    assert index.search(query[:1], 2).keys.tolist() == [[7, -1]]


@pytest.mark.whole_run
def test_mistakes_are_refused(make: Make) -> None:
    index = make(64)
    index.add(np.arange(2), pack(-np.ones((2, 64))))
    for mistake, message in mistakes(index):
        with pytest.raises(UserError, match=message):
            mistake()
    assert unpack(pack(np.ones((1, 64))), 64).sum() == 64
    with pytest.raises(UserError):
        make(7)


def test_a_search_that_waits_for_a_lock_is_ended_by_the_server(
    server_url: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    psycopg = pytest.importorskip("psycopg")
    from silohash.index import pgvector

    index = pgvector.PgvectorIndex(server_url("pgvector"), "locked", 64, create=True)
    query = pack(np.ones((1, 64)))
    index.add(np.array([7]), query)
    monkeypatch.setattr(pgvector, "GRACE_SECONDS", 600.0)
    with psycopg.connect(server_url("pgvector")) as other, monkeypatch.context() as patch:
        patch.setattr(pgvector, "SEARCH_SECONDS", 0.2)
        other.execute("LOCK TABLE locked IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(UserError, match="canceling statement due to statement timeout"):
            index.search(query, 1)
    [connection] = index._idle
    assert index.search(query, 1).keys.tolist() == [[7]]
    assert index._idle == [connection], "the same connection is used again"
    index.close()


def test_a_connection_whose_server_process_hangs_is_replaced(server_url: Callable[[str], str]) -> None:
    pytest.importorskip("psycopg")
    from silohash.index import pgvector

    index = pgvector.PgvectorIndex(server_url("pgvector"), "stopped", 64, create=True)
    query = pack(np.ones((1, 64)))
    index.add(np.array([7]), query)
    [hanging] = index._idle
    process = hanging.info.backend_pid
    os.kill(process, signal.SIGSTOP)
    try:
        assert index.search(query, 1).keys.tolist() == [[7]]
    finally:
        os.kill(process, signal.SIGCONT)
    assert hanging.closed
    index.close()
