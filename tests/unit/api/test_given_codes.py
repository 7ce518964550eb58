"""Codes are read where their form is certain."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.api.given_codes import packed_codes
from silohash.base.arrays import given
from silohash.base.errors import AmbiguousForm, BitsDiffer, NotFinite, OrderDiffers, OutOfRange, UserError, WrongShape
from silohash.index.codes import Codes, pack, unpack

BITS = np.array([[1, 0, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0], [0, 0, 1, 0, 1, 1, 0, 1, 0, 1, 0, 1]], bool)
SIGNS = np.where(BITS, 1, -1)
OUTPUTS = np.where(BITS, 0.25, -3.5)
CODES = Codes(pack(SIGNS), 12, np.array(["a", "b"]), "image", "m")


def read(queries, database, bits=None):
    """Return both sides as signs."""
    sides = [side if isinstance(side, Codes) else given(what, side) for what, side in (("q", queries), ("d", database))]
    first, second, length = packed_codes(*sides, bits)
    return unpack(first, length).tolist(), unpack(second, length).tolist()


@pytest.mark.parametrize(
    "form",
    [BITS, BITS.astype(int), BITS.astype(np.float32), SIGNS, SIGNS.astype(np.float16), OUTPUTS, CODES, SIGNS.tolist()],
)
def test_every_form_gives_the_same_bits(form):
    assert read(form, form, 12) == read(form, CODES) == (SIGNS.tolist(), SIGNS.tolist())


def test_signs_and_outputs_go_together():
    assert read(OUTPUTS, SIGNS) == read(SIGNS, OUTPUTS) == (SIGNS.tolist(), SIGNS.tolist())


def test_zeros_among_outputs_are_plus_one_and_tiny_numbers_keep_their_signs():
    row = [0.0, -0.0, -5e-324, 5e-324, -1.0, 1.5, 0.5, -0.5]
    expected = [1, 1, -1, 1, -1, 1, 1, -1]
    assert read([row], [row])[0] == [expected]
    sign = np.sign([[-2.0, 0.0, 3.0, 0.0, -1.0, 1.0, 1.0, 1.0]])
    assert read(sign, sign)[0] == [[-1, 1, 1, 1, -1, 1, 1, 1]]


def test_only_zeros_are_what_the_other_side_says():
    zeros = np.zeros((1, 12))
    assert read(zeros, OUTPUTS)[0] == read(zeros, SIGNS * 1.0)[0] == [[1] * 12]
    assert read(zeros, BITS)[0] == read(zeros, zeros)[0] == [[-1] * 12]
    for unclear in (lambda: read(zeros.astype(int), SIGNS), lambda: read(zeros, CODES)):
        with pytest.raises(AmbiguousForm, match="only 0"):
            unclear()


def test_only_ones_are_set_bits_in_every_form():
    ones = np.ones((1, 12), int)
    for other in (BITS, SIGNS, OUTPUTS, CODES, ones):
        assert read(ones, other)[0] == [[1] * 12]


@pytest.mark.parametrize("row", [np.full(12, 1.5), np.full(12, -0.2), np.where(BITS[0], 2.0, -3.0)])
def test_a_single_item_among_outputs_is_an_output(row):
    expected = [np.where(row >= 0, 1, -1).tolist()]
    assert read([row], OUTPUTS) == read(OUTPUTS, [row])[::-1] == (expected, SIGNS.tolist())


def test_a_side_without_items_has_any_form():
    assert read(np.empty((0, 12)), BITS) == ([], SIGNS.tolist())
    assert read(np.empty((0, 1), np.int64), np.array([[-1]]), 64) == ([], [[1] * 64])


@pytest.mark.parametrize("order", ["big", "little"])
def test_packed_bytes_give_the_distances_of_their_bits(order):
    for width in (12, 8):
        packed = np.packbits(BITS[:, :width], axis=1, bitorder=order)
        for form in (packed, packed.astype(np.int64), packed.tolist(), packed.view(np.int8), list(map(bytes, packed))):
            first, second, length = packed_codes(given("q", form), given("d", packed), width)
            apart = np.bitwise_count(first[:, None] ^ second).sum(2)
            assert (apart == (BITS[:, None, :width] != BITS[:, :width]).sum(2)).all()
            assert length == width
    if order == "big":
        assert read(packed, packed, 8)[0] == SIGNS[:, :8].tolist()


@pytest.mark.parametrize("kind", ["u2", ">u2", "i4", "u8"])
def test_words_give_the_distances_of_their_bits(kind):
    bits = np.random.default_rng(0).random((9, 64)) < 0.5
    bits[0, :16] = True
    packed = np.packbits(bits, axis=1)
    first, second, _ = packed_codes(*(given(what, packed.view(kind)) for what in "qd"), 64)
    assert (np.bitwise_count(first[:, None] ^ second).sum(2) == (bits[:, None] != bits).sum(2)).all()
    for other in (packed, packed.view(np.dtype(kind).newbyteorder())):
        with pytest.raises(WrongShape, match="64"):
            read(packed.view(kind), other, 64)


@pytest.mark.parametrize(
    ("queries", "database", "bits", "kind", "says"),
    [
        (1 / (1 + np.exp(-OUTPUTS)), OUTPUTS, None, AmbiguousForm, "none of them below 0 .*sigmoid"),
        (OUTPUTS, np.where(BITS, 0.5, 0.0), None, AmbiguousForm, r"database.*0.5"),
        (np.where(BITS, -0.1, -1.5), OUTPUTS, None, AmbiguousForm, "above"),
        (np.where(BITS, 0.0, -1.0), OUTPUTS, None, AmbiguousForm, "above"),
        (np.where(BITS, 2.0, -3.0), OUTPUTS, None, AmbiguousForm, None),
        (np.full((1, 12), 0.7), OUTPUTS, None, AmbiguousForm, "none of them below 0 .*sigmoid"),
        (np.full((1, 12), 1.5), SIGNS, None, AmbiguousForm, "none of them below 0"),
        (np.full((1, 12), -0.1), np.full((1, 12), -0.2), None, AmbiguousForm, "above"),
        (np.full((1, 12), 3), OUTPUTS, None, AmbiguousForm, r"3.*3"),
        (np.zeros((2, 8), int), np.zeros((2, 1), int), 64, WrongShape, "64"),
        (np.zeros((2, 0), np.int8), np.zeros((2, 0), np.int8), 64, WrongShape, "64"),
        (np.packbits(BITS, axis=1).view(np.uint16), np.packbits(BITS, axis=1).view(np.uint16), 12, WrongShape, "12"),
        ([b"ab", b"c"], [b"ab", b"cd"], 16, WrongShape, "differ in length"),
        (np.packbits(BITS, axis=1), np.packbits(BITS, axis=1), None, AmbiguousForm, None),
        (np.where(BITS, 255, 0), BITS, None, AmbiguousForm, "neither"),
        (SIGNS * BITS[::-1], SIGNS, None, AmbiguousForm, None),
        (SIGNS * 3, SIGNS, None, AmbiguousForm, r"-3.*3"),
        (BITS, SIGNS, None, AmbiguousForm, None),
        (OUTPUTS, BITS * 1.0, None, AmbiguousForm, "database"),
        (np.where(BITS, np.nan, OUTPUTS), OUTPUTS, None, NotFinite, "0"),
        (OUTPUTS, np.where(BITS & [[False], [True]], np.inf, OUTPUTS), None, NotFinite, "1"),
        (SIGNS, SIGNS[:, :8], None, BitsDiffer, r"12.*8"),
        (SIGNS[:, :4], SIGNS[:, :4], None, OutOfRange, "4"),
        (SIGNS, SIGNS, 16, WrongShape, "16"),
        (CODES, SIGNS, 16, WrongShape, "16"),
        (np.packbits(BITS, axis=1), BITS, 12, WrongShape, r"2.*2.*2.*12"),
        (np.packbits(BITS, axis=1), CODES, 12, WrongShape, "uint8"),
        (np.packbits(BITS, axis=1) * 1.0, np.packbits(BITS, axis=1) * 1.0, 12, WrongShape, "float64 .2, 2."),
        (np.packbits(BITS, axis=1).astype(int) - 128, np.packbits(BITS, axis=1), 12, WrongShape, None),
        (np.full((2, 2), 255), np.full((2, 2), 255), 12, BitsDiffer, "12"),
        (np.array([[255, 240]]), np.array([[255, 15]]), 12, BitsDiffer, None),
        (SIGNS, SIGNS, 12.0, OutOfRange, r"12.0"),
        (np.zeros((1, 33), np.uint8), np.zeros((1, 33), np.uint8), 257, OutOfRange, "257"),
    ],
)
def test_what_is_ambiguous_is_refused(queries, database, bits, kind: type[UserError], says: str | None):
    with pytest.raises(kind, match=says):
        read(queries, database, bits)


def test_columns_of_frames_are_joined_by_name():
    pandas = pytest.importorskip("pandas")
    names = list("abcdefghijkl")
    first, second = pandas.DataFrame(SIGNS, columns=names), pandas.DataFrame(SIGNS, columns=names)[names[::-1]]
    assert read(first, second) == (SIGNS.tolist(), SIGNS.tolist())
    with pytest.raises(OrderDiffers):
        read(first, pandas.DataFrame(SIGNS))
