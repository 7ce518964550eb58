"""Messages: what goes in comes out, and what is damaged is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import save

from silohash.base.errors import OtherVersion, UnreadableMessage
from silohash.methods import message
from silohash.methods.message import SECTIONS, Message


def full() -> Message:
    return Message(
        kind="update",
        sender="north",
        round=3,
        params={"image.hash.weight": np.arange(6, dtype=np.float32).reshape(2, 3)},
        extras={"memory": np.zeros((0, 4), np.float64)},
        sums={"count": np.asarray(7, np.int64)},
        records={"mask": np.array([True, False])},
        state={"codes": np.array([-1, 1], np.int8)},
        compressed={"image.hash.weight/half": np.array([0.5, -2.0], np.float16)},
        encrypted={"sums/data": np.arange(5, dtype=np.uint8)},
        weights={"image": 27.0, "text": 0.0},
        counts={"items": 27},
        scalars={"score": float("nan"), "loss": 0.1},
        notes={"task": "train"},
    )


def with_header(**changes: object) -> bytes:
    content = full().encode()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["silohash"])
    return save(full().arrays(), metadata={"silohash": json.dumps({**header, **changes})})


def test_round_trip_keeps_every_shape_and_type() -> None:
    sent = full()
    got = Message.decode(sent.encode())
    assert (got.kind, got.sender, got.round) == ("update", "north", 3)
    assert got.weights == sent.weights
    assert got.counts == sent.counts
    assert got.notes == sent.notes
    assert np.isnan(got.scalars["score"])
    assert got.scalars["loss"] == 0.1
    for name, array in sent.arrays().items():
        found = got.arrays()[name]
        assert (found.dtype, found.shape) == (array.dtype, array.shape), name
        assert np.array_equal(found, array)


def test_arrays_of_any_memory_layout() -> None:
    array = np.arange(12.0).reshape(3, 4)
    sent = Message("update", "s", 0, params={"turned": array.T, "stepped": array[:, ::2]})
    got = Message.decode(sent.encode())
    assert np.array_equal(got.params["turned"], array.T)
    assert np.array_equal(got.params["stepped"], array[:, ::2])


def test_numbers_of_numpy_and_names_with_slashes() -> None:
    sent = Message(
        "update",
        "s",
        0,
        state={"model/image/x": np.ones(1)},
        weights={"image": np.float32(2)},
        counts={"n": np.int64(3)},
    )
    got = Message.decode(sent.encode())
    assert list(got.state) == ["model/image/x"]
    assert got.weights == {"image": 2.0}
    assert got.counts == {"n": 3}


def test_size_is_that_of_the_arrays() -> None:
    assert full().size_bytes() == 6 * 4 + 0 + 8 + 2 + 2 + 2 * 2 + 5
    assert len(full().encode()) > full().size_bytes()
    assert {name.split("/")[0] for name in full().arrays()} == set(SECTIONS)


def test_another_schema_is_named_before_anything_else_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    newer = with_header(schema=message.SCHEMA_VERSION + 1)
    with pytest.raises(OtherVersion, match=r"2.*1"):
        Message.decode(newer)
    monkeypatch.setattr(message, "SECTIONS", ("params", "new"))
    with pytest.raises(OtherVersion):
        Message.decode(newer)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"abc",
        b"\xff" * 64,
        with_header(round=None, weights=None, schema="one"),
        save({"elsewhere/x": np.ones(1)}, metadata={"silohash": "{}"}),
        save({"params/x": np.ones(1)}),
        with_header(weights={"image": "heavy"}),
        with_header(weights=["image"]),
        with_header(counts={"items": None}),
        with_header(counts={"items": float("inf")}),
        with_header(round="third"),
        save({"params/x": np.ones(1)}, metadata={"silohash": "[" * 100_000}),
    ],
    ids=[
        "nothing",
        "short",
        "no safetensors",
        "no schema number",
        "unknown section",
        "no header",
        "weight",
        "weights",
        "count",
        "infinite count",
        "round",
        "nested",
    ],
)
def test_damaged_content_is_refused(content: bytes) -> None:
    with pytest.raises(UnreadableMessage, match=f"{len(content):,}"):
        Message.decode(content)


def test_a_message_without_arrays_is_all_header() -> None:
    sent = Message("broadcast", "server", 0)
    content = sent.encode()
    assert int.from_bytes(content[:8], "little") == len(content) - 8
    assert Message.decode(content) == sent
    assert sent.size_bytes() == 0


@pytest.mark.parametrize("kept", [7, 8, 9, 40])
def test_a_header_that_is_cut_off_is_named(kept: int) -> None:
    content = Message("broadcast", "server", 0).encode()
    with pytest.raises(UnreadableMessage):
        Message.decode(content[:kept])
    with pytest.raises(UnreadableMessage):
        Message.decode(content[:-1])
