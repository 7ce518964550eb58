"""Codes from any source: scores and neighbors computed by hand."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from silohash.api.codes import evaluate_codes, nearest
from silohash.base.errors import (
    AmbiguousForm,
    BitsDiffer,
    LengthsDiffer,
    MixedKinds,
    ModelsDiffer,
    OrderDiffers,
    OutOfRange,
    UnknownName,
    UnsuitableMeasure,
    UserError,
    WrongForm,
    WrongShape,
    WrongType,
)
from silohash.base.types import PlausibilityWarning
from silohash.index.codes import Codes, pack


def at(*distances, bits=8):
    """Return signs ``(n, bits)`` at the given distances from all -1."""
    signs = -np.ones((len(distances), bits))
    for row, distance in enumerate(distances):
        signs[row, :distance] = 1
    return signs


def codes(signs, ids, digest="m", modality="image"):
    return Codes(pack(signs), signs.shape[1], np.array(ids), modality, digest)


def test_a_score_computed_by_hand():
    """Relevant at ranks 1 and 4: AP = (1/1 + 2/4) / 2."""
    scores = evaluate_codes(at(0), at(0, 1, 2, 3), ["cat"], ["cat", "dog", "dog", "cat"], measures=["mAP@all", "P@2"])
    score = scores["mAP@all"]
    assert score.value == float(score) == pytest.approx(0.75)
    assert (score.prior, score.queries, score.queries_without_relevant) == (0.5, 1, 0)
    assert score.per_query.tolist() == [pytest.approx(0.75)]
    assert scores["P@2"].value == 0.5
    assert str(score) == "mAP@all = 0.7500 (0.7500 to 0.7500 over the orders of ties; random codes: 0.5000; queries: 1)"


def test_ties_count_with_the_mean_over_their_orders():
    """One relevant item among two at the same distance: AP is 1 or 1/2."""
    score = evaluate_codes(at(0), at(1, 1), ["cat"], ["dog", "cat"])["mAP@all"]
    assert (score.value, score.best, score.worst) == (0.75, 1.0, 0.5)
    within = evaluate_codes(at(0), at(1, 1), ["a"], ["a", "b"], measures=["P@radius1"])["P@radius1"]
    assert np.isnan(within.best)
    assert str(within) == "P@radius1 = 0.5000 (random codes: 0.5000; queries: 1)"


def test_the_item_with_the_querys_id_is_left_out():
    """Without its own item, the query finds a dog first and a cat second."""
    labels = ["cat", "dog", "cat"]
    database = at(0, 1, 2)
    assert evaluate_codes(database[:1], database, ["cat"], labels)["mAP@all"].value == pytest.approx((1 + 2 / 3) / 2)
    without = evaluate_codes(database[:1], database, ["cat"], labels, query_ids=["a"], database_ids=["a", "b", "c"])
    assert without["mAP@all"].value == 0.5
    given = evaluate_codes(codes(database[:1], ["a"]), codes(database, ["a", "b", "c"]), ["cat"], labels)
    assert given == without
    other = evaluate_codes(codes(database[:1], ["x"]), codes(database, ["a", "b", "c"]), ["cat"], labels)
    assert other["mAP@all"].value == pytest.approx((1 + 2 / 3) / 2)


def test_labels_in_every_form_give_the_same_score():
    queries, database = at(0, 8), at(1, 2, 6)
    forms = [
        (["cat", "dog"], ["dog", "cat", "dog"]),
        ([["cat"], ["dog"]], [["dog"], ["cat"], ["dog"]]),
        (np.array([0, 1]), np.array([1, 0, 1])),
        (np.array([[1, 0], [0, 1]]), np.array([[0, 1], [1, 0], [0, 1]], bool)),
    ]
    values = [evaluate_codes(queries, database, *labels)["mAP@all"].value for labels in forms]
    assert values == [pytest.approx((1 / 2 + (1 / 1 + 2 / 3) / 2) / 2)] * 4
    several = evaluate_codes(at(0), at(1, 2), [("cat", "dog")], [set(), {"dog"}])["mAP@all"]
    assert several.value == 0.5
    assert evaluate_codes(at(0), at(1), ["cat"], [[]])["mAP@all"].queries_without_relevant == 1


def test_codes_in_every_form_give_the_same_neighbors():
    signs = at(0, 3, 5)
    bits = (signs > 0).astype(int)
    for form in (signs, 0.3 * signs, bits, bits.astype(bool), codes(signs, ["a", "b", "c"])):
        found = nearest(form, form, 2)
        assert found.keys.tolist() == [[0, 1], [1, 2], [2, 1]]
        assert found.distances.tolist() == [[0, 3], [0, 2], [0, 2]]


def test_real_zeros_count_as_plus_one():
    assert nearest(np.zeros((1, 8)), at(8, 0), 1).keys.tolist() == [[0]]


def test_neighbors_with_filters_threads_and_backends():
    database, queries = at(*[n % 9 for n in range(100)]), at(*[n % 9 for n in range(70)])
    one = nearest(queries, database, 3)
    two = nearest(queries, database, 3, threads=2)
    assert (one.keys == two.keys).all()
    assert nearest(at(0), at(0, 1, 2), 1, allowed=np.array([1, 2])).keys.tolist() == [[1]]
    assert nearest(at(0), at(0, 1, 1), 1, allowed=np.array([False, True, True])).ties_at_cut.tolist() == [1]
    pytest.importorskip("faiss")
    assert (nearest(queries, database, 3, engine="faiss").keys == one.keys).all()


@pytest.mark.parametrize(
    ("arguments", "options", "kind", "says"),
    [
        ((at(0), at(0, bits=16), ["a"], ["a"]), {}, BitsDiffer, r"8.*16"),
        ((codes(at(0), ["a"], "m"), codes(at(0), ["a"], "n"), ["a"], ["a"]), {}, ModelsDiffer, None),
        ((at(0), at(0), ["a"], ["a"]), {"query_ids": ["a", "b"]}, LengthsDiffer, r"2.*but"),
        ((at(0), at(0), ["a"], ["a"]), {"database_ids": []}, LengthsDiffer, "but"),
        ((at(0)[0], at(0), ["a"], ["a"]), {}, WrongShape, r"shape \(8,\)"),
        ((at(0), at(0), ["a"], ["a"]), {"measures": ["mPA@all"]}, UnknownName, "mAP"),
        ((at(0), at(0), ["a"], ["a"]), {"measures": ["R@1[by=pairs]"]}, UnsuitableMeasure, "by=pairs"),
        ((at(0), at(0), ["a"], ["a"]), {"measures": ["R@1[by=scores]"]}, UnsuitableMeasure, "by=scores"),
        ((at(0), at(0), ["a", "b"], ["a"]), {}, LengthsDiffer, "2"),
    ],
)
def test_what_does_not_fit_together_is_refused(arguments, options, kind: type[UserError], says: str | None):
    with pytest.raises(kind, match=says):
        evaluate_codes(*arguments, **options)


def test_neighbors_of_other_models_are_refused():
    with pytest.raises(ModelsDiffer):
        nearest(codes(at(0), ["a"], "m"), codes(at(0), ["a"], "n"))
    with pytest.raises(BitsDiffer, match=r"8.*16"):
        nearest(at(0), at(0, bits=16))


def doubts(call):
    """Return the texts of the warnings of a call, which name the line of the caller."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert {(warning.category, warning.filename) for warning in caught} <= {(PlausibilityWarning, __file__)}
    return [str(warning.message) for warning in caught]


