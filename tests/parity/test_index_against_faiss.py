import numpy as np
import pytest

from silohash.index.codes import pack, to_bytes
from silohash.index.flat import FlatIndex

faiss = pytest.importorskip("faiss")

from silohash.index.faiss import FaissIndex  # noqa: E402  needs faiss


def clustered(count, bits, seed):
    generator = np.random.default_rng(seed)
    centers = np.where(np.random.default_rng(9).random((12, bits)) < 0.5, -1, 1)
    return centers[generator.integers(0, 12, count)] * np.where(generator.random((count, bits)) < 0.08, -1, 1)


@pytest.mark.parametrize("bits", [16, 24, 32, 48, 64, 128, 256])
@pytest.mark.parametrize("k", [1, 50, 4000])
def test_equals_our_index(bits, k):
    keys = np.random.default_rng(1).permutation(9000)[:3000]
    words, queries = pack(clustered(3000, bits, 2)), pack(clustered(8, bits, 3))
    ours, theirs = FlatIndex(bits), FaissIndex(bits)
    for index in (ours, theirs):
        index.add(keys, words)
        index.remove(keys[:50])
        index.add(keys[40:60], words[:20])
    assert (ours.keys == theirs.keys).all()
    for allowed in (None, keys[100:1500]):
        one, other = ours.search(queries, k, allowed=allowed), theirs.search(queries, k, allowed=allowed)
        assert (one.keys == other.keys).all()
        assert (one.distances == other.distances).all()
        assert (one.ties_at_cut == other.ties_at_cut).all()
        for near, far in zip(
            ours.search_radius(queries, 5, allowed=allowed),
            theirs.search_radius(queries, 5, allowed=allowed),
            strict=True,
        ):
            assert (near.keys == far.keys).all()
            assert (near.distances == far.distances).all()


@pytest.mark.parametrize("bits", [64, 128])
def test_distances_equal_faiss_itself(bits):
    words, queries = pack(clustered(5000, bits, 4)), pack(clustered(20, bits, 5))
    oracle = faiss.IndexBinaryFlat(bits)
    oracle.add(np.ascontiguousarray(to_bytes(words, bits)))
    index = FlatIndex(bits)
    index.add(np.arange(5000), words)
    distances, _ = oracle.search(np.ascontiguousarray(to_bytes(queries, bits)), 100)
    assert (index.search(queries, 100).distances == distances).all()


def test_empty():
    index = FaissIndex(32)
    query = pack(np.ones((1, 32)))
    assert index.search(query, 2).keys.tolist() == [[-1, -1]]
    assert index.search_radius(query, 3)[0].keys.shape == (1, 0)
    assert index.remove(np.array([3])) == 0
