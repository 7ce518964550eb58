from __future__ import annotations

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from urllib.parse import urlparse

import pytest
from nats.aio.client import Client, Server

from silohash.search.bus import late
from silohash.search.reasons import kind_of
from silohash.service import nats_bus
from silohash.service.envelope import OVERHEAD_BYTES
from silohash.service.link import LONGEST_WAIT_SECONDS, Link, next_server, register, tls_context
from silohash.service.nats_bus import NO_BUS, NOT_CONNECTED, NatsBus
from silohash.service.nats_server import Subjects
from silohash.service.silo_link import SiloLink
from tests.nats import Federation, needs_nats
from tests.silos import AnswerAfterRead

pytestmark = needs_nats


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with Federation(tmp_path_factory.mktemp("bus"), "north", "Musée d'Orsay", "south") as started:
        yield started


@asynccontextmanager
async def hub_of(federation, **changes):
    hub = federation.hub
    bus = NatsBus(hub.model_copy(update={"bus": hub.bus.model_copy(update=changes)}))
    await bus.link.start(wait_seconds=0.2 if changes else 60)
    try:
        yield bus
    finally:
        await bus.link.stop()


@asynccontextmanager
async def silo_of(federation, silo, responder, *, wait_seconds=60.0, threads=1):
    config = federation.silo(silo)
    with ThreadPoolExecutor(threads) as executor:
        link = SiloLink(config, responder, executor)
        await link.start(wait_seconds=wait_seconds)
        try:
            yield link
        finally:
            await link.stop()


@asynccontextmanager
async def client_of(federation, member):
    """Yields a plain client with the certificate of a member, and the errors that the server reports to it."""
    errors, bus = [], (federation.hub if member == "hub" else federation.silo(member)).bus

    async def note(error):
        errors.append(str(error))

    client = Client()
    await client.connect(f"tls://127.0.0.1:{federation.port}", tls=tls_context(bus), error_cb=note)
    try:
        yield client, errors
    finally:
        await client.close()


async def until_down(link):
    while await link.wait(0):
        await asyncio.sleep(0.01)


@pytest.fixture
def patient(monkeypatch):
    """A hub waits for silos to connect again for as long as a busy machine may take."""
    monkeypatch.setattr(nats_bus, "GRACE_SECONDS", 60.0)


def echo(name):
    return lambda content, *_: f"{name}: ".encode() + content


def test_a_flood_ends_the_subscription_of_its_silo_alone_for_a_while(federation, monkeypatch):
    found = []

    async def flooding():
        bus = NatsBus(federation.hub, lambda *one: found.append(one))
        await bus.link.start(wait_seconds=60)
        async with client_of(federation, "north") as (client, _), silo_of(federation, "south", echo("south")):

            async def flood(message):
                for _ in range(1_000):
                    await client.publish(message.reply.rpartition(".")[0] + ".x", b"x")
                await message.respond(b"an answer")

            await client.subscribe(Subjects(federation.hub.federation).requests("north"), cb=flood)
            await register(client)
            first = await bus.ask({"north": b"1", "south": b"2"}, 60)
            while bus._ending:
                await asyncio.sleep(0.01)
            # The server answers this after all that it sent before the subscription ended.
            await bus.link.client.flush(60)
            received = bus.link.client.stats["in_msgs"]
            await client.publish(Subjects(federation.hub.federation).answer("north", "x", 1), b"x")
            second = await bus.ask({"north": b"3", "south": b"4"}, 60)
            assert bus.link.client.stats["in_msgs"] == received + 1, "the server drops what the silo sends"
            await client.drain()
            bus._silent_until.clear()
            async with silo_of(federation, "north", echo("north")):
                third = await bus.ask({"north": b"5", "south": b"6"}, 60)
        await bus.link.stop()
        return first, second, third

    first, second, third = asyncio.run(flooding())
    for replies, south in ((first, b"south: 2"), (second, b"south: 4")):
        assert replies.answers == {"south": south}
        assert kind_of(replies.reasons["north"]) == "flood"
    assert found == [("north", "flood")]
    assert third.answers == {"north": b"north: 5", "south": b"south: 6"}


