"""Whoever runs the bus server sees all messages between the processes, and can neither read, forge nor repeat them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import time
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from silohash.run.config.toml import to_toml
from silohash.run.folder import Run
from silohash.search.hits import Hits, Query
from silohash.search.requests import StatusRequest
from silohash.search.wire import encode_answer, encode_request
from silohash.service.link import Link, register
from silohash.service.nats_server import Subjects
from tests.nats import Federation, needs_nats
from tests.ports import free_port
from tests.processes import Processes, all_started
from tests.served import served_run

pytestmark = [needs_nats, pytest.mark.whole_run, pytest.mark.timeout(900)]

SILOS = ("silo-1", "silo-2")
ADMIN = "admin"
SUBJECTS = Subjects("tests")


def edited(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    tables = tomllib.loads(path.read_text())
    change(tables)
    path.write_text(to_toml(tables))


def without_admin(tables: dict[str, Any]) -> None:
    for silos in (tables["silos"], tables.get("sealing", {}).get("silos", {})):
        silos.pop(ADMIN, None)


class Watched:
    """A federation of processes, and what the administrator of the server may do: everything on the bus."""

    def __init__(self, run: Path, folder: Path) -> None:
        copies = {name: folder / "runs" / name for name in ("hub", *SILOS)}
        for name, copy in copies.items():
            shutil.copytree(run, copy, ignore=shutil.ignore_patterns("index", "checkpoint"))
            if name != "hub":
                shutil.copytree(run / "index" / name, copy / "index" / name)
        self.federation = Federation(folder, *SILOS, ADMIN, run=copies["hub"], runs=copies)
        edited(folder / "hub.toml", without_admin)
        self.metrics = {silo: f"http://127.0.0.1:{free_port()}/metrics" for silo in SILOS}
        for silo, address in self.metrics.items():
            listen = {"listen": address.split("/")[2]}
            edited(folder / f"{silo}.toml", lambda tables: tables.update(metrics=listen))  # noqa: B023
        server = (folder / "nats.conf").read_text()
        everything = json.dumps({"publish": {"allow": [">"]}, "subscribe": {"allow": [">"]}})
        own = json.dumps(SUBJECTS.permissions(ADMIN))
        assert own in server
        (folder / "nats.conf").write_text(server.replace(own, everything))
        self.processes = Processes(self.federation)
        self.metrics["hub"] = f"http://127.0.0.1:{self.processes.port}/metrics"

    def counted(self, member: str, name: str) -> float:
        """Returns the value of a metric of a member, such as ``name{label="value"}``."""
        with urlopen(self.metrics[member], timeout=60) as answer:  # noqa: S310
            found = re.findall(rf"^{re.escape(name)} (\S+)$", answer.read().decode(), re.MULTILINE)
        return float(found[0])

    async def until(self, member: str, name: str, value: float) -> None:
        """Waits until a metric has a value."""
        end = time.monotonic() + 60
        while (seen := await asyncio.to_thread(self.counted, member, name)) != value:
            assert time.monotonic() < end, (name, seen, value)
            await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    watched = Watched(served_run(tmp_path_factory.mktemp("trained")), tmp_path_factory.mktemp("federation"))
    with watched.federation, all_started(watched.processes, SILOS):
        yield watched


class Eavesdropper:
    """The messages of all subjects, as the administrator of the server sees them."""

    def __init__(self) -> None:
        self.client, self.seen = Client(), list[Msg]()

    def to(self, prefix: str) -> list[Msg]:
        """Returns the messages to subjects that begin like this."""
        return [message for message in self.seen if message.subject.startswith(prefix)]


@asynccontextmanager
async def eavesdropping(watched: Watched) -> AsyncIterator[Eavesdropper]:
    admin = Eavesdropper()

    async def listen(client: Client) -> None:
        async def note(message: Msg) -> None:
            admin.seen.append(message)

        admin.client = client
        await client.subscribe(">", cb=note)

    link = Link(watched.federation.silo(ADMIN).bus, ADMIN, listen)
    assert await link.start(wait_seconds=60)
    try:
        yield admin
    finally:
        await link.stop()


def search(watched: Watched, text: str = "red square", **options: Any) -> Awaitable[Hits]:
    return asyncio.to_thread(watched.processes.client.search, text, k=5, **options)


def run_with(watched: Watched, act: Callable[[Eavesdropper], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with eavesdropping(watched) as admin:
            await act(admin)

    asyncio.run(run())


def test_nothing_can_be_read_on_the_bus(watched: Watched) -> None:
    model = Run(watched.federation.hub.run).model
    code = model.encoder().encode("red square", "text")
    query = Query(words=code.words[0], bits=code.bits, model_digest=code.model_digest, target="item", k=5)
    document = json.loads(encode_request(query))
    texts = {key: value for key, value in document.items() if isinstance(value, str) and len(value) >= 3}
    assert "code" in texts

    async def act(admin: Eavesdropper) -> None:
        hits = await search(watched, previews=True)
        assert {*hits.silos} == {*SILOS}
        assert await search(watched, "blue frame", label="blue")
        item = await asyncio.to_thread(watched.processes.client.item, hits.silos[0], hits.ids[0])
        assert item["caption"] == "red square"
        await register(admin.client)
        for silo in SILOS:
            assert len(admin.to(SUBJECTS.requests(silo))) >= 2
            assert len(admin.to(f"silohash.tests.answer.{silo}.")) >= 2
        bus = b"\n".join(bytes(message.data) for message in admin.seen)
        plain = [code.words[0].tobytes(), b"caption", b"label", b"version", b"red", b"square", b"blue", b"data:image"]
        plain += [text.encode() for text in (*texts.values(), *hits.ids)]
        assert [text for text in plain if len(text) > 3 and text in bus] == []

    run_with(watched, act)


def test_requests_cannot_be_forged_or_repeated(watched: Watched) -> None:
    async def act(admin: Eavesdropper) -> None:
        assert not (await search(watched)).missing_silos
        await register(admin.client)
        subject = SUBJECTS.requests("silo-1")
        captured = admin.to(subject)[-1]
        before = watched.counted("silo-1", 'silohash_silo_answered_total{kind="search"}')
        await admin.client.publish(subject, captured.data, reply=captured.reply)
        await watched.until("silo-1", 'silohash_silo_refused_total{reason="replayed"}', 1)
        own = SUBJECTS.answer("silo-1", ADMIN, 0)
        for content in (captured.data, encode_request(StatusRequest()), captured.data[:-1] + b"\0\0"):
            await admin.client.publish(subject, content, reply=own)
        await watched.until("silo-1", 'silohash_silo_refused_total{reason="forged"}', 3)
        await register(admin.client)
        assert {bytes(message.data) for message in admin.to(own)} == {b""}
        assert watched.counted("silo-1", 'silohash_silo_answered_total{kind="search"}') == before
        assert not (await search(watched)).missing_silos

    run_with(watched, act)
    logged = [json.loads(line) for line in (watched.federation.folder / "silo-1.log").read_text().splitlines()]
    assert {line.get("reason") for line in logged if line["event"] == "refused a request"} == {"replayed", "forged"}
    assert "Traceback" not in watched.processes.logs()


def test_answers_cannot_be_forged_or_repeated(watched: Watched) -> None:
    async def act(admin: Eavesdropper) -> None:
        expected = await search(watched)
        await register(admin.client)
        earlier = admin.to("silohash.tests.answer.silo-1.")[-1].data
        process = watched.processes.running["silo-1"]
        os.kill(process.pid, signal.SIGSTOP)
        try:
            seen = len(admin.to(SUBJECTS.requests("silo-1")))
            asked = asyncio.ensure_future(search(watched))
            while len(admin.to(SUBJECTS.requests("silo-1"))) == seen:
                await asyncio.sleep(0.01)
            reply = admin.to(SUBJECTS.requests("silo-1"))[-1].reply
            for content in (earlier, encode_answer("silo-1", Hits()), b""):
                await admin.client.publish(reply, content)
            await watched.until("hub", 'silohash_silo_findings_total{kind="forged",silo="silo-1"}', 3)
        finally:
            os.kill(process.pid, signal.SIGCONT)
        found = await asked
        assert (found.ids, found.distances, found.missing_silos) == (expected.ids, expected.distances, {})

    run_with(watched, act)
    assert '"dropped an answer that the silo did not seal"' in (watched.federation.folder / "hub.log").read_text()
