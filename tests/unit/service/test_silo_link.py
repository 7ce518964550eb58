"""Both sides of the bus against messages of others: whoever runs the server repeats, forges and swaps them."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from silohash.search.bus import late
from silohash.search.reasons import kind_of
from silohash.search.requests import Refusal
from silohash.search.wire import MOST_ANSWER_BYTES, decode_answer
from silohash.service import nats_bus
from silohash.service.envelope import OVERHEAD_BYTES, HubEnvelopes, new_key
from silohash.service.link import register
from silohash.service.nats_bus import UNSEALED, NatsBus
from silohash.service.nats_server import Subjects
from silohash.service.silo_link import SiloLink
from tests.nats import Federation, needs_nats

pytestmark = needs_nats


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with Federation(tmp_path_factory.mktemp("bus"), "north", "south") as started:
        yield started


@dataclass
class Counted:
    """What both sides counted, and the requests that reached the silo."""

    hub: Counter[tuple[str, str]] = field(default_factory=Counter)
    silo: Counter[str] = field(default_factory=Counter)
    requests: list[bytes] = field(default_factory=list)


@asynccontextmanager
async def members(federation, respond=lambda content: b"genuine", *, hub=None, silo=None):
    """Yields the bus of a hub, the link of the silo north, and what they count."""
    counted = Counted()

    def answer(content, most_bytes, arrived):
        counted.requests.append(content)
        return respond(content)

    with ThreadPoolExecutor(1) as executor:
        bus = NatsBus(hub or federation.hub, lambda *found: counted.hub.update([found]))
        link = SiloLink(silo or federation.silo("north"), answer, executor, lambda kind: counted.silo.update([kind]))
        assert await bus.link.start(wait_seconds=60)
        assert await link.start(wait_seconds=60)
        try:
            yield bus, link, counted
        finally:
            await link.stop()
            await bus.link.stop()


async def until(holds):
    """Waits until something holds."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


def recorded(client):
    """Returns a list to which everything is added that a client publishes: subject, content, and subject of the answer."""
    messages, publish = [], client.publish

    async def note(subject, payload, reply="", **more):
        messages.append((subject, payload, reply))
        await publish(subject, payload, reply=reply, **more)

    client.publish = note
    return messages


def lines(caplog, event):
    return [record.fields for record in caplog.records if record.getMessage() == event]


def test_a_request_that_is_repeated_is_not_answered_again(federation, caplog):
    async def run():
        async with members(federation) as (bus, _, counted):
            sent = recorded(bus.link.client)
            assert (await bus.ask({"north": b"first"}, 60)).answers == {"north": b"genuine"}
            subject, payload, reply = sent[0]
            for _ in range(5):
                await bus.link.client.publish(subject, payload, reply=reply)
            await until(lambda: counted.silo["replayed"] == 5)
            assert (await bus.ask({"north": b"second"}, 60)).answers == {"north": b"genuine"}
            return counted

    with caplog.at_level(logging.WARNING, "silohash.service"):
        counted = asyncio.run(run())
    assert counted.requests == [b"first", b"second"]
    assert counted.silo == {"replayed": 5}
    logged = lines(caplog, "refused a request")
    assert [(line["silo"], line["reason"]) for line in logged] == [("north", "replayed")], (
        "a flood does not fill the log"
    )


def test_a_request_that_the_hub_did_not_seal_for_this_place_is_not_answered(federation):
    async def run():
        async with members(federation) as (bus, _, counted):
            client, sent = bus.link.client, recorded(bus.link.client)
            assert (await bus.ask({"north": b"first"}, 60)).answers
            subject, payload, reply = sent[0]
            changed = payload[:-1] + bytes([payload[-1] ^ 1])
            other = Subjects("tests").answer("north", "ab", 99)
            for content, answer in ((b"", reply), (b'{"version":2}', reply), (changed, reply), (payload, other)):
                await client.publish(subject, content, reply=answer)
            await client.publish(subject, payload)
            await until(lambda: counted.silo["forged"] == 5)
            return counted

    counted = asyncio.run(run())
    assert counted.requests == [b"first"]
    assert counted.silo == {"forged": 5}


