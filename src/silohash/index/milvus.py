"""An index in a Milvus server, with binary vectors and the Hamming distance.

Milvus returns at most `MOST_ROWS` items per request, and cuts ties arbitrarily. A search therefore requests some items more
than k. If these end within the ties at the cut, it requests all items within that distance, in ranges of keys that are
halved until an answer is complete. Without an approximate index, the results equal those of `FlatIndex`. Codes are padded
with zeros to whole bytes.
"""

import time
from collections.abc import Iterator
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit, urlunsplit

import grpc
import numpy as np
from pymilvus import DataType, MilvusClient, MilvusException

from silohash.base.errors import CopyMissing, WrongAddress
from silohash.index.base import Answer, Distances, Keys, cut, ordered_pairs
from silohash.index.codes import CodeBytes, byte_count
from silohash.index.server import CHANGE_SECONDS, EXTRA_ROWS, SEARCH_SECONDS, ServerIndex, seconds_left

MOST_ROWS = 16_384
"""Largest number of items per request that Milvus allows."""

ADDED_ROWS = 10_000
LISTS = 1024
"""Number of lists of an approximate index."""
PROBES = 64
"""Number of lists that an approximate search reads."""

FRESH_SECONDS = 10.0
"""For so long after a change, each search waits until the server has applied it. Later searches need not wait."""

CONNECT_SECONDS = 5.0

Range = tuple[int, int]
ALL: Range = (0, 2**62)
"""The range of all keys."""


