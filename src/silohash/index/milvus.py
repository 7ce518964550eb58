"""An index in a Milvus server, with binary vectors and the Hamming distance.

Milvus returns at most `MOST_ROWS` items per request, and cuts ties arbitrarily. A search therefore requests some items more
than k. If these end within the ties at the cut, it requests all items within that distance, in ranges of keys that are
halved until an answer is complete. Without an approximate index, the results equal those of `FlatIndex`. Codes are padded
with zeros to whole bytes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import grpc
import numpy as np
import numpy.typing as npt
from pymilvus import DataType, MilvusClient, MilvusException

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
from silohash.index.codes import Words, byte_count, from_bytes, to_bytes, word_type
from silohash.index.engines import explaining_server_errors, seconds_left, time_limit

MOST_ROWS = 16_384
"""Largest number of items per request that Milvus allows."""

EXTRA_ROWS = 256
"""Number of items that are requested beyond k, so that most queries see all ties at the cut in one request."""

ADDED_ROWS = 10_000
HIGHEST_KEY = 2**62
LISTS = 1024
"""Number of lists of an approximate index."""
PROBES = 64
"""Number of lists that an approximate search reads."""

FRESH_SECONDS = 10.0
"""For so long after a change, each search waits until the server has applied it. Later searches need not wait."""

CONNECT_SECONDS = 5.0

SEARCH_SECONDS = 30.0
"""Longest time that a search waits for the server. It is less if less is left of the time limit of its request."""

CHANGE_SECONDS = 600.0
"""Longest time of any other request, such as adding a part of the codes."""

ERRORS = (MilvusException, grpc.RpcError)

Range = tuple[int, int]
Distances = npt.NDArray[np.int32]


class MilvusIndex:
    """Search codes in a collection of a Milvus server."""

    def __init__(
        self, url: str, collection: str, bits: int, *, approximate: bool = False, create: bool = False
    ) -> None:
        """Open a collection.

        Args:
            url: URL of the server, such as ``https://user:password@host:19530/database``.
            collection: Name of the collection.
            bits: Code length.
            approximate: Whether the server builds an IVF index, which makes searches faster and inexact.
            create: Create the collection if it does not exist.

        Raises:
            UserError: If the server cannot be reached, or does not have the collection.
        """
        word_type(bits)
        self.bits = bits
        self.exact = not approximate
        self._url = url
        self._name = collection
        self._changed = time.monotonic()
        self._known: Keys | None = None
        with self._explained():
            self._client = _client(url)
            if not self._client.has_collection(collection, timeout=CONNECT_SECONDS):
                if not create:
                    self._client.close()
                    raise UserError(
                        f'The Milvus server does not hold the collection "{collection}". Run silohash index move again.'
                    )
                self._create()
            self._client.load_collection(collection, timeout=CHANGE_SECONDS)

    def __len__(self) -> int:
        return self._count((0, HIGHEST_KEY)) if self._known is None else len(self._known)

    @property
    def keys(self) -> Keys:
        """Live keys, in ascending order, read from the server unless they are known (see `remember`)."""
        if self._known is not None:
            return self._known
        with self._explained():
            parts = [self._rows(part, ["key"])[0] for part in self._ranges((0, HIGHEST_KEY), len(self))]
        return np.concatenate([np.empty(0, np.int64), *parts])

    def add(self, keys: Keys, words: Words) -> None:
        """Add codes under keys. An existing key gets the new code."""
        packed = to_bytes(words, self.bits)
        given, self._known = check_keys(keys, len(packed)), None
        with self._explained():
            for start in range(0, len(given), ADDED_ROWS):
                part = slice(start, start + ADDED_ROWS)
                rows = zip(given[part].tolist(), packed[part], strict=True)
                data = [{"key": key, "code": code.tobytes()} for key, code in rows]
                self._client.upsert(self._name, data, timeout=CHANGE_SECONDS)
        self._changed = time.monotonic()

    def remove(self, keys: Keys) -> int:
        """Remove keys, and return how many of them existed."""
        given, removed, self._known = distinct(np.asarray(keys, np.int64)), 0, None
        with self._explained():
            for start in range(0, len(given), ADDED_ROWS):
                there, _ = self._rows(None, ["key"], f"key in {given[start : start + ADDED_ROWS].tolist()}")
                if len(there):
                    self._client.delete(self._name, filter=f"key in {there.tolist()}", timeout=CHANGE_SECONDS)
                    removed += len(there)
        self._changed = time.monotonic()
        return removed

    def search(self, words: Words, k: int, *, allowed: Allowed | None = None) -> Neighbors:
        """Return the k nearest items of each query, ordered by (distance, key). See `FlatIndex.search`.

        If the index is approximate, ``ties_at_cut`` counts only the ties that the server has found.
        """
        check_k(k)
        queries = self._queries(words)
        if not queries:
            return merged_answers([], k)
        with self._explained(), time_limit(seconds_left(SEARCH_SECONDS)):
            chosen = self._chosen(allowed)
            found = self._first(queries, k) if chosen is None else [None] * len(queries)
            rest = [query for query, hits in zip(queries, found, strict=True) if hits is None]
            cuts = iter(self._cuts(rest, k, chosen) if rest else ())
            answers = [
                self._within(query, next(cuts), chosen) if hits is None else _ordered(hits)
                for query, hits in zip(queries, found, strict=True)
            ]
        return merged_answers([_cut(keys, distances, k) for keys, distances in answers], k)

    def search_radius(self, words: Words, radius_bits: int, *, allowed: Allowed | None = None) -> list[Neighbors]:
        """Return all items within a distance of each query. See `FlatIndex.search_radius`."""
        check_radius(radius_bits)
        with self._explained(), time_limit(seconds_left(SEARCH_SECONDS)):
            chosen = self._chosen(allowed)
            found = [self._within(query, radius_bits, chosen) for query in self._queries(words)]
        return [Neighbors(keys[None], distances[None], np.zeros(1, np.int64)) for keys, distances in found]

    def stored(self) -> Iterator[tuple[Keys, Words]]:
        """Yield the stored keys in ascending order with their codes."""
        with self._explained():
            for part in self._ranges((0, HIGHEST_KEY), len(self)):
                keys, codes = self._rows(part, ["key", "code"])
                packed = np.frombuffer(b"".join(codes), np.uint8).reshape(len(keys), byte_count(self.bits))
                yield keys, from_bytes(packed, self.bits)

    def remember(self, keys: Keys) -> None:
        """Take note of the live keys, in ascending order, so that they are not read from the server until a change."""
        self._known = keys

    def finish(self) -> None:
        """Let the server write what was added, and build its index."""
        with self._explained():
            self._client.flush(self._name, timeout=CHANGE_SECONDS)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _explained(self) -> Any:  # noqa: ANN401  a context manager
        return explaining_server_errors("Milvus", self._url, *ERRORS)

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

    def _queries(self, words: Words) -> list[bytes]:
        return [row.tobytes() for row in to_bytes(words, self.bits)]

    def _chosen(self, allowed: Allowed | None) -> list[str] | None:
        """Return a filter as expressions, each for at most `MOST_ROWS` keys; None for no filter."""
        keys = None if allowed is None else chosen_keys(allowed, self)
        if keys is None:
            return None
        parts = [keys[start : start + MOST_ROWS].tolist() for start in range(0, len(keys), MOST_ROWS)]
        return [f"key in {part}" for part in parts]

    def _first(self, queries: list[bytes], k: int) -> list[list[tuple[int, int]] | None]:
        """Return the first (key, distance) pairs of each query with all ties at the cut, or None if there may be more ties.

        For most queries, one request with a few items more than k is enough.
        """
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
        while radius_bits < self.bits and len(self._within(query, radius_bits, None)[0]) < k:
            radius_bits += 1
        return radius_bits

    def _within(self, query: bytes, radius_bits: int, chosen: list[str] | None) -> tuple[Keys, Distances]:
        """Return the keys and distances of all items within a radius, ordered by (distance, key)."""
        hits: list[tuple[int, int]] = []
        if chosen is None:
            self._collect(query, radius_bits, (0, HIGHEST_KEY), hits)
        for condition in chosen or ():
            hits += self._hits([query], MOST_ROWS, condition, radius_bits)[0]
        return _ordered(hits)

    def _collect(self, query: bytes, radius_bits: int, part: Range, hits: list[tuple[int, int]]) -> None:
        """Add all items within a radius, out of a range of keys. A range with too many items is divided."""
        whole = part == (0, HIGHEST_KEY)
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
            settings["radius"] = radius_bits + 1  # Milvus excludes the radius itself
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
            [(int(hit["id"] if "id" in hit else hit["key"]), int(hit["distance"])) for hit in hits] for hits in answer
        ]

    def _count(self, part: Range) -> int:
        condition = "" if part == (0, HIGHEST_KEY) else _condition(part)
        with self._explained():
            [row] = self._client.query(
                self._name,
                filter=condition,
                output_fields=["count(*)"],
                consistency_level=self._consistency,
                timeout=seconds_left(CHANGE_SECONDS),
            )
        return int(row["count(*)"])

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
            middle = _middle(low, high)
            before = self._count((part[0], middle))
            if 0 < before < count:
                return middle, before
            low, high = (low, middle) if before else (middle, high)

    def _rows(self, part: Range | None, fields: list[str], condition: str = "") -> tuple[Keys, list[bytes]]:
        """Return the keys of a range, or of a condition, in ascending order, and their codes if they are requested."""
        rows = self._client.query(
            self._name,
            filter=condition if part is None else _condition(part),
            output_fields=fields,
            limit=MOST_ROWS,
            consistency_level=self._consistency,
            timeout=CHANGE_SECONDS,
        )
        ordered = sorted(rows, key=lambda row: int(row["key"]))
        keys = np.array([row["key"] for row in ordered], np.int64)
        return keys, [_code_of(row["code"]) for row in ordered] if "code" in fields else []


def drop_collection(url: str, collection: str) -> None:
    """Remove a collection from a server if it exists.

    Raises:
        UserError: If the server cannot be reached.
    """
    with explaining_server_errors("Milvus", url, *ERRORS):
        client = _client(url)
        try:
            client.drop_collection(collection, timeout=CHANGE_SECONDS)
        finally:
            client.close()


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
        raise UserError(
            "The URL of the Milvus server cannot be read. Its form is http://HOST:19530/DATABASE."
        ) from None
    found = {
        "uri": urlunsplit((parts.scheme, place, "", "", "")),
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "db_name": parts.path.strip("/"),
    }
    return {name: value for name, value in found.items() if value}


def _middle(low: int, high: int) -> int:
    """Return a key between two others: halfway between their numbers of digits if these differ much, else halfway.

    Keys are counted from 0, so a range that ends at the highest possible key is mostly empty.
    """
    if high > 4 * max(low, 1):
        return 1 << (low.bit_length() + high.bit_length()) // 2
    return (low + high) // 2


def _condition(part: Range) -> str:
    """Return the expression for a range of keys."""
    return f"key >= {part[0]} and key < {part[1]}"


def _ordered(hits: list[tuple[int, int]]) -> tuple[Keys, Distances]:
    """Return the keys and distances of some items, ordered by (distance, key)."""
    table = np.array(hits, np.int64).reshape(-1, 2)
    order = np.lexsort((table[:, 0], table[:, 1]))
    return table[order, 0], table[order, 1].astype(np.int32)


def _cut(keys: Keys, distances: Distances, k: int) -> tuple[Keys, Distances, int]:
    """Return the first k of some ordered items, and the number of further items at the last of these distances."""
    left_out = int(np.count_nonzero(distances[k:] == distances[k - 1])) if len(keys) > k else 0
    return keys[:k], distances[:k], left_out


def _code_of(value: Any) -> bytes:  # noqa: ANN401  bytes, or a list of one bytes object in some versions
    return bytes(value[0] if isinstance(value, list) else value)
