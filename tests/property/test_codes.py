import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from silohash.index.codes import check_words, from_bytes, pack, to_bytes, unpack
from silohash.index.flat import FlatIndex

tables = st.integers(8, 256).flatmap(
    lambda bits: arrays.arrays(
        np.float32, st.tuples(st.integers(1, 6), st.just(bits)), elements=st.floats(-2, 2, width=32)
    )
)


@settings(deadline=None)
@given(tables)
def test_packing_keeps_every_sign(values):
    words = pack(values)
    bits = values.shape[1]
    assert (unpack(words, bits) == np.where(values >= 0, 1, -1)).all()
    assert (pack(unpack(words, bits)) == check_words(words, bits)).all()
    assert (from_bytes(to_bytes(words, bits), bits) == words).all()


@settings(deadline=None)
@given(tables)
def test_hamming_distance_is_a_metric(values):
    words = pack(values)
    distance = np.bitwise_count(words[:, None] ^ words[None]).sum(axis=2, dtype=np.int64)
    signs = unpack(words, values.shape[1]).astype(np.int64)
    assert (distance == (values.shape[1] - signs @ signs.T) // 2).all()
    assert (distance == distance.T).all()
    assert (distance[:, :, None] + distance[None] >= distance[:, None, :]).all()


@given(st.data())
def test_index_equals_a_dictionary(data):
    """Whatever is added, replaced, removed and filtered: the answer is that of a plain loop."""
    bits = data.draw(st.sampled_from([8, 16, 24, 64, 72]))
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    index, expected = FlatIndex(bits), {}

    def codes(count):
        return pack(np.where(generator.random((count, bits)) < 0.25, -1, 1))

    for action in data.draw(st.lists(st.sampled_from(["add", "remove", "compact"]), min_size=1, max_size=6)):
        keys = np.unique(generator.integers(0, 60, 20))
        if action == "add":
            generator.shuffle(keys)
            words = codes(len(keys))
            index.add(keys, words)
            expected |= dict(zip(keys.tolist(), words, strict=True))
        elif action == "remove":
            assert index.remove(keys) == sum(expected.pop(key, None) is not None for key in keys.tolist())
        else:
            index.compact()
    assert index.keys.tolist() == sorted(expected)
    assert len(index) == len(expected)
    allowed = data.draw(st.sampled_from([None, "keys", "mask"]))
    mask = generator.random(len(expected)) < 0.5
    searched = sorted(expected) if allowed is None else index.keys[mask].tolist()
    choice = {None: None, "keys": index.keys[mask], "mask": mask}[allowed]
    query, k = codes(1), data.draw(st.integers(1, 70))
    ranked = sorted((int(np.bitwise_count(expected[key] ^ query[0]).sum()), key) for key in searched)
    found = index.search(query, k, allowed=choice)
    depth = min(k, len(ranked))
    assert list(zip(found.distances[0, :depth].tolist(), found.keys[0, :depth].tolist(), strict=True)) == ranked[:depth]
    assert (found.keys[0, depth:] == -1).all()
    ties = sum(distance == ranked[depth - 1][0] for distance, _ in ranked[depth:]) if depth else 0
    assert found.ties_at_cut.tolist() == [ties]
    radius = data.draw(st.integers(0, bits))
    (within,) = index.search_radius(query, radius, allowed=choice)
    near = [pair for pair in ranked if pair[0] <= radius]
    assert list(zip(within.distances[0].tolist(), within.keys[0].tolist(), strict=True)) == near
