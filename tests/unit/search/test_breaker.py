"""A breaker per silo: it opens after missed deadlines, probes with growing pauses, and closes with any reply."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from silohash.search import breaker as module
from silohash.search.breaker import SKIPPED, BreakerBus
from silohash.search.bus import Arrived, Replies, ignored, late
from silohash.search.hits import Hits, Query
from silohash.search.reasons import Reason, kind_of
from silohash.search.requests import Answer, Refusal, Request, SiloStatus, StatusRequest

QUERY = Query(words=np.zeros(1, np.uint16), bits=16, model_digest="m")
PATIENCE_SECONDS = 5.0
NOT_THERE = Reason("It is not running.", "not_connected")
NO_BUS = Reason("There is no bus.", "no_bus")


class Silos:
    """A bus to silos that do what the test says, behind breakers, with a clock that is set by hand.

    Attributes:
        outcomes: what each silo does; None to miss the deadline.
        asked: the silos that were sent something other than a probe.
        probes: number of probes.
        pauses: the pauses before probes, in seconds.
        states: the observed states.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, misses: int = 1) -> None:
        self.now, self.probes, self.misses = 100.0, 0, misses
        self.outcomes: dict[str, Answer | Reason | None] = {"north": Hits(), "south": Hits()}
        self.asked: list[list[str]] = []
        self.pauses: list[float] = []
        self.states: list[tuple[str, str]] = []
        self.failure: Exception | None = None
        self.may_go_on = asyncio.Event()
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(module.asyncio, "sleep", self._sleep)

    async def ask(
        self, requests: Mapping[str, Request], deadline_seconds: float, arrived: Arrived = ignored
    ) -> Replies[Answer]:
        kinds = {type(request) for request in requests.values()}
        if kinds != {StatusRequest} or len(requests) > 1:
            self.asked.append(sorted(requests))
        else:
            self.probes += 1
            if self.failure is not None:
                raise self.failure
        found: dict[str, Answer | Reason] = {}
        for silo in requests:
            outcome = self.outcomes[silo]
            found[silo] = late(deadline_seconds) if outcome is None else outcome
            if outcome is not None:
                arrived(silo, outcome)
        if None in [self.outcomes[silo] for silo in requests]:
            self.now += deadline_seconds
        return Replies.of(found)

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await self.may_go_on.wait()
        self.may_go_on.clear()

    def run(self, test: Callable[[Silos, Callable[..., Any]], Coroutine[Any, Any, None]]) -> Silos:
        """Runs a test, which gets this object and a function that asks all silos and returns the reasons."""

        async def main() -> None:
            self.may_go_on = asyncio.Event()
            bus = BreakerBus(
                self,
                misses=self.misses,
                patience_seconds=PATIENCE_SECONDS,
                observe=lambda *seen: self.states.append(seen),
            )

            async def ask(deadline_seconds: float = PATIENCE_SECONDS, request: Request = QUERY) -> Mapping[str, Reason]:
                return (await bus.ask(dict.fromkeys(self.outcomes, request), deadline_seconds)).reasons

            await test(self, ask)

        asyncio.run(main())
        return self

    async def probe(self) -> None:
        """Lets the next probe be sent, and returns when its outcome is known."""
        before = len(self.states)
        await _turns()
        self.may_go_on.set()
        await _turns()
        assert len(self.states) > before


async def _turns() -> None:
    """Let all tasks run until they wait."""
    for _ in range(10):
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_result, None)
        await future


@pytest.fixture
def silos(monkeypatch: pytest.MonkeyPatch) -> Silos:
    return Silos(monkeypatch)


def test_a_silo_that_missed_a_deadline_is_skipped_until_it_answers_a_probe(silos: Silos) -> None:
    async def test(silos: Silos, ask: Any) -> None:
        silos.outcomes["south"] = None
        assert await ask() == {"south": late(5)}
        for _ in range(3):
            assert await ask() == {"south": SKIPPED}
        await silos.probe()
        assert await ask() == {"south": SKIPPED}
        silos.outcomes["south"] = SiloStatus()
        await silos.probe()
        silos.outcomes["south"] = Hits()
        assert await ask() == {}

    silos.run(test)
    assert silos.asked == [["north", "south"], *[["north"]] * 4, ["north", "south"]]
    assert kind_of(SKIPPED) == "skipped"
    changes = ["open", "half_open", "open", "half_open", "closed"]
    assert silos.states == [("south", state) for state in changes]


def test_pauses_grow_and_begin_anew_after_an_answer_that_is_no_summary(silos: Silos) -> None:
    async def test(silos: Silos, ask: Any) -> None:
        silos.outcomes["south"] = None
        await ask()
        for _ in range(7):
            await silos.probe()
        assert silos.pauses[:7] == [0, 0.5, 1, 2, 4, 8, 8]
        silos.outcomes["south"] = SiloStatus()
        await silos.probe()
        silos.outcomes["south"] = None
        assert await ask() == {"south": late(5)}, "it answers probes only"
        await silos.probe()
        silos.outcomes["south"] = SiloStatus()
        await silos.probe()
        silos.pauses.clear()
        silos.outcomes["south"] = Hits()
        assert await ask() == {}
        silos.outcomes["south"] = None
        await ask()
        await silos.probe()
        assert silos.pauses[0] == 0

    silos.run(test)


