"""Refused updates: each reason, and what is accepted. The loop's side is tested in training/test_rounds.py."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from silohash.methods.federated.base import FederatedMethod, ServerState
from silohash.methods.federated.refusal import refusal
from silohash.methods.federated.shared_means import class_mean
from silohash.methods.message import Message
from silohash.methods.traits import Traits

SERVER = ServerState(params={"image.w": np.zeros((2, 3), np.float32)}, extras={"mean": np.zeros((2, 4))})
PLAIN = FederatedMethod(None)
GOOD = {"image.w": np.ones((2, 3), np.float32)}
BAD = np.asarray([[1.0, np.nan]])


def update(**sections: object) -> Message:
    whole = {"kind": "update", "round": 0, "params": GOOD, "weights": {"image": 1.0}, **sections}
    return Message(sender="a", **whole)


class Recording(FederatedMethod):
    """A method that sends sums per modality in its second round, and in every round a record."""

    traits = Traits(means=(class_mean("sum", "count", like="mean"),))

    def template(self, server: ServerState, *, kind: str, round: int) -> Message:  # noqa: A002
        """Return two sums per modality, and a record."""
        message = super().template(server, kind=kind, round=round)
        if kind == "statistics":
            return message
        sums = {f"{m}/{name}": np.zeros(2) for m in ("image", "text") for name in ("x", "y")} if round else {}
        return replace(message, sums=sums, records={"r": np.zeros(2)})


@pytest.mark.parametrize(
    ("sections", "kept", "reason"),
    [
        ({}, {}, None),
        ({"weights": {"image": 0.0}, "params": {}}, {"count": np.asarray(3)}, None),
        ({}, {"model": np.zeros(2)}, None),
        ({"records": {"steps": np.asarray([3])}}, {}, "steps is in neither the means nor the template of the method"),
        ({"records": {"r": BAD}}, {}, "records/r holds NaN or infinite values"),
        ({"extras": {"e": BAD}}, {}, "extras/e holds NaN or infinite values"),
        ({}, {"model/w": BAD}, "its stored model/w holds NaN or infinite values"),
        ({"params": {"text.w": np.zeros(1)}}, {}, "text.w is not a parameter of the global model"),
        (
            {"params": {"image.w": np.zeros((2, 3))}},
            {},
            "image.w has type float64, but float32 in the global model",
        ),
        ({"params": {}}, {}, "it has a weight for the parameters of image, and does not send them"),
        ({"weights": {"image": 1e16}}, {}, "its weights are {'image': 1e+16}"),
        ({"counts": {"items": -1}}, {}, "its count of items is not between 0 and 2^53"),
        ({"counts": {"items": 10**400}}, {}, "its count of items is not between 0 and 2^53"),
        ({"kind": "statistics"}, {}, "its statistics are empty"),
        ({"params": {"image.w": np.zeros((3, 2))}}, {}, "image.w has shape (3, 2), but (2, 3) in the global model"),
        ({"weights": {"image": -0.5}}, {}, "its weights are {'image': -0.5}"),
        ({"weights": {"image": float("inf")}}, {}, "its weights are {'image': inf}"),
    ],
)
def test_reasons(sections: dict, kept: dict, reason: str | None) -> None:
    assert refusal(update(**sections), kept, SERVER, PLAIN) == reason


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_every_value_must_be_finite(dtype: type) -> None:
    def found(values: object) -> str | None:
        return refusal(update(extras={"r": np.asarray(values, dtype)}), {}, SERVER, PLAIN)

    largest = np.finfo(dtype).max
    for finite in ([], [largest, largest], [largest, -largest], np.full((3, 2), largest, dtype).T):
        assert found(finite) is None
    for broken in ([np.inf, 1], [np.inf, -np.inf], [1, np.nan], [[largest, 0], [largest, -np.inf]]):
        assert found(broken) is not None


RECORD = {"records": {"r": np.zeros(2)}}
SUMS = {f"{modality}/{name}": np.ones(2) for modality in ("image", "text") for name in ("x", "y")}


def test_means_must_be_possible() -> None:
    possible = {"sum": np.full((2, 4), 3.0), "count": np.asarray([3.0, 3.0])}
    given = {"counts": {"items": 5}, **RECORD}
    assert refusal(update(sums=possible, **given), {}, SERVER, Recording(None)) is None
    wrong = {**possible, "sum": np.full((2, 4), 4.0)}
    assert refusal(update(sums=wrong, **given), {}, SERVER, Recording(None)) == "sum holds means outside -1 to 1"


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({**RECORD}, None),
        ({"records": {}}, "r is missing"),
        ({"records": {}, "counts": {"items": 0}}, None),
        ({"records": {"r": np.zeros(3)}}, "r is float64 (3,) instead of float64 (2,)"),
        ({"records": {"r": np.zeros(2, np.int64)}}, "r is int64 (2,) instead of float64 (2,)"),
        (
            {"records": {**RECORD["records"], "silo": np.asarray(1)}},
            "silo is in neither the means nor the template of the method",
        ),
        ({**RECORD, "sums": SUMS}, "image/x is in neither the means nor the template of the method"),
        ({**RECORD, "round": 1}, "image/x is missing"),
        ({**RECORD, "round": 1, "sums": SUMS}, None),
        ({**RECORD, "round": 1, "sums": {n: a for n, a in SUMS.items() if n.startswith("image/")}}, None),
        ({**RECORD, "round": 1, "sums": {n: a for n, a in SUMS.items() if n != "text/x"}}, "text/x is missing"),
        ({**RECORD, "round": 1, "sums": {**SUMS, "text/x": np.ones((2, 2))}}, "text/x is float64 (2, 2) instead of"),
        ({"kind": "statistics", "round": 1, "sums": SUMS}, "image/x is in neither the means nor the template of the method"),
        ({"kind": "statistics", "sums": {"sum": np.zeros((2, 4)), "count": np.zeros(2)}}, None),
    ],
)  # fmt: skip
def test_values_beside_means_are_those_of_the_template(sections: dict, reason: str | None) -> None:
    found = refusal(update(**{"counts": {"items": 5}, **sections}), {}, SERVER, Recording(None))
    assert found == reason if reason is None else str(found).startswith(reason)