class MilvusIndex(ServerIndex):
    """Search codes in a collection of a Milvus server, such as ``https://user:password@host:19530/database``.

    An approximate index is of the type IVF.
    """

    service: ClassVar[str] = "Milvus"
    errors: ClassVar[tuple[type[Exception], ...]] = (MilvusException, grpc.RpcError)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    @classmethod
    def _drop(cls, url: str, collection: str) -> None:
        client = _client(url)
        try:
            client.drop_collection(collection, timeout=CHANGE_SECONDS)
        finally:
            client.close()

    def _open(self, *, create: bool) -> None:
        self._changed = time.monotonic()
        self._client = _client(self._url)
        if not self._client.has_collection(self._name, timeout=CONNECT_SECONDS):
            if not create:
                self._client.close()
                raise CopyMissing(
                    f'The Milvus server does not hold the collection "{self._name}". Run silohash index move again.'
                )
            self._create()
        self._client.load_collection(self._name, timeout=CHANGE_SECONDS)

    def _add(self, keys: Keys, packed: CodeBytes) -> None:
        for start in range(0, len(keys), ADDED_ROWS):
            part = slice(start, start + ADDED_ROWS)
            rows = zip(keys[part].tolist(), packed[part], strict=True)
            data = [{"key": key, "code": code.tobytes()} for key, code in rows]
            self._client.upsert(self._name, data, timeout=CHANGE_SECONDS)
        self._changed = time.monotonic()

    def _remove(self, keys: Keys) -> int:
        removed = 0
        for start in range(0, len(keys), ADDED_ROWS):
            there, _ = self._rows(f"key in {keys[start : start + ADDED_ROWS].tolist()}", ["key"])
            if len(there):
                self._client.delete(self._name, filter=f"key in {there.tolist()}", timeout=CHANGE_SECONDS)
                removed += len(there)
        self._changed = time.monotonic()
        return removed

    def _nearest(self, queries: CodeBytes, k: int, chosen: Keys | None) -> list[Answer]:
        codes, conditions = _encoded(queries), _conditions(chosen)
        found = self._first(codes, k) if conditions is None else [None] * len(codes)
        rest = [query for query, hits in zip(codes, found, strict=True) if hits is None]
        cuts = iter(self._cuts(rest, k, conditions) if rest else ())
        answers = [
            self._near(query, next(cuts), conditions) if hits is None else ordered_pairs(hits)
            for query, hits in zip(codes, found, strict=True)
        ]
        return [cut(keys, distances, k) for keys, distances in answers]

    def _within(self, queries: CodeBytes, radius_bits: int, chosen: Keys | None) -> list[tuple[Keys, Distances]]:
        conditions = _conditions(chosen)
        return [self._near(query, radius_bits, conditions) for query in _encoded(queries)]

    def _codes(self) -> Iterator[tuple[Keys, CodeBytes]]:
        for part in self._ranges(ALL, self._count()):
            keys, codes = self._rows(_condition(part), ["key", "code"])
            yield keys, np.frombuffer(b"".join(codes), np.uint8).reshape(len(keys), byte_count(self.bits))

    def _finish(self) -> None:
        """Let the server write what was added, and build its index."""
        self._client.flush(self._name, timeout=CHANGE_SECONDS)

    def _create(self) -> None:
        schema = MilvusClient.create_schema(auto_id=False)
        schema.add_field("key", DataType.INT64, is_primary=True)
        schema.add_field("code", DataType.BINARY_VECTOR, dim=8 * byte_count(self.bits))
        index = MilvusClient.prepare_index_params()
        kind = {"index_type": "BIN_FLAT"} if self.exact else {"index_type": "BIN_IVF_FLAT", "params": {"nlist": LISTS}}
        index.add_index("code", metric_type="HAMMING", **kind)
        self._client.create_collection(
            self._name, schema=schema, index_params=index, consistency_level="Bounded", timeout=CHANGE_SECONDS
        )

    @property
    def _consistency(self) -> str:
        """How current the data of a search must be: all changes for a while after a change, and later at most 5 s old."""
        return "Strong" if time.monotonic() < self._changed + FRESH_SECONDS else "Bounded"

    def _first(self, queries: list[bytes], k: int) -> list[list[tuple[int, int]] | None]:
        """Return the first (key, distance) pairs of each query with all ties at the cut; None if there may be more."""
        most = k + max(k, EXTRA_ROWS)
        if most > MOST_ROWS:
            return [None] * len(queries)
        found = self._hits(queries, most, "")
        return [None if len(hits) == most and hits[-1][1] == hits[k - 1][1] else hits for hits in found]

    def _cuts(self, queries: list[bytes], k: int, chosen: list[str] | None) -> list[int]:
        """Return the distance of the k-th item of each query, or of the last item if there are fewer."""
        found: list[list[int]] = [[] for _ in queries]
        for condition in [""] if chosen is None else chosen:
            for row, hits in enumerate(self._hits(queries, min(k, MOST_ROWS), condition)):
                found[row] += [distance for _, distance in hits]
        if k > MOST_ROWS and chosen is None:
            return [self._far_cut(query, k, distances) for query, distances in zip(queries, found, strict=True)]
        return [sorted(distances)[:k][-1] if distances else 0 for distances in found]

    def _far_cut(self, query: bytes, k: int, distances: list[int]) -> int:
        """Return the distance of the k-th item for k above `MOST_ROWS`, by widening the radius bit by bit."""
        radius_bits = max(distances, default=8 * byte_count(self.bits))
        while radius_bits < self.bits and len(self._near(query, radius_bits, None)[0]) < k:
            radius_bits += 1
        return radius_bits

    def _near(self, query: bytes, radius_bits: int, chosen: list[str] | None) -> tuple[Keys, Distances]:
        """Return the keys and distances of all items within a radius, ordered by (distance, key)."""
        hits: list[tuple[int, int]] = []
        if chosen is None:
            self._collect(query, radius_bits, ALL, hits)
        for condition in chosen or ():
            hits += self._hits([query], MOST_ROWS, condition, radius_bits)[0]
        return ordered_pairs(hits)

    def _collect(self, query: bytes, radius_bits: int, part: Range, hits: list[tuple[int, int]]) -> None:
        """Add all items within a radius, out of a range of keys. A range with too many items is divided."""
        whole = part == ALL
        [found] = self._hits([query], MOST_ROWS, "" if whole else _condition(part), radius_bits)
        if len(found) < MOST_ROWS:
            hits += found
            return
        middle, _ = self._divided(part, self._count(part))
        for half in ((part[0], middle), (middle, part[1])):
            self._collect(query, radius_bits, half, hits)

    def _hits(
        self, queries: list[bytes], most: int, condition: str, radius_bits: int | None = None
    ) -> list[list[tuple[int, int]]]:
        """Return the (key, distance) pairs that one request finds for each query."""
        settings: dict[str, Any] = {} if self.exact else {"nprobe": PROBES}
        if radius_bits is not None:
            # Milvus leaves out the items at the radius itself.
            settings["radius"] = radius_bits + 1
        answer = self._client.search(
            self._name,
            data=queries,
            limit=most,
            filter=condition,
            search_params={"metric_type": "HAMMING", "params": settings},
            consistency_level=self._consistency,
            timeout=seconds_left(SEARCH_SECONDS),
        )
        return [
            # pymilvus returns the key under the name of its field if the server states that name, and otherwise as "id".
            [(int(hit["id"] if "id" in hit else hit["key"]), int(hit["distance"])) for hit in hits]
            for hits in answer
        ]

    def _count(self, part: Range = ALL) -> int:
        condition = "" if part == ALL else _condition(part)
        [row] = self._query(condition, ["count(*)"], timeout=seconds_left(CHANGE_SECONDS))
        return int(row["count(*)"])

    def _query(self, condition: str, fields: list[str], **limits: float) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._client.query(
            self._name, filter=condition, output_fields=fields, consistency_level=self._consistency, **limits
        )
        return found

    def _ranges(self, part: Range, count: int) -> Iterator[Range]:
        """Divide a range of keys with ``count`` items into ranges with fewer than `MOST_ROWS` items, in ascending order."""
        if count < MOST_ROWS:
            yield from [part] * bool(count)
            return
        middle, before = self._divided(part, count)
        yield from self._ranges((part[0], middle), before)
        yield from self._ranges((middle, part[1]), count - before)

    def _divided(self, part: Range, count: int) -> tuple[int, int]:
        """Return a key that divides the items of a range, with items on either side, and the number of items below it."""
        low, high = part
        while True:
            # Keys are counted from 0, so a range that ends at the highest possible key is mostly empty.
            wide = high > 4 * max(low, 1)
            middle = 1 << (low.bit_length() + high.bit_length()) // 2 if wide else (low + high) // 2
            before = self._count((part[0], middle))
            if 0 < before < count:
                return middle, before
            low, high = (low, middle) if before else (middle, high)

    def _rows(self, condition: str, fields: list[str]) -> tuple[Keys, list[bytes]]:
        """Return the keys of the items that meet a condition, in ascending order, and their codes if they are requested."""
        rows = self._query(condition, fields, limit=MOST_ROWS, timeout=CHANGE_SECONDS)
        by_key = sorted(rows, key=lambda row: int(row["key"]))
        keys = np.array([row["key"] for row in by_key], np.int64)
        # Some versions return a list of one bytes object.
        codes = [row["code"] for row in by_key] if "code" in fields else []
        return keys, [bytes(code[0] if isinstance(code, list) else code) for code in codes]


