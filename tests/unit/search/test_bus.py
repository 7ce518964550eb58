from __future__ import annotations

import asyncio
import logging
import threading
import time

import pytest

from silohash.index.server import seconds_left
from silohash.search.answers import decode_code, decode_hits, decode_item, decode_status
from silohash.search.bus import UNKNOWN, LocalBus, TimeOver, late, respond
from silohash.search.hits import Hits, kind_of
from silohash.search.policy import Policy
from silohash.search.released import NotFound
from silohash.search.wire import CodeRequest, ItemRequest, StatusRequest, WireError, encode_request, with_time_left
from tests.silos import AnswerAfterRead, made_up_codes, made_up_node, query_of

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
    assert isinstance(unread.error, WireError)
    assert "does not have the expected form" in decode_hits(unread.content, query, "north").missing_silos["north"]
    missing = respond(north, encode_request(ItemRequest("none")))
    with pytest.raises(NotFound, match='does not have an item "none"'):
        decode_item(missing.content, ItemRequest("none"), "north")
    large = respond(north, encode_request(query), most_bytes=100)
    assert "the limit is 100" in decode_hits(large.content, query, "north").missing_silos["north"]
    assert isinstance(large.error, WireError)


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


def test_the_local_bus_asks_all_silos_at_the_same_time():
    meeting = threading.Barrier(3, timeout=60)

    def responder(content, most_bytes, arrived):
        meeting.wait()
        return content.upper()

    bus = LocalBus(dict.fromkeys(("a", "b", "c"), responder))
    replies = asyncio.run(bus.ask({"a": b"one", "b": b"two", "c": b"three"}, 60))
    assert replies.answers == {"a": b"ONE", "b": b"TWO", "c": b"THREE"}
    assert replies.reasons == {}


def test_an_answer_is_read_while_another_silo_works():
    slow = AnswerAfterRead()
    bus = LocalBus({"slow": slow, "quick": lambda content, *_: content})
    asyncio.run(bus.ask({"slow": b"1", "quick": b"2"}, 60, slow.read))
    assert slow.seen == [("quick", b"2"), ("slow", b"1")]


def test_silos_that_do_not_answer_are_named_with_the_reason(monkeypatch):
    release, wait_for_some = threading.Event(), asyncio.wait

    async def wait(tasks, *, timeout, return_when):
        assert 0 <= timeout <= 1
        if len(tasks) == 1:  # the deadline comes when the other silos are done
            return set(), tasks
        return await wait_for_some(tasks, return_when=return_when)

    monkeypatch.setattr(asyncio, "wait", wait)

    def slow(content, most_bytes, arrived):
        release.wait(60)
        return content

    def fail(content, most_bytes, arrived):
        raise ValueError("broken")

    async def ask():
        bus = LocalBus({"slow": slow, "broken": fail, "quick": lambda content, *_: content})
        replies = await bus.ask(dict.fromkeys(("slow", "broken", "quick", "other"), b"x"), 1)
        release.set()
        return replies

    replies = asyncio.run(ask())
    assert replies.answers == {"quick": b"x"}
    assert [*replies.seconds] == ["quick"]
    assert {silo: kind_of(reason) for silo, reason in replies.reasons.items()} == {
        "slow": "late",
        "broken": "failed",
        "other": "unknown",
    }
    assert replies.reasons == {"slow": late(1), "broken": "It failed: ValueError: broken", "other": UNKNOWN}
    assert late(0.05) == "It did not answer within 0.05 seconds."


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
    asyncio.run(LocalBus.of(north).ask({"north": content}, 500))
    assert 500 < left[0] <= 600
    assert left[1] == 1e9, "a hub that does not tell how long it waits"
    assert 400 < left[2] <= 500
    assert seconds_left(7.0) == 7.0


def test_asking_nobody_returns_nothing():
    replies = asyncio.run(LocalBus({}).ask({}, 1))
    assert (replies.answers, replies.reasons) == ({}, {})


def test_silos_of_nodes_answer_over_the_local_bus(north):
    query = query_of(WORDS, BITS, k=3)
    replies = asyncio.run(LocalBus.of(north).ask({"north": encode_request(query)}, 60))
    arrived = decode_hits(replies.answers["north"], query, "north")
    assert isinstance(arrived, Hits)
    assert arrived.ids == north.answer(query).ids


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
