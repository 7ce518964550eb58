"""A federation of processes on 127.0.0.1: a NATS server with TLS, three silos and a hub, of which any may be killed."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from silohash.api.runs import open_run
from silohash.base.errors import UserError
from silohash.search.hits import Hits
from tests.nats import needs_nats
from tests.processes import STARTED_SECONDS, Processes, federation_of
from tests.served import drawn, png, served_run, write_pictures

pytestmark = [needs_nats, pytest.mark.whole_run, pytest.mark.timeout(900)]

SILOS = ("silo-1", "silo-2", "museum")
BACK_SECONDS = 120.0
"""Limit on the time until a process that was started again is found. On an idle machine it takes less than 5 seconds."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two silos that were trained and one that was added."""
    folder = tmp_path_factory.mktemp("trained")
    trained = served_run(folder)
    museum = write_pictures(folder / "museum", each=2)
    with open_run(trained) as opened:
        opened.index(museum, name="museum")
    return trained


@pytest.fixture(scope="module")
def processes(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    with federation_of(run, tmp_path_factory.mktemp("federation"), *SILOS) as started:
        yield started


def same(found: Hits, expected: Hits) -> bool:
    columns = [
        [hits.ids, hits.silos, hits.distances, hits.found_by, hits.left_out, hits.unknown_words]
        for hits in (found, expected)
    ]
    payloads = [
        [{name: payload.get(name) for name in ("caption", "labels", "preview")} for payload in hits.payloads]
        for hits in (found, expected)
    ]
    return columns[0] == columns[1] and payloads[0] == payloads[1]


def test_words_and_pictures_find_what_the_run_finds(run: Path, processes: Processes) -> None:
    with open_run(run) as opened:
        for number, target in enumerate(("item", "image", "text")):
            options = {"k": 9, "offset": number, "previews": True}
            found = processes.client.search("red square zebra", find=target, **options)
            assert same(found, opened.search("red square zebra", find=target, **options))
            found = processes.client.search(image=png(drawn("blue", "frame")), find=target, **options)
            assert same(found, opened.search(image=drawn("blue", "frame"), find=target, **options))
    assert set(processes.client.search("red square", k=50).silos) == set(SILOS)


def test_a_silo_that_is_killed_is_named_until_it_is_back(processes: Processes) -> None:
    missing: list[set[str]] = []
    started = back = 0.0
    for number in range(300):
        if number == 100:
            processes.stop("museum")
        if number == 200:
            processes.start("museum")
            started = time.monotonic()
        hits = processes.client.search("red square", k=5)  # raises an error if the query fails
        missing.append(set(hits.missing_silos))
        assert hits.answered
        if number > 200 and not back and not hits.missing_silos:
            back = time.monotonic()
    assert all(silos == set() for silos in missing[:100])
    assert all(silos == {"museum"} for silos in missing[101:200])
    assert all(silos <= {"museum"} for silos in missing)
    processes.until(processes.whole, BACK_SECONDS)
    print(f"The silo was back {(back or time.monotonic()) - started:.1f} seconds after its start.")


def test_no_query_fails_if_the_bus_is_killed_and_started_again(processes: Processes) -> None:
    for number in range(100):
        if number == 50:
            processes.federation.kill()
            processes.federation.start()
        assert not processes.client.search("red square", k=5).missing_silos


def test_a_hub_that_is_killed_is_back_after_its_start(processes: Processes) -> None:
    def ask() -> bool:
        try:
            processes.client.search("red square", k=5)
        except UserError:
            return False
        return True

    assert ask()
    processes.stop("hub")
    assert not ask()
    processes.start("hub")
    processes.until(ask, STARTED_SECONDS)
    assert not processes.client.search("red square", k=5).missing_silos


def test_all_processes_end_cleanly(processes: Processes) -> None:
    for name, number in (("hub", signal.SIGTERM), ("museum", signal.SIGTERM), ("silo-1", signal.SIGINT)):
        assert processes.stop(name, number) == 0, processes.logs()
    for name in ("hub", "museum", "silo-1"):
        processes.start(name)
    processes.until(processes.whole, STARTED_SECONDS)
    log = (processes.federation.folder / "silo-1.log").read_text()
    assert '"event": "silo stopped"' in log
    assert "Traceback" not in processes.logs()
    assert "eof_received" not in processes.logs()  # a warning that every encrypted connection would end with