def test_forged_and_repeated_answers_are_counted_and_the_hub_waits_for_the_genuine_one(federation, caplog):
    """They are published in the name of the silo, which the bus permits, before the silo answers."""
    working, published = threading.Event(), threading.Event()

    def slow(content):
        if content == b"second":
            working.set()
            assert published.wait(60)
        return b"genuine"

    async def run():
        async with members(federation, slow) as (bus, link, counted):
            sent = recorded(link.client)
            assert (await bus.ask({"north": b"first"}, 60)).answers
            asked = asyncio.create_task(bus.ask({"north": b"second"}, 60))
            await until(working.is_set)
            for content in (b"forged", b"", bytes(100), sent[0][1]):
                await link.client.publish(Subjects("tests").answer("north", bus._hubs["north"], 1), content)
            await register(link.client)
            await until(lambda: counted.hub["north", "forged"] == 4)
            published.set()
            return await asked

    with caplog.at_level(logging.WARNING, "silohash.service"):
        replies = asyncio.run(run())
    assert replies.answers == {"north": b"genuine"}
    assert lines(caplog, "dropped an answer that the silo did not seal") == [{"silo": "north"}]


@pytest.mark.parametrize("member", ["hub", "silo"])
def test_keys_that_do_not_fit_are_named_at_the_deadline(federation, tmp_path, member):
    """One of the two made a new key, and the other has its old public key."""
    new_key(tmp_path / "new.key")
    configs = {"hub": federation.hub, "silo": federation.silo("north")}
    changed = configs[member].sealing.model_copy(update={"key": tmp_path / "new.key"})
    configs[member] = configs[member].model_copy(update={"sealing": changed})

    async def run():
        async with members(federation, **configs) as (bus, _, counted):
            replies = await bus.ask({"north": b"first"}, 0.2)
            while replies.reasons == {"north": late(0.2)}:  # on a busy machine
                replies = await bus.ask({"north": b"first"}, 0.2)
            return replies, counted

    replies, counted = asyncio.run(run())
    assert replies.reasons == {"north": UNSEALED}
    assert kind_of(replies.reasons["north"]) == "late", "so that it is not waited for every time"
    assert counted.silo["forged"] == counted.silo.total() >= counted.hub["north", "forged"] >= 1
    assert counted.requests == []


@pytest.mark.parametrize(("ahead", "text"), [(95.0, r"95\.\d seconds after"), (-95.0, r"9[45]\.\d seconds before")])
def test_a_wrong_clock_is_named_at_once(federation, monkeypatch, caplog, ahead, text):
    class Ahead(HubEnvelopes):
        def __init__(self, *arguments):
            super().__init__(*arguments, lambda: time.time() + ahead)

    monkeypatch.setattr(nats_bus, "HubEnvelopes", Ahead)

    async def run():
        async with members(federation) as (bus, _, counted):
            return await bus.ask({"north": b"first"}, 600), counted

    with caplog.at_level(logging.WARNING, "silohash.service"):
        replies, counted = asyncio.run(run())
    refusal = decode_answer(replies.answers["north"], "north")
    assert isinstance(refusal, Refusal)
    assert re.search(text, refusal.reason)
    assert "Set both clocks." in refusal.reason
    assert (counted.silo, counted.requests) == ({"stale": 1}, [])
    (logged,) = lines(caplog, "refused a request")
    assert (logged["reason"], logged["ahead_seconds"]) == ("stale", pytest.approx(ahead, abs=5))


def test_the_hub_may_change_its_key_without_a_pause(federation, tmp_path):
    hub, north = federation.hub, federation.silo("north")
    sealing = north.sealing.model_copy(update={"hub": (*north.sealing.hub, new_key(tmp_path / "new.key"))})
    changed = hub.model_copy(update={"sealing": hub.sealing.model_copy(update={"key": tmp_path / "new.key"})})

    async def run():
        async with members(federation, silo=north.model_copy(update={"sealing": sealing})) as (bus, _, _):
            following = NatsBus(changed)
            await following.link.start(wait_seconds=60)
            found = [(await each.ask({"north": b"x"}, 60)).answers for each in (bus, following, bus)]
            await following.link.stop()
            return found

    assert asyncio.run(run()) == [{"north": b"genuine"}] * 3


def test_an_answer_of_the_largest_size_passes_the_server(federation):
    async def run():
        async with members(federation, lambda content: bytes(MOST_ANSWER_BYTES - OVERHEAD_BYTES)) as (bus, _, _):
            return await bus.ask({"north": b"x"}, 60)

    assert len(asyncio.run(run()).answers["north"]) == MOST_ANSWER_BYTES - OVERHEAD_BYTES
