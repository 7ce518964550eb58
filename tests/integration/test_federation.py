"""A federation of processes on 127.0.0.1: a NATS server with TLS, three silos and a hub, of which any may be killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from silohash import __version__
from silohash.api.runs import open_run
from silohash.base.certificates import Authority
from silohash.base.errors import OutOfRange, UserError
from silohash.search.breaker import SKIPPED
from silohash.search.hits import Hits
from tests.nats import needs_nats
from tests.processes import STARTED_SECONDS, Processes, federation_of
from tests.runs import silohash
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
        [hits.ids, hits.silos, hits.distances, hits.found_by, hits.ties_at_cut, hits.unknown_words]
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
            found = processes.client.search("red square zebra", find=target, k=200)
            assert set(found.by_code_only) == set(SILOS), "no silo was sent the words"
            expected = opened.search("red square zebra", find=target, k=200)
            assert {*zip(found.silos, found.ids, found.distances, strict=True)} == {
                *zip(expected.silos, expected.ids, expected.distances, strict=True)
            }
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


def test_a_silo_of_another_version_is_named_in_the_logs_the_status_and_by_doctor(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = processes.federation.folder
    (tmp_path / "sitecustomize.py").write_text("import silohash\n\nsilohash.__version__ = '9.8.7'\n")
    processes.stop("museum")
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
        processes.start("museum")
    processes.until(processes.whole, BACK_SECONDS)
    assert f"museum has silohash 9.8.7, and this process {__version__}" in (folder / "hub.log").read_text()
    assert f"The hub has silohash {__version__}, and this process 9.8.7" in (folder / "museum.log").read_text()

    def versions() -> dict[str, str]:
        with urllib.request.urlopen(f"http://127.0.0.1:{processes.port}/api/v1/status") as answer:
            return {silo["name"]: silo["version"] for silo in json.load(answer)["silos"]}

    # The hub keeps summaries for a while.
    expected = {"silo-1": __version__, "silo-2": __version__, "museum": "9.8.7"}
    processes.until(lambda: versions() == expected, BACK_SECONDS)
    said = silohash("doctor", "--member", folder / "hub.toml")
    assert (said.code, f"has silohash 9.8.7, and the hub {__version__}" in said.out) == (1, True)
    processes.stop("museum")
    processes.start("museum")
    processes.until(processes.whole, BACK_SECONDS)


def test_a_silo_with_a_certificate_of_another_authority_is_refused_and_named(
    processes: Processes, tmp_path: Path
) -> None:
    """Its process goes on trying, and its log and its check say why. The hub names it as missing."""
    folder = processes.federation.folder
    own = {name: (folder / name).read_bytes() for name in ("museum.pem", "museum.key")}
    processes.stop("museum")
    Authority.new().write_member(tmp_path / "museum.pem", tmp_path / "museum.key", "museum")
    for name in own:
        shutil.copy(tmp_path / name, folder / name)
    log, sentence = folder / "museum.log", "museum.pem was signed by another authority than authority.pem"
    before = len(log.read_text())
    processes.start("museum")
    processes.until(lambda: "error of the bus" in log.read_text()[before:], STARTED_SECONDS)
    assert sentence in log.read_text()[before:]
    assert "Traceback" not in log.read_text()[before:]
    assert set(processes.client.search("red square", k=5).missing_silos) == {"museum"}
    said = silohash("doctor", "--member", folder / "museum.toml")
    assert (said.code, sentence in said.out) == (1, True)
    assert processes.stop("museum", signal.SIGTERM) == 0
    for name, content in own.items():
        (folder / name).write_bytes(content)
    processes.start("museum")
    processes.until(processes.whole, BACK_SECONDS)


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


DEADLINE_SECONDS = 4.0
PATH = "/api/v1/search?text=red+square&k=5"


@pytest.fixture(scope="module")
def impatient(processes: Processes) -> Processes:
    """The same silos, behind a hub whose deadline is short. It is the last one of this module."""
    file = processes.federation.folder / "hub.toml"
    file.write_text(file.read_text().replace("deadline_seconds = 60.0", f"deadline_seconds = {DEADLINE_SECONDS}"))
    processes.stop("hub", signal.SIGTERM)
    processes.start("hub")
    processes.until(processes.whole, STARTED_SECONDS)
    return processes


@contextmanager
def stopped(processes: Processes, silo: str) -> Iterator[None]:
    """Stop the process of a silo while the block runs, and wait until the silo is searched again."""
    processes.running[silo].send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        processes.running[silo].send_signal(signal.SIGCONT)
    seconds = processes.until(processes.whole, BACK_SECONDS)
    print(f"The silo was searched again {seconds:.1f} seconds after it went on.")


def timed(processes: Processes, count: int) -> tuple[float, list[Hits]]:
    """Return the median time of queries in seconds, and their results."""
    seconds, found = [], []
    for _ in range(count):
        start = time.perf_counter()
        found.append(processes.client.search("red square", k=5))
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), found


@contextmanager
def got(processes: Processes, path: str, accept: str = "text/event-stream") -> Iterator[HTTPResponse]:
    """Yield an answer of the hub. The connection ends with the block."""
    connection = HTTPConnection("127.0.0.1", processes.port, timeout=60)
    connection.request("GET", path, headers={"accept": accept})
    with closing(connection), connection.getresponse() as answer:
        assert answer.status == 200
        yield answer


def metric(processes: Processes, sample: str) -> float:
    """Return a value of the hub's metrics."""
    with got(processes, "/metrics", "*/*") as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line for line in lines if line.startswith(sample)).split()[-1])


