"""Refused updates: each reason, and what is accepted. The loop's side is tested in runtime/test_rounds.py."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.exchange.message import Message
from silohash.federated.base import ServerState
from silohash.federated.refusal import refusal
from silohash.federated.shared_means import class_mean

SERVER = ServerState(params={"image.w": np.zeros((2, 3), np.float32)}, extras={"mean": np.zeros((2, 4))})
GOOD = {"image.w": np.ones((2, 3), np.float32)}
BAD = np.asarray([[1.0, np.nan]])


def update(**sections: object) -> Message:
    return Message(kind="update", sender="a", round=0, **{"params": GOOD, "weights": {"image": 1.0}, **sections})


@pytest.mark.parametrize(
    ("sections", "kept", "reason"),
    [
        ({}, {}, None),
        ({"weights": {"image": 0.0}, "params": {}}, {"count": np.asarray(3)}, None),
        ({"records": {"steps": np.asarray([3])}}, {"model": np.zeros(2)}, None),
        ({"records": {"r": BAD}}, {}, "records/r holds NaN or infinite values"),
        ({"extras": {"e": BAD}}, {}, "extras/e holds NaN or infinite values"),
        ({}, {"model/w": BAD}, "its stored model/w holds NaN or infinite values"),
        ({"params": {"text.w": np.zeros(1)}}, {}, "text.w is not a parameter of the global model"),
        ({"params": {"image.w": np.zeros((3, 2))}}, {}, "image.w has shape (3, 2), but (2, 3) in the global model"),
        ({"weights": {"image": -0.5}}, {}, "its weights are {'image': -0.5}"),
        ({"weights": {"image": float("inf")}}, {}, "its weights are {'image': inf}"),
    ],
)
def test_reasons(sections: dict, kept: dict, reason: str | None) -> None:
    assert refusal(update(**sections), kept, SERVER) == reason


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_every_value_must_be_finite(dtype: type) -> None:
    largest = np.finfo(dtype).max
    for finite in ([], [largest, largest], [largest, -largest], np.full((3, 2), largest, dtype).T):
        assert refusal(update(records={"r": np.asarray(finite, dtype)}), {}, SERVER) is None
    for broken in ([np.inf, 1], [np.inf, -np.inf], [1, np.nan], [[largest, 0], [largest, -np.inf]]):
        assert refusal(update(records={"r": np.asarray(broken, dtype)}), {}, SERVER) is not None


def test_means_must_be_possible() -> None:
    means = [class_mean("sum", "count", like="mean")]
    possible = {"sum": np.full((2, 4), 3.0), "count": np.asarray([3.0, 3.0])}
    given = {"counts": {"items": 5}}
    assert refusal(update(sums=possible, **given), {}, SERVER, means) is None
    assert refusal(update(sums={**possible, "sum": np.full((2, 4), 4.0)}, **given), {}, SERVER, means) is not None
