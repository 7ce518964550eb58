"""Whatever the bytes of a message are, reading them gives a checked value or the one error."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from silohash.base.errors import NotFound, UnreadableMessage, UserError
from silohash.index.codes import pack
from silohash.search.hits import Hits, Query
from silohash.search.requests import Code, CodeRequest, Item, ItemRequest, SiloStatus, StatusRequest
from silohash.search.wire import decode_request, encode_answer, encode_refusal, encode_request
from tests.silos import decode_code, decode_hits, decode_item, decode_status

WORDS = pack([[1, -1] * 32])[0]
QUERY = Query(words=WORDS, bits=64, model_digest="3f2a", target="item", k=5, label="bird", radius_bits=9, tie_key=b"k")
HITS = Hits(
    ids=("a", "b"), distances=(1, 4), silos=("north", "north"), payloads=({"caption": "é"}, {"labels": ["x"]}),
    found_by=(("image",), ()), left_out={4: 2}, model_digests=frozenset({"3f2a"}),
)  # fmt: skip
ASKING_FOR_SCORES = replace(QUERY, target="image", content=np.arange(12, dtype=np.float16).reshape(1, 2, 6))
REQUESTS = [
    encode_request(request)
    for request in (QUERY, ASKING_FOR_SCORES, ItemRequest("a"), CodeRequest("a"), StatusRequest())
]
ITEM = Item(id="a", silo="north", modalities=("image",), payload={"caption": "two"})
ANSWERS = [
    encode_answer("north", HITS),
    encode_answer("north", replace(HITS, distances=(4, 1), left_out={}, scores=(0.5, -1.0))),
    encode_answer("north", Item(id="a", modalities=("text",), payload={"caption": "two"})),
    encode_answer("north", Code(words=WORDS, bits=64, model_digest="3f2a", modality="image")),
    encode_answer("north", SiloStatus(name="north", items={"image": 2}, labels={"x": 1}, examples=(ITEM,))),
    encode_refusal("north", UserError("busy")),
]
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
payloads = st.fixed_dictionaries({}, optional={"caption": texts, "labels": st.lists(texts, max_size=3), "file": texts})


@st.composite
def damaged(draw, messages):
    """Returns a message that was cut, or of which bytes were replaced, inserted or repeated."""
    content = bytearray(draw(st.sampled_from(messages)))
    for _ in range(draw(st.integers(1, 4))):
        at, end = sorted(draw(st.tuples(*[st.integers(0, len(content))] * 2)))
        kind = draw(st.sampled_from(["cut", "replace", "repeat"]))
        if kind == "cut":
            del content[at:end]
        elif kind == "replace":
            content[at : at + draw(st.integers(0, 3))] = draw(st.binary(min_size=1, max_size=4))
        else:
            content[at:at] = content[at:end]
    return bytes(content)


@st.composite
def altered(draw, messages):
    """Returns a message of JSON in which the value of one key has another type or size."""
    document = json.loads(draw(st.sampled_from(messages)))
    values = st.recursive(
        st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=5,
    )
    document[draw(st.sampled_from(sorted(document)))] = draw(values)
    return json.dumps(document).encode()


def read_answer(content):
    for read in (
        lambda: decode_hits(content, QUERY, "north"),
        lambda: decode_hits(content, replace(ASKING_FOR_SCORES, target="item"), "north"),
        lambda: decode_item(content, ItemRequest("a"), "north"),
        lambda: decode_code(content, CodeRequest("a"), "north"),
        lambda: decode_status(content, "north"),
    ):
        with suppress(UnreadableMessage, NotFound):
            yield read()


@given(damaged(REQUESTS) | altered(REQUESTS) | st.binary(max_size=100))
def test_reading_a_request_gives_a_request_or_the_one_error(content):
    with suppress(UnreadableMessage):
        request = decode_request(content)
        assert encode_request(request)


@given(damaged(ANSWERS) | altered(ANSWERS) | st.binary(max_size=100))
def test_reading_an_answer_gives_a_checked_value_or_the_one_error(content):
    for value in read_answer(content):
        if isinstance(value, Hits) and not value.missing_silos:
            assert set(value.silos) <= {"north"}
            assert value.model_digests == {"3f2a"}
            assert list(value.places) == sorted(value.places)
            assert all(0 <= distance <= 9 for distance in value.distances)
            assert len({len(value.ids), len(value.distances), len(value.payloads), len(value.found_by)}) == 1
            assert value.scores is None or (len(value.scores) == len(value) and np.isfinite(value.scores).all())
            assert len(value) <= 5


@settings(deadline=None)
@given(
    st.integers(8, 256), st.integers(0, 2**32), st.sampled_from(["item", "image", "text"]), st.integers(1, 2**31 - 1),
    st.none() | texts, st.none() | st.integers(0, 256), st.binary(max_size=32),
)  # fmt: skip
def test_every_query_survives_the_journey(bits, seed, target, k, label, radius, key):
    words = pack(np.random.default_rng(seed).choice([-1, 1], (1, bits)))[0]
    sent = Query(
        words=words, bits=bits, model_digest="m", target=target, k=k, label=label, radius_bits=radius, tie_key=key
    )
    arrived = decode_request(encode_request(sent))
    assert (arrived.words == words).all()
    assert {**vars(arrived), "words": 0} == {**vars(sent), "words": 0}


@settings(deadline=None)
@given(st.lists(st.tuples(texts, st.integers(0, 9), payloads), max_size=5, unique_by=lambda row: row[0]))
def test_all_hits_survive_the_journey(rows):
    rows = sorted(rows, key=lambda row: row[1])
    sent = Hits(
        ids=tuple(row[0] for row in rows),
        distances=tuple(row[1] for row in rows),
        silos=("north",) * len(rows),
        payloads=tuple(row[2] for row in rows),
        found_by=(("text",),) * len(rows),
        model_digests=frozenset({"3f2a"}),
    )
    assert vars(decode_hits(encode_answer("north", sent), QUERY, "north")) == vars(sent)
