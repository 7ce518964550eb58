"""Codes, labels and ids in any form: the right figure or a UserError, and no other exception.

The right figure is computed by plain loops over the truth from which the forms are made.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from silohash import Codes, UserError, evaluate_codes, nearest
from silohash.index.codes import pack

torch, pd = pytest.importorskip("torch"), pytest.importorskip("pandas")
pytestmark = pytest.mark.filterwarnings("ignore::silohash.PlausibilityWarning", "ignore:the matrix subclass")

QUERIES, ITEMS, CLASSES = 4, 9, 5
PHASES = [Phase.generate]
"""A failure is shown as it was found: shrinking forms of many kinds takes minutes."""

Make = Callable[[np.ndarray], Any]


def average_precision(bits_q, bits_d, relevant, kept):
    """Return the mean over queries of the average precision, expected over the orders of ties."""
    total = 0.0
    for query, code in enumerate(bits_q):
        there = kept[query]
        distance, right = (code != bits_d[there]).sum(1), relevant[query][there]
        found = 0.0
        for item in np.flatnonzero(right):
            before, tied = distance < distance[item], distance == distance[item]
            b, g, n, r = before.sum(), (before & right).sum(), tied.sum(), (tied & right).sum()
            found += sum((g + 1 + (t * (r - 1) / (n - 1) if n > 1 else 0)) / (b + t + 1) for t in range(n)) / n
        total += found / right.sum() if right.any() else 0.0
    return total / len(bits_q)


def outputs(bits):
    """Return real outputs with these signs, among them exact zeros."""
    values = np.where(bits, 0.7, -0.3) * (1 + np.arange(bits.size).reshape(bits.shape) % 7)
    return np.where(bits & (np.arange(bits.shape[1]) % 5 == 0), 0.0, values) + np.where(
        bits & (np.arange(bits.shape[1]) == 1), 1, 0
    )


def of_scipy(values):
    """Return numbers as a type that SciPy has."""
    return values.astype(np.float32) if values.dtype == np.float16 else values


CONTAINERS: dict[str, Make] = {
    "array": lambda x: x,
    "fortran": np.asfortranarray,
    "readonly": lambda x: np.broadcast_to(x, x.shape),
    "list": lambda x: x.tolist(),
    "tuples": lambda x: tuple(map(tuple, x.tolist())) if x.ndim == 2 else tuple(x),
    "rows": list,
    "object": lambda x: x.astype(object),
    "matrix": lambda x: np.asmatrix(x) if x.ndim == 2 else x,
    "masked": np.ma.masked_array,
    "tensor": torch.tensor,
    "tensor rows": lambda x: [torch.tensor(row) for row in x],
    "sparse": lambda x: scipy.sparse.csr_matrix(of_scipy(x)) if x.ndim == 2 else x,
    "sparse array": lambda x: scipy.sparse.coo_array(of_scipy(x)),
    "sparse tensor": lambda x: torch.tensor(x).to_sparse(),
    "frame": lambda x: pd.DataFrame(x) if x.ndim == 2 else pd.Series(x),
    "nullable": lambda x: pd.DataFrame(x).convert_dtypes() if x.ndim == 2 else pd.Series(x).convert_dtypes(),
    "arrow": lambda x: pa.array(x.tolist()),
}
NUMBERS = [np.int8, np.int64, np.float16, np.float32, np.float64]
CODES: dict[str, Make] = {
    "bits": lambda b: b.astype(int),
    "signs": lambda b: np.where(b, 1, -1),
    "bool": lambda b: b,
    "outputs": outputs,
}
LABELS: dict[str, Make] = {
    "0 and 1": lambda t: t.astype(int),
    "-1 and +1": lambda t: np.where(t, 1, -1),
    "bool": lambda t: t,
}


def cast(draw, values):
    """Return numbers as another type that holds them."""
    if values.dtype == bool:
        return values
    kinds = NUMBERS if (values == np.rint(values)).all() else NUMBERS[2:]
    return values.astype(draw(st.sampled_from(kinds)))


def form(draw, values):
    return CONTAINERS[draw(st.sampled_from(sorted(CONTAINERS)))](values)


@st.composite
def truths(draw):
    """Return bits with both values and labels, each of both sides."""
    seed, bits = draw(st.integers(0, 999)), draw(st.sampled_from([8, 12, 16, 64, 100]))
    generator = np.random.default_rng(seed)
    codes = [generator.random((count, bits)) < 0.5 for count in (QUERIES, ITEMS)]
    tables = [generator.random((count, CLASSES)) < 0.4 for count in (QUERIES, ITEMS)]
    for part in (*codes, *tables):
        part[0, :2] = (True, False)
    return codes, tables


ALL = np.ones((QUERIES, ITEMS), bool)


def right_figure(codes, tables, kept=ALL):
    return average_precision(*codes, (tables[0].astype(int) @ tables[1].T.astype(int)) > 0, kept)


def value(*arguments, **options):
    return evaluate_codes(*arguments, **options)["mAP@all"].value


@settings(phases=PHASES, suppress_health_check=[HealthCheck.too_slow])
@given(truths(), st.data())
def test_every_form_gives_the_right_figure(truth, data):
    codes, tables = truth
    draw = data.draw
    made, label = CODES[draw(st.sampled_from(sorted(CODES)))], LABELS[draw(st.sampled_from(sorted(LABELS)))]
    given_codes = [form(draw, cast(draw, made(side))) for side in codes]
    given_labels = [form(draw, cast(draw, label(side))) for side in tables]
    if draw(st.booleans()):
        given_labels = [[draw(st.sampled_from([list, set]))(np.flatnonzero(row).tolist()) for row in t] for t in tables]
        given_labels[0][0], given_labels[1][0] = set(given_labels[0][0]), set(given_labels[1][0])
    if draw(st.booleans()):
        names = np.array(["cat", "dog", "café", "1", "a|b"])
        given_labels = [[names[row].tolist() for row in table] for table in tables]
    assert value(*given_codes, *given_labels) == pytest.approx(right_figure(*truth), abs=1e-9)
    found = nearest(*given_codes, k=ITEMS)
    np.testing.assert_array_equal(found.distances, np.sort((codes[0][:, None] != codes[1]).sum(2), 1))


@settings(phases=PHASES)
@given(truths(), st.data())
def test_packed_bytes_and_class_numbers_give_the_right_figure(truth, data):
    codes, _ = truth
    draw = data.draw
    order = draw(st.sampled_from(["big", "little"]))
    packed = [
        np.packbits(side, axis=1, bitorder=order).astype(draw(st.sampled_from([np.uint8, np.int64]))) for side in codes
    ]
    numbers = [np.array(draw(st.lists(st.integers(0, 4), min_size=n, max_size=n))) for n in (QUERIES, ITEMS - 1)]
    numbers[1] = np.append(numbers[1], 4)
    tables = [np.eye(5, dtype=bool)[side] for side in numbers]
    shaped = [form(draw, cast(draw, side[:, None] if draw(st.booleans()) else side)) for side in numbers]
    found = value(*(form(draw, side) for side in packed), *shaped, bits=codes[0].shape[1])
    assert found == pytest.approx(right_figure(codes, tables), abs=1e-9)


@settings(phases=PHASES)
@given(truths(), st.lists(st.integers(0, 5), min_size=QUERIES + ITEMS, max_size=QUERIES + ITEMS), st.data())
def test_all_items_with_the_querys_id_are_left_out(truth, numbers, data):
    codes, tables = truth
    numbers = np.array(numbers)
    kept = numbers[:QUERIES, None] != numbers[QUERIES:]
    texts = data.draw(st.booleans())
    ids = [np.array([f"id {n}" for n in part]) if texts else part for part in (numbers[:QUERIES], numbers[QUERIES:])]
    names = [data.draw(st.sampled_from([list, tuple, np.array, pd.Series]))(part) for part in ids]
    measures = ["mAP@all", "mAP@3[ties=worst]", "nDCG@all", "mAP@all[ties=index]"]
    scores = evaluate_codes(*codes, *tables, query_ids=names[0], database_ids=names[1], measures=measures)
    assert scores["mAP@all"].value == pytest.approx(right_figure(codes, tables, kept), abs=1e-9)
    for query in range(QUERIES):
        if kept[query].any():
            one = [codes[0][[query]], codes[1][kept[query]], tables[0][[query]], tables[1][kept[query]]]
            try:
                alone = evaluate_codes(*one, measures=measures)
            except UserError:  # few items may all have the same code, which a table of booleans tells
                continue
            for measure, score in scores.items():
                assert score.per_query[query] == pytest.approx(alone[measure].value, abs=1e-9), measure


WRONG_CODES: dict[str, Make] = {
    "sigmoid": lambda b: 1 / (1 + np.exp(-outputs(b))),
    "packed": lambda b: np.packbits(b, axis=1),
    "packed int64": lambda b: np.packbits(b, axis=1).astype(int),
    "packed int8": lambda b: np.packbits(b, axis=1).view(np.int8),
    "packed floats": lambda b: np.packbits(b, axis=1).view(np.int8).astype(float),
    "words": lambda b: pack(np.where(b, 1, -1)),
    "0 and 255": lambda b: np.where(b, 255, 0).astype(np.uint8),
    "texts": lambda b: b.astype(int).astype(str),
    "infinite": lambda b: np.where(b, np.inf, -np.inf),
    "halves": lambda b: np.where(b, 0.5, 0.0),
    "negative": lambda b: np.where(b, -0.1, -5.0),
    "complex": lambda b: np.where(b, 1, -1).astype(complex),
    "columns": lambda b: b.T,
    "1 and 2": lambda b: np.where(b, 2, 1),
    "-1 and 0": lambda b: np.where(b, 0, -1),
}
WRONG_LABELS: dict[str, Make] = {
    "counts": lambda t: t * 3,
    "255": lambda t: np.where(t, 255, 0).astype(np.uint8),
    "probabilities": lambda t: np.where(t, 0.9, 0.1),
    "unknown": lambda t: np.where(t, 1.0, np.nan),
    "texts": lambda t: t.astype(int).astype(str),
    "text lists": lambda t: t.astype(int).astype(str).tolist(),
    "1 and 2": lambda t: np.where(t, 2, 1),
    "missing": lambda t: np.where(t, 1, None),
    "-1, 0, 1": lambda t: np.where(t, 1, -(np.arange(t.shape[1]) % 2)),
    "transposed": lambda t: t.T,
}


@settings(phases=PHASES)
@given(truths(), st.data())
def test_a_form_that_does_not_say_what_it_is_gives_the_right_figure_or_is_refused(truth, data):
    codes, tables = truth
    draw = data.draw
    code_forms, label_forms = CODES | WRONG_CODES, LABELS | WRONG_LABELS
    made = [code_forms[draw(st.sampled_from(sorted(code_forms)))](side) for side in codes]
    labels = [label_forms[draw(st.sampled_from(sorted(label_forms)))](side) for side in tables]
    bits = draw(st.sampled_from([None, None, codes[0].shape[1]]))
    try:
        given_codes = [form(draw, side) for side in made]
        given_labels = [form(draw, side) if isinstance(side, np.ndarray) else side for side in labels]
    except (
        TypeError,
        ValueError,
        RuntimeError,
        OverflowError,
        pa.ArrowException,
    ):  # a library without values of this type
        return
    try:
        found = value(*given_codes, *given_labels, bits=bits)
    except UserError:
        return
    assert found == pytest.approx(right_figure(*truth), abs=1e-9)


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.sampled_from([2**40, 2**70, -(2**63)]),
    st.floats(),
    st.text(max_size=3),
    st.binary(max_size=2),
    st.sampled_from(
        [pd.NA, pd.NaT, np.float16(1), np.uint8(255), np.str_("a"), np.datetime64("NaT"), 1j, object(), {1: 2}]
    ),
    st.sampled_from([torch.tensor(1.0), torch.tensor([1, 0]), np.array(None), np.array(3), range(3), iter(())]),
)
SMALL = st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 2, 8, 9]))
THINGS = st.one_of(
    SCALARS,
    st.recursive(SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=3), st.tuples(inner, inner)), max_leaves=12),
    st.lists(st.lists(st.sampled_from([0, 1, -1, 0.5, None, True]), min_size=8, max_size=8), min_size=1, max_size=3),
    arrays.arrays(st.one_of(arrays.scalar_dtypes(), st.just(np.dtype(object)), st.just(np.dtype("i4,f4"))), SMALL),
    arrays.arrays(st.sampled_from([np.int8, np.float32, np.bool_]), SMALL),
    arrays.arrays(np.float64, SMALL).map(lambda x: np.ma.masked_greater(x, 0.5)),
    arrays.arrays(np.float32, SMALL).map(torch.tensor),
    st.sampled_from(
        [torch.zeros(2, 8, device="meta"), torch.zeros(2, 8, dtype=torch.bfloat16), torch.eye(8).to_sparse_csr()]
    ),
    st.sampled_from(
        [scipy.sparse.random(3, 8, 0.5), pd.DataFrame({"a": ["x", None]}), pd.Series([1, None]), pd.Index([1])]
    ),
    st.sampled_from(
        [pa.table({"a": [1]}), pa.array([[1, 0], None]), pd.Categorical(["a"]), set(), frozenset({1}), "ab", b"ab"]
    ),
)
OPTIONS = st.one_of(
    SCALARS, st.sampled_from([["mAP@all", 3], [], "mAP@", "mAP@1" + "0" * 40, "P@2", "flat", "faiss"]), THINGS
)


@settings(phases=PHASES, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_nothing_but_a_user_error_leaves(data):
    """Some arguments are as they should be, so that the others are looked at."""
    draw = data.draw
    fine = np.tile([[1, -1], [-1, 1], [1, 1]], (1, 4))

    def perhaps(good: Any, other: Any = THINGS) -> Any:
        return good if draw(st.integers(0, 2)) else draw(other)

    arguments = [
        perhaps(fine),
        perhaps(fine),
        perhaps([0, 1, 1]),
        perhaps(["a", "b", "c"] if draw(st.booleans()) else [2, 1, 1]),
    ]
    options = {
        "query_ids": perhaps(None),
        "database_ids": perhaps(None),
        "measures": perhaps("mAP@all", OPTIONS),
        "bits": perhaps(None, OPTIONS),
    }
    others = {
        name: perhaps(good, OPTIONS) for name, good in (("k", 1), ("allowed", None), ("engine", "flat"), ("threads", 1))
    }
    made = {"words": perhaps(pack(fine)), "bits": perhaps(8, OPTIONS), "ids": perhaps(["a", "b", "c"])}
    about = {"modality": perhaps("image", OPTIONS), "model_digest": perhaps("m", OPTIONS)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call in (
            lambda: evaluate_codes(*arguments, **options),
            lambda: nearest(*arguments[:2], **others),
            lambda: Codes(**made, **about).take(perhaps(np.array([1]), OPTIONS)).signs(),
        ):
            with suppress(UserError):
                call()
