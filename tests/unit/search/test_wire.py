from __future__ import annotations

import json

import numpy as np
import pytest

from silohash.index.codes import pack
from silohash.search.hits import Query
from silohash.search.wire import (
    MOST_CHARACTERS,
    MOST_CONTENT_BYTES,
    MOST_REQUEST_BYTES,
    TIME_BYTES,
    CodeRequest,
    ItemRequest,
    StatusRequest,
    WireError,
    decode_request,
    encode_request,
    hexadecimal,
    with_time_left,
    words_of,
)


def query(**changes):
    values = {
        "words": pack([[1, -1, 1, 1, -1, -1, -1, -1, 1, -1]])[0],
        "bits": 10,
        "model_digest": "3f2a",
        "target": "item",
        "k": 7,
        "offset": 14,
        "radius_bits": 4,
        "label": "bird",
        "previews": True,
        "tie_key": b"\x00\xff",
    }
    return Query(**(values | changes))


def document(**changes):
    return json.loads(encode_request(query())) | changes


def test_a_query_is_sent_as_a_document_with_these_values():
    assert document() == {
        "version": 2,
        "kind": "search",
        "code": "0d01",  # bits 0, 2 and 3 of the first byte, bit 0 of the second
        "bits": 10,
        "model": "3f2a",
        "target": "item",
        "k": 7,
        "offset": 14,
        "radius_bits": 4,
        "label": "bird",
        "previews": True,
        "tie_key": "00ff",
        "asker": "",
        "request_id": "",
    }


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {
            "radius_bits": None,
            "label": None,
            "previews": False,
            "offset": 0,
            "tie_key": b"",
            "asker": "ann",
            "request_id": "7f",
        },
    ],
)
def test_a_query_arrives_as_it_was_sent(changes):
    sent = query(**changes)
    arrived = decode_request(encode_request(sent))
    assert isinstance(arrived, Query)
    assert (arrived.words == sent.words).all()
    assert arrived.words.dtype == sent.words.dtype
    for name in (
        *("bits", "model_digest", "target", "k", "offset", "radius_bits", "label", "previews", "tie_key"),
        *("asker", "request_id"),
    ):
        assert getattr(arrived, name) == getattr(sent, name), name


@pytest.mark.parametrize(
    "request_",
    [
        *(ItemRequest("a/1"), CodeRequest("a/1"), CodeRequest("é", "text"), StatusRequest()),
        *(ItemRequest("a", "ann", "7f"), CodeRequest("a", "image", "ann", "7f"), StatusRequest("7f")),
        CodeRequest("a", "image", "ann", "7f", "0123abcd"),
    ],
)
def test_other_requests_arrive_as_they_were_sent(request_):
    assert decode_request(encode_request(request_)) == request_


def test_unknown_keys_are_ignored():
    content = json.dumps({**document(), "priority": "high"}).encode()
    assert decode_request(content).k == 7


@pytest.mark.parametrize("sent", [query(), ItemRequest("a"), CodeRequest("a"), StatusRequest()])
def test_requests_of_earlier_versions_name_neither_asker_nor_id(sent):
    known = json.loads(encode_request(sent))
    earlier = {name: value for name, value in known.items() if name not in ("asker", "request_id")}
    assert len(earlier) < len(known)
    arrived = decode_request(json.dumps(earlier).encode())
    assert type(arrived) is type(sent)
    assert arrived.request_id == ""
    assert getattr(arrived, "asker", "") == ""


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"k": 0}, "k: input should be greater than or equal to 1, got 0"),
        ({"k": True}, "k: input should be a valid integer, got True"),
        ({"k": 1 << 31}, "k: input should be less than 2147483648"),
        ({"k": 3.0}, "k: input should be a valid integer"),
        ({"offset": -1}, "offset: input should be greater than or equal to 0"),
        ({"radius_bits": -1}, "radius_bits"),
        ({"target": "video"}, "target"),
        ({"bits": 7}, "bits: input should be greater than or equal to 8"),
        ({"bits": 257}, "bits: input should be less than or equal to 256"),
        ({"bits": 17}, "2 bytes are not a code of 17 bits"),
        ({"code": "0d05"}, "bits set beyond bit 10"),
        ({"code": "0d0"}, "code: string should match pattern"),
        ({"code": "0D01"}, "code: string should match pattern"),
        ({"tie_key": "xx"}, "tie_key: string should match pattern"),
        ({"label": "x" * (MOST_CHARACTERS + 1)}, "label: string should have at most 4096 characters"),
        ({"request_id": "7" * 65}, "request_id: string should have at most 64 characters"),
        ({"kind": "delete"}, "does not match any of the expected tags"),
        ({"version": 1}, "The request has version 1, and this silohash reads version 2."),
        ({"version": "2"}, "version"),
    ],
)
def test_a_wrong_value_is_named(changes, part):
    with pytest.raises(WireError) as error:
        decode_request(json.dumps(document(**changes)).encode())
    assert part.lower() in str(error.value).lower()


@pytest.mark.parametrize("content", [b"", b"null", b"[]", b"{}", b"\xff\xfe", b"[" * 60_000, b'{"version": 1e999}'])
def test_what_is_not_a_request_is_refused(content):
    with pytest.raises(WireError, match="does not have the expected form"):
        decode_request(content)


