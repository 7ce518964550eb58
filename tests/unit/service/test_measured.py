"""A measured backend answers as the one below it, and counts each query with its kind and outcome."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from silohash.base.types import UserError
from silohash.search.hits import Reason
from silohash.service.backend import Code, NotFound, SearchOptions, SearchRequest, Unavailable
from silohash.service.measured import MeasuredBackend
from silohash.service.metrics import Metrics
from silohash.service.request_record import Record, recording
from tests.served import MadeUpBackend, drawn
from tests.unit.service.test_metrics import samples

CODE = Code(words=np.zeros(1, np.uint32), bits=32, model_digest="m")


class Measured:
    """A measured backend over made-up silos, and what it counted."""

    def __init__(self) -> None:
        self.made_up, self.metrics = MadeUpBackend(), Metrics()
        self.backend = MeasuredBackend(self.made_up, self.metrics)
        asyncio.run(self.backend.status())

    def do(self, call: Any) -> tuple[Any, Record]:
        with recording() as record:
            return asyncio.run(call), record

    def counted(self, name: str = "silohash_queries_total") -> dict[tuple[str, ...], float]:
        return {labels: value for (found, labels), value in samples(self.metrics).items() if found == name and value}


@pytest.fixture
def measured() -> Measured:
    return Measured()


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (SearchRequest(text="red"), "text"),
        (SearchRequest(picture=drawn("red", "square")), "picture"),
        (SearchRequest(code=CODE), "code"),
    ],
)
def test_searches_are_passed_on_and_counted(measured: Measured, request_: SearchRequest, kind: str) -> None:
    hits, record = measured.do(measured.backend.search(request_))
    assert measured.made_up.requests == [request_]
    assert len(hits) == 10
    assert measured.counted() == {(kind, "complete"): 1}
    assert (record.kind, record.outcome, record.silos_answered, record.missing) == (kind, "complete", 2, {})


def test_items_and_searches_like_them_are_counted(measured: Measured) -> None:
    item, record = measured.do(measured.backend.item("north", "item-3", asker="ann"))
    assert (item.id, measured.made_up.askers, record.silos_answered) == ("item-3", ["ann"], 1)
    options = SearchOptions(silos=("north", "north"), asker="eve")
    _, record = measured.do(measured.backend.similar("north", "item-3", options, "text"))
    assert measured.made_up.requests == [("north", "item-3", options, "text")]
    assert (record.kind, record.silos_answered) == ("similar", 1)
    assert measured.counted() == {("item", "complete"): 1, ("similar", "complete"): 1}


def test_missing_silos_are_counted_by_kind_and_never_by_text(measured: Measured) -> None:
    measured.made_up.missing = {"south": Reason("It did not answer within 5 seconds.", "late")}
    _, record = measured.do(measured.backend.search(SearchRequest(text="red")))
    assert (record.outcome, record.silos_answered, record.missing) == ("partial", 1, {"south": "late"})
    measured.made_up.missing = dict.fromkeys(measured.made_up.silos, "any text of a silo")
    _, record = measured.do(measured.backend.search(SearchRequest(text="red")))
    assert (record.outcome, record.silos_answered) == ("unavailable", 0)
    assert measured.counted() == {("text", "partial"): 1, ("text", "unavailable"): 1}
    assert measured.counted("silohash_missing_silos_total") == {
        ("late", "south"): 1,
        ("refused", "south"): 1,
        ("refused", "north"): 1,
    }


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (UserError("No known word."), "refused"),
        (NotFound("There is no silo."), "refused"),
        (Unavailable("It sleeps."), "unavailable"),
        (RuntimeError("broken"), "failed"),
    ],
)
def test_errors_are_raised_and_counted(measured: Measured, error: Exception, outcome: str) -> None:
    measured.made_up.failure = error
    with recording() as record, pytest.raises(type(error)):
        asyncio.run(measured.backend.search(SearchRequest(text="red")))
    assert (record.outcome, record.silos_answered) == (outcome, 0)
    assert measured.counted() == {("text", outcome): 1}
    assert measured.counted("silohash_query_seconds_count") == {("text",): 1}


def test_queries_outside_of_a_request_are_counted(measured: Measured) -> None:
    asyncio.run(measured.backend.search(SearchRequest(text="red")))
    assert measured.counted() == {("text", "complete"): 1}
