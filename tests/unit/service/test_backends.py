"""The backend over the bus: it finds what the run finds, item by item, and names silos that do not answer."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from silohash.api.runs import open_run
from silohash.base.errors import EmptyInput, NotFound, OutOfRange, QueryUnsuitable, Unavailable, UnknownWords, UserError
from silohash.run.config.load import load_resolved
from silohash.run.folder import Run
from silohash.search.bus import UNKNOWN
from silohash.search.composed import TEXT_WEIGHT, Composed
from silohash.search.federation import WITHOUT_WORDS
from silohash.search.hits import Hits, SearchOptions
from silohash.search.merge import WAITING
from silohash.search.node import SiloNode
from silohash.search.policy import CONTENT_REFUSED, Policy
from silohash.search.reasons import kind_of
from silohash.search.requests import Code, SearchRequest, SiloStatus
from silohash.search.silos import open_node, open_nodes
from silohash.search.wire import WireBus
from silohash.service import backends as module
from silohash.service.audit import AuditLog, verify_log
from silohash.service.backends import (
    ACCEPTANCE_UNKNOWN,
    ADOPTED,
    KNOWN_SECONDS,
    Acceptance,
    AdoptingBackend,
    HubBackend,
    LocalBackend,
)
from silohash.service.config import HubConfig
from silohash.service.logs import recording
from silohash.service.silo import responder
from silohash.training import experiment
from tests.regions import matching_config, write_region_set
from tests.served import drawn, served_run
from tests.silos import BytesInThreads

SILOS = ("silo-0", "silo-1", "silo-2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return served_run(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def local(folder: Path) -> Iterator[LocalBackend]:
    backend = LocalBackend.open(folder)
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def bus(folder: Path) -> Iterator[BytesInThreads]:
    nodes = open_nodes(Run.open(folder).index_folder)
    for node in nodes:
        node.policy = replace(node.policy, accept_query_words=True)
    yield BytesInThreads.of(*nodes)
    for node in nodes:
        node.close()


@pytest.fixture
def hub(folder: Path, bus: BytesInThreads) -> Iterator[HubBackend]:
    backend = HubBackend(Run.open(folder), bus.responders, WireBus(bus), deadline_seconds=60, share_words=True)
    yield backend
    backend.close()


def hub_with(folder: Path, bus: BytesInThreads, **responders: Any) -> HubBackend:
    changed = BytesInThreads({**bus.responders, **{name.replace("_", "-"): each for name, each in responders.items()}})
    return HubBackend(Run.open(folder), bus.responders, WireBus(changed), deadline_seconds=60, share_words=True)


def search(backend: Any, **request: Any) -> Hits:
    return asyncio.run(backend.search(SearchRequest(**{"share_words": True, **request})))


def same(first: Hits, second: Hits) -> bool:
    return vars(replace(first, folders={})) == vars(replace(second, folders={}))


@pytest.mark.parametrize("target", ["item", "image", "text"])
def test_words_and_pictures_find_what_the_run_finds(folder: Path, hub: HubBackend, target: str) -> None:
    with open_run(folder) as run:
        for given, request in (
            ({"text": "red square zebra"}, {"value": "red square zebra"}),
            ({"image": drawn("blue", "frame")}, {"value": drawn("blue", "frame")}),
        ):
            expected = run.search(**given, find=target, k=7, offset=2, previews=True)
            assert same(search(hub, **request, target=target, k=7, offset=2), expected)


@pytest.mark.parametrize(
    "options",
    [
        {"k": 50}, {"k": 3, "offset": 4}, {"radius_bits": 4, "k": 50}, {"label": "blue", "k": 50}, {"previews": False},
        {"silos": ("silo-1",)},
    ],
)  # fmt: skip
def test_options_find_what_the_backend_in_one_process_finds(hub: HubBackend, local: LocalBackend, options: Any) -> None:
    assert same(search(hub, value="red square", **options), search(local, value="red square", **options))


def test_a_code_and_an_item_find_what_the_backend_in_one_process_finds(hub: HubBackend, local: LocalBackend) -> None:
    [first, *_] = search(local, value="red square")
    options = SearchOptions(k=4, offset=1)
    for by in (None, "image", "text"):
        found = asyncio.run(hub.similar(first.silo, first.id, options, by))
        assert same(found, asyncio.run(local.similar(first.silo, first.id, options, by)))
        assert (first.silo, first.id) not in zip(found.silos, found.ids, strict=True)


def test_a_silo_that_has_left_is_neither_searched_nor_remembered(hub: HubBackend) -> None:
    asyncio.run(hub.status())
    hub.keep_silos({"silo-1", "silo-9"})
    assert set(search(hub, value="red square", k=50).silos) == {"silo-1"}
    assert [silo.name for silo in asyncio.run(hub.status()).silos] == ["silo-1"]
    assert not hub._digests("silo-2")
    with pytest.raises(NotFound):
        search(hub, value="red square", silos=("silo-2",))


def test_silos_are_told_what_a_code_was_made_from(folder: Path) -> None:
    nodes = open_nodes(Run.open(folder).index_folder)

    def hub_of(policy: Policy) -> HubBackend:
        stores = {node.name: {store.manifest.modality: store for store in node._stores} for node in nodes}
        bus = BytesInThreads.of(*(SiloNode(name, held, policy) for name, held in stores.items()))
        return HubBackend(Run.open(folder), bus.responders, WireBus(bus), deadline_seconds=60)

    hub = hub_of(Policy(accept_codes=False))
    found = search(hub, value="red square", k=3)
    assert len(found) == len(search(hub, value=drawn("blue", "frame"), k=3)) == 3
    alike = asyncio.run(hub.similar(found[0].silo, found[0].id, SearchOptions(k=2)))
    assert (len(alike), alike.missing_silos) == (2, {})
    code = nodes[0].code(nodes[0].loaded("image").store.item_ids(nodes[0].loaded("image").index.keys[:1])[0])
    refused = search(hub, value=code, k=3)
    assert set(refused.missing_silos) == {node.name for node in nodes}
    assert "texts and pictures only" in next(iter(refused.missing_silos.values()))
    closed = hub_of(Policy(similar=False))
    assert len(search(closed, value=code, k=3)) == 3
    with pytest.raises(Unavailable, match="does not allow searching for items like an item"):
        asyncio.run(closed.similar(found[0].silo, found[0].id, SearchOptions(k=2)))
    hub.close()
    closed.close()
    for node in nodes:
        node.close()


def test_items_and_the_state_are_those_of_the_backend_in_one_process(hub: HubBackend, local: LocalBackend) -> None:
    [first, *_] = search(local, value="red square")
    item, expected = (asyncio.run(backend.item(first.silo, first.id)) for backend in (hub, local))
    assert replace(item, path=None) == replace(expected, path=None)
    state, expected_state = (asyncio.run(backend.status()) for backend in (hub, local))
    assert [replace(silo, examples=(), accepts_words=False) for silo in state.silos] == [
        replace(silo, examples=()) for silo in expected_state.silos
    ]
    for name in ("name", "bits", "inputs", "local_method", "federated_method", "rounds", "chosen_round", "archive"):
        assert getattr(state, name) == getattr(expected_state, name), name


def test_the_silos_that_have_the_model_are_known(folder: Path, bus: BytesInThreads) -> None:
    def with_models(*models: str) -> Any:
        def answer(content: bytes, most_bytes: int, arrived: float) -> bytes:
            document = json.loads(bus.responders["silo-1"](content, most_bytes, arrived))
            return json.dumps(document | {"model": "other", "models": ["other", *models]}).encode()

        return answer

    digest = Run.open(folder).model.digest("global")
    for models, has in (((digest,), True), ((), False)):
        hub = hub_with(folder, bus, silo_1=with_models(*models))
        having = asyncio.run(hub.silos_with_model())
        assert having["silo-1"] is has
        assert having["silo-2"]
        hub.close()
    absent = hub_with(folder, bus, silo_1=lambda *_: b"garbage")
    assert not asyncio.run(absent.silos_with_model())["silo-1"]
    absent.close()


def test_what_does_not_exist_is_not_found(hub: HubBackend) -> None:
    with pytest.raises(NotFound, match='does not have an item "none"'):
        asyncio.run(hub.item(SILOS[1], "none"))
    with pytest.raises(NotFound, match="does not have"):
        asyncio.run(hub.similar(SILOS[1], "none", SearchOptions()))
    with pytest.raises(NotFound, match='There is no silo "north"'):
        asyncio.run(hub.item("north", "none"))
    with pytest.raises(NotFound, match='There is no silo "north"'):
        search(hub, value="red", silos=("north",))


def test_a_query_without_a_known_word_offers_captions_of_the_silos(hub: HubBackend) -> None:
    asyncio.run(hub.status())
    with pytest.raises(UnknownWords):
        search(hub, value="zebra")


def test_silos_that_do_not_answer_well_are_left_out_with_the_reason(folder: Path, bus: BytesInThreads) -> None:
    def in_anothers_name(content: bytes, most_bytes: int, arrived: float) -> bytes:
        return bus.responders["silo-2"](content, most_bytes, arrived)

    def unordered(content: bytes, most_bytes: int, arrived: float) -> bytes:
        answer = json.loads(bus.responders["silo-1"](content, most_bytes, arrived))
        turned = {"distances": answer["distances"][::-1]} if "distances" in answer else {}
        return json.dumps(answer | turned).encode()

    def more_than_requested(content: bytes, most_bytes: int, arrived: float) -> bytes:
        request = json.loads(content)
        return bus.responders["silo-1"](
            json.dumps(request | {"k": request.get("k", 0) + 1}).encode(), most_bytes, arrived
        )

    model = Run.open(folder).model
    words = model.encoder().encode("red square", "text").words[0]
    code = Code(words=words, bits=model.encoder().bits, model_digest=model.digest("global"))
    for answering, reason, k in (
        (lambda *_: b"garbage", "Its answer does not have the expected form", 50),
        (lambda *_: b"[" * 100_000, "Its answer does not have the expected form", 50),
        (lambda *_: bytes(9 << 20), "the limit is 8,388,608", 50),
        (in_anothers_name, "in the name of another silo", 50),
        (unordered, "distances that are not in ascending order", 50),
        (more_than_requested, "It answered with 3 hits when 2 were requested", 2),
    ):
        hub = hub_with(folder, bus, silo_1=answering)
        # For a text, silos answer with a window of hits, which may be more than were requested.
        hits = search(hub, value="red square" if k == 50 else code, k=k)
        assert list(hits.missing_silos) == ["silo-1"]
        assert reason in hits.missing_silos["silo-1"]
        assert kind_of(hits.missing_silos["silo-1"]) == "invalid"
        assert "silo-1" not in hits.silos
        assert hits.answered
        if answering in (unordered, more_than_requested):  # in other respects, these answers are right
            hub.close()
            continue
        for call in (hub.item("silo-1", "red-square-0"), hub.similar("silo-1", "red-square-0", SearchOptions())):
            with pytest.raises(Unavailable, match="The silo silo-1 cannot be searched"):
                asyncio.run(call)
        state = {silo.name: silo for silo in asyncio.run(hub.status()).silos}
        assert not state["silo-1"].reachable
        assert reason in state["silo-1"].reason
        assert state["silo-2"].reachable
        hub.close()


def test_a_silo_that_answers_too_late_is_left_out_with_the_reason(folder: Path, bus: BytesInThreads) -> None:
    released = threading.Event()

    def slow(content: bytes, most_bytes: int, arrived: float) -> bytes:
        released.wait(60)
        return bus.responders["silo-1"](content, most_bytes, arrived)

    hub = HubBackend(Run.open(folder), ["silo-1"], WireBus(BytesInThreads({"silo-1": slow})), deadline_seconds=0.1)

    async def ask() -> None:
        hits = await hub.search(SearchRequest(value="red square"))
        assert hits.missing_silos == {"silo-1": "It did not answer within 0.1 seconds."}
        assert kind_of(hits.missing_silos["silo-1"]) == "late"
        [state] = (await hub.status()).silos
        assert (state.reachable, state.reason) == (False, hits.missing_silos["silo-1"])
        with pytest.raises(Unavailable, match=r"within 0\.1 seconds"):
            await hub.item("silo-1", "red-square-0")
        released.set()  # before the event loop waits for its threads

    asyncio.run(ask())
    hub.close()


def test_a_search_has_a_deadline_of_its_own_and_shows_what_arrived_before(folder: Path, bus: BytesInThreads) -> None:
    released = threading.Event()

    def slow(content: bytes, most_bytes: int, arrived: float) -> bytes:
        released.wait(60)
        return bus.responders["silo-1"](content, most_bytes, arrived)

    hub = hub_with(folder, bus, silo_1=slow)
    seen: list[Hits] = []

    async def ask() -> None:
        late = await hub.search(SearchRequest(value="red square zebra", deadline_seconds=1.5, progress=seen.append))
        assert late.missing_silos == {"silo-1": "It did not answer within 1.5 seconds."}
        assert [hits.missing_silos for hits in seen] == [{"silo-1": WAITING}]
        assert same(replace(seen[-1], missing_silos=late.missing_silos), late)
        assert seen[0].unknown_words == ("zebra",)
        first = late[0]
        options = SearchOptions(deadline_seconds=1.5, progress=seen.append)
        alike = await hub.similar(first.silo, first.id, options)
        assert set(alike.missing_silos) == {"silo-1"}
        assert same(replace(seen[-1], missing_silos=alike.missing_silos), alike)
        assert [hits.missing_silos for hits in seen] == [{"silo-1": WAITING}] * 2
        with pytest.raises(Unavailable, match=r"within 1\.5 seconds"):
            await hub.similar("silo-1", "red-square-0", options)
        hub.deadline_limits = (2.0, 4.0)
        with pytest.raises(OutOfRange, match=r"Choose 2 to 4 seconds\."):
            await hub.search(SearchRequest(value="red square", deadline_seconds=1.5))
        released.set()  # before the event loop waits for its threads

    asyncio.run(ask())
    hub.close()


def test_the_audit_logs_of_silos_tell_who_asked_what_when_and_what_was_released(folder: Path, tmp_path: Path) -> None:
    nodes = open_nodes(Run.open(folder).index_folder)
    logs = {node.name: AuditLog(tmp_path / f"{node.name}.jsonl") for node in nodes}
    bus = BytesInThreads({node.name: responder(node, logs[node.name]) for node in nodes})
    hub = HubBackend(Run.open(folder), bus.responders, WireBus(bus), deadline_seconds=60)
    begun = datetime.now(UTC) - timedelta(seconds=1)
    with recording() as record:
        found = search(hub, value="red square zebra", k=5, asker="ann")
        silo, name = found[0].silo, found[0].id
        item = asyncio.run(hub.item(silo, name, asker="bob"))
        asyncio.run(hub.similar(silo, name, SearchOptions(k=2, silos=(silo,), asker="eve")))
    entries = [json.loads(line) for line in logs[silo].path.read_text().splitlines()]
    assert [(entry["request"], entry["asker"]) for entry in entries] == [
        *(("search", "ann"), ("item", "bob"), ("code", "eve"), ("search", entries[-1]["asker"])),
    ]
    assert re.fullmatch("pseudonym-[0-9a-f]{16}", entries[-1]["asker"]), "the code of an item comes without a name"
    assert {entry["request_id"] for entry in entries} == {record.id}
    assert all(begun <= datetime.fromisoformat(entry["time"]) <= datetime.now(UTC) for entry in entries)
    searched, shown, code, _ = entries
    assert {hit.id for hit in found if hit.silo == silo} <= set(searched["released"])
    assert searched["fields"] == ["caption", "file", "labels", "preview"]
    assert (item.id, shown["id"], shown["released"]) == (name, name, [name])
    assert (code["id"], code["fields"]) == (name, ["code"])
    assert "zebra" not in logs[silo].path.read_text(), "the words of the query stay at the hub"
    for log in logs.values():
        verify_log(log.path)
        log.close()
    hub.close()
    for node in nodes:
        node.close()


def test_an_item_counts_for_the_limit_of_its_asker_alone(folder: Path) -> None:
    nodes = open_nodes(Run.open(folder).index_folder)
    limited = SiloNode("silo-1", {"image": nodes[0]._stores[0]}, Policy(max_queries_per_day=1))
    bus = BytesInThreads.of(limited)
    hub = HubBackend(Run.open(folder), bus.responders, WireBus(bus), deadline_seconds=60)
    name = limited.loaded("image").store.item_ids(limited.loaded("image").index.keys[:1])[0]
    assert asyncio.run(hub.item("silo-1", name, asker="ann")).id == name
    with pytest.raises(Unavailable, match="1 query per day"):
        asyncio.run(hub.item("silo-1", name, asker="ann"))
    assert asyncio.run(hub.item("silo-1", name, asker="bob")).id == name
    hub.close()
    for node in nodes:
        node.close()


def test_times_of_answers_are_reported(folder: Path, bus: BytesInThreads) -> None:
    seen: list[tuple[str, float]] = []
    others = BytesInThreads({silo: each for silo, each in bus.responders.items() if silo != "silo-1"})
    hub = HubBackend(
        Run.open(folder), bus.responders, WireBus(others, lambda *pair: seen.append(pair)), deadline_seconds=60
    )
    kinds = {silo: kind_of(reason) for silo, reason in search(hub, value="red square").missing_silos.items()}
    assert kinds == {"silo-1": "unknown"}
    assert sorted(silo for silo, _ in seen) == sorted(others.responders)
    assert all(isinstance(seconds, float) for _, seconds in seen)
    hub.close()


def test_an_absent_silo_is_named_everywhere(folder: Path, bus: BytesInThreads) -> None:
    others = BytesInThreads({silo: each for silo, each in bus.responders.items() if silo != "silo-1"})
    hub = HubBackend(Run.open(folder), bus.responders, WireBus(others), deadline_seconds=60)
    assert search(hub, value="red square").missing_silos == {"silo-1": UNKNOWN}
    state = {silo.name: silo for silo in asyncio.run(hub.status()).silos}
    assert (state["silo-1"].reachable, state["silo-1"].reason) == (False, UNKNOWN)
    assert state["silo-2"].reachable
    with pytest.raises(Unavailable, match=UNKNOWN):
        asyncio.run(hub.item("silo-1", "red-square-0"))
    nobody = HubBackend(Run.open(folder), bus.responders, WireBus(BytesInThreads({})), deadline_seconds=60)
    hits = search(nobody, value="red square")
    assert not hits.answered
    assert set(hits.missing_silos) == set(bus.responders)
    for backend in (hub, nobody):
        backend.close()


def test_codes_of_another_model_are_refused_by_the_silos(hub: HubBackend, local: LocalBackend) -> None:
    [first, *_] = search(local, value="red square")
    found = asyncio.run(local.status()).bits
    code = local.nodes[first.silo].code(first.id)
    other = Code(words=code.words, bits=found, model_digest="beef")
    hits = search(hub, value=other)
    assert not hits.answered
    assert all("model" in reason for reason in hits.missing_silos.values())


def test_warming_up_runs_the_model(hub: HubBackend) -> None:
    hub.warm_up()
    assert search(hub, value="red square").answered


SCORING = ("silo-1", "silo-2", "silo-3")


class Asked:
    """The silos of a run whose model scores pairs, the requests that they got, and a hub that asks them."""

    def __init__(self, run: Run, accept: Mapping[str, bool]) -> None:
        self.nodes = [
            open_node(run.index_folder, silo, Policy(accept_query_content=accepts), run=run)
            for silo, accepts in accept.items()
        ]
        self.requests: dict[str, list[dict[str, Any]]] = {silo: [] for silo in accept}
        self.bus = BytesInThreads.of(*self.nodes)
        self.hub = HubBackend(
            run, accept, WireBus(BytesInThreads({silo: self._noting(silo) for silo in accept})), deadline_seconds=60
        )

    def _noting(self, silo: str) -> Any:
        def answer(content: bytes, most_bytes: int, arrived: float) -> bytes:
            self.requests[silo].append(json.loads(content))
            return self.bus.responders[silo](content, most_bytes, arrived)

        return answer

    def searches(self, silo: str) -> list[dict[str, Any]]:
        return [request for request in self.requests[silo] if request["kind"] == "search"]

    def close(self) -> None:
        self.hub.close()
        for node in self.nodes:
            node.close()


@pytest.fixture(scope="module")
def matching(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("matching")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SILOHASH_DATA", str(write_region_set(folder / "data", pictures=40)))
        config = matching_config(federated={"rounds": 1, "local_epochs": 1}, partition={"silos": 3})
        run = experiment.train(load_resolved(config), folder / "run")
        with open_run(run.folder) as opened:
            opened.index()
    return run


@pytest.fixture
def asked(matching: Run) -> Iterator[Callable[..., Asked]]:
    with ExitStack() as opened:

        def ask(*accept: bool) -> Asked:
            found = Asked(matching, dict(zip(SCORING, accept, strict=True)))
            opened.callback(found.close)
            return found

        yield ask


TEXT = "A dog and a cat."


@pytest.mark.whole_run
def test_silos_that_accept_words_score_their_items(matching: Run, asked: Callable[..., Asked]) -> None:
    silos = asked(True, True, True)
    local = LocalBackend.open(matching.folder)
    expected = search(local, value=TEXT, k=7, offset=2)
    local.close()
    found = search(silos.hub, value=TEXT, k=7, offset=2)
    assert found.order == "score"
    assert found.limited_silos == {}
    assert found.scores == pytest.approx(sorted(found.scores or (), reverse=True)), "no silo compared words"
    best = dict(zip(zip(expected.silos, expected.ids, strict=True), expected.scores or (), strict=True))
    same = {place: score for place, score in best.items() if place in {*zip(found.silos, found.ids, strict=True)}}
    scores = dict(zip(zip(found.silos, found.ids, strict=True), found.scores or (), strict=True))
    assert {place: scores[place] for place in same} == pytest.approx(same)
    [first, *_] = found
    assert search(silos.hub, value=TEXT, target="text").order == "outputs", "texts are compared with texts by codes"
    assert asyncio.run(silos.hub.similar(first.silo, first.id, SearchOptions(k=2))).order == "distance"


@pytest.mark.whole_run
def test_the_end_of_a_long_query_is_named(matching: Run, asked: Callable[..., Asked]) -> None:
    local = LocalBackend.open(matching.folder)
    text = "a dog and a cat " * 20 + "zebra"
    for backend in (asked(True, True, True).hub, local):
        assert search(backend, value=TEXT, k=1).unread is None
        unread = search(backend, value=text, k=1).unread
        assert unread is not None
        assert unread.unit == "words"
        assert len(unread.text.split()) == 101 - unread.limit
        assert unread.text.endswith("cat zebra")
    local.close()


@pytest.mark.whole_run
def test_regions_of_a_picture_find_texts_that_silos_score(matching: Run, asked: Callable[..., Asked]) -> None:
    silos, local = asked(True, True, True), LocalBackend.open(matching.folder)
    shape = matching.model.featurizers["image"].shape
    regions = np.random.default_rng(0).random(shape, np.float32)
    expected, found = (search(backend, value=regions, target="text", k=7) for backend in (local, silos.hub))
    for backend in (local, silos.hub):
        status = asyncio.run(backend.status())
        assert (status.inputs, status.vectors) == (("text",), ("image",))
        with pytest.raises(QueryUnsuitable):
            search(backend, value=np.ones(3), modality="image")
        with pytest.raises(QueryUnsuitable):
            search(backend, value=np.ones(3), modality="text")
    local.close()
    assert (found.order, found.limited_silos) == ("score", {})
    assert found.scores == pytest.approx(expected.scores)
    assert (found.ids, found.silos, found.found_by) == (expected.ids, expected.silos, expected.found_by)


@pytest.mark.whole_run
def test_words_leave_the_hub_only_for_silos_whose_policies_accept_them(asked: Callable[..., Asked]) -> None:
    silos = asked(True, False, True)
    found = search(silos.hub, value=TEXT, k=9)
    assert [node.matcher is not None for node in silos.nodes] == [True, False, True]
    assert ["content" in silos.searches(silo)[0] for silo in SCORING] == [True, False, True]
    assert {silos.searches(silo)[0]["target"] for silo in SCORING} == {"image"}
    assert found.limited_silos == {"silo-2": CONTENT_REFUSED}
    assert found.order == "rank"
    assert "silo-2" in found.silos
    scored = search(silos.hub, value=TEXT, k=9, silos=("silo-1", "silo-3"))
    assert scored.order == "score"
    of_scored = [hit for hit in zip(found.silos, found.ids, strict=True) if hit[0] != "silo-2"]
    assert of_scored == list(zip(scored.silos, scored.ids, strict=True))[: len(of_scored)]


@pytest.mark.whole_run
def test_the_words_of_a_query_are_encoded_beside_the_event_loop(
    asked: Callable[..., Asked], monkeypatch: pytest.MonkeyPatch
) -> None:
    silos = asked(True, True, True)
    kind, threads = type(silos.hub.run.model.featurizers["text"]), []
    encode = kind.encode_one

    def noted(self: Any, value: Any) -> Any:
        threads.append(threading.current_thread().name.partition("_")[0])
        return encode(self, value)

    monkeypatch.setattr(kind, "encode_one", noted)
    search(silos.hub, value=TEXT)
    assert set(threads) == {"encode"}


@pytest.mark.whole_run
def test_without_a_silo_that_accepts_words_codes_are_compared(asked: Callable[..., Asked]) -> None:
    silos = asked(False, False, False)
    found = search(silos.hub, value=TEXT, k=40)
    assert found.order == "outputs"
    assert found.limited_silos == dict.fromkeys(SCORING, CONTENT_REFUSED)
    for silo in SCORING:
        [request] = silos.searches(silo)
        assert request["target"] == "item"
        assert "content" not in request


@pytest.mark.whole_run
def test_a_silo_whose_summary_came_too_late_scores_in_the_next_search(asked: Callable[..., Asked]) -> None:
    silos = asked(True, True, True)
    answers = silos.bus.responders["silo-2"]

    def without_summary(content: bytes, most_bytes: int, arrived: float) -> bytes:
        return b"" if json.loads(content)["kind"] == "status" else answers(content, most_bytes, arrived)

    silos.bus.responders["silo-2"] = without_summary
    assert search(silos.hub, value=TEXT).limited_silos == {"silo-2": ACCEPTANCE_UNKNOWN}
    silos.bus.responders["silo-2"] = answers
    assert search(silos.hub, value=TEXT).order == "score"


@pytest.mark.whole_run
def test_a_silo_that_has_changed_its_mind_says_so(asked: Callable[..., Asked]) -> None:
    silos = asked(True, True, True)
    search(silos.hub, value=TEXT)
    assert [request["kind"] for request in silos.requests["silo-1"]] == ["status", "search"]
    silos.nodes[0].policy = Policy()
    found = search(silos.hub, value=TEXT)
    assert found.limited_silos == {"silo-1": CONTENT_REFUSED}
    asyncio.run(silos.hub.status())
    search(silos.hub, value=TEXT)
    assert ["content" in request for request in silos.searches("silo-1")] == [True, True, False]


@pytest.mark.whole_run
def test_words_that_were_changed_on_the_way_are_refused_by_name(asked: Callable[..., Asked]) -> None:
    silos = asked(True, True, True)

    def shortened(content: bytes, most_bytes: int, arrived: float) -> bytes:
        request = json.loads(content)
        if "content" in request:
            request["content"] = {"type": "int32", "shape": [1, 1], "values": "AAAAAA=="}
        return silos.bus.responders["silo-1"](json.dumps(request).encode(), most_bytes, arrived)

    silos.bus = BytesInThreads({**silos.bus.responders, "silo-3": lambda content, *_: b"x"})
    hub = silos.hub
    hub.bus = WireBus(BytesInThreads({**silos.bus.responders, "silo-1": shortened}))
    found = search(hub, value=TEXT)
    assert "The words of the query do not fit the model" in found.missing_silos["silo-1"]
    assert kind_of(found.missing_silos["silo-3"]) == "invalid"
    assert set(found.silos) == {"silo-2"}
    assert found.order == "score"


@pytest.fixture
def clock() -> list[float]:
    return [100.0]


@pytest.fixture
def acceptance(clock: list[float]) -> Acceptance:
    return Acceptance(lambda: clock[0])


def stated(name: str, *, accepts: bool = True) -> SiloStatus:
    return SiloStatus(name=name, model_digest="new", models=("new", "old"), accepts_content=accepts)


def test_only_silos_that_accept_are_sent_more_than_codes(acceptance: Acceptance) -> None:
    acceptance.note(stated("north"))
    acceptance.note(stated("south", accepts=False))
    acceptance.note(SiloStatus(name="east", reachable=False))
    assert [acceptance.refusal("north", digest) for digest in ("new", "old", "other")] == ["", "", CONTENT_REFUSED]
    assert acceptance.refusal("south", "new") == CONTENT_REFUSED
    assert acceptance.refusal("east", "new") == acceptance.refusal("west", "new") == ACCEPTANCE_UNKNOWN
    assert acceptance.unknown(["north", "south", "east", "west"]) == ["west"]


def test_a_statement_is_relied_on_for_a_while(acceptance: Acceptance, clock: list[float]) -> None:
    acceptance.note(stated("north"))
    clock[0] += KNOWN_SECONDS
    assert acceptance.refusal("north", "new") == ""
    clock[0] += 0.1
    assert acceptance.refusal("north", "new") == ACCEPTANCE_UNKNOWN
    assert acceptance.unknown(["north"]) == ["north"]
    acceptance.note(stated("north", accepts=False))
    assert acceptance.refusal("north", "new") == CONTENT_REFUSED


def test_a_silo_without_a_statement_is_asked_again_when_it_answers(acceptance: Acceptance) -> None:
    acceptance.note(SiloStatus(name="east", reachable=False))
    acceptance.note(stated("north"))
    assert acceptance.unknown(["east", "north"]) == []
    acceptance.answered("east")
    acceptance.answered("north")
    acceptance.answered("west")
    assert acceptance.unknown(["east", "north"]) == ["east"]


NOW = datetime(2027, 1, 31, tzinfo=UTC)


class Made:
    """A backend of one run."""

    def __init__(self, name: str, *, having: int = 0, silos: int = 4) -> None:
        self.name, self.having, self.silos = name, having, silos
        self.events: list[str] = []

    def __getattr__(self, name: str) -> Any:
        async def answer(*_: Any, **__: Any) -> str:
            return f"{self.name} {name}"

        return answer

    async def silos_with_model(self) -> dict[str, bool]:
        return {f"silo-{number}": number < self.having for number in range(self.silos)}

    def keep_silos(self, silos: Iterable[str]) -> None:
        self.kept = sorted(silos)

    def warm_up(self) -> None:
        self.events.append("warm")

    def close(self) -> None:
        self.events.append("closed")


def config(folder: Path, **values: Any) -> HubConfig:
    (folder / "next").mkdir(exist_ok=True)
    (folder / "next" / "config.toml").touch()
    (folder / "config.toml").touch()
    bus = {"servers": ["tls://nats.example.org:4222"], "certificate": "hub.pem", "key": "hub.key"}
    silos = {f"silo-{number}": "U" + "ABCD"[number] * 55 for number in range(4)}
    sealing = {silo: base64.b64encode(bytes([9 + number] * 32)).decode() for number, silo in enumerate(silos)}
    tables = {"bus": bus, "silos": silos, "sealing": {"key": "hub.sealing", "silos": sealing}}
    given = {"federation": "f", "run": folder, "deadline_seconds": 0.01, **tables, **values}
    return HubConfig.model_validate({"next_run": folder / "next", **given})


def adopt(backend: AdoptingBackend, now: datetime = NOW) -> bool:
    return asyncio.run(backend.adopt(now))


def backends(settings: HubConfig, having: int) -> tuple[Any, Any, AdoptingBackend]:
    made: dict[str, Any] = {settings.run.name: Made("old"), "next": Made("new", having=having)}
    return made[settings.run.name], made["next"], AdoptingBackend(settings, lambda run: made[run.folder.name])


@pytest.mark.parametrize(("share", "needed"), [(1.0, 4), (0.75, 3), (0.7, 3), (0.01, 1)])
def test_the_new_model_is_used_when_enough_silos_have_it(tmp_path: Path, share: float, needed: int) -> None:
    for having in range(5):
        (tmp_path / "next" / ADOPTED).unlink(missing_ok=True)
        old, new, backend = backends(config(tmp_path, next_share=share), having)
        assert adopt(backend) is (having >= needed)
        assert (backend.current is new) is (having >= needed)
        assert (tmp_path / "next" / ADOPTED).exists() is (having >= needed)
        assert old.events == (["closed"] if having >= needed else [])
        assert new.events == (["warm"] if having >= needed else [])


def test_the_new_model_is_used_at_a_time(tmp_path: Path) -> None:
    settings = config(tmp_path, next_at=NOW)
    _, new, backend = backends(settings, 0)
    assert not adopt(backend, NOW - timedelta(seconds=1))
    assert adopt(backend, NOW)
    assert backend.current is new
    assert adopt(backend), "there is nothing left to change"


def test_each_call_is_answered_by_one_backend(tmp_path: Path) -> None:
    _, _, backend = backends(config(tmp_path), 4)

    async def calls() -> list[Any]:
        found = [
            await backend.search(SearchRequest(value="red")),
            await backend.similar("silo-0", "a", SearchOptions()),
            await backend.item("silo-0", "a"),
            await backend.status(),
        ]
        return [str(each) for each in found]

    names = ("search", "similar", "item", "status")
    assert asyncio.run(calls()) == [f"old {name}" for name in names]
    adopt(backend)
    assert asyncio.run(calls()) == [f"new {name}" for name in names]


def test_a_change_outlives_the_process(tmp_path: Path) -> None:
    settings = config(tmp_path)
    made: Any = lambda run: Made(run.folder.name)  # noqa: E731
    backend = AdoptingBackend(settings, made)
    assert (backend.current.name, backend.following.name) == (tmp_path.name, "next")  # type: ignore[attr-defined, union-attr]
    (tmp_path / "next" / ADOPTED).touch()
    backend = AdoptingBackend(settings, made)
    assert (backend.current.name, backend.following) == ("next", None)  # type: ignore[attr-defined]
    backend = AdoptingBackend(settings.model_copy(update={"next_run": None}), made)
    assert (backend.current.name, backend.following) == (tmp_path.name, None)  # type: ignore[attr-defined]


def test_another_run_is_not_taken_for_the_one_that_the_hub_waits_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings, other = config(tmp_path), tmp_path / "other"
    _, new, backend = backends(settings, 4)
    for changed in (other, None):
        backend.reload(lambda changed=changed: settings.model_copy(update={"next_run": changed}))  # type: ignore[misc]
        assert "Start the hub again to use another run." in str(vars(caplog.records[-1])["fields"])

    async def one_look() -> None:
        task = asyncio.create_task(backend.keep_looking())
        while backend.following is not None:
            await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(asyncio.wait_for(one_look(), 60))
    assert backend.current is new
    assert ((tmp_path / "next" / ADOPTED).exists(), other.exists()) == (True, False)


def test_a_new_run_is_found_in_the_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    settings = config(tmp_path)
    made: Any = lambda run: Made(run.folder.name, having=4)  # noqa: E731
    backend = AdoptingBackend(settings.model_copy(update={"next_run": None}), made)

    def broken() -> HubConfig:
        raise UserError("hub.toml is not valid.")

    async def run() -> None:
        task = asyncio.create_task(backend.keep_looking())
        backend.reload(broken)
        await asyncio.sleep(0.05)
        assert backend.current.name == tmp_path.name  # type: ignore[attr-defined]
        backend.reload(lambda: settings)
        while backend.following is not None:
            await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(asyncio.wait_for(run(), 60))
    assert backend.current.name == "next"  # type: ignore[attr-defined]
    backend.reload(lambda: settings)
    assert backend.following is None
    backend.reload(lambda: settings.model_copy(update={"silos": {"silo-3": ""}}))
    assert backend.current.kept == ["silo-3"]  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def backend(folder: Path) -> Iterator[LocalBackend]:
    opened = LocalBackend.open(folder)
    yield opened
    opened.close()


def places(hits: Hits) -> list[tuple[str, str, int]]:
    return list(zip(hits.silos, hits.ids, hits.distances, strict=True))


@pytest.mark.parametrize("target", ["item", "image", "text"])
def test_the_backend_in_one_process_finds_what_the_run_finds(folder: Path, backend: LocalBackend, target: str) -> None:
    with open_run(folder) as run:
        for given, request in (
            ({"text": "red square"}, {"value": "red square"}),
            ({"image": drawn("blue", "frame")}, {"value": drawn("blue", "frame")}),
        ):
            expected = run.search(**given, find=target, k=7, offset=2)
            found = search(backend, **request, target=target, k=7, offset=2)
            assert places(found) == places(expected)
            assert found.payloads == expected.payloads
            assert found.folders == expected.folders


def test_the_model_is_loaded_once(backend: LocalBackend) -> None:
    assert backend._encoder.cache_info().misses == 1, "before the first search"
    first = search(backend, value="red square")
    assert places(search(backend, value="red square")) == places(first)
    assert backend._encoder.cache_info().misses == 1


def test_the_options_reach_the_silos(backend: LocalBackend) -> None:
    assert {label for hit in search(backend, value="red square", label="blue", k=50) for label in hit.labels} >= {
        "blue"
    }
    assert all("blue" in hit.labels for hit in search(backend, value="red square", label="blue", k=50))
    near = search(backend, value="red square", radius_bits=4, k=50)
    assert max(near.distances) <= 4
    assert set(search(backend, value="red square", silos=("silo-2",), k=50).silos) == {"silo-2"}
    assert not any(hit.preview_url for hit in search(backend, value="red square", previews=False))
    with pytest.raises(NotFound, match=r'There is no silo "silo-9"\. Choose from: silo-1, silo-2'):
        search(backend, value="red square", silos=("silo-9",))
    with pytest.raises(EmptyInput):
        search(backend, value="red square", silos=())


def test_a_code_finds_what_its_words_find(backend: LocalBackend) -> None:
    status = asyncio.run(backend.status())
    encoder = backend.run.model.encoder()
    words = encoder.encode("red square", "text").words[0]
    code = Code(words=words, bits=status.bits, model_digest=status.silos[0].model_digest)
    by_code, by_words = (places(search(backend, value=value, k=100)) for value in (code, "red square"))
    assert sorted(by_code) == sorted(by_words), "words and outputs change the order only"
    other = search(backend, value=Code(words=words, bits=status.bits, model_digest="0" * 8))
    assert not other.answered
    assert set(other.missing_silos) == {"silo-1", "silo-2"}


def test_similar_items_are_nearest_to_the_items_own_code_and_leave_it_out(backend: LocalBackend) -> None:
    first = search(backend, value="red square", target="image", k=1)[0]
    store = backend.nodes[first.silo].loaded("image").store
    code = Code(words=store.words([first.id])[0], bits=store.manifest.bits, model_digest=store.manifest.model_digest)
    everything = search(backend, value=code, target="image", k=100)
    expected = [place for place in places(everything) if place[:2] != (first.silo, first.id)]
    assert len(expected) == len(everything) - 1

    def similar(**options: Any) -> Hits:
        return asyncio.run(backend.similar(first.silo, first.id, SearchOptions(target="image", **options), "image"))

    whole = similar(k=100)
    assert places(whole) == expected
    pages = [similar(k=5, offset=offset) for offset in range(0, len(expected), 5)]
    assert [place for page in pages for place in places(page)] == expected
    last = pages[0].distances[-1]
    assert pages[0].ties_at_cut == sum(place[2] == last for place in expected) - pages[0].distances.count(last)
    seen: list[Hits] = []
    assert places(similar(k=5, offset=5, progress=seen.append)) == places(pages[1])
    assert [len(hits.missing_silos) for hits in seen] == [1, 0]
    assert all(len(hits) == 5 and (first.silo, first.id) not in [place[:2] for place in places(hits)] for hits in seen)
    assert places(seen[-1]) == places(pages[1])


def test_an_item_is_found_by_either_of_its_codes(backend: LocalBackend) -> None:
    first = search(backend, value="red square", k=1)[0]
    by_text = asyncio.run(backend.similar(first.silo, first.id, SearchOptions(target="text", k=3), "text"))
    assert by_text.distances[0] == 0, "an item with the same text has the same code"
    by_either = asyncio.run(backend.similar(first.silo, first.id, SearchOptions(target="image", k=3)))
    by_picture = asyncio.run(backend.similar(first.silo, first.id, SearchOptions(target="image", k=3), "image"))
    assert places(by_either) == places(by_picture)


def test_an_item_shows_what_its_silo_releases(backend: LocalBackend) -> None:
    hit = search(backend, value="green frame", k=1)[0]
    item = asyncio.run(backend.item(hit.silo, hit.id))
    assert (item.id, item.silo, item.modalities) == (hit.id, hit.silo, ("image", "text"))
    assert (item.caption, item.labels, item.path) == (hit.caption, hit.labels, hit.path)
    assert item.preview_url == hit.preview_url != None  # noqa: E711
    assert item.path is not None
    assert item.path.name == f"{item.id}.png"
    for silo, name in ((hit.silo, "nothing"), ("silo-9", hit.id)):
        with pytest.raises(NotFound):
            asyncio.run(backend.item(silo, name))
        with pytest.raises(NotFound):
            asyncio.run(backend.similar(silo, name, SearchOptions()))


def test_the_status_describes_run_and_silos(backend: LocalBackend) -> None:
    status = asyncio.run(backend.status())
    assert (status.name, status.archive, status.bits, status.inputs) == ("run", "shapes", 32, ("image", "text"))
    assert [silo.name for silo in status.silos] == ["silo-1", "silo-2"]
    counts = [silo.items for silo in status.silos]
    assert all(set(count) == {"image", "text"} for count in counts)
    assert [record.round for record in status.rounds] == [0, 1]
    assert status.chosen_round in {0, 1}
    first = status.silos[0]
    assert (first.reachable, first.reason) == (True, "")
    assert first.fields == ("caption", "labels", "preview", "file")
    assert sum(first.labels[color] for color in ("red", "green", "blue", "yellow")) == first.items["image"]
    assert len({item.id for item in first.examples}) == len(first.examples) == 8
    assert all(item.preview_url and item.caption for item in first.examples)


def test_a_policy_limits_items_and_status(folder: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(folder, tmp_path / "run")
    (copied / "policies").mkdir()
    (copied / "policies" / "silo-1.toml").write_text('fields = []\nmodalities = ["image"]\n')
    backend = LocalBackend.open(copied)
    [name] = (
        backend.nodes["silo-1"].loaded("image").store.item_ids(backend.nodes["silo-1"].loaded("image").index.keys[:1])
    )
    item = asyncio.run(backend.item("silo-1", name))
    assert (item.modalities, item.caption, item.labels, item.preview_url, item.path) == (("image",), "", (), None, None)
    with pytest.raises(NotFound, match="does not have the code of a text"):
        asyncio.run(backend.similar("silo-1", name, SearchOptions(), "text"))
    status = asyncio.run(backend.status()).silos[0]
    assert (set(status.items), status.labels, status.fields) == ({"image"}, {}, ())
    assert "does not allow searching for texts" in status.reason
    assert status.reachable
    backend.close()


def test_a_silo_without_its_index_is_named(folder: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(folder, tmp_path / "run")
    for path in (copied / "index" / "silo-1").glob("*.sqlite*"):
        path.write_bytes(b"")
    backend = LocalBackend.open(copied)
    hits = search(backend, value="red square")
    assert set(hits.missing_silos) == {"silo-1"}
    assert set(hits.silos) == {"silo-2"}
    status = asyncio.run(backend.status()).silos[0]
    assert not status.reachable
    assert status.reason
    with pytest.raises(Unavailable, match=r"The silo silo-1 cannot be searched"):
        asyncio.run(backend.item("silo-1", "anything"))
    with pytest.raises(Unavailable):
        asyncio.run(backend.similar("silo-1", "anything", SearchOptions()))
    backend.close()


def test_examples_have_the_paths_of_their_pictures(folder: Path, backend: LocalBackend) -> None:
    silo = asyncio.run(backend.status()).silos[0]
    assert silo.examples
    assert all(item.path is not None and item.path.is_file() for item in silo.examples)
    without = LocalBackend(backend.run, [*backend.nodes.values()])
    without.folders = {}
    assert all(item.path is None for item in asyncio.run(without.status()).silos[0].examples)


@pytest.mark.parametrize(("shares", "asks"), [(True, True), (True, False), (False, True)])
def test_a_text_goes_to_silos_that_accept_it_if_the_hub_and_the_asker_allow_it(
    folder: Path, shares: bool, asks: bool
) -> None:
    run, sent = Run.open(folder), dict[str, dict[str, Any]]()
    nodes = {node.name: node for node in open_nodes(run.index_folder)}
    accepting, *others = sorted(nodes)
    nodes[accepting].policy = replace(nodes[accepting].policy, accept_query_words=True)
    bus = BytesInThreads.of(*nodes.values())

    def noting(silo: str) -> Any:
        def answer(content: bytes, most_bytes: int, arrived: float) -> bytes:
            request = json.loads(content)
            if request["kind"] == "search":
                sent[silo] = request
            return bus.responders[silo](content, most_bytes, arrived)

        return answer

    noted = WireBus(BytesInThreads({silo: noting(silo) for silo in nodes}))
    hub = HubBackend(run, nodes, noted, deadline_seconds=60, share_words=shares)
    hits = search(hub, value="red square", k=50, share_words=asks)
    hub.close()
    allowed = shares and asks
    assert {silo for silo, request in sent.items() if "text" in request} == ({accepting} if allowed else set())
    assert not any("red" in str(request.get("own_text", "")) for request in sent.values())
    assert hits.by_code_only == tuple(others if allowed else sorted(nodes))
    assert {hit.silo for hit in hits if hit.matched} <= {accepting}
    assert any(hit.matched for hit in hits) is allowed
    for node in nodes.values():
        node.close()


@pytest.mark.parametrize("shares", [True, False])
def test_only_silos_that_are_sent_words_leave_out_items_with_excluded_words(folder: Path, shares: bool) -> None:
    nodes = {node.name: node for node in open_nodes(Run.open(folder).index_folder)}
    accepting, *others = sorted(nodes)
    nodes[accepting].policy = replace(nodes[accepting].policy, accept_query_words=True)
    wire = WireBus(BytesInThreads.of(*nodes.values()))
    hub = HubBackend(Run.open(folder), nodes, wire, deadline_seconds=60, share_words=shares)
    for value in ("square -red", Composed(drawn("red", "square"), "-red"), Composed(drawn("red", "square"), "a -red")):
        hits = search(hub, value=value, k=50)
        with_red = {hit.silo for hit in hits if "red" in hit.caption}
        assert with_red == ({*others} if shares else {*nodes})
        assert hits.excluded_words == ("red",)
        assert hits.by_code_only == tuple(others if shares else sorted(nodes))
    hub.close()
    for node in nodes.values():
        node.close()


def test_a_picture_and_words_are_one_query(folder: Path, hub: HubBackend, local: LocalBackend) -> None:
    picture = drawn("red", "square")
    alone = {name: search(local, value=value, k=50) for name, value in (("image", picture), ("text", "blue frame"))}
    hits = {
        weight: search(local, value=Composed(picture, "blue frame", weight), k=50) for weight in (0, TEXT_WEIGHT, 1)
    }
    assert dict(zip(hits[0].ids, hits[0].distances, strict=True)) == dict(
        zip(alone["image"].ids, alone["image"].distances, strict=True)
    )
    by_words = [hit.id for hit in hits[1] if hit.matched]
    assert by_words == [hit.id for hit in alone["text"] if hit.matched], "words order the first hits of each"
    assert all(found.strengths is None for found in hits.values()), "nothing is known of such queries"
    assert same(search(hub, value=Composed(picture, "blue frame"), k=50), hits[TEXT_WEIGHT])
    with open_run(folder) as run:
        again = run.search("blue frame -green", image=picture, k=50, region="0,0,1,1", text_weight=TEXT_WEIGHT)
        assert again.ids == tuple(hit.id for hit in hits[TEXT_WEIGHT] if "green" not in hit.caption)
    unknown = search(local, value=Composed(picture, "zebra"), k=50)
    assert (unknown.ids, unknown.unknown_words) == (alone["image"].ids, ("zebra",))
    assert unknown.strengths is None
    with pytest.raises(EmptyInput):
        search(local, value="-red -blue")


@pytest.mark.parametrize("asks", [True, False])
def test_words_that_the_model_does_not_know_are_found_by_silos_that_compare_words(folder: Path, asks: bool) -> None:
    nodes = {node.name: node for node in open_nodes(Run.open(folder).index_folder)}
    accepting, *others = sorted(nodes)
    nodes[accepting].policy = replace(nodes[accepting].policy, accept_query_words=True)
    asked = list[str]()
    bus = BytesInThreads.of(*nodes.values())

    def noting(silo: str) -> Any:
        def answer(content: bytes, most_bytes: int, arrived: float) -> bytes:
            asked.extend([silo] if json.loads(content)["kind"] == "search" else [])
            return bus.responders[silo](content, most_bytes, arrived)

        return answer

    noted = WireBus(BytesInThreads({silo: noting(silo) for silo in nodes}))
    hub = HubBackend(Run.open(folder), nodes, noted, deadline_seconds=60, share_words=True)
    if asks:
        hits = search(hub, value="0", share_words=True, k=50, radius_bits=0)
        assert {hit.silo for hit in hits} == {accepting}
        assert all(hit.id.endswith("-0") and hit.matched == ("0",) and hit.distance_bits is None for hit in hits)
        assert (hits.order, {*hits.missing_silos}, {*hits.missing_silos.values()}) == (
            "words",
            {*others},
            {WITHOUT_WORDS},
        )
        assert not search(hub, value="0", share_words=True, k=5, offset=50)
        with pytest.raises(UnknownWords):
            search(hub, value="0 zebra", share_words=True)
        assert {*asked} == {accepting}
    else:
        with pytest.raises(UnknownWords):
            search(hub, value="0", share_words=False)
        assert not asked
    hub.close()
    for node in nodes.values():
        node.close()