@pytest.mark.parametrize(
    ("outcome", "closes"), [(Refusal("Closed."), True), (NOT_THERE, True), (NO_BUS, False), (None, False)]
)
def test_any_reply_closes_a_breaker_and_so_does_the_absence_of_the_silo(
    silos: Silos, outcome: Any, closes: bool
) -> None:
    async def test(silos: Silos, ask: Any) -> None:
        silos.outcomes["south"] = None
        await ask()
        silos.outcomes["south"] = outcome
        await silos.probe()
        assert (silos.states[-1][1] == "closed") is closes

    silos.run(test)


def test_a_failed_probe_is_repeated(silos: Silos, caplog: pytest.LogCaptureFixture) -> None:
    async def test(silos: Silos, ask: Any) -> None:
        silos.outcomes["south"] = None
        await ask()
        silos.failure = RuntimeError("no memory")
        await silos.probe()
        silos.failure, silos.outcomes["south"] = None, Hits()
        await silos.probe()
        assert await ask() == {}

    silos.run(test)
    assert "no memory" in caplog.text


@pytest.mark.parametrize("misses", [0, 3])
def test_the_number_of_missed_deadlines_can_be_chosen(monkeypatch: pytest.MonkeyPatch, misses: int) -> None:
    async def test(silos: Silos, ask: Any) -> None:
        silos.outcomes["south"] = None
        await ask()
        await ask()
        silos.outcomes["south"] = Refusal("Closed.")
        await ask()
        silos.outcomes["south"] = None
        reasons = [await ask() for _ in range(5)]
        expected = [late(5)] * 5 if misses == 0 else [late(5)] * 3 + [SKIPPED] * 2
        assert [reason["south"] for reason in reasons] == expected

    Silos(monkeypatch, misses).run(test)


def test_hasty_requests_count_only_if_the_silo_is_silent_for_long(silos: Silos) -> None:
    async def test(silos: Silos, ask: Any) -> None:
        for _ in range(20):
            silos.outcomes["south"] = None
            assert (await ask(0.5))["south"] == late(0.5)
            silos.outcomes["south"] = Hits()
            assert await ask(0.5) == {}
        silos.outcomes["south"] = None
        reasons = [(await ask(0.5))["south"] for _ in range(12)]
        assert reasons == [late(0.5)] * 9 + [SKIPPED] * 3

    silos.run(test)


def test_a_request_that_is_late_while_the_silo_answers_others_does_not_count(silos: Silos) -> None:
    async def test(silos: Silos, ask: Any) -> None:
        release = asyncio.Event()
        inner = silos.ask

        async def slow(requests: Any, deadline_seconds: float, arrived: Arrived = ignored) -> Any:
            if deadline_seconds == 7:
                await release.wait()
                return Replies.of(dict.fromkeys(requests, late(7)))
            return await inner(requests, deadline_seconds, arrived)

        silos.ask = slow  # type: ignore[method-assign]
        first = asyncio.ensure_future(ask(7))
        await _turns()
        silos.now += 1
        await ask()
        silos.now += 6
        release.set()
        assert set(await first) == {"north", "south"}
        assert await ask() == {}

    silos.run(test)
    assert silos.states == []


def test_summaries_neither_count_as_missed_nor_as_answered(silos: Silos) -> None:
    async def test(silos: Silos, ask: Any) -> None:
        silos.outcomes["south"] = None
        await ask(request=StatusRequest())
        assert await ask(2) == {"south": late(2)}
        silos.outcomes["south"] = SiloStatus()
        await ask(request=StatusRequest())
        silos.outcomes["south"] = None
        await ask(3)
        assert await ask() == {"south": SKIPPED}
        assert await ask(request=StatusRequest()) == {"south": SKIPPED}

    silos.run(test)


def test_an_answer_to_an_earlier_request_closes_the_breaker(silos: Silos) -> None:
    async def test(silos: Silos, ask: Any) -> None:
        answer: list[Arrived] = []
        inner = silos.ask

        async def patient(requests: Any, deadline_seconds: float, arrived: Arrived = ignored) -> Any:
            if deadline_seconds == 60:
                answer.append(arrived)
                return Replies()
            return await inner(requests, deadline_seconds, arrived)

        silos.ask = patient  # type: ignore[method-assign]
        await ask(60)
        silos.outcomes["south"] = None
        await ask()
        assert await ask() == {"south": SKIPPED}
        silos.outcomes["south"] = Hits()
        answer[0]("south", Hits())
        assert await ask() == {}
        await _turns()
        assert silos.probes == 0, "the task that would probe was canceled"

    silos.run(test)
    assert silos.states == [("south", "open"), ("south", "closed")]