def test_scores_that_say_little_come_with_a_warning():
    two, same = at(0, 3), at(4, 4)
    assert doubts(lambda: evaluate_codes(two, two, ["a", "b"], ["a", "b"])) == []
    [equal] = doubts(lambda: evaluate_codes(two, same, ["a", "b"], ["a", "b"]))
    assert equal.startswith("All 2 codes of the database are equal.")
    [equal] = doubts(lambda: nearest(same, two, 1))
    assert equal.startswith("All 2 codes of the queries are equal.")
    [every] = doubts(lambda: evaluate_codes(two, two, ["a", "a"], ["a", "a"]))
    assert every.startswith("Every item is relevant to every query")
    [none] = doubts(lambda: evaluate_codes(two, two, ["a", "b"], ["A", "B"]))
    assert none.startswith("No query shares a label with an item.")
    [unshared] = doubts(lambda: evaluate_codes(two, two, ["a", "b"], ["a", "b"], query_ids=[1, 2], database_ids=[3, 4]))
    assert unshared.startswith("No item of the database has the id of a query")
    held = codes(two, ["a", "b"]), codes(two, ["c", "d"])
    assert doubts(lambda: evaluate_codes(*held, ["a", "b"], ["a", "b"])) == []


def test_all_items_with_the_querys_id_are_left_out():
    """Both views of the query leave its ranking, and a dog comes before the cat."""
    labels, database = ["cat", "dog", "cat", "cat"], at(0, 1, 2, 1)
    for ids in (["a", "b", "c", "a"], np.array([7, 8, 9, 7]), [7.0, 8.0, 9.0, 7.0]):
        score = evaluate_codes(database[:1], database, ["cat"], labels, query_ids=ids[:1], database_ids=ids)["mAP@all"]
        assert score.value == 0.5


