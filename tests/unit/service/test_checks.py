"""The check of a member: its certificates, the way to the server, and the versions of the silos."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from silohash import __version__
from silohash.base.certificates import AUTHORITY, Authority
from silohash.search import wire
from silohash.search.requests import SiloStatus
from silohash.search.wire import encode_answer
from silohash.service import checks
from silohash.service.checks import check_member
from silohash.service.silo_link import SiloLink
from tests.nats import Federation, needs_nats
from tests.runs import silohash

pytestmark = needs_nats


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    with Federation(tmp_path_factory.mktemp("checks"), "north", "south") as started:
        yield started


def bad(path: Path) -> dict[str, str]:
    return {finding.subject: finding.text for finding in check_member(path) if not finding.good}


@contextmanager
def answering(federation: Federation, silo: str) -> Iterator[None]:
    """A silo answers in a thread while the block runs."""
    loop, started = asyncio.new_event_loop(), threading.Event()
    config = federation.silo(silo)

    async def serve() -> None:
        answer = encode_answer(silo, SiloStatus(name=silo))
        with ThreadPoolExecutor(1) as executor:
            link = SiloLink(config, lambda *_: answer, executor)
            await link.start(wait_seconds=60)
            started.set()
            await stopped.wait()
            await link.stop()

    stopped = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert started.wait(60)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join()
        loop.close()


def test_a_silo_is_checked_without_taking_its_requests(federation: Federation) -> None:
    found = check_member(federation.folder / "north.toml")
    assert [finding.subject for finding in found] == ["north.pem", AUTHORITY, "server"]
    assert all(finding.good for finding in found)


def test_the_hub_names_silos_that_are_absent_or_of_another_version(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(wire, "__version__", "9.8.7")
        silo = answering(federation, "north")
        silo.__enter__()
    found = {finding.subject: (finding.text, finding.good) for finding in check_member(federation.folder / "hub.toml")}
    silo.__exit__(None, None, None)
    assert found["north"] == (f"has silohash 9.8.7, and the hub {__version__}", False)
    assert found["south"] == ("It is not running, or cannot be reached.", False)
    assert found["server"][1]
    with answering(federation, "north"), answering(federation, "south"):
        assert bad(federation.folder / "hub.toml") == {}


def test_a_certificate_of_another_authority_is_named(federation: Federation, tmp_path: Path) -> None:
    Authority.new().write_member(tmp_path / "north.pem", tmp_path / "north.key", "north")
    text = (federation.folder / "north.toml").read_text()
    (tmp_path / "north.toml").write_text(text)
    foreign = bad(tmp_path / "north.toml")
    assert foreign.keys() == {"server"}
    assert f"signed by the authority in {tmp_path / AUTHORITY}" in foreign["server"]
    (tmp_path / AUTHORITY).write_bytes((federation.folder / AUTHORITY).read_bytes())
    mixed = bad(tmp_path / "north.toml")
    assert "north.pem was signed by another authority" in mixed["authority"]
    assert "north.pem was signed by another authority" in mixed["server"]


def test_the_command_exits_with_1_if_something_must_be_done(
    federation: Federation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = silohash("doctor", "--member", federation.folder / "north.toml")
    assert (said.code, len(said.out.splitlines()), said.err) == (0, 3, "")
    monkeypatch.setattr(checks, "CONNECT_SECONDS", 0.5)
    off = Federation(tmp_path, "north")
    said = silohash("doctor", "--member", off.folder / "hub.toml", "--json")
    assert said.code == 1
    assert {one["subject"]: one["good"] for one in json.loads(said.out)["findings"]} == {
        "hub.pem": True, "server.pem": True, AUTHORITY: True, "server": False,
    }  # fmt: skip
