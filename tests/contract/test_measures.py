"""Every measure: its closed form equals an average over all orders of tied items, and its name parses back to it."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest

from silohash.evaluate import MEASURES
from silohash.evaluate.kinds import kind_of
from silohash.evaluate.measures import Measure, describe
from silohash.evaluate.ties import Histogram

BITS, ITEMS, LEVELS = 3, 6, 3
FORMS = [(name, form) for name in MEASURES.table for form in kind_of(name).forms]


@pytest.mark.parametrize(("name", "form"), FORMS, ids=[form for _, form in FORMS])
def test_a_form_of_a_measure_is_its_name(name: str, form: str) -> None:
    measure = Measure.parse(form)
    assert measure.name == name
    assert Measure.parse(str(measure)) == measure
    assert str(measure).startswith(form.rstrip("]"))
    assert Measure.parse(form.lower().replace("radius", "RADIUS")) == measure
    [described] = (one for one in describe() if one["name"] == name)
    assert described["meaning"]
    assert form in described["forms"]


def orders(distances: np.ndarray) -> np.ndarray:
    """Return all orders of items by distance, ``(orders, N)``."""
    groups = [np.flatnonzero(distances == distance).tolist() for distance in np.unique(distances)]
    return np.array([sum(order, ()) for order in product(*map(permutations, groups))])


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("form", [form for _, form in FORMS])
def test_the_closed_form_equals_all_orders(form: str, seed: int) -> None:
    generator = np.random.default_rng(seed)
    distances = np.sort(generator.integers(0, BITS + 1, ITEMS))
    gains = generator.integers(0, LEVELS, ITEMS).astype(np.uint16) * (generator.random(ITEMS) < 0.7)
    gains = gains.astype(np.uint16)
    whole = Measure.parse(form)
    if whole.cutoff is not None:
        whole = Measure.parse(form.replace(str(whole.cutoff), str(1 + seed % 4)))
    for measure in whole.kind.parts(whole):
        levels = LEVELS if "gain" in measure.kind.conventions(measure) else 2
        counts = np.zeros((1, BITS + 1, levels), np.int64)
        np.add.at(counts, (0, distances, np.minimum(gains, levels - 1)), 1)
        found = measure.kind.over_orders(measure, Histogram(counts))
        if measure.radius_bits is not None:
            assert np.isnan([found.best[0], found.worst[0]]).all()
            continue
        values = measure.kind.in_known_order(measure, gains[orders(distances)])
        low, high = sorted((found.best[0], found.worst[0]))
        assert found.expected[0] == pytest.approx(values.mean())
        assert (low, high) == pytest.approx((values.min(), values.max()))