def test_requests_have_a_limit():
    long = json.dumps({**document(), "more": "x" * MOST_REQUEST_BYTES}).encode()
    with pytest.raises(WireError, match=f"The request has {len(long):,} bytes, and the limit is 1,048,576"):
        decode_request(long)
    with pytest.raises(WireError, match=r"the limit is 1,048,512\. Shorten it"):
        encode_request(query(label="x" * MOST_REQUEST_BYTES))
    exact = json.dumps(document()).encode().ljust(MOST_REQUEST_BYTES)
    assert decode_request(exact).k == 7
    with pytest.raises(WireError):
        decode_request(exact + b" ")


def test_the_longest_request_can_be_sent_with_its_time():
    spare = MOST_REQUEST_BYTES - TIME_BYTES - len(encode_request(ItemRequest("")))
    content = encode_request(ItemRequest("x" * spare))
    assert len(content) == MOST_REQUEST_BYTES - TIME_BYTES
    assert len(with_time_left(content, 1e12 + 0.5)) <= MOST_REQUEST_BYTES
    with pytest.raises(WireError, match="Shorten it"):
        encode_request(ItemRequest("x" * (spare + 1)))


@pytest.mark.parametrize("request_", [ItemRequest("a"), CodeRequest("a"), StatusRequest(), query()])
def test_the_time_that_the_sender_waits_is_optional_and_leaves_the_rest_as_it_is(request_):
    content = encode_request(request_)
    assert decode_request(content).seconds_left is None
    sent = with_time_left(content, 2.5)
    assert json.loads(sent) == json.loads(content) | {"seconds_left": 2.5}
    assert decode_request(sent).seconds_left == 2.5
    assert encode_request(decode_request(sent)) == content
    assert decode_request(with_time_left(content, 0)).seconds_left == 0


@pytest.mark.parametrize("seconds", [-1, "1", None, True, float("nan"), float("inf")])
def test_a_time_that_is_not_a_number_of_seconds_is_refused(seconds):
    with pytest.raises(WireError, match="does not have the expected form"):
        decode_request(json.dumps(document(seconds_left=seconds)).encode())


def test_text_that_is_not_unicode_is_refused_on_both_sides():
    with pytest.raises(WireError, match="cannot be written as UTF-8"):
        encode_request(ItemRequest("\ud800"))
    with pytest.raises(WireError):
        decode_request(b'{"version": 2, "kind": "item", "id": "\\ud800"}')


@pytest.mark.parametrize("bits", [8, 10, 16, 17, 32, 33, 64, 72, 128, 256])
def test_codes_of_all_lengths_keep_their_bits(bits):
    words = pack(np.random.default_rng(bits).choice([-1, 1], (1, bits)))[0]
    text = hexadecimal(words, bits)
    assert len(text) == 2 * -(-bits // 8)
    assert (words_of(text, bits, "It") == words).all()


def test_the_asker_travels_with_a_request_and_may_be_missing():
    for request in (ItemRequest("a", "ann"), CodeRequest("a", None, "ann"), CodeRequest("a", "text", "")):
        assert decode_request(encode_request(request)) == request
    assert decode_request(encode_request(query(asker="ann"))).asker == "ann"
    content = json.loads(encode_request(ItemRequest("a", "ann")))
    del content["asker"]
    assert decode_request(json.dumps(content).encode()) == ItemRequest("a")


@pytest.mark.parametrize("form", ["int32", "float16", "float32"])
def test_words_and_regions_arrive_as_they_were_sent(form):
    content = np.arange(-12, 12).reshape(1, 4, 6).astype(form)
    arrived = decode_request(encode_request(query(content=content, target="image")))
    np.testing.assert_array_equal(arrived.content, content)
    assert arrived.content.dtype == content.dtype
    assert decode_request(encode_request(query(content=content[:, ::2], target="image"))).content.shape == (1, 2, 6)
    assert "content" not in document(), "a query is sent as its code only unless a silo accepts more"


def with_content(**changes):
    sent = query(content=np.zeros((1, 4), np.int32), target="image")
    whole = json.loads(encode_request(sent))
    return json.dumps({**whole, "content": {**whole["content"], **changes}}).encode()


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"shape": [1, 5]}, "content has 16 bytes, its shape needs 20"),
        ({"shape": [1, 3]}, "content has 16 bytes, its shape needs 12"),
        ({"shape": [4]}, "content.shape"),
        ({"shape": [1, 1, 2, 2]}, "content.shape"),
        ({"shape": [-1, 4]}, "content.shape.0: input should be greater than or equal to 1"),
        ({"shape": [1 << 19, 1 << 19]}, f"the limit is {MOST_CONTENT_BYTES:,}"),
        ({"shape": [1, 1 << 40]}, "content.shape.1: input should be less than or equal to"),
        ({"shape": [1, 150_000], "values": "A" * 800_000}, "content has 600,000 bytes, its shape needs 600,000"),
        ({"type": "float64"}, "content.type"),
        ({"type": "object"}, "content.type"),
        ({"values": "not base64!"}, "content is not in base64"),
        ({"values": "A" * (2 * MOST_CONTENT_BYTES + 1)}, "limit"),
        ({"values": 3}, "content.values: input should be a valid string"),
    ],
)
def test_words_and_regions_that_are_not_what_they_claim_are_refused(changes, part):
    with pytest.raises(WireError) as error:
        decode_request(with_content(**changes))
    assert part.lower() in str(error.value).lower()


def test_words_and_regions_belong_to_one_side():
    with pytest.raises(WireError, match="pictures or texts are scored, and asks for both"):
        decode_request(encode_request(query(content=np.zeros((1, 4), np.int32))))
