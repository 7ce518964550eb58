"""A member with a valid key that floods the hub, sends a huge summary, or invents distances, beside two honest silos.

The member is a process of this test that speaks to the bus by itself. It takes the place of the honest silo "museum".
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from silohash.api.runs import open_run
from silohash.base.errors import UserError
from silohash.search.hits import Hits
from tests.nats import needs_nats
from tests.processes import STARTED_SECONDS, Processes, federation_of
from tests.served import served_run, write_pictures

pytestmark = [needs_nats, pytest.mark.whole_run, pytest.mark.slow, pytest.mark.timeout(900)]

HONEST, MEMBER = ("silo-1", "silo-2"), "museum"
WORDS = ("red square", "blue frame", "green stripes", "red frame", "blue square", "green square")
DEADLINE_SECONDS = 10.0

PROGRAM = """
import asyncio, json, sys
from pathlib import Path
from nats.aio.client import Client
from silohash.service.config import SiloConfig, read_config
from silohash.service.envelope import SiloEnvelopes, bound_to
from silohash.service.nats_server import Subjects
from silohash.service.link import tls_context

lie, config = sys.argv[1], read_config(Path(sys.argv[2]), SiloConfig)

def answer(kind, **fields):
    return json.dumps({"version": 2, "kind": kind, "silo": config.silo, **fields}).encode()

def summary(labels):
    return answer("summary", items={"image": 9}, model="", reason="", reachable=True, fields=["labels"], labels=labels,
                  examples=[])

def nearest(query):
    count = query["k"] + query["offset"]
    return answer("hits", ids=[f"x{n}" for n in range(count)], distances=[0] * count, payloads=[{}] * count,
                  found_by=["image"] * count, left_out=[], limited="", model=query["model"])

async def main():
    client, flooded = Client(), asyncio.Event()
    envelopes = SiloEnvelopes(config.federation, config.silo, config.sealing)
    await client.connect(config.bus.servers[0], tls=tls_context(config.bus))

    async def receive(message):
        request = envelopes.open(message.data, bound_to(message.subject, message.reply))
        query = json.loads(request.content)
        if lie == "flood" and not flooded.is_set():
            flooded.set()
            subject = message.reply.rpartition(".")[0] + ".x"
            asyncio.create_task(flood(f"PUB {subject} 1\\r\\nx\\r\\n".encode() * 5000))
        labels = {f"a label of the museum with the number {n:036}": 1 for n in range(80_000)} if lie == "summary" else {}
        content = summary(labels) if query["kind"] == "status" else nearest(query)
        await message.respond(request.seal(content))

    async def flood(content):
        while True:
            client._transport.write(content)
            await client._transport.drain()

    await client.subscribe(Subjects(config.federation).requests(config.silo), cb=receive)
    await client.flush()
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    folder = tmp_path_factory.mktemp("trained")
    run = served_run(folder)
    with open_run(run) as opened:
        opened.index(write_pictures(folder / "museum", each=2), name=MEMBER)
    with federation_of(
        run, tmp_path_factory.mktemp("federation"), *HONEST, MEMBER, deadline_seconds=DEADLINE_SECONDS
    ) as started:
        yield started


@contextmanager
def lying(processes: Processes, lie: str) -> Iterator[None]:
    """Puts a process that tells a lie in the place of the member while the block runs."""
    processes.stop(MEMBER)
    command = [sys.executable, "-c", PROGRAM, lie, str(processes.federation.folder / f"{MEMBER}.toml")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as liar:
        try:
            assert liar.stdout is not None
            assert liar.stdout.readline() == b"ready\n"
            yield
        finally:
            liar.kill()
    processes.start(MEMBER)


def content_of(processes: Processes, path: str) -> bytes:
    """Returns what the hub answers under a path."""
    with urllib.request.urlopen(f"http://127.0.0.1:{processes.port}{path}") as response:
        content: bytes = response.read()
    return content


def findings(processes: Processes) -> dict[str, float]:
    """Returns what the hub found about the member, with the number of times."""
    lines = content_of(processes, "/metrics").decode()
    found = re.findall(r'silohash_silo_findings_total\{kind="(.*)",silo="(.*)"\} (.*)', lines)
    return {kind: float(number) for kind, silo, number in found if silo == MEMBER and float(number)}


def answered_by_others(hits: Hits) -> bool:
    return bool(len(hits)) and not {*hits.missing_silos} - {MEMBER} and {*hits.silos} <= {*HONEST}


def test_a_huge_summary_is_cut_and_marked(processes: Processes) -> None:
    with lying(processes, "summary"):
        processes.until(lambda: "cut_summary" in findings(processes), STARTED_SECONDS)
        status = {silo["name"]: silo for silo in json.loads(content_of(processes, "/api/v1/status"))["silos"]}
        assert "summary was cut" in status[MEMBER]["reason"]
        assert len(content_of(processes, "/")) < 500_000
        assert not any(status[silo]["reason"] for silo in HONEST)


def test_distances_that_contradict_each_other_are_found_and_left_out(processes: Processes) -> None:
    with lying(processes, "zeros"):
        first = processes.client.search(WORDS[0], k=5)
        assert {*first.silos} == {MEMBER}, "a first lie cannot be told from the truth"
        for words in WORDS[1:]:
            hits = processes.client.search(words, k=5)
            assert answered_by_others(hits), hits.missing_silos
            assert "contradict each other" in hits.missing_silos[MEMBER]
        assert findings(processes)["contradiction"] == len(WORDS) - 1


def test_honest_silos_are_not_suspected(processes: Processes) -> None:
    processes.until(processes.whole, STARTED_SECONDS)
    before = findings(processes)
    for words in WORDS * 2:
        for find in ("item", "image", "text"):
            assert not processes.client.search(words, find=find, k=30).missing_silos
    found = findings(processes)
    assert found.pop("new_edition") > before.pop("new_edition")
    assert found == before


def test_a_silo_is_excluded_and_taken_back_without_a_restart(processes: Processes) -> None:
    hub = str(processes.federation.folder / "hub.toml")

    def command(*options: str) -> None:
        subprocess.run([sys.executable, "-m", "silohash", "hub", hub, *options], check=True)

    command("--exclude", MEMBER)
    hits = processes.client.search(WORDS[0], k=50)
    assert answered_by_others(hits)
    assert "excluded" in hits.missing_silos[MEMBER]
    processes.stop("hub")
    processes.start("hub")
    processes.until(lambda: _missing(processes) == {MEMBER}, STARTED_SECONDS)
    command("--take-back", MEMBER)
    assert MEMBER in processes.client.search(WORDS[0], k=50).silos


def test_a_flood_of_answers_costs_the_place_of_its_sender_only(processes: Processes) -> None:
    with lying(processes, "flood"):
        processes.client.search(WORDS[0], k=5)
        for number in range(20):
            hits = processes.client.search(WORDS[number % len(WORDS)], k=5)
            assert answered_by_others(hits), (number, hits.missing_silos)
            assert "more answers than it was asked for" in hits.missing_silos[MEMBER]
        assert findings(processes)["flood"] >= 1


def _missing(processes: Processes) -> set[str] | None:
    try:
        return {*processes.client.search(WORDS[0], k=50).missing_silos}
    except UserError:
        return None
