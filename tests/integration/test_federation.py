"""A federation of processes on 127.0.0.1: a NATS server with TLS, three silos and a hub, of which any may be killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from silohash import __version__
from silohash.api.runs import open_run
from silohash.base.certificates import Authority
from silohash.base.errors import UserError
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
    with urllib.request.urlopen(f"http://127.0.0.1:{processes.port}/api/v1/status") as answer:
        versions = {silo["name"]: silo["version"] for silo in json.load(answer)["silos"]}
    assert versions == {"silo-1": __version__, "silo-2": __version__, "museum": "9.8.7"}
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
