from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from silohash.base.errors import NotARun, NotIndexed, ReadableByOthers, UserError
from silohash.search.policy import Policy
from silohash.search.requests import ItemRequest
from silohash.search.wire import encode_request
from silohash.service import link
from silohash.service.audit import AuditLog, verify_log
from silohash.service.config import ItemsSettings
from silohash.service.items.change import ModelChange
from silohash.service.items.scan import Record
from silohash.service.link import run_loop
from silohash.service.nats_bus import NOT_CONNECTED, NatsBus
from silohash.service.silo import open_models, responder, run_silo
from tests.nats import Federation, needs_nats
from tests.runs import train, write_archive
from tests.silos import decode_hits, made_up_codes, made_up_node, query_of

WORDS = made_up_codes(20, 16, 1)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    from silohash.api.runs import open_run

    folder = tmp_path_factory.mktemp("run")
    train(write_archive(folder / "archive", count=60), folder / "run", federated={"rounds": 1})
    with open_run(folder / "run") as trained:
        trained.index()
    return folder / "run"


@pytest.mark.whole_run
def test_a_silo_opens_its_own_index_with_its_policy(run, tmp_path):
    federation = Federation(tmp_path, "silo-1", run=run)
    [node] = open_models(federation.silo("silo-1")).nodes
    assert (node.name, node.policy) == ("silo-1", Policy())
    node.close()
    (tmp_path / "policy.toml").write_text("max_results = 3\n")
    strict = federation.silo("silo-1").model_copy(update={"policy": tmp_path / "policy.toml"})
    [node] = open_models(strict).nodes
    assert node.policy.max_results == 3
    node.close()


@pytest.mark.whole_run
def test_a_silo_refuses_an_index_that_others_can_read(run, tmp_path):
    shutil.copytree(run, tmp_path / "copy")
    folder = tmp_path / "copy" / "index" / "silo-1"
    config = Federation(tmp_path, "silo-1", run=tmp_path / "copy").silo("silo-1")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())}
    assert set(modes.values()) == {0o700, 0o600}
    assert modes["silo-1"] == 0o700
    for mode in (0o755, 0o770, 0o701):
        folder.chmod(mode)
        with pytest.raises(ReadableByOthers, match=rf"chmod 700 {folder}"):
            open_models(config)
    folder.chmod(0o750)  # the group makes copies
    open_models(config).close()


@pytest.mark.whole_run
def test_a_silo_that_is_not_indexed_or_has_no_run_is_explained(run, tmp_path):
    federation = Federation(tmp_path, "north", run=run)
    with pytest.raises(NotIndexed, match="north"):
        open_models(federation.silo("north"))
    nowhere = federation.silo("north").model_copy(update={"run": Path("nowhere")})
    with pytest.raises(NotARun, match="nowhere"):
        open_models(nowhere)


@pytest.mark.whole_run
def test_both_indexes_are_opened_until_the_old_one_is_removed(run, tmp_path):
    config = Federation(tmp_path, "silo-1", run=run).silo("silo-1")
    shutil.copytree(run, tmp_path / "second", ignore=shutil.ignore_patterns("index"))
    config = config.model_copy(update={"next_run": tmp_path / "second"})

    def opened(settings):
        models = open_models(settings)
        found = len(models.nodes), models.nodes[-1].loaded("image").store.path.is_relative_to(tmp_path / "second")
        with ThreadPoolExecutor(1) as executor, ModelChange(settings, models, executor) as change:
            kept = change.keeper._writers()[0].index.is_relative_to(tmp_path / "second")
        models.close()
        return *found, kept

    assert opened(config) == (1, False, False)
    shutil.copytree(run / "index" / "silo-1", tmp_path / "second" / "index" / "silo-1")
    assert opened(config) == (2, True, False)
    shutil.copytree(run, tmp_path / "first", ignore=shutil.ignore_patterns("index"))
    assert opened(config.model_copy(update={"run": tmp_path / "first"})) == (1, True, True)


@pytest.mark.whole_run
def test_a_silo_with_an_items_folder_need_not_be_indexed(run, tmp_path):
    config = Federation(tmp_path, "new", run=run).silo("new")
    with pytest.raises(NotIndexed):
        open_models(config)
    config = config.model_copy(update={"items": ItemsSettings(folder=tmp_path / "items")})
    with closing(open_models(config)) as models, ThreadPoolExecutor(1) as executor:
        with ModelChange(config, models, executor) as change:
            assert change.keeper.keeps
            assert not change.keeper.put(Record(id="a", text="red")).indexed, "the run was trained on given features"
        assert len(models.nodes[0].loaded("text").index) == 0


