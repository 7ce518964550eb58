"""Weighted averages per parameter group, and limits on weights."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from silohash.methods.federated.averaging import Aggregation, capped_weights, weighted_average
from silohash.methods.message import Message

NAMES = ("image.w", "text.w")


def update(value: float, image: float, text: float, *, steps: int = 0) -> Message:
    return Message(
        "update", "s", 0,
        params={**{name: np.full((2, 3), value, np.float32) for name in NAMES}, "image.steps": np.asarray(steps)},
        weights={"image": image, "text": text},
    )  # fmt: skip


def current(value: float = 9.0) -> dict[str, np.ndarray]:
    return dict(update(value, 0, 0).params)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("block", [3, 20, 100])
def test_equals_the_weighted_mean_with_loops(block: int, order: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("silohash.methods.federated.averaging.BLOCK_VALUES", block)
    generator = np.random.default_rng(0)
    parts = [generator.normal(size=(4, 5)).astype(np.float32, order) for _ in range(3)]
    weights = (3.0, 5.0, 11.0)
    updates = [
        Message("update", "s", 0, params={"image.w": p}, weights={"image": w})
        for p, w in zip(parts, weights, strict=True)
    ]
    found = weighted_average({"image.w": np.zeros((4, 5), np.float32, order)}, updates)["image.w"]
    assert found.dtype == np.float32
    for i in range(4):
        for j in range(5):
            mean = sum(w * float(p[i, j]) for p, w in zip(parts, weights, strict=True)) / 19.0
            assert abs(float(found[i, j]) - mean) < 1e-6


def test_silo_without_texts_does_not_move_the_text_tower() -> None:
    found = weighted_average(current(), [update(1.0, 10, 0), update(3.0, 30, 8)])
    assert np.allclose(found["image.w"], 2.5)
    assert np.array_equal(found["text.w"], np.full((2, 3), 3.0, np.float32))


def test_group_in_which_nobody_has_weight_is_left_out() -> None:
    found = weighted_average(current(), [update(1.0, 10, 0), update(3.0, 30, 0)])
    assert set(found) == {"image.w", "image.steps"}
    assert weighted_average(current(), [update(1.0, 0, 0)]) == {}
    assert weighted_average(current(), []) == {}


def test_whole_numbers_take_the_maximum() -> None:
    found = weighted_average(current(), [update(1.0, 1, 1, steps=4), update(1.0, 1, 1, steps=7)])["image.steps"]
    assert found == 7
    assert found.dtype == np.asarray(0).dtype


def test_part_of_the_parameters() -> None:
    partial = Message("update", "s", 0, params={"text.w": np.ones((2, 3), np.float32)}, weights={"text": 2.0})
    assert set(weighted_average(current(), [partial])) == {"text.w"}


def test_one_update_is_taken_bit_for_bit() -> None:
    only = update(0.1, 27, 27)
    assert np.array_equal(weighted_average(current(), [only])["image.w"], only.params["image.w"])


def test_inputs_are_left_alone() -> None:
    before, updates = current(), [update(1.0, 10, 1), update(3.0, 30, 8)]
    weighted_average(before, updates)
    assert np.array_equal(before["image.w"], current()["image.w"])
    assert (updates[0].params["image.w"] == 1.0).all()


@pytest.mark.parametrize(
    ("weights", "cap", "expected"),
    [
        ([8, 1, 1, 0], 0.5, [5, 2.5, 2.5, 0]),
        ([1, 1, 1, 1], 0.5, [1, 1, 1, 1]),
        ([8, 8, 1, 1], 0.3, [5.4, 5.4, 3.6, 3.6]),
        ([9, 1, 0, 0], 0.3, [5, 5, 0, 0]),
        ([3, 1], 0.5, [2, 2]),  # exactly as many silos as the cap needs
        ([10, 5, 1, 1], 0.4, [6.8, 6.8, 1.7, 1.7]),  # the excess of the first brings the second above the cap
        ([6, 3, 1], 1.0, [6, 3, 1]),
        ([0, 0], 0.5, [0, 0]),
    ],
)
def test_capped_weights_keep_their_sum(weights: list[float], cap: float, expected: list[float]) -> None:
    np.testing.assert_allclose(capped_weights(np.asarray(weights, float), cap), expected)


def test_weights_below_the_cap_are_not_rounded() -> None:
    given = np.asarray([7.0, 11.0, 12.0])
    assert capped_weights(given, 0.4) is given


def test_an_update_without_weight_does_not_spoil_the_average() -> None:
    broken = update(np.nan, 0, 0)
    found = weighted_average(current(), [broken, update(3.0, 30, 8)])
    assert np.array_equal(found["image.w"], np.full((2, 3), 3.0, np.float32))
    unweighted = Message("update", "s", 0, params=dict(broken.params), weights={"text": 1.0})
    assert "image.w" not in weighted_average(current(), [unweighted])


def test_screens_are_applied_in_order_and_their_remarks_collected() -> None:
    first, second = update(1.0, 1, 1), update(2.0, 1, 1)

    def drop(current: Any, updates: Any, rejected: int, *, remark: str) -> Any:
        return updates[1:], {f"{len(updates)}": f"{remark}{rejected}"}

    screens = Aggregation(screens=(partial(drop, remark="a"), partial(drop, remark="b")))
    assert screens.screened({}, [first, second]) == ([], {"2": "a0", "1": "b0"})
    assert screens.screened({}, [first, second], 3) == ([], {"2": "a3", "1": "b3"})
    assert Aggregation().screened({}, [first]) == ([first], {})
    assert Aggregation().average is weighted_average
