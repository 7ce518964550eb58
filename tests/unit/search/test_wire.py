"""Messages arrive as they were sent; whatever else arrives is refused with a clear reason; silos answer over the wire."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from dataclasses import replace

import numpy as np
import pytest

from silohash import __version__
from silohash.base.errors import NotFound, TimeOver, UnreadableMessage, UserError
from silohash.index.codes import pack
from silohash.index.server import seconds_left
from silohash.search import wire
from silohash.search.fields import MOST_CAPTION, MOST_CHARACTERS, MOST_CONTENT_BYTES, MOST_LABELS, MOST_PREVIEW
from silohash.search.hits import Hits, Query, silent
from silohash.search.policy import Policy
from silohash.search.reasons import kind_of
from silohash.search.requests import (
    MOST_EXAMPLES,
    MOST_LABEL_CHARACTERS,
    MOST_SUMMARY_LABELS,
    Code,
    CodeRequest,
    Item,
    ItemRequest,
    SiloStatus,
    StatusRequest,
    within_limits,
)
from silohash.search.wire import (
    CUT,
    MOST_ANSWER_BYTES,
    MOST_REQUEST_BYTES,
    TIME_BYTES,
    WireBus,
    decode_answer,
    decode_request,
    encode_answer,
    encode_refusal,
    encode_request,
    respond,
    with_time_left,
)
from tests.silos import (
    AnswerAfterRead,
    BytesInThreads,
    decode_code,
    decode_hits,
    decode_item,
    decode_status,
    made_up_codes,
    made_up_node,
    query_of,
)


def sent_query(**changes):
    values = {
        "words": pack([[1, -1, 1, 1, -1, -1, -1, -1, 1, -1]])[0],
        "bits": 10,
        "model_digest": "3f2a",
        "target": "item",
        "k": 7,
        "offset": 14,
        "radius_bits": 4,
        "label": "bird",
        "where": ["year>=1900"],
        "previews": True,
        "tie_key": b"\x00\xff",
    }
    return Query(**(values | changes))


def request_document(**changes):
    return json.loads(encode_request(sent_query())) | changes


def test_a_query_is_sent_as_a_document_with_these_values():
    assert request_document() == {
        "version": 2,
        "silohash": __version__,
        "kind": "search",
        "code": "0d01",  # bits 0, 2 and 3 of the first byte, bit 0 of the second
        "bits": 10,
        "model": "3f2a",
        "target": "item",
        "k": 7,
        "offset": 14,
        "radius_bits": 4,
        "label": "bird",
        "where": [["year", ">=", ["1900"]]],
        "facets": [],
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
            "source": "item",
        },
    ],
)
def test_a_query_arrives_as_it_was_sent(changes):
    sent = sent_query(**changes)
    arrived = decode_request(encode_request(sent))
    assert isinstance(arrived, Query)
    assert (arrived.words == sent.words).all()
    assert arrived.words.dtype == sent.words.dtype
    for name in (
        *("bits", "model_digest", "target", "k", "offset", "radius_bits", "label", "previews", "tie_key"),
        *("asker", "request_id", "source"),
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
    content = json.dumps({**request_document(), "priority": "high"}).encode()
    assert decode_request(content).k == 7


@pytest.mark.parametrize("sent", [sent_query(), ItemRequest("a"), CodeRequest("a"), StatusRequest()])
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
    with pytest.raises(UnreadableMessage) as error:
        decode_request(json.dumps(request_document(**changes)).encode())
    assert part.lower() in str(error.value).lower()


@pytest.mark.parametrize("content", [b"", b"null", b"[]", b"{}", b"\xff\xfe", b"[" * 60_000, b'{"version": 1e999}'])
def test_what_is_not_a_request_is_refused(content):
    with pytest.raises(UnreadableMessage, match="does not have the expected form"):
        decode_request(content)


def test_requests_have_a_limit():
    long = json.dumps({**request_document(), "more": "x" * MOST_REQUEST_BYTES}).encode()
    with pytest.raises(UnreadableMessage, match=f"The request has {len(long):,} bytes, and the limit is 1,048,576"):
        decode_request(long)
    with pytest.raises(UnreadableMessage, match=r"the limit is 1,048,512\. Shorten it"):
        encode_request(sent_query(label="x" * MOST_REQUEST_BYTES))
    exact = json.dumps(request_document()).encode().ljust(MOST_REQUEST_BYTES)
    assert decode_request(exact).k == 7
    with pytest.raises(UnreadableMessage):
        decode_request(exact + b" ")


def test_the_longest_request_can_be_sent_with_its_time():
    spare = MOST_REQUEST_BYTES - TIME_BYTES - len(encode_request(ItemRequest("")))
    content = encode_request(ItemRequest("x" * spare))
    assert len(content) == MOST_REQUEST_BYTES - TIME_BYTES
    assert len(with_time_left(content, 1e12 + 0.5)) <= MOST_REQUEST_BYTES
    with pytest.raises(UnreadableMessage, match="Shorten it"):
        encode_request(ItemRequest("x" * (spare + 1)))


@pytest.mark.parametrize("request_", [ItemRequest("a"), CodeRequest("a"), StatusRequest(), sent_query()])
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
    with pytest.raises(UnreadableMessage, match="does not have the expected form"):
        decode_request(json.dumps(request_document(seconds_left=seconds)).encode())


def test_text_that_is_not_unicode_is_refused_on_both_sides():
    with pytest.raises(UnreadableMessage, match="cannot be written as UTF-8"):
        encode_request(ItemRequest("\ud800"))
    with pytest.raises(UnreadableMessage):
        decode_request(b'{"version": 2, "kind": "item", "id": "\\ud800"}')


def test_the_asker_travels_with_a_request_and_may_be_missing():
    for request in (ItemRequest("a", "ann"), CodeRequest("a", None, "ann"), CodeRequest("a", "text", "")):
        assert decode_request(encode_request(request)) == request
    assert decode_request(encode_request(sent_query(asker="ann"))).asker == "ann"
    content = json.loads(encode_request(ItemRequest("a", "ann")))
    del content["asker"]
    assert decode_request(json.dumps(content).encode()) == ItemRequest("a")


@pytest.mark.parametrize("form", ["int32", "float16", "float32"])
def test_words_and_regions_arrive_as_they_were_sent(form):
    content = np.arange(-12, 12).reshape(1, 4, 6).astype(form)
    arrived = decode_request(encode_request(sent_query(content=content, target="image")))
    np.testing.assert_array_equal(arrived.content, content)
    assert arrived.content.dtype == content.dtype
    assert decode_request(encode_request(sent_query(content=content[:, ::2], target="image"))).content.shape == (
        1,
        2,
        6,
    )
    assert "content" not in request_document(), "a query is sent as its code only unless a silo accepts more"


def with_content(**changes):
    sent = sent_query(content=np.zeros((1, 4), np.int32), target="image")
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
    with pytest.raises(UnreadableMessage) as error:
        decode_request(with_content(**changes))
    assert part.lower() in str(error.value).lower()


def test_words_and_regions_belong_to_one_side():
    with pytest.raises(UnreadableMessage, match="pictures or texts are scored, and asks for both"):
        decode_request(encode_request(sent_query(content=np.zeros((1, 4), np.int32))))


MODEL = "3f2a" * 16
PICTURE = "data:image/jpeg;base64,/9j/"


def query(**changes):
    values = {"words": pack([[1] * 16])[0], "bits": 16, "model_digest": MODEL, "target": "item", "k": 3}
    return Query(**(values | changes))


def hits(**changes):
    values = {
        "ids": ("a", "b", "c"),
        "distances": (0, 2, 2),
        "silos": ("north",) * 3,
        "payloads": ({"caption": "two parrots", "labels": ["bird"], "preview": PICTURE, "file": "a.png"}, {}, {}),
        "found_by": (("image",), ("image", "text"), ("text",)),
        "left_out": {2: 4},
        "limited_silos": {"north": "It limits results to 3 per query."},
        "model_digests": frozenset({MODEL}),
    }
    return Hits(**(values | changes))


def document(**changes):
    return json.loads(encode_answer("north", hits())) | changes


def read(content, sent=None):
    return decode_hits(json.dumps(content).encode(), sent or query(), "north")


def test_hits_are_sent_as_a_document_with_these_values():
    assert document() == {
        "version": 2,
        "silohash": __version__,
        "kind": "hits",
        "silo": "north",
        "model": MODEL,
        "ids": ["a", "b", "c"],
        "distances": [0, 2, 2],
        "found_by": ["image", "both", "text"],
        "payloads": [{"caption": "two parrots", "labels": ["bird"], "preview": PICTURE, "file": "a.png"}, {}, {}],
        "left_out": [[2, 4]],
        "limited": "It limits results to 3 per query.",
        "step_bits": 1,
        "searched": 0,
        "edition": "",
        "applied": 0,
    }


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"limited_silos": {}, "left_out": {}},
        {"alterations": ("rounded", "noised")},
        {"alterations": ("ranks",), "distances": (None,) * 3, "found_by": ((),) * 3, "left_out": {}},
    ],
)
def test_hits_arrive_as_they_were_sent(changes):
    sent = hits(**changes)
    arrived = decode_hits(encode_answer("north", sent), query(), "north")
    assert vars(arrived) == vars(sent)


def test_no_hits_arrive_as_an_answer():
    none = hits(ids=(), distances=(), silos=(), payloads=(), found_by=(), left_out={}, limited_silos={})
    arrived = decode_hits(encode_answer("north", none), query(), "north")
    assert len(arrived) == 0
    assert arrived.answered


def test_a_silo_that_refuses_is_silent_with_its_reason():
    content = encode_answer("north", silent("north", "Its policy does not allow searching for texts."))
    arrived = decode_hits(content, query(), "north")
    assert arrived.missing_silos == {"north": "Its policy does not allow searching for texts."}
    assert not arrived.answered


def test_a_refusal_names_user_errors_and_hides_others():
    reason = "It failed (ValueError). Its log has the cause."
    for error, expected in ((UserError("No such label."), "No such label."), (ValueError("secret"), reason)):
        arrived = decode_hits(encode_refusal("north", error), query(), "north")
        assert arrived.missing_silos == {"north": expected}


def test_reasons_are_cut_and_made_visible():
    content = json.dumps(
        {"version": 2, "kind": "refusal", "silo": "north", "reason": "no\x1b[31m", "not_found": False}
    ).encode()
    assert decode_hits(content, query(), "north").missing_silos == {"north": "no⟨U+001B⟩[31m"}
    long = encode_refusal("north", UserError("x" * 9_999))
    assert decode_hits(long, query(), "north").missing_silos == {"north": "x" * MOST_CHARACTERS}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"silo": "south"}, 'It answered in the name of another silo, "south".'),
        ({"model": "beef"}, "It answered with codes of another model (beef instead of 3f2a3f2a3f2a)."),
        ({"ids": ["a", "b"]}, "It answered with columns of unequal length."),
        ({"payloads": [{}, {}]}, "It answered with columns of unequal length."),
        ({"found_by": []}, "It answered with columns of unequal length."),
        ({"ids": ["a", "b", "a"]}, "It answered with the same item twice."),
        ({"distances": [0, 3, 2]}, "It answered with distances that are not in ascending order."),
        ({"distances": [0, 2, 17]}, "It answered with a distance of 17 bits, beyond the limit of 16 bits."),
        ({"left_out": [[17, 1]]}, "It answered with items left out beyond the limit of 16 bits."),
        ({"distances": [-1, 2, 2]}, "distances.0: input should be greater than or equal to 0, got -1"),
        ({"distances": [0.5, 2, 2]}, "distances.0: input should be a valid integer"),
        ({"left_out": [[2, -1]]}, "left_out.0.1: input should be greater than or equal to 0, got -1"),
        ({"found_by": ["video", "", ""]}, "found_by.0: input should be '', 'image', 'text' or 'both'"),
        ({"payloads": [{"caption": 3}, {}, {}]}, "payloads.0.caption: input should be a valid string, got 3"),
        ({"payloads": [{"preview": "x" * (MOST_PREVIEW + 1)}, {}, {}]}, "payloads.0.preview: string should have at most"),
        ({"payloads": [{"caption": "x" * (MOST_CAPTION + 1)}, {}, {}]}, "payloads.0.caption: string should have at most"),
        ({"payloads": [{"labels": ["x"] * (MOST_LABELS + 1)}, {}, {}]}, "payloads.0.labels: list should have at most"),
        ({"kind": "summary"}, "field required"),
        ({"version": 3}, "Its answer has version 3, and this silohash reads version 2."),
    ],
)  # fmt: skip
def test_a_flaw_leaves_the_silo_out_with_a_clear_reason(changes, reason):
    with pytest.raises(UnreadableMessage) as error:
        read(document(**changes))
    assert reason.lower() in str(error.value).lower()


def test_limits_follow_the_query():
    with pytest.raises(UnreadableMessage, match="It answered with 3 hits when 2 were requested"):
        read(document(), query(k=2))
    assert len(read(document(), query(k=1, offset=2))) == 3
    assert len(read(document(), query(radius_bits=2))) == 3
    with pytest.raises(UnreadableMessage, match="a distance of 2 bits, beyond the limit of 1 bits"):
        read(document(), query(radius_bits=1))
    with pytest.raises(UnreadableMessage, match="It answered with sides other than image"):
        read(document(), query(target="image"))
    assert len(read(document(distances=[0, 2, 16]), query(radius_bits=99))) == 3


def test_an_answer_of_another_kind_is_refused():
    content = encode_answer("north", SiloStatus(name="north"))
    with pytest.raises(UnreadableMessage, match="It answered with summary instead of hits"):
        decode_hits(content, query(), "north")


def test_an_answer_that_is_too_large_is_not_read():
    content = encode_answer("north", hits())
    limit = content.ljust(MOST_ANSWER_BYTES)
    assert len(decode_hits(limit, query(), "north")) == 3
    with pytest.raises(UnreadableMessage, match="Its answer has 8,388,609 bytes, and the limit is 8,388,608"):
        decode_hits(limit + b" ", query(), "north")


def test_previews_that_do_not_fit_are_left_out_from_the_end():
    many = tuple({"caption": f"item {number}", "preview": PICTURE * 400} for number in range(10))
    sent = hits(
        ids=tuple(map(str, range(10))), distances=(1,) * 10, silos=("north",) * 10, payloads=many,
        found_by=(("image",),) * 10, limited_silos={},
    )  # fmt: skip
    whole = encode_answer("north", sent)
    content = encode_answer("north", sent, most_bytes=60_000)
    assert len(content) <= 60_000 < len(whole)
    arrived = decode_hits(content, query(k=10), "north")
    kept = ["preview" in payload for payload in arrived.payloads]
    assert 0 < sum(kept) < 10
    assert kept == sorted(kept, reverse=True)
    assert [payload["caption"] for payload in arrived.payloads] == [f"item {number}" for number in range(10)]
    assert f"the previews of the first {sum(kept)} items only" in arrived.limited_silos["north"]


def test_an_answer_that_does_not_fit_without_previews_is_an_error():
    with pytest.raises(
        UnreadableMessage, match=r"Its answer has [\d,]+ bytes, and the limit is 200\. Request fewer items"
    ):
        encode_answer("north", hits(), most_bytes=200)


def test_payloads_are_cut_to_the_limits_before_they_are_sent():
    payload = {
        "caption": "x" * (MOST_CAPTION + 5), "labels": ["y" * (MOST_CHARACTERS + 5)] * (MOST_LABELS + 5),
        "preview": "z" * (MOST_PREVIEW + 1), "file": "f" * (MOST_CHARACTERS + 1), "owner": "secret",
    }  # fmt: skip
    arrived = decode_hits(encode_answer("north", hits(payloads=(payload, {}, {}))), query(), "north")
    assert arrived.payloads[0] == {"caption": "x" * MOST_CAPTION, "labels": ["y" * MOST_CHARACTERS] * MOST_LABELS}


def test_a_released_item_arrives_as_it_was_sent():
    sent = Item(
        id="a", silo="north", modalities=("image", "text"), payload={"caption": "two parrots", "labels": ["bird"]}
    )
    content = encode_answer("north", sent)
    assert decode_item(content, ItemRequest("a"), "north") == sent
    with pytest.raises(UnreadableMessage, match="It answered with another item"):
        decode_item(content, ItemRequest("b"), "north")
    with pytest.raises(UnreadableMessage, match="in the name of another silo"):
        decode_item(content, ItemRequest("a"), "south")


def test_an_item_that_does_not_exist_is_not_found():
    content = encode_refusal("north", NotFound('The silo north does not have an item "z".'))
    with pytest.raises(NotFound, match='does not have an item "z"'):
        decode_item(content, ItemRequest("z"), "north")
    with pytest.raises(UnreadableMessage, match="busy"):
        decode_item(encode_refusal("north", UserError("busy")), ItemRequest("z"), "north")


def test_a_code_arrives_as_it_was_sent():
    sent = Code(words=pack([[1, -1] * 10])[0], bits=20, model_digest=MODEL, modality="text")
    content = encode_answer("north", sent)
    for modality in (None, "text"):
        arrived = decode_code(content, CodeRequest("a", modality), "north")
        assert (arrived.words == sent.words).all()
        assert (arrived.bits, arrived.model_digest, arrived.modality) == (20, MODEL, "text")
    with pytest.raises(UnreadableMessage, match="the code of the item's text instead of its image"):
        decode_code(content, CodeRequest("a", "image"), "north")
    damaged = json.dumps(json.loads(content) | {"bits": 30}).encode()
    with pytest.raises(UnreadableMessage, match="3 bytes are not a code of 30 bits"):
        decode_code(damaged, CodeRequest("a"), "north")


def test_another_version_of_silohash_is_logged_once_and_in_the_summary(monkeypatch, caplog):
    monkeypatch.setattr(wire, "_of_other_versions", set())
    answers = [encode_answer("north", SiloStatus(name="north")), encode_answer("south", SiloStatus(name="south"))]
    request = encode_request(StatusRequest())
    monkeypatch.setattr(wire, "__version__", "9.8.7")
    for _ in range(3):
        assert [decode_status(answers[0], "north").version, decode_request(request)] == [__version__, StatusRequest()]
    newer = encode_answer("south", SiloStatus(name="south"))
    assert decode_status(newer, "south").version == "9.8.7"
    assert [record.getMessage() for record in caplog.records] == [
        f"{sender} has silohash {__version__}, and this process 9.8.7" for sender in ("north", "The hub")
    ]
    nameless = json.loads(answers[1])
    del nameless["silohash"]
    assert decode_status(json.dumps(nameless).encode(), "south").version == ""


def test_a_summary_arrives_as_it_was_sent():
    example = {"caption": "two", "labels": ["bird"], "preview": PICTURE}
    sent = SiloStatus(
        name="north", items={"image": 3, "text": 2}, model_digest=MODEL, reason="Its texts are damaged.", reachable=True,
        fields=("caption", "preview"), labels={"bird": 2},
        examples=(Item(id="a", silo="north", modalities=("image",), payload=example),),
        models=(MODEL, "another"), version=__version__,
    )  # fmt: skip
    assert decode_status(encode_answer("north", sent), "north") == sent


def test_a_result_of_codes_without_sides_arrives_with_empty_sides():
    arrived = decode_hits(encode_answer("north", hits(found_by=())), query(), "north")
    assert arrived.found == ((), (), ())


def test_hits_with_text_that_is_not_unicode_are_an_error():
    with pytest.raises(UnreadableMessage, match="cannot be written as UTF-8"):
        encode_answer("north", replace(hits(), ids=("\ud800", "b", "c")))


SCORED = {"distances": (2, 0, 2), "left_out": {}, "scores": (0.5, 0.25, -3.0)}


def test_scores_arrive_as_they_were_sent():
    sent = hits(**SCORED)
    arrived = decode_hits(encode_answer("north", sent), query(content=np.zeros((1, 2))), "north")
    assert vars(arrived) == vars(sent)
    assert arrived.order == "score"


@pytest.mark.parametrize(
    ("changes", "sent", "reason"),
    [
        ({}, {}, "It answered with scores, although it was sent a code only."),
        ({"scores": [0.5, 0.25]}, {"content": np.zeros((1, 2))}, "It answered with columns of unequal length."),
        ({"scores": [0.5, 0.75, 0.25]}, {"content": np.zeros((1, 2))}, "not in descending order"),
        ({"scores": [0.5, 0.25, float("nan")]}, {"content": np.zeros((1, 2))}, "scores.2: input should be a finite number"),
        ({"scores": [float("inf"), 0, 0]}, {"content": np.zeros((1, 2))}, "scores.0: input should be a finite number"),
        ({"left_out": [[2, 1]]}, {"content": np.zeros((1, 2))}, "items left out at a distance"),
        ({"distances": [17, 0, 2]}, {"content": np.zeros((1, 2))}, "a distance of 17 bits, beyond the limit"),
    ],
)  # fmt: skip
def test_scores_that_cannot_be_right_leave_the_silo_out(changes, sent, reason):
    scored = json.loads(encode_answer("north", hits(**SCORED))) | changes
    with pytest.raises(UnreadableMessage) as error:
        read(scored, query(**sent))
    assert reason in str(error.value)


MAGNITUDES = {"magnitudes": np.arange(16, dtype=np.uint8) + 240}


def test_magnitudes_arrive_as_they_were_sent():
    asked = decode_request(encode_request(query(**MAGNITUDES)))
    assert (asked.magnitudes.tolist(), asked.magnitudes.dtype) == (MAGNITUDES["magnitudes"].tolist(), np.uint8)
    assert "magnitudes" not in json.loads(encode_request(query()))


@pytest.mark.parametrize("sent", ["ff" * 15, "ff" * 17, "f" * 32 + "g0", "ff" * 257, 7])
def test_other_magnitudes_are_refused(sent):
    document = json.loads(encode_request(query())) | {"magnitudes": sent}
    with pytest.raises(UnreadableMessage):
        decode_request(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("values", "sent", "reason"),
    [
        ([3, 4, 5], MAGNITUDES, ""),
        ([3, 4, 5], {}, "although it was not sent magnitudes"),
        ([3, 4], MAGNITUDES, "columns of unequal length"),
        ([3, 5, 4], MAGNITUDES, "not in ascending order"),
        ([3, 4, 16 * 255], MAGNITUDES, "an order value above 3960"),
        ([3, 4, -1], MAGNITUDES, "order_values.2"),
    ],
)
def test_order_values_are_checked(values, sent, reason):
    found = json.loads(encode_answer("north", hits())) | {"order_values": values, "distances": [0, 2, 2]}
    if not reason:
        assert read(found, query(**sent)).order_values == tuple(values)
        return
    with pytest.raises(UnreadableMessage) as error:
        read(found, query(**sent))
    assert reason in str(error.value)


@pytest.mark.parametrize(
    ("cosines", "sent", "reason"),
    [
        ([65536, 65000, 0], MAGNITUDES, ""),
        ([65536, 65000, 0], {}, "although it was not sent magnitudes"),
        ([65536, 65000], MAGNITUDES, "columns of unequal length"),
        ([65536, 65536, 0], MAGNITUDES, "impossible at the stated distance"),
        ([65536, None, 0], MAGNITUDES, "impossible at the stated distance"),
        ([65536, -1, 0], MAGNITUDES, "cosines.1"),
    ],
)
def test_cosines_are_checked(cosines, sent, reason):
    # The magnitudes of the two bits that differ have the sum 250, so the largest cosine is between these.
    total = int((MAGNITUDES["magnitudes"].astype(int) ** 2).sum())
    assert 65000 < 32768 * (1 + (1 - 250**2 / 2 / total) ** 0.5) < 65500
    found = json.loads(encode_answer("north", hits())) | {"cosines": cosines, "distances": [0, 2, 2]}
    found |= {"order_values": [0, 250, 250]} if sent else {}
    if not reason:
        assert read(found, query(**sent)).cosines == tuple(cosines)
        return
    with pytest.raises(UnreadableMessage) as error:
        read(found, query(**sent))
    assert reason in str(error.value)


def test_a_summary_states_whether_words_and_regions_are_accepted():
    for accepts in (True, False):
        content = encode_answer("north", SiloStatus(name="north", accepts_content=accepts))
        assert decode_status(content, "north").accepts_content is accepts
    earlier = json.loads(encode_answer("north", SiloStatus(name="north", accepts_content=True)))
    del earlier["accepts_content"]
    assert not decode_status(json.dumps(earlier).encode(), "north").accepts_content


def test_an_item_without_a_side_leaves_the_silo_out():
    released = json.loads(encode_answer("north", Item(id="a", modalities=("image",)))) | {"modalities": []}
    with pytest.raises(UnreadableMessage, match="modalities"):
        decode_item(json.dumps(released).encode(), ItemRequest("a"), "north")


BITS = 16
WORDS = made_up_codes(40, BITS, 1)


@pytest.fixture
def north(tmp_path):
    return made_up_node(tmp_path, "north", WORDS, BITS)


def test_a_silo_answers_a_search_as_its_node_does(north):
    query = query_of(WORDS, BITS, k=5, tie_key=b"key")
    response = respond(north, encode_request(query))
    expected = north.answer(query)
    assert vars(decode_hits(response.content, query, "north")) == vars(expected)
    assert response.error is None
    assert vars(response.answer) == vars(expected)
    assert response.request.k == 5


def test_a_silo_answers_the_other_requests(north):
    content = respond(north, encode_request(ItemRequest("7"))).content
    assert decode_item(content, ItemRequest("7"), "north").payload == {"caption": "item 7"}
    code = decode_code(respond(north, encode_request(CodeRequest("7"))).content, CodeRequest("7"), "north")
    assert (code.words == WORDS[7]).all()
    assert decode_status(respond(north, encode_request(StatusRequest())).content, "north").items == {"image": 40}


def test_policies_are_applied_before_anything_is_encoded(tmp_path):
    node = made_up_node(tmp_path, "north", WORDS, BITS, Policy(fields=(), max_results=2))
    content = respond(node, encode_request(query_of(WORDS, BITS, k=5))).content
    assert b"item " not in content
    arrived = decode_hits(content, query_of(WORDS, BITS, k=5), "north")
    assert len(arrived) == 2
    assert arrived.limited_silos == {"north": "It limits results to 2 per query."}
    assert b"item " not in respond(node, encode_request(ItemRequest("7"))).content


def test_requests_that_a_silo_cannot_answer_become_refusals(north):
    query = query_of(WORDS, BITS, k=5)
    unread = respond(north, b"garbage")
    assert unread.request is None
    assert isinstance(unread.error, UnreadableMessage)
    assert "does not have the expected form" in decode_hits(unread.content, query, "north").missing_silos["north"]
    missing = respond(north, encode_request(ItemRequest("none")))
    with pytest.raises(NotFound, match='does not have an item "none"'):
        decode_item(missing.content, ItemRequest("none"), "north")
    large = respond(north, encode_request(query), most_bytes=100)
    assert "the limit is 100" in decode_hits(large.content, query, "north").missing_silos["north"]
    assert isinstance(large.error, UnreadableMessage)


def test_an_unexpected_error_is_logged_and_its_details_stay_at_the_silo(north, monkeypatch, caplog):
    def fail(_):
        raise ValueError("secret")

    monkeypatch.setattr(north, "answer", fail)
    query = query_of(WORDS, BITS)
    with caplog.at_level(logging.ERROR):
        response = respond(north, encode_request(query))
    assert b"secret" not in response.content
    assert "ValueError" in decode_hits(response.content, query, "north").missing_silos["north"]
    assert "secret" in caplog.text


def test_an_answer_is_read_while_another_silo_works():
    slow = AnswerAfterRead()
    bus = BytesInThreads({"slow": slow, "quick": lambda content, *_: content})
    asyncio.run(bus.ask({"slow": b"1", "quick": b"2"}, 60, slow.read))
    assert slow.seen == [("quick", b"2"), ("slow", b"1")]


def test_a_request_whose_sender_does_not_wait_any_more_is_refused_without_work(north, monkeypatch):
    untimed = encode_request(query_of(WORDS, BITS, k=5))
    content = with_time_left(untimed, 6_000)
    assert respond(north, content).error is None
    assert respond(north, content, arrived=time.monotonic() - 5_000).error is None
    assert respond(north, encode_request(ItemRequest("7")), arrived=time.monotonic() - 1e6).error is None, "no limit"
    monkeypatch.setattr(north, "answer", lambda query: pytest.fail("the silo searched"))
    for late_one in (
        respond(north, content, arrived=time.monotonic() - 6_000),
        respond(north, with_time_left(untimed, 0)),
    ):
        assert isinstance(late_one.error, TimeOver)
        assert late_one.request is not None, "the audit log has the request"
        assert "had passed before" in decode_hits(late_one.content, late_one.request, "north").missing_silos["north"]


def test_searches_on_servers_have_the_time_that_is_left(north, monkeypatch):
    left = []

    def answer(query):
        left.append(seconds_left(1e9))
        return Hits(model_digests=frozenset({"m"}))

    monkeypatch.setattr(north, "answer", answer)
    content = encode_request(query_of(WORDS, BITS, k=5))
    respond(north, with_time_left(content, 1000), arrived=time.monotonic() - 400)
    respond(north, content)
    asyncio.run(BytesInThreads.of(north).ask({"north": content}, 500))
    assert 500 < left[0] <= 600
    assert left[1] == 1e9, "a hub that does not tell how long it waits"
    assert 400 < left[2] <= 500
    assert seconds_left(7.0) == 7.0


def test_silos_answer_over_the_wire_and_the_others_are_named(north):
    seen = []
    bus = WireBus(
        BytesInThreads({**BytesInThreads.of(north).responders, "broken": lambda *_: b"x"}),
        lambda *one: seen.append(one),
    )
    query, passed = query_of(WORDS, BITS, k=3), {}
    replies = asyncio.run(bus.ask(dict.fromkeys(("north", "broken", "other"), query), 60, passed.__setitem__))
    assert passed == {"north": replies.answers["north"], "broken": replies.reasons["broken"]}
    assert replies.answers["north"].ids == north.answer(query).ids
    assert {silo: kind_of(reason) for silo, reason in replies.reasons.items()} == {
        "broken": "invalid",
        "other": "unknown",
    }
    assert sorted(silo for silo, _ in seen) == ["broken", "north"]
    assert asyncio.run(bus.ask({"north": StatusRequest()}, 60)).answers["north"].items == {"image": 40}
    assert len(seen) == 2, "summaries are not queries"


def test_a_silo_that_lies_is_left_out_and_counted(north, tmp_path):
    south = made_up_node(tmp_path, "south", made_up_codes(3, BITS, 5), BITS)
    first, second = (query_of(made_up_codes(1, BITS, seed), BITS, k=3) for seed in (1, 2))
    found = []
    responders = dict(BytesInThreads.of(north, south).responders)
    honest = responders["south"]

    def zeros(*arguments):
        document = json.loads(honest(*arguments))
        return json.dumps(document | {"distances": [0] * len(document["ids"])}).encode()

    bus = WireBus(BytesInThreads({**responders, "south": zeros}), found=lambda *one: found.append(one))
    assert set(asyncio.run(bus.ask(dict.fromkeys(("north", "south"), first), 60)).answers) == {"north", "south"}
    replies = asyncio.run(bus.ask(dict.fromkeys(("north", "south"), second), 60))
    assert set(replies.answers) == {"north"}
    assert kind_of(replies.reasons["south"]) == "contradiction"
    assert sorted(found[:2]) == [("north", "new_edition"), ("south", "new_edition")]
    assert found[2:] == [("south", "contradiction")]


def test_a_summary_is_cut_at_the_hub_and_at_the_silo(north):
    def summary(**values):
        known = {
            "items": {},
            "model": "",
            "reason": "Old.",
            "reachable": True,
            "fields": [],
            "labels": {},
            "examples": [],
        }
        document = {"version": 2, "kind": "summary", "silo": "north"} | known | values
        carrier = BytesInThreads({"north": lambda *_: json.dumps(document).encode()})
        found = []
        bus = WireBus(carrier, found=lambda *one: found.append(one))
        replies = asyncio.run(bus.ask({"north": StatusRequest()}, 60))
        return replies.answers.get("north"), found

    many = {f"label {n}": n for n in range(80_000)}
    example = {"id": "a", "modalities": ["image"], "payload": {"caption": "x" * 60_000}}
    status, found = summary(labels=many, fields=["caption", "passwords", "caption"], examples=[example] * 20)
    assert [*status.labels] == [*many][:MOST_SUMMARY_LABELS]
    assert (status.fields, len(status.examples)) == (("caption",), MOST_EXAMPLES)
    assert status.reason == f"Old. {CUT}"
    assert found == [("north", "cut_summary")]
    long = {"x" * 4_000 + str(n): n for n in range(900)}
    assert len("".join(summary(labels=long)[0].labels)) <= MOST_LABEL_CHARACTERS
    assert summary(labels={"bird": 1}, fields=["labels"], examples=[example])[1] == []
    sent = encode_answer("north", SiloStatus(name="north", labels=long, fields=("labels",)))
    assert within_limits(arrived := decode_status(sent, "north")) == arrived
    assert arrived.labels


def test_an_answer_with_too_many_values_is_not_read(north, monkeypatch):
    found = []
    responders = {"north": lambda *_: b'{"version":2,"kind":"hits","x":[' + b"[]," * 50_000 + b"[]]}"}
    bus = WireBus(BytesInThreads(responders), found=lambda *one: found.append(one))
    monkeypatch.setattr("silohash.search.wire.decode_answer", lambda *_: pytest.fail("it was read"))
    replies = asyncio.run(bus.ask({"north": query_of(WORDS, BITS, k=3)}, 60))
    assert kind_of(replies.reasons["north"]) == "invalid"
    assert found == [("north", "unreadable")]


def test_the_faults_of_an_answer_are_counted_if_they_are_many():
    document = {"version": 2, "kind": "hits", "silo": "north", "ids": [[]] * 5_000}
    with pytest.raises(UnreadableMessage, match="5,000 faults"):
        decode_answer(json.dumps(document).encode(), "north")


def test_a_silo_whose_answers_take_too_much_time_is_not_asked_for_a_while(north, monkeypatch):
    found, asked = [], []
    carrier = BytesInThreads.of(north)
    answer = carrier.responders["north"]
    carrier.responders["north"] = lambda *arguments: asked.append(1) or answer(*arguments)
    bus = WireBus(carrier, found=lambda *one: found.append(one))
    times = iter([0.0, 50.0])
    monkeypatch.setattr("silohash.search.wire.time.thread_time", lambda: next(times))
    query = query_of(WORDS, BITS, k=3)
    for _ in range(2):
        assert asyncio.run(bus.ask({"north": query}, 60)).answers, "small answers are not measured"
    monkeypatch.setattr("silohash.search.wire.SMALL_BYTES", 0)
    for _ in range(2):
        replies = asyncio.run(bus.ask({"north": query}, 60))
    assert kind_of(replies.reasons["north"]) == "overload"
    assert (len(asked), found) == (3, [("north", "new_edition"), ("north", "overload")])


def test_an_excluded_silo_is_not_asked(north):
    excluded, asked = {"north"}, []
    carrier = BytesInThreads.of(north)
    answer = carrier.responders["north"]
    carrier.responders["north"] = lambda *arguments: asked.append(1) or answer(*arguments)
    bus = WireBus(carrier, excluded=lambda: excluded)
    for request in (query_of(WORDS, BITS, k=3), StatusRequest(), ItemRequest("1"), CodeRequest("1")):
        assert kind_of(asyncio.run(bus.ask({"north": request}, 60)).reasons["north"]) == "excluded"
    assert not asked
    excluded.clear()
    assert set(asyncio.run(bus.ask({"north": StatusRequest()}, 60)).answers) == {"north"}


def test_requests_for_items_count_as_queries_of_their_asker(tmp_path):
    node = made_up_node(tmp_path, "north", made_up_codes(5, 16, 1), 16, Policy(max_queries_per_day=1))
    for asker in ("ann", "bob"):
        assert respond(node, encode_request(ItemRequest("1", asker))).error is None
        refused = respond(node, encode_request(CodeRequest("1", None, asker)))
        assert "1 query per day" in str(refused.error)
    assert respond(node, encode_request(StatusRequest())).error is None
    assert respond(node, encode_request(ItemRequest("1"))).error is None
    assert "1 query per day" in str(respond(node, encode_request(ItemRequest("2"))).error), "they count without a name"
    assert kind_of(node.answer(query_of(WORDS, BITS)).missing_silos["north"]) == "limited"
