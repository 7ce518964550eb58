"""Codes from any source: scores and neighbors computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.api.codes import evaluate_codes, nearest
from silohash.index.codes import Codes, pack
from silohash.types import UserError


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


def test_neighbors_with_filters_threads_and_engines():
    database, queries = at(*[n % 9 for n in range(100)]), at(*[n % 9 for n in range(70)])
    one = nearest(queries, database, 3)
    two = nearest(queries, database, 3, threads=2)
    assert (one.keys == two.keys).all()
    assert nearest(at(0), at(0, 1, 2), 1, allowed=np.array([1, 2])).keys.tolist() == [[1]]
    assert nearest(at(0), at(0, 1, 1), 1, allowed=np.array([False, True, True])).ties_at_cut.tolist() == [1]
    pytest.importorskip("faiss")
    assert (nearest(queries, database, 3, engine="faiss").keys == one.keys).all()


@pytest.mark.parametrize(
    ("arguments", "options", "says"),
    [
        ((at(0), at(0, bits=16), ["a"], ["a"]), {}, "8 bits and the database has 16"),
        ((codes(at(0), ["a"], "m"), codes(at(0), ["a"], "n"), ["a"], ["a"]), {}, "different models"),
        ((at(0), at(0), ["a"], ["a"]), {"query_ids": ["a", "b"]}, "2 query ids but 1 codes"),
        ((at(0), at(0), ["a"], ["a"]), {"database_ids": []}, "0 database ids but 1 codes"),
        ((at(0)[0], at(0), ["a"], ["a"]), {}, r"shape \(8,\)"),
        ((at(0), at(0), ["a"], ["a"]), {"measures": ["mPA@all"]}, "mAP"),
        ((at(0), at(0), ["a"], ["a"]), {"measures": ["R@1[by=pairs]"]}, r"by pairs, .* Remove by=pairs"),
        ((at(0), at(0), ["a"], ["a"]), {"measures": ["R@1[by=scores]"]}, r"by scores, .* Remove by=scores"),
        ((at(0), at(0), ["a", "b"], ["a"]), {}, "2"),
    ],
)
def test_what_does_not_fit_together_is_refused(arguments, options, says):
    with pytest.raises(UserError, match=says):
        evaluate_codes(*arguments, **options)


def test_neighbors_of_other_models_are_refused():
    with pytest.raises(UserError, match="different models"):
        nearest(codes(at(0), ["a"], "m"), codes(at(0), ["a"], "n"))
    with pytest.raises(UserError, match="8 bits and the database has 16"):
        nearest(at(0), at(0, bits=16))
