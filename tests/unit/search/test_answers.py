from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from silohash.base.types import UserError
from silohash.index.codes import pack
from silohash.search.answers import (
    MOST_ANSWER_BYTES,
    MOST_CAPTION,
    MOST_LABELS,
    MOST_PREVIEW,
    ReleasedItem,
    decode_code,
    decode_hits,
    decode_item,
    decode_status,
    encode_answer,
    encode_refusal,
)
from silohash.search.hits import Hits, Query, silent
from silohash.search.released import Item, ItemCode, NotFound, SiloStatus
from silohash.search.wire import MOST_CHARACTERS, CodeRequest, ItemRequest, WireError

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
        "kind": "hits",
        "silo": "north",
        "model": MODEL,
        "ids": ["a", "b", "c"],
        "distances": [0, 2, 2],
        "found_by": ["image", "both", "text"],
        "payloads": [{"caption": "two parrots", "labels": ["bird"], "preview": PICTURE, "file": "a.png"}, {}, {}],
        "left_out": [[2, 4]],
        "limited": "It limits results to 3 per query.",
    }


@pytest.mark.parametrize("changes", [{}, {"limited_silos": {}, "left_out": {}}])
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
    with pytest.raises(WireError) as error:
        read(document(**changes))
    assert reason.lower() in str(error.value).lower()


def test_limits_follow_the_query():
    with pytest.raises(WireError, match="It answered with 3 hits when 2 were requested"):
        read(document(), query(k=2))
    assert len(read(document(), query(k=1, offset=2))) == 3
    assert len(read(document(), query(radius_bits=2))) == 3
    with pytest.raises(WireError, match="a distance of 2 bits, beyond the limit of 1 bits"):
        read(document(), query(radius_bits=1))
    with pytest.raises(WireError, match="It answered with sides other than image"):
        read(document(), query(target="image"))
    assert len(read(document(distances=[0, 2, 16]), query(radius_bits=99))) == 3


def test_an_answer_of_another_kind_is_refused():
    content = encode_answer("north", SiloStatus(name="north"))
    with pytest.raises(WireError, match="It answered with summary instead of hits"):
        decode_hits(content, query(), "north")


def test_an_answer_that_is_too_large_is_not_read():
    content = encode_answer("north", hits())
    limit = content.ljust(MOST_ANSWER_BYTES)
    assert len(decode_hits(limit, query(), "north")) == 3
    with pytest.raises(WireError, match="Its answer has 8,388,609 bytes, and the limit is 8,388,608"):
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
    with pytest.raises(WireError, match=r"Its answer has [\d,]+ bytes, and the limit is 200\. Request fewer items"):
        encode_answer("north", hits(), most_bytes=200)


def test_payloads_are_cut_to_the_limits_before_they_are_sent():
    payload = {
        "caption": "x" * (MOST_CAPTION + 5), "labels": ["y" * (MOST_CHARACTERS + 5)] * (MOST_LABELS + 5),
        "preview": "z" * (MOST_PREVIEW + 1), "file": "f" * (MOST_CHARACTERS + 1), "owner": "secret",
    }  # fmt: skip
    arrived = decode_hits(encode_answer("north", hits(payloads=(payload, {}, {}))), query(), "north")
    assert arrived.payloads[0] == {"caption": "x" * MOST_CAPTION, "labels": ["y" * MOST_CHARACTERS] * MOST_LABELS}


def test_a_released_item_arrives_as_it_was_sent():
    sent = ReleasedItem("a", ("image", "text"), {"caption": "two parrots", "labels": ["bird"]})
    content = encode_answer("north", sent)
    assert decode_item(content, ItemRequest("a"), "north") == sent
    with pytest.raises(WireError, match="It answered with another item"):
        decode_item(content, ItemRequest("b"), "north")
    with pytest.raises(WireError, match="in the name of another silo"):
        decode_item(content, ItemRequest("a"), "south")


def test_an_item_that_does_not_exist_is_not_found():
    content = encode_refusal("north", NotFound('The silo north does not have an item "z".'))
    with pytest.raises(NotFound, match='does not have an item "z"'):
        decode_item(content, ItemRequest("z"), "north")
    with pytest.raises(WireError, match="busy"):
        decode_item(encode_refusal("north", UserError("busy")), ItemRequest("z"), "north")


def test_a_code_arrives_as_it_was_sent():
    sent = ItemCode(words=pack([[1, -1] * 10])[0], bits=20, model_digest=MODEL, modality="text")
    content = encode_answer("north", sent)
    for modality in (None, "text"):
        arrived = decode_code(content, CodeRequest("a", modality), "north")
        assert (arrived.words == sent.words).all()
        assert (arrived.bits, arrived.model_digest, arrived.modality) == (20, MODEL, "text")
    with pytest.raises(WireError, match="the code of the item's text instead of its image"):
        decode_code(content, CodeRequest("a", "image"), "north")
    damaged = json.dumps(json.loads(content) | {"bits": 30}).encode()
    with pytest.raises(WireError, match="3 bytes are not a code of 30 bits"):
        decode_code(damaged, CodeRequest("a"), "north")


def test_a_summary_arrives_as_it_was_sent():
    sent = SiloStatus(
        name="north", items={"image": 3, "text": 2}, model_digest=MODEL, reason="Its texts are damaged.", reachable=True,
        fields=("caption", "preview"), labels={"bird": 2},
        examples=(Item(id="a", silo="north", modalities=("image",), caption="two", labels=("bird",), preview_url=PICTURE),),
        models=(MODEL, "another"),
    )  # fmt: skip
    assert decode_status(encode_answer("north", sent), "north") == sent


def test_a_result_of_codes_without_sides_arrives_with_empty_sides():
    arrived = decode_hits(encode_answer("north", hits(found_by=())), query(), "north")
    assert arrived.sides == ((), (), ())


def test_hits_with_text_that_is_not_unicode_are_an_error():
    with pytest.raises(WireError, match="cannot be written as UTF-8"):
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
    with pytest.raises(WireError) as error:
        read(scored, query(**sent))
    assert reason in str(error.value)


def test_a_summary_states_whether_words_and_regions_are_accepted():
    for accepts in (True, False):
        content = encode_answer("north", SiloStatus(name="north", accepts_content=accepts))
        assert decode_status(content, "north").accepts_content is accepts
    earlier = json.loads(encode_answer("north", SiloStatus(name="north", accepts_content=True)))
    del earlier["accepts_content"]
    assert not decode_status(json.dumps(earlier).encode(), "north").accepts_content


def test_an_item_without_a_side_leaves_the_silo_out():
    released = json.loads(encode_answer("north", ReleasedItem("a", ("image",), {}))) | {"modalities": []}
    with pytest.raises(WireError, match="modalities"):
        decode_item(json.dumps(released).encode(), ItemRequest("a"), "north")
