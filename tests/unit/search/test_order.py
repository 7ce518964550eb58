"""The order among equals: fixed values, since silos of different versions must agree on it."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from silohash.index.codes import pack, unpack
from silohash.index.digests import PERSON
from silohash.search.order import (
    ALL_WORDS,
    BY_CODE,
    COSINE_STEPS,
    EXACT,
    FEW_PLACES,
    expected_sums,
    first_places,
    keyed_order,
    magnitude_sums,
    matched_words,
    output_cosines,
    packed_places,
    place_in_tier,
    possible_first,
    question_key,
    tie_order,
    tier_of,
    window_of,
)

MASK = (1 << 64) - 1


def mixed(digest, key):
    """Return the sort value of one digest, in plain integers."""
    halves = hashlib.blake2b(key, digest_size=16, person=b"silohash ties").digest()
    for half in (halves[:8], halves[8:]):
        digest ^= int.from_bytes(half, "little")
        for factor in (0xBEA225F9EB34556D, 0x9E3779B97F4A7C15):
            digest = (digest ^ (digest >> 32)) * factor & MASK
        digest ^= digest >> 32
    return digest


def digest_of(silo, item):
    content = f"{len(silo)}:{silo}{item}".encode()
    return int.from_bytes(hashlib.blake2b(content, digest_size=8, person=b"silohash ties").digest(), "little")


@pytest.mark.parametrize("key", [b"", b"key", b"another key"])
def test_the_keyed_order_is_that_of_plain_integers(key):
    digests = np.array([0, 1, MASK, 1234567890123456789], np.uint64)
    before = digests.copy()
    assert keyed_order(digests, key).tolist() == [mixed(int(digest), key) for digest in digests]
    assert (digests == before).all()
    assert tie_order(["north"], ["1"], key).tolist() == [mixed(digest_of("north", "1"), key)]


def test_the_key_of_a_query_depends_on_secret_and_codes():
    words = [np.array([1, 2], np.uint64)]
    key = question_key(b"secret", words)
    assert len(key) == 16
    assert key == question_key(b"secret", [np.array([1], np.uint64), np.array([2], np.uint64)])
    assert key != question_key(b"other", words)
    assert key != question_key(b"secret", [np.array([1, 3], np.uint64)])
    assert question_key(b"secret" * 50, words) != key


def test_the_key_of_a_query_is_always_the_same_one() -> None:
    secret_digest = hashlib.blake2b(b"secret", digest_size=32).digest()
    words = np.array([1, 2], np.uint64)
    key = question_key(b"secret", [words])
    assert len(key) == 16
    by_hand = hashlib.blake2b(words.tobytes(), key=secret_digest, digest_size=16, person=PERSON).digest()
    assert key == by_hand == question_key(b"secret", [words[:1], words[1:]])


@pytest.mark.parametrize("bits", [8, 12, 32, 65, 256])
def test_magnitudes_are_summed_over_the_differing_bits(bits):
    generator = np.random.default_rng(bits)
    words, magnitudes = pack(generator.normal(size=(50, bits))), generator.integers(0, 256, bits).astype(np.uint8)
    signs = unpack(words, bits)
    plain = [sum(int(m) for m, a, b in zip(magnitudes, row, signs[0], strict=True) if a != b) for row in signs]
    assert magnitude_sums(words, words[0], magnitudes).tolist() == plain
    mean = [round(bits * 255 * d / bits) for d in (0, 1, bits)]
    assert expected_sums([0, 1, bits], np.full(bits, 255, np.uint8)) == tuple(mean)


@pytest.mark.parametrize("bits", [8, 12, 32, 65, 256])
def test_cosines_are_those_of_the_outputs(bits):
    generator = np.random.default_rng(bits)
    words, magnitudes = pack(generator.normal(size=(50, bits))), generator.integers(0, 256, (50, bits)).astype(np.uint8)
    magnitudes[3] = 0
    outputs = unpack(words, bits) * magnitudes.astype(float)
    with np.errstate(invalid="ignore"):
        plain = outputs @ outputs[0] / np.linalg.norm(outputs, axis=1) / np.linalg.norm(outputs[0])
    found = output_cosines(words, magnitudes, words[0], magnitudes[0])
    np.testing.assert_allclose(found / COSINE_STEPS - 1, np.nan_to_num(plain), atol=0.6 / COSINE_STEPS)
    assert (found[0], found[3]) == (2 * COSINE_STEPS, COSINE_STEPS)
    opposite = pack(-unpack(words[:1], bits))
    assert output_cosines(opposite, magnitudes[:1], words[0], magnitudes[0]).tolist() == [0]
    assert output_cosines(words, magnitudes, words[0], np.zeros(bits, np.uint8)).tolist() == [COSINE_STEPS] * 50


def test_the_window_grows_with_the_page_up_to_a_limit():
    assert [window_of(k) for k in (1, 25, 26, 250, 251, 5000)] == [100, 100, 104, 1000, 1000, 1000]


@pytest.mark.parametrize("k", [1, 3, 10, 50])
def test_an_item_after_k_that_are_as_near_cannot_be_first(k):
    cosines = np.random.default_rng(k).integers(0, 9, 40).tolist()
    plain = [place for place in range(40) if sum(other >= cosines[place] for other in cosines[:place]) < k]
    assert possible_first(cosines, k) == plain


@pytest.mark.parametrize("count", [30, FEW_PLACES + 30])
@pytest.mark.parametrize("k", [1, 5, 29, 30, 40])
def test_first_places_are_those_of_a_plain_sort(k, count):
    generator = np.random.default_rng(k)
    places, digests = generator.integers(0, 4, count), generator.integers(0, 1 << 63, count).astype(np.uint64)
    hashes = keyed_order(digests, b"key").tolist()
    plain = sorted(range(count), key=lambda row: (places[row], hashes[row]))[:k]
    assert first_places(places, digests, b"key", k).tolist() == plain


def test_the_words_of_a_hit_as_they_were_typed():
    assert matched_words("The BOATS, at sea!", 0b1010) == ("boats", "sea")


@pytest.mark.parametrize("tier", [EXACT, ALL_WORDS, BY_CODE])
def test_a_tier_and_a_place_are_one_number_in_order(tier):
    assert tier_of(place_in_tier(tier, 0)) == tier_of(place_in_tier(tier, 256)) == tier
    assert place_in_tier(tier, 256) < place_in_tier(tier + 1, 0)
    assert place_in_tier(BY_CODE, 7) == 7


def test_packed_places_are_in_the_order_of_their_parts():
    parts = [(t, d, w, v) for t in (0, 1, 2) for d in (0, 256) for w in (2**31 - 1, 5, 0) for v in (0, 256 * 255)]
    tiers, distances, words, values = (np.array(column) for column in zip(*parts, strict=True))
    assert (np.diff(packed_places(distances, tiers, words, values)) > 0).all()
