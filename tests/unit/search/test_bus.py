"""Silos of this process are asked at the same time, and silos are left out if they are late or answer wrongly."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from silohash.base.errors import UserError
from silohash.index.server import seconds_left
from silohash.search import bus
from silohash.search.bus import UNKNOWN, LocalBus, answers_to, flaw, late, now
from silohash.search.hits import Hits, Query, silent
from silohash.search.reasons import kind_of
from silohash.search.requests import Code, CodeRequest, Item, ItemRequest, Refusal, SiloStatus, StatusRequest
from tests.silos import made_up_codes, made_up_node

QUERY = Query(words=np.zeros(1, np.uint16), bits=16, model_digest="m", target="image", k=2)


class Scripted:
    """A node that does what the test says."""

    def __init__(self, name, act, *, quick=False, codes=0):
        self.name = name
        self.act = act
        self.quick = quick
        self.codes = codes

    def answer(self, query):
        return self.act(query)


def hits_of(name, *distances):
    count = len(distances)
    ids = tuple(map(str, range(count)))
    return Hits(
        ids=ids, distances=distances, silos=(name,) * count, payloads=({},) * count, model_digests=frozenset("m")
    )


def queries(*names):
    return dict.fromkeys(names, QUERY)


def gather(nodes, requests, deadline_seconds):
    """Return the answer of each silo, silent with the reason if it is missing."""
    replies = now(answers_to(LocalBus(nodes), requests, deadline_seconds))
    refused = {name: answer.reason for name, answer in replies.answers.items() if isinstance(answer, Refusal)}
    found = {name: silent(name, reason) for name, reason in {**replies.reasons, **refused}.items()}
    return [{**replies.answers, **found}[name] for name in requests]


def meeting(count):
    """Return a function that makes the answers of nodes, each of which waits until so many nodes answer."""
    together = threading.Barrier(count, timeout=60)

    def meet(name):
        def act(_):
            together.wait()
            return hits_of(name, 1)

        return act

    return meet


def test_answers_stand_in_the_order_of_the_nodes():
    nodes = [Scripted(name, lambda _, name=name: hits_of(name, 3), quick=name in "bd") for name in "abcde"]
    answers = gather(nodes, queries(*"abcdx"), 60.0)
    assert [hits.silos for hits in answers] == [("a",), ("b",), ("c",), ("d",), ()]
    assert answers[4].missing_silos == {"x": UNKNOWN}
    assert gather([], {}, 60.0) == []


def test_quick_nodes_are_queried_by_the_calling_thread():
    threads = {}

    def act(name):
        def answer(_):
            threads[name] = threading.current_thread()
            return hits_of(name)

        return answer

    gather([Scripted(name, act(name), quick=name == "b") for name in "abc"], queries(*"abc"), 60.0)
    assert threads["b"] is threading.current_thread()
    assert len(set(threads.values())) == 3
    assert all(thread.daemon for name, thread in threads.items() if name != "b")


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(bus, "available_cores", lambda: 2)
    monkeypatch.setattr(bus, "SHARED_CODES", 100)
    bus._helpers.cache_clear()
    yield
    bus._helpers().shutdown()
    bus._helpers.cache_clear()


def test_quick_nodes_with_many_codes_are_shared_with_another_thread(two_cores):
    meet = meeting(2)
    nodes = [Scripted(name, meet(name), quick=True, codes=51) for name in "ab"]
    assert [hits.silos for hits in gather(nodes, queries(*"ab"), 60.0)] == [("a",), ("b",)]


def test_a_helper_that_is_busy_is_not_waited_for(two_cores):
    release = threading.Event()
    try:
        bus._helpers().submit(release.wait, 60)
        nodes = [Scripted(name, lambda _, name=name: hits_of(name, 1), quick=True, codes=51) for name in "abc"]
        assert [hits.silos for hits in gather(nodes, queries(*"abc"), 60.0)] == [("a",), ("b",), ("c",)]
        assert not release.is_set()
    finally:
        release.set()


def test_other_nodes_work_while_a_quick_one_is_queried():
    meet = meeting(3)
    answers = gather([Scripted(name, meet(name), quick=name == "a") for name in "abc"], queries(*"abc"), 60.0)
    assert [len(hits) for hits in answers] == [1, 1, 1]


def test_late_nodes_are_named(monkeypatch):
    wait, now = threading.Event(), [100.0]
    monkeypatch.setattr("silohash.search.bus.time", SimpleNamespace(monotonic=lambda: now[0]))

    def answer(_):
        now[0] += 1.0  # the deadline passes while this node answers
        return hits_of("a", 1)

    try:
        slow = Scripted("slow", lambda _: wait.wait(60))
        answers = gather([slow, Scripted("a", answer, quick=True)], queries("slow", "a"), 1.0)
    finally:
        wait.set()
    assert answers[0].missing_silos == {"slow": "It did not answer within 1 seconds."}
    assert kind_of(answers[0].missing_silos["slow"]) == "late"
    assert len(answers[1]) == 1
    late = gather([Scripted("a", lambda _: hits_of("a", 1), quick=True)], queries("a"), 0.0)
    assert late[0].missing_silos == {"a": "It did not answer within 0 seconds."}


def test_checked_answers_are_passed_on_while_other_nodes_work():
    release, seen = threading.Event(), []

    def slow(_):
        assert release.wait(60)
        return hits_of("slow", 1)

    def note(silo, answer):
        seen.append((silo, getattr(answer, "kind", "used")))
        if len(seen) == 2:
            release.set()

    nodes = [Scripted("slow", slow), Scripted("a", lambda _: hits_of("a", 1), quick=True)]
    nodes.append(Scripted("b", lambda _: hits_of("x", 1)))
    replies = now(answers_to(LocalBus(nodes), queries("slow", "a", "b", "none"), 60.0, note))
    assert sorted(seen[:2]) == [("a", "used"), ("b", "invalid")]
    assert seen[2:] == [("slow", "used")]
    assert (set(replies.answers), set(replies.reasons)) == ({"slow", "a"}, {"b", "none"})


@pytest.mark.parametrize("quick", [False, True])
def test_errors_of_a_node_are_its_reason(quick):
    def refuse(_):
        raise UserError("Closed on Sundays.")

    def fail(_):
        raise OSError("disk gone")

    acts = {"a": refuse, "b": fail, "c": lambda _: hits_of("c", 1, 17), "d": lambda _: hits_of("x", 1)}
    answers = gather([Scripted(name, act, quick=quick) for name, act in acts.items()], queries(*"abcd"), 60.0)
    assert [next(iter(hits.missing_silos.values())) for hits in answers] == [
        "Closed on Sundays.",
        "It failed: OSError: disk gone",
        "It answered with a distance of 17 bits, beyond the limit of 16 bits.",
        "It answered in the name of another silo.",
    ]
    kinds = [kind_of(next(iter(hits.missing_silos.values()))) for hits in answers]
    assert kinds == ["refused", "failed", "invalid", "invalid"]


def test_searches_on_servers_end_at_the_deadline():
    left = {}

    def act(name):
        def answer(_):
            left[name] = seconds_left(1e9)
            return hits_of(name)

        return answer

    gather([Scripted(name, act(name), quick=name == "b") for name in "ab"], queries(*"ab"), 600.0)
    assert 300 < left["a"] <= 600
    assert left["b"] == 1e9, "a quick node does not use a server"


def test_answers_are_compared_with_their_requests(caplog):
    item = Item(id="a", modalities=("image",))
    code = Code(words=np.zeros(1, np.uint16), bits=16, model_digest="m", modality="text")
    for request, answer, text in (
        (ItemRequest("a"), item, ""),
        (ItemRequest("b"), item, "It answered with another item."),
        (ItemRequest("a"), SiloStatus(), "It answered with summary instead of released."),
        (CodeRequest("a"), code, ""),
        (CodeRequest("a", "text"), code, ""),
        (CodeRequest("a", "image"), code, "It answered with the code of the item's text instead of its image."),
        (CodeRequest("a"), item, "It answered with released instead of item code."),
        (StatusRequest(), SiloStatus(), ""),
        (StatusRequest(), hits_of("a"), "It answered with hits instead of summary."),
        (QUERY, code, "It answered with item code instead of hits."),
        (QUERY, Refusal("Closed."), ""),
    ):
        assert flaw("a", request, answer) == text
    gather([Scripted("a", lambda _: code)], queries("a"), 60.0)
    assert "ignored an answer" in caplog.text


def test_silos_of_this_process_answer_all_requests(tmp_path):
    words = made_up_codes(5, 16, 1)
    silo = LocalBus([made_up_node(tmp_path, "north", words, 16)])
    requests = [ItemRequest("3"), CodeRequest("3"), StatusRequest(), ItemRequest("none")]
    item, code, status, refusal = (now(silo.ask({"north": one}, 60.0)).answers["north"] for one in requests)
    assert item.payload == {"caption": "item 3"}
    assert (code.words == words[3]).all()
    assert status.items == {"image": 5}
    assert refusal.not_found


def test_only_a_coroutine_that_does_not_wait_runs_without_a_loop():
    async def wait():
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="needs an event loop"):
        now(wait())
    assert late(0.05) == "It did not answer within 0.05 seconds."
    assert late(4.99987) == "It did not answer within 5 seconds."


def test_ranks_come_without_distances_and_are_stated():
    ranks = replace(hits_of("north", None, None), alterations=("ranks",))
    assert flaw("north", QUERY, ranks) == ""
    for wrong in (
        replace(ranks, distances=(None, 3)),
        replace(ranks, alterations=None),
        replace(ranks, alterations=("rounded",)),
        replace(ranks, left_out={1: 1}),
        replace(ranks, scores=(2.0, 1.0)),
    ):
        assert flaw("north", QUERY, wrong)
