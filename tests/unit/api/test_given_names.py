"""Names of labels and items."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.api.given_names import (
    check_exact,
    check_kinds,
    given_ids,
    is_missing,
    multi_hot,
    name_of,
    own_items,
    read_ids,
)
from silohash.base.arrays import given
from silohash.base.errors import (
    AmbiguousForm,
    EmptyInput,
    LengthsDiffer,
    MixedKinds,
    OutOfRange,
    UserError,
    WrongShape,
    WrongType,
)
from silohash.index.codes import Codes, pack


def test_missing_values():
    pandas = pytest.importorskip("pandas")
    assert all(map(is_missing, [None, float("nan"), np.float32("nan"), pandas.NA, pandas.NaT]))
    assert not any(map(is_missing, [0, "", "nan", np.inf, False, []]))


def test_names_are_texts_or_whole_numbers():
    assert [name_of("labels", value) for value in ("cat", " cat\n", np.str_("cat"))] == ["cat"] * 3
    assert [name_of("labels", value) for value in (2, 2.0, np.int8(2), np.float16(2))] == [2] * 4
    assert name_of("labels", "cafe\u0301") == "caf\u00e9"
    assert name_of("labels", "boat\u200b") == name_of("labels", "boat\u00a0") == "boat"
    assert name_of("labels", "2") == name_of("labels", "2.0") == "2"


@pytest.mark.parametrize(
    "value", [0.5, np.inf, True, np.True_, b"cat", 1j, (1,), "", "  ", "nan", "None", "<NA>", "NULL", "N/A"]
)
def test_other_names_are_refused(value):
    with pytest.raises(WrongType, match="labels"):
        name_of("labels", value)


def test_a_text_and_a_number_are_never_the_same_name():
    check_kinds("ids", {"1", "a"}, {"2"})
    check_kinds("ids", {1, 2}, set())
    with pytest.raises(MixedKinds, match=r"1.*1"):
        check_kinds("ids", {"1"}, {1})


def test_floats_that_cannot_hold_every_whole_number_are_refused():
    for kind, most in ((np.float16, 2**11), (np.float32, 2**24), (np.float64, 2**53)):
        check_exact("ids", np.array([1, most, np.nan], kind))
        with pytest.raises(WrongType):
            check_exact("ids", np.array([1, 2 * most], kind))
    check_exact("ids", np.array([2**60]))


def own(queries, database):
    """Return the rows that each query leaves out."""
    found = own_items(given("query ids", queries), given("database ids", database))
    return [[row for row in rows if row >= 0] for rows in found.tolist()]


def test_all_items_with_the_querys_id_are_its_own():
    assert own(["a", "b", "c"], ["b", "a", "x", "b"]) == [[1], [0, 3], []]
    assert own([3, 3], np.array([1, 3], np.uint8)) == [[1], [1]]
    assert own(["a"], ["b"]) == [[]]
    assert own_items(None, None) is None


def test_ids_of_one_side_or_of_two_kinds_are_refused():
    with pytest.raises(MixedKinds, match="queries"):
        own_items(given("query ids", ["a"]), None)
    with pytest.raises(MixedKinds, match="database"):
        own_items(None, given("database ids", ["a"]))
    with pytest.raises(MixedKinds, match="ids"):
        own(["1"], [1])


def test_the_ids_of_codes_stand_in_for_those_that_are_not_given():
    codes = Codes(pack(np.ones((1, 8))), 8, np.array(["a"]), "image", "m")

    def names(*arguments):
        return [None if ids is None else list(ids.values) for ids in given_ids(*arguments)]

    assert names(codes, codes, None, None) == [["a"], ["a"]]
    assert names([[1] * 8], codes, None, None) == [None, None]
    assert names([[1] * 8], codes, ["x"], None) == [["x"], ["a"]]
    assert names(codes, codes, None, ["y"]) == [["a"], ["y"]]
    assert names(codes, [[1] * 8], ["x"], None) == [["x"], None]


def test_ids_in_every_form():
    pandas = pytest.importorskip("pandas")
    for texts in (["a", "b "], ("a", "b"), np.array(["a", "b"]), np.array([["a"], [" b"]]), pandas.Series(["a", "b"])):
        assert read_ids(given("ids", texts)) == ["a", "b"]
    for texts in (["a  b", "2.0", "c"], np.array(["a b ", "2", "c"]), np.array(["a b", "2.00", "\u200bc"])):
        assert read_ids(given("ids", texts)) == ["a b", "2", "c"]
    for numbers in ([1, 2], np.array([1, 2], np.uint8), np.array([1.0, 2.0]), pandas.Index([1, 2]), range(1, 3)):
        assert read_ids(given("ids", numbers)) == [1, 2]
    assert read_ids(given("ids", np.array(["e\u0301", "nana"]))) == ["\u00e9", "nana"]


@pytest.mark.parametrize(
    ("ids", "kind", "says"),
    [
        (np.zeros((2, 2)), WrongShape, r"shape \(2, 2\)"),
        (["a", None], EmptyInput, None),
        (np.array([16777217, 33554432], np.float32), WrongType, None),
        (np.array([1, np.nan]), EmptyInput, None),
        (np.array(["a", ""]), WrongType, "hold ''"),
        (np.array(["a", "nan"]), WrongType, None),
        ([True, False], WrongType, "bool"),
        ([("a",)], WrongType, "tuple"),
    ],
)
def test_other_ids_are_refused(ids, kind: type[UserError], says: str | None):
    with pytest.raises(kind, match=says):
        read_ids(given("query ids", ids))


FIRST = np.array([[1, 0, 1], [0, 0, 0]])
SECOND = np.array([[0, 1, 1], [1, 0, 0], [0, 0, 1]])


def shared(queries, database):
    """Return the number of labels that each query shares with each item."""
    first, second = multi_hot(given("query labels", queries), given("database labels", database))
    assert first.dtype == second.dtype == np.uint8
    return (first.astype(int) @ second.T).tolist()


SHARED = (FIRST @ SECOND.T).tolist()
NUMBERS = [[0, 2], []], [[1, 2], [0], {2}]


@pytest.mark.parametrize(
    ("queries", "database"),
    [
        (FIRST, SECOND),
        (FIRST.tolist(), SECOND.astype(float)),
        (FIRST.astype(bool), SECOND * 2 - 1),
        (FIRST * 2.0 - 1, (SECOND * 2 - 1).tolist()),
        NUMBERS,
        ([{0, 2}, None], [np.array([1, 2]), 0, (2.0,)]),
        ([["a", "c"], []], [["b", "c"], "a", {"c"}]),
        ([np.array(["a", "c"], object), None], [("c", "b"), np.array(["a"]), "c"]),
        ([["cafe\u0301", "x"], []], [["y", "x"], "caf\u00e9", "x "]),
        ([[5, 700], []], [[6, 700], [5], [700]]),
        ([{"a": 1, "c": 1}.keys(), {}.keys()], {1: ["b", "c", "c"], 2: ["a"], 3: {"c"}}.values()),
        ([["a|b", "c"], []], [["d", "c"], ["a|b"], ["c"]]),
        (np.array([["a", "c"], [None, None]]), [["c", "b"], ["a"], ["c"]]),
    ],
)
def test_every_form_gives_the_same_shared_labels(queries, database):
    assert shared(queries, database) == SHARED


def test_one_label_per_item():
    pandas = pytest.importorskip("pandas")
    numbers = np.array([2, 0]), np.array([0, 2, 2])
    expected = [[0, 1, 1], [1, 0, 0]]
    for form in (
        lambda x: x,
        lambda x: x[:, None],
        lambda x: x.astype(float),
        lambda x: x[:, None].tolist(),
        lambda x: [f"class {n}" for n in x],
        lambda x: np.array([f"{n}" for n in x]),
        lambda x: pandas.Series(x).astype("category"),
        lambda x: pandas.DataFrame({"label": [f"{n}" for n in x]}),
    ):
        assert shared(*map(form, numbers)) == expected
    assert shared(numbers[0][:, None], numbers[1]) == expected
    assert shared(numbers[0], numbers[1].tolist()) == expected


def test_punctuation_in_names_is_part_of_them():
    names = ["tench, Tinca tinca", "[sic]", "(1) cat", "R&B; soul", "{x}", "a|b"]
    assert shared(names, names) == np.eye(6).tolist()


def test_a_missing_label_is_shared_with_no_item():
    pandas = pytest.importorskip("pandas")
    for first, second in (
        ([None, 1], [None, 1]),
        (np.array([np.nan, 1]), np.array([np.nan, 1])),
        (pandas.Series([pandas.NA, 1], dtype="Int64"), pandas.Series([pandas.NA, 1], dtype="Int64")),
        (["a", None], [float("nan"), "a"]),
        ([["a", None], []], [[None], ["a"]]),
    ):
        assert np.sum(shared(first, second)) == 1


def test_columns_of_frames_are_joined_by_name():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(SECOND, columns=list("abc"))
    assert shared(pandas.DataFrame(FIRST, columns=list("abc")), frame[["c", "a", "b"]]) == SHARED
    assert shared(FIRST, frame) == SHARED


def test_memory_is_needed_only_for_classes_that_both_sides_have():
    first, second = multi_hot(given("q", np.arange(5)), given("d", np.arange(4, 40_000)))
    assert (first.shape, second.shape) == ((5, 1), (39_996, 1))


@pytest.mark.parametrize(
    ("queries", "database", "kind", "says"),
    [
        (FIRST, SECOND[:, :2], LengthsDiffer, r"3.*2"),
        (FIRST, SECOND * 3, OutOfRange, r"database.*labels.*3"),
        (FIRST, SECOND * 255, OutOfRange, "255"),
        (FIRST, SECOND * 0.9, OutOfRange, r"0.9"),
        (FIRST * 2 - 1, np.array([[1, 0, -1]]), OutOfRange, r"-1.*2"),
        (np.where(FIRST, 1, np.nan), SECOND, OutOfRange, r"nan.*Write"),
        (FIRST, np.array([0, 1, 2]), MixedKinds, r"query.*labels.*2.*3"),
        (FIRST[:, :2].tolist(), np.array([0, 1, 2]), MixedKinds, r"query.*labels.*2.*2"),
        (FIRST[:1].tolist(), [{0}, {1, 2}], MixedKinds, r"query.*labels.*3"),
        (["a", "b"], SECOND, MixedKinds, "table"),
        (FIRST[:, :1], SECOND[:, :1], AmbiguousForm, None),
        (FIRST[:, :1] * 2 - 1, SECOND[:, :1] * 2 - 1, AmbiguousForm, None),
        (FIRST[:, 0] == 1, SECOND[:, 0], AmbiguousForm, None),
        (np.array([3, -1]), np.array([3, 1, 2]), OutOfRange, "-1"),
        (np.array([3, 1]), [3, -1, 2], OutOfRange, "-1"),
        (np.array([4099, 1], np.float16), np.array([3, 1, 2]), WrongType, None),
        (np.array([3, 0.5]), np.array([3, 1, 2]), WrongType, r"0.5.*float"),
        (np.array([3, 1]), np.array([3, 255, 2], np.uint8), AmbiguousForm, r"255.*254"),
        ([1, 2], ["1", "2", "3"], MixedKinds, None),
        ([1, "a"], [1, 2, 1], MixedKinds, None),
        ([[0, 1, 0], [1, 0]], SECOND.tolist(), WrongType, None),
        ([[0, None, 1], [1, 0, 0]], [[0], [1, 2], []], WrongType, None),
        (FIRST.astype(str), SECOND.astype(str), WrongType, None),
        (FIRST.astype(str).tolist(), SECOND.astype(str).tolist(), WrongType, None),
        (np.zeros((2, 3, 1)), SECOND, WrongShape, r"2.*3"),
        (np.zeros((2, 0)), SECOND, WrongShape, "2"),
        (np.array([b"a", b"b"]), ["a", "b", "c"], WrongShape, "are |S1 of shape"),
        ([b"a"], ["a", "b", "c"], WrongType, "bytes"),
        ([{"a": 1}], ["a", "b", "c"], WrongType, "dict"),
        ([[["a"]]], ["a"], WrongType, "of type list"),
        ([[1, [2]], [3, 4]], [[1], [2, 3]], WrongType, "of type list"),
        (["a", "nan"], ["a"], WrongType, None),
        ([True, False], [True], WrongType, "bool"),
        ([[3, 5], [2, 7]], [[3, 4], [5, 6]], OutOfRange, "3"),
        (
            np.where(FIRST, "y", "n"),
            np.where(SECOND, "y", "n").tolist(),
            WrongType,
            None,
        ),
        (
            ["['a', 'c']", "[]"],
            ["['b', 'c']", "['a']", "['c']"],
            AmbiguousForm,
            r"is a list in a text. Give a list or set",
        ),
        (['["a", "c"]'], ["[1, 2]", "{'a'}", "('b', 'c')"], AmbiguousForm, "is a list in a text"),
        (["a|c", "a"], ["b; c", "c", "b"], AmbiguousForm, "is a list in a text"),
        (["b, a", "b"], ["c", "a", "b"], AmbiguousForm, '"b, a" is a list in a text'),
    ],
)
def test_what_is_ambiguous_is_refused(queries, database, kind: type[UserError], says: str | None):
    with pytest.raises(kind, match=says):
        shared(queries, database)


def test_class_numbers_that_reach_a_highest_number_are_classes():
    numbers = np.arange(256)
    assert np.sum(shared(numbers, numbers)) == 256
