"""Silo processes that change while they are searched: items are added, and a new model replaces the old one.

A silo is killed and started again, and nothing that was acknowledged is lost. No query fails, and no answer mixes two
models: every answer is the ranking of one of the two, whose codes differ.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from silohash.api.runs import open_run
from silohash.base.errors import UserError
from silohash.run.folder import Run
from silohash.search.bus import Replies
from silohash.search.hits import Hits, Query
from silohash.search.wire import encode_request
from silohash.service.clients.items import Items
from silohash.service.clients.search import Client
from silohash.service.nats_bus import NatsBus
from tests.nats import Federation, needs_nats
from tests.ports import free_port
from tests.served import drawn, png, served_run
from tests.silos import decode_hits

pytestmark = [needs_nats, pytest.mark.whole_run, pytest.mark.timeout(900)]

LONGEST_SECONDS = 120.0
DEADLINE_SECONDS = 60.0
PAUSE_SECONDS = 0.01
"""Between two queries, so that the silos are not busy with queries alone."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return served_run(tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="module")
def second_run(run: Path) -> Path:
    """A run of the same silos whose model gives other codes."""
    return served_run(run.parent, name="second", rounds=1)


Ranking = dict[tuple[str, str], int]
"""The distance of each item, by its silo and id."""


def ranking_of(hits: Hits) -> Ranking:
    """Return the ranking of an answer without the order among equals, which depends on the hub."""
    return {(hit.silo, hit.id): hit.distance_bits for hit in hits}


def rankings_of(run: Path) -> list[Ranking]:
    """Return the right answers with the model of a run, without and with the item that is added during the change.

    The added item has the picture and the text of other items, and so their codes. An answer may find it while only one of
    its codes is indexed.
    """
    trained = open_run(run)
    before = ranking_of(trained.search("red square", k=200))
    rankings = [before]
    for find in ("item", "image", "text"):
        hits = trained.search("red square", find=find, k=200)
        [distance] = {hit.distance_bits for hit in hits if hit.id.startswith("red-square")}
        rankings.append(before | {("silo-1", "added"): distance})
    return rankings


class Member:
    """A process of a federation."""

    def __init__(self, folder: Path, name: str, *options: str) -> None:
        self.folder, self.name, self.options = folder, name, options
        self.file = folder / f"{name}.toml"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return (self.folder / f"{self.name}.txt").read_text()

    def start(self) -> None:
        command = "hub" if self.name == "hub" else "silo"
        with (self.folder / f"{self.name}.txt").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "silohash", command, str(self.file), *self.options], stdout=log, stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip

    def set(self, line: str) -> None:
        """Write a key into the file of the member, before its tables."""
        self.file.write_text(f"{line}\n{self.file.read_text()}")

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.stop(signal.SIGKILL)

    def stop(self, number: int) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(LONGEST_SECONDS)

    def until(self, holds: Callable[[], object]) -> None:
        end = time.monotonic() + LONGEST_SECONDS
        while True:
            try:
                if holds():
                    return
            except UserError:
                pass
            assert time.monotonic() < end, self.log
            time.sleep(0.05)


