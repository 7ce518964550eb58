"""Messages of any content survive the wire; truncated and altered bytes are refused, never misread as something else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from silohash.base.errors import UnreadableMessage, UserError
from silohash.methods.message import SECTIONS, Message

TYPES = st.sampled_from(
    [np.float32, np.float64, np.float16, np.int64, np.int8, np.uint8, np.uint16, np.uint64, np.bool_]
)
NAMES = st.text(min_size=1, max_size=12).filter(lambda name: name.isprintable())
ARRAYS = st.dictionaries(
    NAMES, arrays.arrays(TYPES, arrays.array_shapes(min_dims=0, min_side=0, max_dims=3)), max_size=3
)
NUMBERS = st.dictionaries(NAMES, st.floats(), max_size=2)


@st.composite
def messages(draw) -> Message:
    return Message(
        kind=draw(NAMES),
        sender=draw(NAMES),
        round=draw(st.integers(-1, 1000)),
        **{section: draw(ARRAYS) for section in SECTIONS},
        weights=draw(st.dictionaries(NAMES, st.floats(0, 1e9), max_size=2)),
        counts=draw(st.dictionaries(NAMES, st.integers(0, 2**60), max_size=2)),
        scalars=draw(NUMBERS),
        notes=draw(st.dictionaries(NAMES, st.text(), max_size=2)),
    )


def same(first: Message, second: Message) -> bool:
    plain = ("kind", "sender", "round", "weights", "counts", "notes")
    if any(getattr(first, name) != getattr(second, name) for name in plain) or set(first.scalars) != set(
        second.scalars
    ):
        return False
    if not all(np.array_equal(value, second.scalars[name], equal_nan=True) for name, value in first.scalars.items()):
        return False
    ours, theirs = first.arrays(), second.arrays()
    return set(ours) == set(theirs) and all(
        array.dtype == theirs[name].dtype
        and array.shape == theirs[name].shape
        and array.tobytes() == theirs[name].tobytes()
        for name, array in ours.items()
    )


@given(messages())
def test_round_trip(sent: Message) -> None:
    assert same(sent, Message.decode(sent.encode()))


@given(messages(), st.data())
def test_truncated_bytes_are_refused(sent: Message, data) -> None:
    content = sent.encode()
    with pytest.raises(UnreadableMessage):
        Message.decode(content[: data.draw(st.integers(0, len(content) - 1))])


@given(messages(), st.data())
def test_altered_bytes_are_read_or_refused_and_nothing_else(sent: Message, data) -> None:
    content = bytearray(sent.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        read = Message.decode(bytes(content))
    except UserError:
        return
    assert isinstance(read, Message)


@given(st.binary(max_size=200))
def test_bytes_of_anyone_are_refused(content: bytes) -> None:
    with pytest.raises(UnreadableMessage):
        Message.decode(content)
