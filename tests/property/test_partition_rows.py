"""Partitions lose no item and repeat none, whatever they are asked."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from silohash.base.errors import UserError
from silohash.data.partitions.base import partition
from tests.archives import made_up_archive, stored_partition

beta = st.floats(1e-3, 1e3)
asked = st.one_of(
    st.tuples(st.just("iid"), st.just({})),
    st.tuples(
        st.just("dirichlet"), st.fixed_dictionaries({"beta": beta, "primary": st.sampled_from(["uniform", "rarest"])})
    ),
    st.tuples(st.just("quantity"), st.fixed_dictionaries({"beta": beta})),
    st.tuples(st.just("shards"), st.fixed_dictionaries({"classes": st.integers(1, 5), "leftover": st.just("merge")})),
    st.tuples(st.just("column"), st.just({"column": "place"})),
)


@settings(max_examples=60, deadline=None)
@given(asked, st.integers(1, 8), st.integers(0, 2**32), st.integers(20, 200), st.integers(1, 9))
def test_every_row_stands_in_exactly_one_silo(kind_and_params, silos, seed, count, classes):
    kind, params = kind_and_params
    archive = made_up_archive(count, classes=classes, seed=seed % 7)
    try:
        made = partition(archive, kind, silos, seed, minimum=0, **params)
    except UserError as error:
        assume(False)
        raise AssertionError from error
    assert made.disjoint
    np.testing.assert_array_equal(np.sort(np.concatenate([silo.rows for silo in made.silos])), np.arange(count))
    assert all((np.diff(silo.rows) > 0).all() for silo in made.silos)
    assert made.digest() == partition(archive, kind, silos, seed, minimum=0, **params).digest()
    assert stored_partition(made.to_json()).digest() == made.digest()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.01, 1.0), max_size=5), st.integers(0, 2**32), st.integers(20, 200))
def test_nested_silos_grow_and_lose_nothing(smaller, seed, count):
    made = partition(made_up_archive(count), "nested", None, seed, fractions=[*sorted(smaller), 1.0])
    for small, large in zip(made.silos, made.silos[1:], strict=False):
        assert np.isin(small.rows, large.rows).all()
    np.testing.assert_array_equal(made.silos[-1].rows, np.arange(count))