class Silo(Member):
    """A silo process with an items folder and the items API."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder, name)
        self.port = free_port()
        items = f'[items]\nfolder = "{name}-items"\nlisten = "127.0.0.1:{self.port}"\ntoken = "{name}.token"\n'
        self.file.write_text(self.file.read_text() + items)

    @property
    def items(self) -> Items:
        return Items(f"http://127.0.0.1:{self.port}", (self.folder / f"{self.name}.token").read_text().strip())

    def start(self) -> None:
        super().start()
        self.until(lambda: (self.folder / f"{self.name}.token").exists() and list(self.items) is not None)


class Asker:
    """Ask the silo over the bus."""

    def __init__(self, federation: Federation, run: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.bus = self._on_loop(self._connect(federation))
        self.encoder = Run.open(run).model.encoder()

    async def _connect(self, federation: Federation) -> NatsBus:
        bus = NatsBus(federation.hub)
        await bus.link.start(wait_seconds=DEADLINE_SECONDS)
        return bus

    def _on_loop(self, task):  # type: ignore[no-untyped-def]
        return asyncio.run_coroutine_threadsafe(task, self._loop).result(2 * DEADLINE_SECONDS)

    def _ask(self, text: str, k: int) -> tuple[Query, Replies]:
        code = self.encoder.encode(text, "text")
        query = Query(words=code.words[0], bits=code.bits, model_digest=code.model_digest, target="item", k=k)
        return query, self._on_loop(self.bus.ask({"silo-1": encode_request(query)}, DEADLINE_SECONDS))

    def is_answered(self) -> bool:
        """Tell whether the silo is connected to the bus. Its items API may be there before."""
        return not self._ask("red square", 1)[1].reasons

    def search(self, text: str, k: int = 200) -> Hits:
        query, replies = self._ask(text, k)
        assert not replies.reasons, replies.reasons
        return decode_hits(replies.answers["silo-1"], query, "silo-1")

    def close(self) -> None:
        self._on_loop(self.bus.link.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def streaming(asker: Asker | Client) -> Iterator[list[Hits]]:
    """Ask again and again while the block runs, and yield the list of the answers."""
    answers: list[Hits] = []
    errors: list[BaseException] = []
    stopped = threading.Event()

    def ask() -> None:
        try:
            while not stopped.wait(PAUSE_SECONDS):
                answers.append(asker.search("red square", k=200))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield answers
    finally:
        stopped.set()
        thread.join()
    assert not errors, errors[0]


def test_items_are_added_while_the_silo_is_searched_and_survive_its_end(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    with Federation(tmp_path, "silo-1", run=copy) as federation:
        silo = Silo(tmp_path, "silo-1")
        silo.start()
        asker = Asker(federation, copy)
        try:
            silo.until(asker.is_answered)
            before = set(asker.search("red square").ids)
            with streaming(asker) as answers:
                put = [f"put/{number}" for number in range(12)]
                for name in put:
                    silo.items.put(name, png(drawn("red", "frame")), text="red frame", labels=["red"])
                    assert name in asker.search("red square").ids, "an acknowledged item can be found"
                (tmp_path / "silo-1-items" / "dropped.png").write_bytes(png(drawn("blue", "square")))
                silo.until(lambda: silo.items.state("dropped.png")["indexed"])
            assert answers
            assert all(not hits.missing_silos and before <= set(hits.ids) for hits in answers)
            silo.items.delete(put[0])
            silo.stop(signal.SIGKILL)
            (tmp_path / "silo-1-items" / "while-off.png").write_bytes(png(drawn("green", "frame")))
            (tmp_path / "silo-1-items" / "dropped.png").unlink()
            silo.start()
            silo.until(lambda: silo.items.state("while-off.png")["indexed"])
            silo.until(asker.is_answered)
            found = set(asker.search("red square").ids)
            assert found == before | {*put[1:], "while-off.png"}
            assert silo.stop(signal.SIGTERM) == 0, silo.log
            assert "Traceback" not in silo.log
        finally:
            silo.kill()
            asker.close()


def test_a_new_model_replaces_the_old_one_without_a_failed_query(run: Path, second_run: Path, tmp_path: Path) -> None:
    old, new = (Run.open(each).model.digest("global") for each in (run, second_run))
    rankings = {old: rankings_of(run), new: rankings_of(second_run)}
    [first, *_], [second, *_] = rankings.values()
    assert first.keys() == second.keys()
    assert all(any(first[item] != second[item] for item in first if item[0] == silo) for silo in ("silo-1", "silo-2"))
    for name in ("silo-1", "silo-2", "hub"):
        for place, copied in (("first", run), ("second", second_run)):
            shutil.copytree(copied, tmp_path / place / name, ignore=shutil.ignore_patterns("index", "checkpoint"))
        if name != "hub":
            shutil.copytree(run / "index" / name, tmp_path / "first" / name / "index" / name)
    runs = {name: tmp_path / "first" / name for name in ("silo-1", "silo-2")}
    with Federation(tmp_path, "silo-1", "silo-2", run=tmp_path / "first" / "hub", runs=runs):
        port = free_port()
        hub, silos = Member(tmp_path, "hub", "--port", str(port)), [Silo(tmp_path, name) for name in runs]
        client = Client(f"http://127.0.0.1:{port}", timeout_seconds=DEADLINE_SECONDS)
        members = [hub, *silos]
        try:
            for member in members:
                member.start()
            hub.until(lambda: not client.search("red square", k=3).missing_silos)
            assert ranking_of(client.search("red square", k=200)) == first
            with streaming(client) as answers:
                hub.until(lambda: answers)
                for member in members:
                    member.set(f'next_run = "second/{member.name}"')
                    assert member.process is not None
                    member.process.send_signal(signal.SIGHUP)
                silos[0].items.put("added", png(drawn("red", "square")), text="red square")
                hub.until(lambda: answers[-1].model_digests == {new})
            for hits in answers:
                [digest] = hits.model_digests
                assert ranking_of(hits) in rankings[digest], "every answer is the ranking of one model"
            digests = [digest for hits in answers for digest in hits.model_digests]
            assert set(digests) == {old, new}
            assert digests == sorted(digests, key=[old, new].index), "the change is made once"
            assert not any(hits.missing_silos for hits in answers)
            assert ranking_of(client.search("red square", k=200)) == rankings[new][1]
            for member in members:
                assert member.stop(signal.SIGTERM) == 0, member.log
            for member in members:
                member.start()
            hub.until(lambda: not client.search("red square", k=3).missing_silos)
            assert client.search("red square", k=3).model_digests == {new}
            assert "Traceback" not in "".join(member.log for member in members)
        finally:
            for member in members:
                member.kill()
