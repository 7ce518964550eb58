"""The Milvus index without a server: URLs, ranges of keys, and errors. Searches are in tests/contract."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from silohash.base.errors import ServerUnreachable, WrongAddress
from silohash.index.server import time_limit

pytest.importorskip("pymilvus")

import grpc
from pymilvus import DataType
from pymilvus.grpc_gen import common_pb2, milvus_pb2, schema_pb2
from pymilvus.grpc_gen.milvus_pb2_grpc import MilvusServiceServicer, add_MilvusServiceServicer_to_server

from silohash.index import milvus
from silohash.index.milvus import ALL, MilvusIndex, connection_of


def test_urls_are_divided_and_secrets_leave_the_address() -> None:
    assert connection_of("http://host") == {"uri": "http://host:19530"}
    assert connection_of("unix:/tmp/socket") == {"uri": "unix:/tmp/socket"}
    assert connection_of("https://me:p%40ss@host:1/silos/") == {
        "uri": "https://host:1",
        "user": "me",
        "password": "p@ss",
        "db_name": "silos",
    }
    with pytest.raises(WrongAddress, match="http://HOST:19530/DATABASE") as caught:
        connection_of("http://me:secret@host:port")
    assert "secret" not in str(caught.value)


def test_a_server_that_does_not_answer_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(milvus, "CONNECT_SECONDS", 0.2)
    url = "http://me:s3cret@127.0.0.1:9"
    for use in (lambda: MilvusIndex(url, "x", 64), lambda: MilvusIndex.drop(url, "x")):
        with pytest.raises(ServerUnreachable, match="Milvus") as caught:
            use()
        assert "s3cret" not in str(caught.value)


class Silent(MilvusServiceServicer):
    """A server that holds a collection, and whose searches and changes are never answered."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def Connect(self, request: Any, context: Any) -> Any:  # noqa: N802
        return milvus_pb2.ConnectResponse()

    def DescribeCollection(self, request: Any, context: Any) -> Any:  # noqa: N802
        fields = [
            schema_pb2.FieldSchema(fieldID=100, name="key", is_primary_key=True, data_type=DataType.INT64),
            schema_pb2.FieldSchema(
                fieldID=101,
                name="code",
                data_type=DataType.BINARY_VECTOR,
                type_params=[common_pb2.KeyValuePair(key="dim", value="64")],
            ),
        ]
        schema = schema_pb2.CollectionSchema(name=request.collection_name, fields=fields)
        return milvus_pb2.DescribeCollectionResponse(schema=schema)

    def LoadCollection(self, request: Any, context: Any) -> Any:  # noqa: N802
        return common_pb2.Status()

    def GetLoadingProgress(self, request: Any, context: Any) -> Any:  # noqa: N802
        return milvus_pb2.GetLoadingProgressResponse(progress=100)

    def hang(self, request: Any, context: Any) -> Any:
        self.released.wait(60)

    Search = Query = Upsert = Delete = Flush = hang


@pytest.fixture
def silent_url() -> Iterator[str]:
    servicer = Silent()
    server = grpc.server(ThreadPoolExecutor(20))
    add_MilvusServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"http://127.0.0.1:{port}"
    servicer.released.set()
    server.stop(None).wait(60)


def test_a_server_that_hangs_frees_the_thread(silent_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    index = MilvusIndex(silent_url, "x", 64)
    monkeypatch.setattr(milvus, "SEARCH_SECONDS", 0.2)
    monkeypatch.setattr(milvus, "CHANGE_SECONDS", 0.2)
    words, key = np.zeros((1, 1), np.uint64), np.zeros(1, np.int64)
    for use in (
        lambda: index.search(words, 3),
        lambda: index.search_radius(words, 3),
        lambda: index.add(key, words),
        lambda: index.remove(key),
        lambda: len(index),
        index.finish,
    ):
        with pytest.raises(ServerUnreachable, match="Milvus"):
            use()
    monkeypatch.setattr(milvus, "SEARCH_SECONDS", 1e6)
    with time_limit(0.2), pytest.raises(ServerUnreachable, match="Milvus"):
        index.search(words, 3)
    with time_limit(0), pytest.raises(ServerUnreachable):
        index.search(words, 3)
    index.close()


class Counted(MilvusIndex):
    """An index whose counts come from a list of keys."""

    def __init__(self, keys: np.ndarray) -> None:
        self.items = keys
        self._known = None
        self.asked = 0

    def _count(self, part: tuple[int, int]) -> int:
        self.asked += 1
        return int(np.count_nonzero((self.items >= part[0]) & (self.items < part[1])))


@pytest.mark.parametrize("keys", [np.arange(1_000), np.arange(0, 10**9, 10**6), 2**61 + np.arange(700)])
def test_ranges_of_keys_hold_fewer_items_than_a_request_returns(
    keys: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(milvus, "MOST_ROWS", 100)
    index = Counted(keys)
    ranges = list(index._ranges(ALL, len(keys)))
    assert ranges[0][0] == 0
    assert ranges[-1][1] == ALL[1]
    assert all(first[1] == second[0] for first, second in pairwise(ranges))
    assert all(0 < index._count(part) < 100 for part in ranges)
    assert len(ranges) < 3 * len(keys) / 100 + 8
    assert list(index._ranges(ALL, 0)) == []
    assert list(index._ranges(ALL, 99)) == [ALL]


def test_few_requests_find_where_keys_begin() -> None:
    index = Counted(np.arange(20_000))
    assert len(list(index._ranges(ALL, 20_000))) <= 4
    assert index.asked < 12


class Canned(MilvusIndex):
    """An index whose server knows the distances of items 0, 1, ..., and counts requests."""

    def __init__(self, distances: list[int]) -> None:
        self.bits, self.exact, self._url = 16, True, ""
        self.distances = distances
        self.requests: list[tuple[int, int | None]] = []

    def _hits(self, queries: list[bytes], most: int, condition: str, radius_bits: int | None = None):
        self.requests.append((most, radius_bits))
        pairs = [pair for pair in enumerate(self.distances) if radius_bits is None or pair[1] <= radius_bits]
        return [sorted(pairs, key=lambda pair: (pair[1], -pair[0]))[:most]] * len(queries)


def test_one_request_is_enough_unless_it_ends_with_a_tie(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(milvus, "EXTRA_ROWS", 2)
    index = Canned([3, 1, 2, 1, 3, 3])
    query = np.zeros((1, 1), np.uint16)
    found = index.search(query, 3)
    assert (found.keys.tolist(), found.distances.tolist(), found.ties_at_cut.tolist()) == (
        [[1, 3, 2]],
        [[1, 1, 2]],
        [0],
    )
    assert index.requests == [(6, None)]
    index = Canned([3, 1, 2, 1, 3, 3, 3, 3, 3, 3, 3])
    found = index.search(query, 4)
    assert (found.keys.tolist(), found.ties_at_cut.tolist()) == ([[1, 3, 2, 0]], [7])
    assert index.requests == [(8, None), (4, None), (milvus.MOST_ROWS, 3)]
    assert Canned([]).search(query, 2).keys.tolist() == [[-1, -1]]
