"""A trie answers as a scan does, whatever codes it holds, however they came there, and whatever a search asks for."""

from __future__ import annotations

from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from silohash.index import trie
from silohash.index.codes import Words, from_bytes
from silohash.index.flat import FlatIndex
from silohash.index.trie import TrieIndex

BITS = (8, 13, 32, 64, 65, 128, 248, 256)
CHANGES = st.lists(st.tuples(st.sampled_from(["add", "replace", "remove"]), st.integers(1, 60)), max_size=4)


def codes(generator: np.random.Generator, count: int, bits: int, spread: float) -> Words:
    """Return codes around three centers. With a spread of 0.5 they are uniform, and with 0 only three of them differ."""
    centers = np.random.default_rng(bits).random((3, bits)) < 0.5
    values = centers[generator.integers(0, 3, count)] ^ (generator.random((count, bits)) < spread)
    return from_bytes(np.packbits(values, axis=1, bitorder="little"), bits)


@settings(max_examples=60, deadline=None)
@given(
    bits=st.sampled_from(BITS),
    spread=st.sampled_from([0.0, 0.01, 0.1, 0.5]),
    count=st.integers(1, 3_000),
    changes=CHANGES,
    k=st.sampled_from([1, 2, 10, 300, 4_000]),
    limit_bits=st.sampled_from([None, 0, 2, 9]),
    share=st.sampled_from([None, 0.0, 0.01, 0.5, 1.0]),
    by_mask=st.booleans(),
    budget=st.sampled_from([0.0, 0.1, 1e3]),
    seed=st.integers(0, 1_000),
)
def test_a_trie_equals_a_scan(
    bits: int,
    spread: float,
    count: int,
    changes: list[tuple[str, int]],
    k: int,
    limit_bits: int | None,
    share: float | None,
    by_mask: bool,
    budget: float,
    seed: int,
) -> None:
    generator = np.random.default_rng(seed)
    with (
        mock.patch.object(trie, "TRIE_ITEMS", 1),
        mock.patch.object(trie, "BUDGET_SHARE", budget),
        mock.patch.object(trie, "BATCH_BUDGET_SHARE", budget),
    ):
        index, scan = TrieIndex(bits), FlatIndex(bits)
        keys = generator.permutation(2 * count)[:count]
        steps = [("add", keys)]
        for kind, some in changes:
            steps.append((kind, 2 * count + len(steps) * 100 + np.arange(some) if kind == "add" else keys[:some]))
        for kind, chosen in steps:
            words = codes(generator, len(chosen), bits, spread)
            for each in (index, scan):
                each.remove(chosen) if kind == "remove" else each.add(chosen, words)
        assert (index.keys == scan.keys).all()
        assert (index.words(index.keys) == scan.words(scan.keys)).all()
        passing = None if share is None else generator.random(len(index)) < share
        allowed = passing if passing is None or by_mask else index.keys[passing]
        queries = codes(generator, 3, bits, spread)
        found, expected = (each.search(queries, k, allowed=allowed) for each in (index, scan))
        assert (found.keys == expected.keys).all()
        assert (found.distances == expected.distances).all()
        assert (found.ties_at_cut == expected.ties_at_cut).all()
        for query in queries:
            first, second = (
                each.search_with_ties(query[None], k, allowed=allowed, limit_bits=limit_bits) for each in (index, scan)
            )
            assert sorted(zip(*first, strict=True)) == sorted(zip(*second, strict=True))
        radius = bits // 8 if limit_bits is None else limit_bits
        inside = (each.search_radius(queries, radius, allowed=allowed) for each in (index, scan))
        for one, two in zip(*inside, strict=True):
            assert (one.keys == two.keys).all()
            assert (one.distances == two.distances).all()