def test_silos_answer_and_those_that_are_absent_are_named_at_once(federation):
    async def ask():
        async with (
            hub_of(federation) as bus,
            silo_of(federation, "north", echo("north")),
            silo_of(federation, "Musée d'Orsay", echo("musée")),
        ):
            return await bus.ask({"north": b"1", "Musée d'Orsay": b"2", "south": b"3"}, 600)

    replies = asyncio.run(ask())  # an absent silo is not waited for: the deadline is beyond that of the test
    assert replies.answers == {"north": b"north: 1", "Musée d'Orsay": "musée: 2".encode()}
    assert replies.reasons == {"south": NOT_CONNECTED}
    assert set(replies.seconds) == {"north", "Musée d'Orsay"}
    assert all(isinstance(seconds, float) for seconds in replies.seconds.values())
    assert kind_of(replies.reasons["south"]) == "not_connected"


def test_an_answer_is_read_while_another_silo_works(federation):
    slow = AnswerAfterRead()

    async def ask():
        async with (
            hub_of(federation) as bus,
            silo_of(federation, "north", slow),
            silo_of(federation, "south", echo("south")),
        ):
            await bus.ask({"north": b'{"a":1}', "south": b'{"a":2}', "Musée d'Orsay": b"3"}, 60, slow.read)

    asyncio.run(ask())
    assert [silo for silo, _ in slow.seen] == ["south", "north"], "an absent silo has no answer to read"


def test_who_asks_gets_the_error_of_reading_an_answer_which_knows_the_request(federation):
    who, read_by = ContextVar("who"), []

    def refuse(silo, answer):
        read_by.append(who.get())
        raise RuntimeError("it cannot be read")

    async def main():
        async with hub_of(federation) as bus, silo_of(federation, "north", echo("north")):
            for name in ("ann", "bob"):
                who.set(name)
                with pytest.raises(RuntimeError, match="cannot be read"):
                    await bus.ask({"north": b"1"}, 30, refuse)
            replies = await bus.ask({"north": b"2"}, 30)
            assert set(replies.answers) == {"north"}

    asyncio.run(main())
    assert read_by == ["ann", "bob"]


def test_a_late_silo_is_named_and_its_late_answer_is_dropped(federation):
    released = threading.Event()

    def slow(content, most_bytes, arrived):
        if content == b"slow":
            released.wait(60)
        return content

    async def ask():
        async with hub_of(federation) as bus, silo_of(federation, "north", slow):
            first = await bus.ask({"north": b"slow"}, 0.1)
            released.set()
            return first, await bus.ask({"north": b"quick"}, 60)

    first, second = asyncio.run(ask())
    assert first.reasons == {"north": late(0.1)}
    assert second.answers == {"north": b"quick"}


def test_a_silo_is_told_how_long_the_hub_waits_and_when_a_request_arrived(federation):
    """The silo is busy with the first request when the second arrives, and begins with the second when it is released."""
    began, released, seen = threading.Event(), threading.Event(), []

    def slow(content, most_bytes, arrived):
        seen.append((json.loads(content)["seconds_left"], time.monotonic() - arrived))
        began.set()
        released.wait(60)
        return content

    async def ask():
        async with hub_of(federation) as bus, silo_of(federation, "north", slow) as link:
            first = asyncio.create_task(bus.ask({"north": b'{"kind":"status"}'}, 60))
            assert await asyncio.to_thread(began.wait, 60)
            second = asyncio.create_task(bus.ask({"north": b'{"kind":"status"}'}, 50))
            while link.client.stats["in_msgs"] < 2:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.5)
            released.set()
            await asyncio.gather(first, second)

    asyncio.run(ask())
    assert 30 < seen[0][0] <= 60
    assert 30 < seen[1][0] <= 50
    assert seen[1][1] > 0.2, "it waited for its turn"


def test_many_requests_at_the_same_time_get_their_own_answers(federation):
    async def ask():
        async with hub_of(federation) as bus, silo_of(federation, "north", echo("n"), threads=2):
            return await asyncio.gather(*(bus.ask({"north": b"%d" % number}, 60) for number in range(200)))

    replies = asyncio.run(ask())
    assert [reply.answers["north"] for reply in replies] == [b"n: %d" % number for number in range(200)]


def test_processes_of_a_silo_share_its_requests(federation):
    seen = []

    def note(worker):
        return lambda content, *_: seen.append(worker) or content

    async def ask():
        async with hub_of(federation) as bus, silo_of(federation, "north", note(1)):
            async with silo_of(federation, "north", note(2)):
                for number in range(60):
                    assert (await bus.ask({"north": b"%d" % number}, 60)).answers
            assert len(seen) == 60  # each request is delivered once
            assert set(seen) == {1, 2}
            seen.clear()
            for _ in range(5):
                assert (await bus.ask({"north": b"x"}, 60)).answers
        assert seen == [1] * 5

    asyncio.run(ask())