def test_answers_and_refusals_are_logged_without_the_query(tmp_path, caplog):
    node = made_up_node(tmp_path, "north", WORDS, 16)
    answer = responder(node)
    query = query_of(WORDS, 16, k=4, request_id="7f")
    with caplog.at_level(logging.DEBUG, "silohash.service"):
        assert len(decode_hits(answer(encode_request(query), 1 << 20, time.monotonic()), query, "north")) == 4
        answer(encode_request(ItemRequest("none")), 1 << 20, time.monotonic())
        answer(b"garbage", 1 << 20, time.monotonic())
    found, missing, unread = [(record.levelno, record.getMessage(), record.fields) for record in caplog.records]
    assert found[:2] == (logging.DEBUG, "answered")
    assert (found[2]["request"], found[2]["items"], found[2]["silo"]) == ("Query", 4, "north")
    assert not {"code", "words", "label"} & set(found[2])
    assert found[2]["request_id"] == "7f", "the id of the hub's log"
    assert missing[:2] == (logging.WARNING, "refused")
    assert missing[2]["request"] == "ItemRequest"
    assert unread[2]["request"] == "unreadable"
    assert "does not have the expected form" in unread[2]["reason"]


@pytest.mark.whole_run
@needs_nats
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_cleanly(run, tmp_path, stop):
    """The silo runs in this process, whose signal handlers it uses, while a thread asks it and then stops it."""
    seen = []

    async def ask_and_stop(federation):
        bus = NatsBus(federation.hub)
        await bus.link.start(wait_seconds=60)
        replies = await bus.ask({"silo-1": b"garbage"}, 60)
        while replies.reasons == {"silo-1": NOT_CONNECTED}:
            await asyncio.sleep(0.02)
            replies = await bus.ask({"silo-1": b"garbage"}, 60)
        seen.append(replies)
        os.kill(os.getpid(), stop)
        while (await bus.ask({"silo-1": b"garbage"}, 60)).answers:
            await asyncio.sleep(0.02)
        await bus.link.stop()

    with Federation(tmp_path, "silo-1", run=run) as federation:
        thread = threading.Thread(target=lambda: asyncio.run(ask_and_stop(federation)))
        run_silo(federation.silo("silo-1"), ready=thread.start)
        thread.join(60)
    assert b"refusal" in seen[0].answers["silo-1"]
    assert not thread.is_alive()


def test_every_answer_is_in_the_audit_log(tmp_path):
    node = made_up_node(tmp_path, "north", WORDS, 16)
    log = AuditLog(tmp_path / "audit" / "north.jsonl")
    answer, query = responder(node, log), query_of(WORDS, 16, k=4, asker="ann")
    hits = decode_hits(answer(encode_request(query), 1 << 20, time.monotonic()), query, "north")
    answer(b"garbage", 1 << 20, time.monotonic())
    lines = [json.loads(line) for line in log.path.read_text().splitlines()]
    assert [(line["request"], line["asker"]) for line in lines] == [("search", "ann"), ("unreadable", "")]
    assert lines[0]["released"] == list(hits.ids)
    assert verify_log(log.path).number == 2
    log.close()


def test_nothing_is_released_that_cannot_be_logged(tmp_path, monkeypatch):
    node = made_up_node(tmp_path, "north", WORDS, 16)
    log = AuditLog(tmp_path / "audit" / "north.jsonl")

    def full(entry):
        raise UserError("No space left on the device.")

    monkeypatch.setattr(log, "append", full)
    query = query_of(WORDS, 16, k=4)
    hits = decode_hits(responder(node, log)(encode_request(query), 1 << 20, time.monotonic()), query, "north")
    assert hits.missing_silos == {"north": "It cannot write its audit log, so it does not release anything."}
    log.close()


async def note_loop(loops: list[asyncio.AbstractEventLoop]) -> None:
    loops.append(asyncio.get_running_loop())


@pytest.mark.whole_run
@pytest.mark.parametrize("installed", [True, False])
def test_the_loop_is_that_of_uvloop_where_it_is_installed(installed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    uvloop = pytest.importorskip("uvloop")
    monkeypatch.setattr(link, "installed", lambda _: installed)
    loops: list[asyncio.AbstractEventLoop] = []
    run_loop(note_loop(loops))
    assert isinstance(loops[0], uvloop.Loop) == installed
    assert loops[0].is_closed()


def test_an_error_of_the_coroutine_leaves_the_loop() -> None:
    async def fail() -> None:
        raise OSError("the port is taken")

    with pytest.raises(OSError, match="the port is taken"):
        run_loop(fail())
