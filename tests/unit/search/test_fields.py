from __future__ import annotations

import numpy as np
import pytest

from silohash.base.errors import BitsDiffer
from silohash.index.codes import pack
from silohash.search.fields import CONTENT, REASON, hexadecimal, sent_payload, words_of


@pytest.mark.parametrize("bits", [8, 10, 16, 17, 32, 33, 64, 72, 128, 256])
def test_codes_of_all_lengths_keep_their_bits(bits):
    words = pack(np.random.default_rng(bits).choice([-1, 1], (1, bits)))[0]
    text = hexadecimal(words, bits)
    assert len(text) == 2 * -(-bits // 8)
    assert (words_of(text, bits) == words).all()
    with pytest.raises(BitsDiffer):
        words_of(f"{text}00", bits)


def test_fields_of_a_payload_that_are_unknown_or_have_another_type_are_left_out():
    assert sent_payload({"caption": 3, "labels": "ab", "preview": b"x", "file": None, "owner": "x"}) == {"caption": "3"}


def test_reasons_are_made_visible_on_both_sides():
    assert REASON.encode("no\x1b", {}) == REASON.decode("no\x1b", {}) == "no⟨U+001B⟩"


def test_words_and_regions_keep_their_type():
    content = np.arange(6, dtype=np.float16).reshape(1, 2, 3)
    arrived = CONTENT.decode(CONTENT.encode(content, {}), {"target": "image"})
    assert arrived.dtype == content.dtype
    np.testing.assert_array_equal(arrived, content)
