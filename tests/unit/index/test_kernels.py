"""The compiled scan against explicit loops over bytes."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.index import kernels
from silohash.index.kernels import ALIGNED_BYTES, BLOCK_CODES, aligned_empty, measure_all, nearest, nearest_with_ties


def blocks_of(codes):
    """Return codes ``(n, bytes)`` as blocks; the padding equals the query 0, so that only its place tells it apart."""
    count, width = codes.shape
    blocks = np.zeros((-(-count // BLOCK_CODES), width, BLOCK_CODES), np.uint8)
    for slot, code in enumerate(codes):
        blocks[slot // BLOCK_CODES, :, slot % BLOCK_CODES] = code
    return blocks


def distance(first, second):
    """Return the Hamming distance of two codes, byte by byte."""
    return sum((int(a) ^ int(b)).bit_count() for a, b in zip(first, second, strict=True))


def scratch(width):
    return np.empty(BLOCK_CODES, np.uint16 if 8 * width > 255 else np.uint8)


@pytest.mark.parametrize("width", [1, 3, 4, 5, 8, 13, 32])
@pytest.mark.parametrize("dead", [False, True])
def test_nearest_equals_sorting_all_distances(width, dead):
    generator = np.random.default_rng(width)
    codes = generator.integers(0, 256, (BLOCK_CODES + 60, width), dtype=np.uint8)
    queries = np.concatenate(
        [np.zeros((1, width), np.uint8), codes[-1:], generator.integers(0, 256, (3, width), np.uint8)]
    )
    alive = None
    if dead:
        alive = (generator.random(len(codes)) < 0.5).astype(np.uint8)
    k = 9
    slots, distances, left_out = nearest(blocks_of(codes), len(codes), queries, k, alive, scratch(width))
    for q, query in enumerate(queries):
        live = [slot for slot in range(len(codes)) if alive is None or alive[slot]]
        expected = sorted((distance(codes[slot], query), slot) for slot in live)
        assert list(zip(distances[q].tolist(), slots[q].tolist(), strict=True)) == expected[:k]
        assert left_out[q] == sum(d == expected[k - 1][0] for d, _ in expected[k:])


def test_fewer_live_codes_than_requested():
    codes = np.array([[0], [1], [3]], np.uint8)
    alive = np.array([1, 0, 1], np.uint8)
    slots, distances, left_out = nearest(blocks_of(codes), 3, np.zeros((1, 1), np.uint8), 3, alive, scratch(1))
    assert slots.tolist() == [[0, 2, -1]]
    assert distances.tolist() == [[0, 2, -1]]
    assert left_out.tolist() == [0]


def test_the_store_of_candidates_overflows_without_loss():
    """Distances fall from slot to slot, so that every code is nearer than the cut when it is seen."""
    codes = np.array([[(1 << distance) - 1] for distance in range(8, -1, -1) for _ in range(50)], np.uint8)
    slots, distances, left_out = nearest(blocks_of(codes), len(codes), np.zeros((1, 1), np.uint8), 3, None, scratch(1))
    assert distances.tolist() == [[0, 0, 0]]
    assert slots.tolist() == [[400, 401, 402]]
    assert left_out.tolist() == [47]


@pytest.mark.parametrize("width", [1, 4, 7, 32])
def test_all_distances(width):
    codes = np.random.default_rng(0).integers(0, 256, (40, width), dtype=np.uint8)
    query = codes[3].copy()
    out = np.empty((1, BLOCK_CODES), scratch(width).dtype)
    measure_all(blocks_of(codes), query, out)
    assert out[0, :40].tolist() == [distance(code, query) for code in codes]


def test_a_block_is_a_whole_number_of_groups():
    assert BLOCK_CODES % (8 * kernels.GROUP_WORDS) == 0


@pytest.mark.parametrize("width", [1, 3, 8, 32])
@pytest.mark.parametrize("k", [1, 9, 400])
@pytest.mark.parametrize("dead", [False, True])
def test_nearest_with_ties_are_all_codes_up_to_the_kth_distance(width, k, dead):
    generator = np.random.default_rng([width, k])
    codes = generator.integers(0, 256, (2 * BLOCK_CODES + 60, width), dtype=np.uint8)
    alive = (generator.random(len(codes)) < 0.5).astype(np.uint8) if dead else None
    for query in (np.zeros(width, np.uint8), codes[-1]):
        live = [slot for slot in range(len(codes)) if alive is None or alive[slot]]
        plain = {slot: distance(codes[slot], query) for slot in live}
        cut = sorted(plain.values())[k - 1]
        slots, distances = nearest_with_ties(
            blocks_of(codes), len(codes), query[None], k, alive, scratch(width), 8 * width
        )
        expected = [(slot, plain[slot]) for slot in live if plain[slot] <= cut]
        assert list(zip(slots.tolist(), distances.tolist(), strict=True)) == expected


@pytest.mark.parametrize("more", [0, BLOCK_CODES])
def test_codes_beyond_the_cache_are_found_as_those_within_it(more):
    count = kernels.CACHED_BYTES // 16 + more
    codes = np.random.default_rng(more).integers(0, 256, (count, 16), dtype=np.uint8)
    blocks = np.ascontiguousarray(codes.reshape(-1, BLOCK_CODES, 16).transpose(0, 2, 1))
    assert (blocks.size > kernels.CACHED_BYTES) is bool(more)
    plain = np.bitwise_count(codes ^ codes[7]).sum(axis=1)
    slots, distances = nearest_with_ties(blocks, count, codes[7:8], 50, None, scratch(16), 128)
    expected = np.flatnonzero(plain <= np.sort(plain)[49])
    assert slots.tolist() == expected.tolist()
    assert distances.tolist() == plain[expected].tolist()


def test_nearest_with_ties_of_fewer_live_codes_than_requested():
    codes = np.array([[0], [1], [255]], np.uint8)
    alive = np.array([1, 0, 1], np.uint8)
    slots, distances = nearest_with_ties(blocks_of(codes), 3, np.zeros((1, 1), np.uint8), 3, alive, scratch(1), 8)
    assert (slots.tolist(), distances.tolist()) == ([0, 2], [0, 8])


@pytest.mark.parametrize("shape", [(0, 8, BLOCK_CODES), (3, 5, 7), (BLOCK_CODES,)])
@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_arrays_begin_at_a_cache_line(shape: tuple[int, ...], kind: type[np.unsignedinteger]) -> None:
    arrays = [aligned_empty(shape, kind) for _ in range(5)]
    assert {(array.shape, array.dtype) for array in arrays} == {(shape, np.dtype(kind))}
    assert all(array.ctypes.data % ALIGNED_BYTES == 0 for array in arrays if array.size)
    for value, array in enumerate(arrays):
        array[:] = value
    assert all((array == value).all() for value, array in enumerate(arrays))