def events_of(answer: HTTPResponse) -> Iterator[tuple[str, Any]]:
    """Yield the names and the documents of server-sent events."""
    while line := answer.readline().decode().strip():
        data = answer.readline().decode().removeprefix("data: ")
        assert answer.readline() == b"\n"
        yield line.removeprefix("event: "), json.loads(data)


def test_a_silo_that_hangs_costs_one_query(impatient: Processes) -> None:
    normal, found = timed(impatient, 30)
    assert not any(hits.missing_silos for hits in found)
    with stopped(impatient, "museum"):
        once, [first] = timed(impatient, 1)
        assert first.missing_silos == {"museum": f"It did not answer within {DEADLINE_SECONDS:g} seconds."}
        after, found = timed(impatient, 30)
        assert [hits.missing_silos for hits in found] == [{"museum": SKIPPED}] * 30
        assert all(hits.answered for hits in found)
        print(f"One query took {once / normal:.0f} times the median before, the others {after / normal:.2f} times.")
        assert after <= max(3 * normal, DEADLINE_SECONDS / 20)
        sample = 'silohash_silo_breaker{silo="museum",state="%s"}'
        assert metric(impatient, sample % "closed") == 0
        impatient.until(
            lambda: metric(impatient, sample % "open") == 1, BACK_SECONDS
        )  # the first probe was not answered
    assert metric(impatient, sample % "closed") == 1
    assert metric(impatient, 'silohash_silo_breaker_changes_total{silo="museum",state="half_open"}') >= 1
    assert metric(impatient, 'silohash_missing_silos_total{reason="skipped",silo="museum"}') >= 30


def test_a_query_has_a_deadline_of_its_own_which_does_not_cost_others_the_silo(impatient: Processes) -> None:
    with stopped(impatient, "museum"):
        for _ in range(2):
            hits = impatient.client.search("red square", k=5, deadline_seconds=0.2)
            assert hits.missing_silos["museum"] == "It did not answer within 0.2 seconds."
    for wrong in (0, 0.09, 61, "nan"):
        with pytest.raises(OutOfRange, match=r"Choose 0\.1 to 60 seconds\."):
            impatient.client.search("red", deadline_seconds=wrong)


def test_answers_go_out_while_a_silo_hangs_and_a_search_ends_with_its_connection(impatient: Processes) -> None:
    with got(impatient, PATH, "application/json") as answer:
        document = json.load(answer)
    with got(impatient, PATH) as answer:
        *parts, (name, last) = events_of(answer)
    assert (name, last) == ("result", document)
    assert [name for name, _ in parts] == ["partial"] * 3
    assert [part["silos_answered"] for _, part in parts] == [1, 2, 3]
    assert parts[-1][1] == document
    log = impatient.federation.folder / "hub.log"
    other = next(hit for hit in document["hits"] if hit["silo"] != "museum")
    with stopped(impatient, "museum"):
        for path in (PATH, f"/api/v1/similar?of_silo={other['silo']}&of_id={other['id']}&k=5"):
            with got(impatient, path + "&deadline_seconds=50") as answer:
                (first, _), (second, part) = islice(events_of(answer), 2)
                assert (first, second, part["silos_answered"]) == ("partial", "partial", 2)
                assert part["missing_silos"] == {"museum": "It has not answered yet."}
        assert other["id"] not in {hit["id"] for hit in part["hits"]}
        impatient.until(lambda: log.read_text().count('"outcome": "canceled"') == 2, 40)
