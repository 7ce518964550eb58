"""A server for indexes in this process, for tests of what moves codes to a server and keeps them up to date."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from silohash.base.errors import UserError
from silohash.index.base import Keys
from silohash.index.codes import Words
from silohash.index.config import IndexConfig
from silohash.index.small import SmallIndex


class FakeIndex(SmallIndex):
    """An index of the fake server."""

    def __init__(self, bits: int) -> None:
        super().__init__(bits)
        self.finished = self.closed = 0
        self.added: list[list[int]] = []
        self.fail_after = 10**9

    def add(self, keys: Keys, words: Words) -> None:
        if self.fail_after <= 0:
            raise UserError("The fake server stopped.")
        self.fail_after -= 1
        self.added.append(keys.tolist())
        super().add(keys, words)

    def stored(self) -> Iterator[tuple[Keys, Words]]:
        half = len(self) // 2
        for part in (slice(0, half), slice(half, None)):
            yield self._keys[part], self._words[part]

    def remember(self, keys: Keys) -> None:
        assert keys.tolist() == self.keys.tolist()

    def finish(self) -> None:
        self.finished += 1

    def close(self) -> None:
        self.closed += 1


class FakeServer:
    """Collections by name; `up` says whether the server answers."""

    def __init__(self) -> None:
        self.collections: dict[str, FakeIndex] = {}
        self.up = True
        self.fail_after = 10**9

    def connect(self, config: IndexConfig, collection: str, bits: int, *, create: bool = False) -> FakeIndex:
        self._check()
        if collection not in self.collections:
            if not create:
                raise UserError(f"There is no collection {collection}.")
            self.collections[collection] = FakeIndex(bits)
        index = self.collections[collection]
        index.fail_after = self.fail_after
        return index

    def drop(self, config: IndexConfig, collection: str) -> None:
        self._check()
        self.collections.pop(collection, None)

    def only(self) -> FakeIndex:
        [index] = self.collections.values()
        return index

    def _check(self) -> None:
        if not self.up:
            raise UserError("The fake server does not answer.")


def keys_of(index: FakeIndex) -> list[int]:
    return np.sort(index.keys).tolist()
