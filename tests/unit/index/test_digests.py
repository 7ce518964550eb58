"""Digests of items: fixed values, since silos of different versions must agree on them."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from silohash.index.digests import item_digests


def digest_of(silo: str, item: str) -> int:
    content = f"{len(silo)}:{silo}{item}".encode()
    return int.from_bytes(hashlib.blake2b(content, digest_size=8, person=b"silohash ties").digest(), "little")


def test_digests_are_those_of_plain_integers() -> None:
    found = item_digests(["north", "süd", "north"], ["1", "ä", "22"])
    assert found.tolist() == [digest_of("north", "1"), digest_of("süd", "ä"), digest_of("north", "22")]
    assert found.dtype == np.uint64
    assert item_digests(["a"], ["bc"]) != item_digests(["ab"], ["c"])
    assert item_digests([], []).shape == (0,)


def test_there_is_one_id_per_silo() -> None:
    with pytest.raises(ValueError, match="shorter"):
        item_digests(["a", "b"], ["c"])