def test_the_limit_on_answers_is_that_of_the_server(federation):
    limits = []

    async def ask():
        async with hub_of(federation) as bus:
            responder = lambda content, most_bytes, _: limits.append(most_bytes) or bytes(1 << 20)  # noqa: E731
            async with silo_of(federation, "north", responder):
                return await bus.ask({"north": b"x"}, 60)

    assert len(asyncio.run(ask()).answers["north"]) == 1 << 20
    assert limits == [(8 << 20) - OVERHEAD_BYTES]


def test_the_server_refuses_a_silo_that_answers_in_the_name_of_another(federation):
    """North knows the subject of the answer that the hub waits for, and publishes there before south does."""

    received, published = threading.Event(), threading.Event()

    def slow(content, most_bytes, arrived):
        received.set()
        published.wait(60)
        return b"genuine"

    async def ask():
        async with (
            hub_of(federation) as bus,
            silo_of(federation, "south", slow),
            client_of(federation, "north") as (north, errors),
        ):
            asked = asyncio.create_task(bus.ask({"south": b"x"}, 60))
            assert await asyncio.to_thread(received.wait, 60)
            await north.publish(Subjects("tests").answer("south", bus._hubs["south"], 0), b"forged")
            await register(north)
            published.set()
            return await asked, errors

    replies, errors = asyncio.run(ask())
    assert replies.answers == {"south": b"genuine"}
    assert any("permissions violation for publish" in error.lower() and ".answer.south." in error for error in errors)


@pytest.mark.parametrize(
    ("member", "subject"),
    [
        ("north", "silohash.tests.ask.south"),
        ("north", "silohash.tests.>"),
        ("north", ">"),
        ("north", "silohash.tests.answer.>"),
        ("hub", "silohash.tests.ask.north"),
        ("hub", ">"),
    ],
)
def test_the_server_refuses_to_show_the_messages_of_others(federation, member, subject):
    async def listen():
        async with client_of(federation, member) as (client, errors):
            await client.subscribe(subject)
            await register(client)
            return errors

    assert any("permissions violation for subscription" in error.lower() for error in asyncio.run(listen()))


def test_a_member_is_ready_when_the_server_knows_its_subscriptions(federation):
    async def written():
        async with client_of(federation, "north") as (client, _):
            lines, transport = [], client._transport
            write, write_all = transport.write, transport.writelines
            transport.write = lambda line: (lines.append(line), write(line))
            transport.writelines = lambda several: (lines.extend(several), write_all(several))
            await client.subscribe(Subjects("tests").requests("north"))
            await register(client)
            return b"".join(lines)

    sent = asyncio.run(written())
    assert 0 <= sent.index(b"SUB ") < sent.rindex(b"PING")


def test_a_link_stops_although_a_cancellation_is_lost(federation):
    async def stop():
        entered = asyncio.Event()

        async def opened(_):
            entered.set()
            with suppress(asyncio.CancelledError):  # as asyncio.wait_for can do on Python 3.11
                await asyncio.Event().wait()

        link = Link(federation.hub.bus, "tests", opened)
        before = asyncio.all_tasks()
        await link.start(wait_seconds=0)
        await entered.wait()
        await asyncio.wait_for(link.stop(), 60)
        return asyncio.all_tasks() - before

    assert asyncio.run(stop()) == set()


def test_a_silo_cannot_ask_another(federation):
    async def ask():
        async with client_of(federation, "north") as (client, errors):
            await client.publish(Subjects("tests").requests("south"), b"x", reply="silohash.tests.answer.north.a.0")
            await register(client)
            return errors

    assert any("permissions violation for publish" in error.lower() for error in asyncio.run(ask()))


def test_a_server_without_encryption_is_not_trusted(tmp_path):
    federation = Federation(tmp_path, "north")
    text = (tmp_path / "nats.conf").read_text()
    start, end = text.index("tls: {"), text.index("authorization:")
    (tmp_path / "nats.conf").write_text(text[:start] + text[end:])

    async def connect():
        bus = NatsBus(federation.hub)
        await bus.link.start(wait_seconds=0.3)
        try:
            return bus.link.client.is_connected, await bus.ask({"north": b"x"}, 0.1)
        finally:
            await bus.link.stop()

    with federation:
        connected, replies = asyncio.run(connect())
    assert not connected
    assert replies.reasons == {"north": NO_BUS}