def test_the_number_of_bits_unpacks_bytes():
    signs = np.where(np.random.default_rng(0).random((6, 12)) < 0.5, 1, -1)
    packed = np.packbits(signs > 0, axis=1)
    labels = [0, 1, 2, 0, 1, 2]
    expected = evaluate_codes(signs, signs, labels, labels)["mAP@all"]
    assert evaluate_codes(packed, packed, labels, labels, bits=12)["mAP@all"] == expected
    assert (nearest(packed, packed, 3, bits=12).distances == nearest(signs, signs, 3).distances).all()
    with pytest.raises(AmbiguousForm):
        evaluate_codes(packed, packed, labels, labels)


@pytest.mark.parametrize(
    ("arguments", "options", "kind", "says"),
    [
        ((at(0, 1), at(0, 1), np.eye(2), np.ones((3, 4))), {}, LengthsDiffer, r"3.*but.*2"),
        ((at(0, 1), at(0, 1), np.eye(2), np.ones((3, 2)).T), {}, LengthsDiffer, r"2.*3"),
        ((at(0, 1), at(0, 1), np.eye(2), np.ones((2, 3)).T), {}, LengthsDiffer, r"3.*but.*2.*transpose"),
        ((at(0), at(0), ["a"], ["a"]), {"query_ids": ["a"]}, MixedKinds, None),
        ((at(0), at(0), ["a"], ["a"]), {"query_ids": ["1"], "database_ids": [1]}, MixedKinds, "texts"),
        ((at(0), at(0), ["a"], ["a"]), {"measures": []}, WrongType, None),
        ((at(0), at(0), ["a"], ["a"]), {"measures": ["mAP@all", 1]}, WrongType, None),
        ((at(0), at(0), ["a"], ["a"]), {"measures": None}, WrongType, "NoneType"),
        ((at(0), at(0), ["a"], ["a"]), {"measures": "P@1" + "0" * 30}, WrongForm, "9"),
        ((at(0), at(0), ["a"], ["a"]), {"bits": 16}, WrongShape, None),
    ],
)
def test_what_is_not_said_clearly_is_refused(arguments, options, kind: type[UserError], says: str | None):
    with pytest.raises(kind, match=says):
        evaluate_codes(*arguments, **options)


@pytest.mark.parametrize("k", [0, -1, 1.0, True, "1", None, 2**40, 2**70])
def test_numbers_of_neighbors_that_are_refused(k):
    with pytest.raises(OutOfRange):
        nearest(at(0), at(0, 1), k)


def test_more_neighbors_than_items_are_filled_up():
    assert nearest(at(0), at(0, 1), np.int16(4)).keys.tolist() == [[0, 1, -1, -1]]


@pytest.mark.parametrize(
    ("allowed", "kind", "says"),
    [
        ([0.0], WrongShape, "float64"),
        ([[0]], WrongShape, "int64"),
        ([True, False], WrongShape, r"bool.*2"),
        ([1, 0, 1], AmbiguousForm, None),
        ([3], OutOfRange, r"3.*3.*2"),
        ([-1], OutOfRange, None),
        ("abc", WrongType, "of type str"),
        ([[0], 1], WrongShape, "differ in length"),
    ],
)
def test_filters_that_are_refused(allowed, kind: type[UserError], says: str | None):
    with pytest.raises(kind, match=says):
        nearest(at(0), at(0, 1, 2), 1, allowed=allowed)


def test_filters_in_any_form():
    for allowed in ([1, 2], (2, 1), np.array([1, 2], np.uint8), [False, True, True], np.array([0, 1, 1], bool)):
        assert nearest(at(0), at(0, 1, 2), 2, allowed=allowed).keys.tolist() == [[1, 2]]
    assert nearest(at(0), at(0, 1, 2), 1, allowed=[]).keys.tolist() == [[-1]]


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [({"engine": "x"}, UnknownName, None), ({"engine": 3}, WrongType, "type int"), ({"threads": 0}, OutOfRange, None)],
)
def test_backends_and_threads_that_are_refused(options, kind: type[UserError], says: str | None):
    with pytest.raises(kind, match=says):
        nearest(at(0), at(0, 1, 2), 1, **options)


def test_rows_of_pandas_objects_must_agree():
    pandas = pytest.importorskip("pandas")
    frame, labels = pandas.DataFrame(at(0, 8)), pandas.Series(["a", "b"], index=[1, 0])
    with pytest.raises(OrderDiffers):
        evaluate_codes(frame, frame, labels, ["a", "b"])
    assert evaluate_codes(frame, frame, labels.reset_index(drop=True), ["a", "b"])["mAP@all"].value == 1
