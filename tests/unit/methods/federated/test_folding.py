"""Collections of updates: a fold equals a list, bit for bit, and holds one model however many silos there are."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest

from silohash.methods.federated.averaging import weighted_average
from silohash.methods.federated.folding import Folded, Listed
from silohash.methods.federated.statistics import sum_statistics
from silohash.methods.message import Message
from silohash.methods.stored import Spool, StoredArrays

CURRENT = {
    "image.w": np.zeros((5, 3), np.float32),
    "text.w": np.zeros(7, np.float32),
    "image.steps": np.asarray(0),
    "other.w": np.zeros(2, np.float64),
}


def drawn(count: int, seed: int = 0) -> list[Message]:
    """Return random updates. The group ``other`` has no weight in any of them."""
    generator = np.random.default_rng(seed)
    return [
        Message(
            kind="update", sender=f"silo-{number}", round=3,
            params={n: np.asarray(generator.normal(size=a.shape) * 10).astype(a.dtype) for n, a in CURRENT.items()},
            sums={"total": generator.normal(size=4).astype(np.float32), "items": np.asarray(float(number))},
            weights={"image": float(generator.integers(0, 40)), "text": float(generator.random()), "other": 0.0},
            counts={"items": number},
        )
        for number in range(count)
    ]  # fmt: skip


def totals(updates: list[Message]) -> dict[str, float]:
    return {group: sum(update.weights[group] for update in updates) for group in ("image", "text", "other")}


def folded(updates: list[Message], expected: dict[str, float]) -> Message:
    fold = Folded(CURRENT)
    fold.expect([expected])
    for update in updates:
        fold.add(update)
    (one,) = fold.updates()
    return one


@pytest.mark.parametrize("count", [1, 2, 23])
def test_a_fold_equals_a_list_to_the_bit(count: int) -> None:
    updates = drawn(count)
    one = folded(updates, totals(updates))
    for given in ([one], updates):
        found = weighted_average(CURRENT, given)
        expected = {}
        for name, before in CURRENT.items():
            group = name.split(".")[0]
            total = totals(updates)[group]
            if name == "image.steps" and total:
                expected[name] = max(int(update.params[name]) for update in updates)
            elif total:
                mean = np.zeros_like(before)
                for update in updates:
                    mean = mean + update.params[name] * np.float32(update.weights[group] / total)
                expected[name] = mean
        assert found.keys() == expected.keys()
        assert all(np.array_equal(found[name], expected[name]) for name in expected)
    sums = sum_statistics(updates)
    assert all(np.array_equal(one.sums[name], sums[name]) for name in sums)
    assert sums.keys() == one.sums.keys()
    assert dict(one.weights) == totals(updates)
    assert (one.round, one.counts["items"]) == (3, sum(range(count)))
    assert not one.records


@pytest.mark.parametrize("left_out", [0, 7])
def test_other_weights_than_announced_change_the_mean_by_rounding_only(left_out: int) -> None:
    updates = drawn(12)
    expected = totals(updates)
    del updates[left_out]
    updates[3] = replace(updates[3], weights={**updates[3].weights, "text": 5.0})
    one, all_of_them = weighted_average(CURRENT, [folded(updates, expected)]), weighted_average(CURRENT, updates)
    assert one.keys() == all_of_them.keys()
    for name in one:
        np.testing.assert_allclose(one[name], all_of_them[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "expected",
    [{}, {"image": 0.0, "text": float("nan")}, {"image": -1.0, "text": float("inf")}, {"image": 1e300, "text": 1e16}],
)
def test_useless_announcements_do_no_harm(expected: dict[str, float]) -> None:
    updates = drawn(12)
    one, all_of_them = weighted_average(CURRENT, [folded(updates, expected)]), weighted_average(CURRENT, updates)
    for name in all_of_them:
        np.testing.assert_allclose(one[name], all_of_them[name], rtol=1e-5, atol=1e-5)


def test_parameters_that_only_some_silos_send_are_averaged_over_them() -> None:
    updates = drawn(6)
    for number in (1, 4):
        updates[number] = replace(updates[number], params={"text.w": updates[number].params["text.w"]})
    one, all_of_them = (weighted_average(CURRENT, given) for given in ([folded(updates, totals(updates))], updates))
    assert np.array_equal(one["text.w"], all_of_them["text.w"])
    np.testing.assert_allclose(one["image.w"], all_of_them["image.w"], rtol=1e-5, atol=1e-6)


def test_without_updates_there_is_nothing_to_aggregate() -> None:
    assert Folded(CURRENT).updates() == []


def alive(collection: Folded | Listed, count: int) -> int:
    """Return how many of the arrays of the given updates are still in memory after all have been added."""
    seen = []
    for number in range(count):
        update = drawn(1, seed=number)[0]
        seen.append(weakref.ref(update.params["image.w"]))
        collection.add(update)
        del update
    gc.collect()
    return sum(reference() is not None for reference in seen)


def test_a_fold_holds_no_update_and_a_list_holds_those_that_fit() -> None:
    size = sum(array.nbytes for array in [*drawn(1)[0].params.values(), *drawn(1)[0].sums.values()])
    assert alive(Folded(CURRENT), 50) == 0
    with Spool(held_bytes=3 * size) as spool:
        listed = Listed(spool)
        assert alive(listed, 50) in {3, 4}  # the statistics of the fourth do not fit, or its parameters
        assert len(listed.updates()) == 50
        assert isinstance(listed.updates()[-1].params, StoredArrays)


def test_a_list_gives_the_same_updates_whether_in_memory_or_on_disk() -> None:
    updates = drawn(9)
    for held_bytes in (0, 500, 1 << 30):
        with Spool(held_bytes) as spool:
            listed = Listed(spool)
            for update in updates:
                listed.add(update)
            for given, found in zip(updates, listed.updates(), strict=True):
                assert (found.sender, found.weights, found.counts) == (given.sender, given.weights, given.counts)
                for name, array in given.arrays().items():
                    assert np.array_equal(found.arrays()[name], array)
                    assert found.arrays()[name].dtype == array.dtype
            average = weighted_average(CURRENT, listed.updates())
            assert all(np.array_equal(average[name], a) for name, a in weighted_average(CURRENT, updates).items())