def test_all_members_connect_again_after_the_server_was_killed(tmp_path, patient):
    async def ask(federation):
        async with hub_of(federation) as bus, silo_of(federation, "north", echo("north")) as link:
            assert (await bus.ask({"north": b"1"}, 60)).answers
            federation.kill()
            await until_down(bus.link)
            assert (await bus.ask({"north": b"2"}, 0.2)).reasons == {"north": NO_BUS}
            waiting = asyncio.create_task(bus.ask({"north": b"3"}, 60))
            await asyncio.sleep(0.2)
            await asyncio.to_thread(federation.start)
            first = await waiting
            assert await link.wait(60)
            return first, await bus.ask({"north": b"4"}, 60)

    with Federation(tmp_path, "north") as federation:
        first, second = asyncio.run(ask(federation))
    assert first.answers == {"north": b"north: 3"}
    assert second.answers == {"north": b"north: 4"}


def test_a_request_whose_answer_was_lost_with_the_connection_is_sent_again(tmp_path, patient):
    seen = []

    received, lost = threading.Event(), threading.Event()

    def slow(content, most_bytes, arrived):
        seen.append(content)
        received.set()
        lost.wait(60)
        return content

    async def ask(federation):
        async with hub_of(federation) as bus, silo_of(federation, "north", slow) as link:
            asked = asyncio.create_task(bus.ask({"north": b"x"}, 60))
            assert await asyncio.to_thread(received.wait, 60)
            federation.kill()
            await until_down(link)
            lost.set()
            await asyncio.to_thread(federation.start)
            return await asked

    with Federation(tmp_path, "north") as federation:
        replies = asyncio.run(ask(federation))
    assert replies.answers == {"north": b"x"}
    assert len(seen) > 1


def test_a_silo_can_start_before_the_server(tmp_path):
    async def ask(federation):
        async with silo_of(federation, "north", echo("north"), wait_seconds=0.3) as link:
            assert not await link.wait(0)
            await asyncio.to_thread(federation.start)
            assert await link.wait(60)
            async with hub_of(federation) as bus:
                return await bus.ask({"north": b"1"}, 60)

    federation = Federation(tmp_path, "north")
    with federation:
        federation.kill()
        assert asyncio.run(ask(federation)).answers == {"north": b"north: 1"}


def test_a_silo_that_stops_answers_what_has_arrived(federation):
    received = threading.Event()

    def slow(content, most_bytes, arrived):
        received.set()
        time.sleep(0.2)  # the silo begins to stop meanwhile
        return content

    async def ask():
        async with hub_of(federation) as bus:
            async with silo_of(federation, "north", slow):
                asked = asyncio.create_task(bus.ask({"north": b"x"}, 60))
                assert await asyncio.to_thread(received.wait, 60)
            return await asked, await bus.ask({"north": b"x"}, 60)

    before, after = asyncio.run(ask())
    assert before.answers == {"north": b"x"}
    assert after.reasons == {"north": NOT_CONNECTED}


def test_waits_between_attempts_grow_up_to_a_limit():
    servers = [Server(uri=urlparse("nats://a:1"), reconnects=3), Server(uri=urlparse("nats://b:1"), reconnects=0)]
    server, wait = next_server(servers, {})
    assert server is servers[1]
    assert 0.025 <= wait <= 0.05
    assert 0.2 <= next_server(servers[:1], {})[1] <= 0.4
    many = [Server(uri=urlparse("nats://a:1"), reconnects=50)]
    waits = {next_server(many, {})[1] for _ in range(20)}
    assert all(LONGEST_WAIT_SECONDS / 2 <= wait <= LONGEST_WAIT_SECONDS for wait in waits)
    assert len(waits) > 1


def test_a_quick_silo_answers_in_the_thread_of_the_connection(federation):
    async def run():
        link = SiloLink(federation.silo("north"), lambda *_: threading.current_thread().name.encode(), None)
        await link.start(wait_seconds=60)
        async with hub_of(federation) as bus:
            replies = await bus.ask({"north": b"who"}, 60)
        await link.stop()
        return replies

    assert asyncio.run(run()).answers == {"north": b"MainThread"}
