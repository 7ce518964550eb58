"""Sums over silos equal those of the pooled items, for every partition and every order of the silos."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from silohash.methods.federated.second_moments import SecondMoments, ridge_weights, second_moments
from silohash.methods.federated.statistics import sum_statistics
from silohash.methods.message import Message

WIDTH, CLASSES = 6, 4


@dataclass(frozen=True)
class Case:
    """Items, the silo of each, and which silos have the modality."""

    vectors: np.ndarray
    labels: np.ndarray
    silo: np.ndarray
    holds: np.ndarray
    order: np.ndarray


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a partition. Silos may be empty or lack the modality, but at least one item takes part."""
    count, silos = draw(st.integers(1, 40)), draw(st.integers(1, 7))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    silo = np.asarray(draw(st.lists(st.integers(0, silos - 1), min_size=count, max_size=count)))
    holds = np.asarray(draw(st.lists(st.booleans(), min_size=silos, max_size=silos)))
    holds[silo[0]] = True
    scale = 10.0 ** draw(st.integers(-3, 3))
    return Case(
        vectors=(scale * generator.normal(loc=draw(st.integers(-3, 3)), size=(count, WIDTH))).astype(np.float32),
        labels=(generator.random((count, CLASSES)) < 0.4).astype(np.float32),
        silo=silo,
        holds=holds,
        order=generator.permutation(silos),
    )


def total_of(case: Case, order: np.ndarray) -> SecondMoments:
    """Return the total over silos, as the server adds it up."""
    updates = []
    for silo in order:
        rows = np.flatnonzero((case.silo == silo) & case.holds[silo])
        sums = second_moments(case.vectors[rows], case.labels[rows]).to_sums("image")
        updates.append(Message.decode(Message("update", f"silo-{silo}", 0, sums=sums).encode()))
    return SecondMoments.from_sums(sum_statistics(updates), "image")


def close(first: np.ndarray, second: np.ndarray, most: float) -> bool:
    """Return whether two arrays differ by at most a share of the largest value."""
    return bool(np.abs(first - second).max() <= most * max(float(np.abs(second).max()), 1e-300))


@settings(max_examples=100, deadline=None)
@given(cases())
def test_sums_over_silos_are_those_of_the_pooled_items(case: Case) -> None:
    rows = case.holds[case.silo]
    pooled = second_moments(case.vectors[rows], case.labels[rows])
    found = total_of(case, np.arange(len(case.holds)))
    for name in vars(pooled):
        assert close(getattr(found, name), getattr(pooled, name), 1e-12), name
    expected = ridge_weights(pooled, penalties=[0.3])
    if np.ptp(case.vectors[rows], axis=0).any():
        assert close(ridge_weights(found, penalties=[0.3]), expected, 1e-5)


@settings(max_examples=50, deadline=None)
@given(cases())
def test_the_order_of_the_silos_does_not_matter(case: Case) -> None:
    first, other = total_of(case, np.arange(len(case.holds))), total_of(case, case.order)
    for name in vars(first):
        assert close(getattr(other, name), getattr(first, name), 1e-12), name