def _client(url: str) -> MilvusClient:
    return MilvusClient(timeout=CONNECT_SECONDS, **connection_of(url))


def connection_of(url: str) -> dict[str, str]:
    """Return the parts of a URL that the client takes.

    Raises:
        UserError: If the URL cannot be read.

    Example:
        >>> connection_of("https://me:geheim@host:19530/silos")
        {'uri': 'https://host:19530', 'user': 'me', 'password': 'geheim', 'db_name': 'silos'}
    """
    if url.startswith("unix:"):
        return {"uri": url}
    try:
        parts = urlsplit(url)
        place = f"{parts.hostname}:{parts.port or 19530}"
    except ValueError:
        raise WrongAddress(
            "The URL of the Milvus server cannot be read. Its form is http://HOST:19530/DATABASE."
        ) from None
    found = {
        "uri": urlunsplit((parts.scheme, place, "", "", "")),
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "db_name": parts.path.strip("/"),
    }
    return {name: value for name, value in found.items() if value}


def _condition(part: Range) -> str:
    """Return the expression for a range of keys."""
    return f"key >= {part[0]} and key < {part[1]}"


def _conditions(chosen: Keys | None) -> list[str] | None:
    """Return a filter as expressions, each for at most `MOST_ROWS` keys; None for no filter."""
    if chosen is None:
        return None
    return [f"key in {chosen[start : start + MOST_ROWS].tolist()}" for start in range(0, len(chosen), MOST_ROWS)]


def _encoded(queries: CodeBytes) -> list[bytes]:
    return [row.tobytes() for row in queries]
