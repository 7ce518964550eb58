"""Monitoring: who may read the metrics, the counters of requests, and one line per request without a secret."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from silohash.base.errors import NotFound, Unavailable, UserError
from silohash.search.hits import SearchOptions
from silohash.search.reasons import Reason
from silohash.search.requests import Code, SearchRequest
from silohash.service.accounts import Accounts
from silohash.service.logs import Record, recording, start_logging
from silohash.service.metrics import Metrics
from silohash.service.web import state
from silohash.service.web.app import create_app
from silohash.service.web.auth import Gate, RateLimit, app_for
from silohash.service.web.monitor import MeasuredBackend
from tests.accounts import bearer, sign_in
from tests.served import HangingBackend, MadeUpBackend, client_of, drawn, png
from tests.unit.service.test_metrics import samples

HOST = "silos.example.org"
HERE = ("127.0.0.1", 50_000)


def protected(accounts: Accounts, *, base: str = f"https://{HOST}", peer: tuple[str, int] = HERE, **gate: Any):
    app = app_for(MadeUpBackend(), Gate(accounts, **gate), [HOST, "127.0.0.1"])
    return TestClient(app, base_url=base, client=peer, follow_redirects=False)


def values(client: TestClient, **headers: str) -> dict[str, float]:
    """Return the values of the metrics by the text of their samples."""
    answer = client.get("/metrics", headers=headers)
    assert answer.status_code == 200, answer.text
    lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_programs_on_this_machine_read_the_metrics_without_an_account(accounts: Accounts) -> None:
    client = protected(accounts, base="http://127.0.0.1:8765")
    answer = client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert values(client)["silohash_silos"] == 2
    assert "silohash_silos 2" in client_of(MadeUpBackend()).get("/metrics").text


@pytest.mark.parametrize(
    ("base", "peer", "headers"),
    [
        (f"https://{HOST}", HERE, {}),
        ("http://127.0.0.1:8765", HERE, {"x-forwarded-for": "198.51.100.7"}),
        ("http://127.0.0.1:8765", HERE, {"forwarded": "for=198.51.100.7"}),
        ("http://127.0.0.1:8765", ("198.51.100.7", 1), {}),
    ],
)
def test_others_need_a_token_with_the_scope(
    accounts: Accounts, base: str, peer: tuple[str, int], headers: dict[str, str]
) -> None:
    client = protected(accounts, base=base, peer=peer)
    refused = client.get("/metrics", headers=headers)
    assert refused.status_code == 401
    assert refused.json()["error"]["code"] == "unauthorized"
    assert client.get("/metrics", headers=headers | bearer(accounts, "search", "items")).status_code == 403
    assert values(client, **headers, **bearer(accounts, "metrics"))["silohash_silos"] == 2


def test_only_administrators_read_the_metrics_with_a_session(accounts: Accounts) -> None:
    client = protected(accounts)
    sign_in(client, "ada")
    assert client.get("/metrics").status_code == 403
    sign_in(client, "root")
    assert client.get("/metrics").status_code == 200


def test_requests_are_counted(accounts: Accounts) -> None:
    limit = RateLimit(per_minute=1, burst=3)
    client = protected(accounts, base="http://127.0.0.1:8765", account_limit=limit)
    program = bearer(accounts, "search")
    for _ in range(4):
        client.get("/api/v1/search", params={"text": "red"}, headers=program)
    client.get("/api/v1/search", headers={"authorization": "Bearer wrong"})
    here = {"origin": "http://127.0.0.1:8765"}
    client.post("/sign-in", data={"name": "ada", "password": "wrong horse"}, headers=here)
    client.get("/wp-login.php")
    found = values(client)
    assert found['silohash_http_requests_total{area="api",status="2xx"}'] == 3
    assert found['silohash_http_requests_total{area="api",status="4xx"}'] == 2
    assert found['silohash_http_requests_total{area="account",status="4xx"}'] == 1
    assert found['silohash_http_requests_total{area="page",status="4xx"}'] == 1
    assert found["silohash_rate_limited_requests_total"] == 1
    assert found['silohash_sign_in_failures_total{reason="token"}'] == 1
    assert found['silohash_sign_in_failures_total{reason="password"}'] == 1
    assert found['silohash_queries_total{kind="text",outcome="complete"}'] == 3
    assert found["silohash_requests_in_flight"] == 1, "the request for the metrics"


def test_slow_silos_do_not_delay_the_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "FRESH_SECONDS", 0.05)
    app = create_app(HangingBackend())
    with TestClient(app, base_url="http://127.0.0.1:8765") as client:
        app.state.service._status_until = 0.0
        assert values(client)["silohash_silos_connected"] == 2, "as last seen"


@pytest.fixture
def lines() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    stream = io.StringIO()
    start_logging(stream)
    yield lambda: [each for line in stream.getvalue().splitlines() if (each := json.loads(line))["event"] == "request"]
    root.handlers[:] = before
    root.setLevel(level)


def test_each_request_has_one_line_with_its_id(lines: Callable[[], list[dict[str, Any]]]) -> None:
    backend = MadeUpBackend()
    backend.missing = {"south": Reason("It did not answer within 5 seconds.", "late")}
    with client_of(backend) as client:
        found = client.get("/api/v1/search", params={"text": "red"})
        item = client.get("/api/v1/item", params={"silo": "north", "id": "nothing"})
        page = client.get("/federation")
        client.get("/healthz")
    first, second, third = lines()
    assert [first["request_id"], second["request_id"], third["request_id"]] == [
        *(answer.headers["x-request-id"] for answer in (found, item, page)),
    ]
    assert len({line["request_id"] for line in lines()}) == 3
    assert (first["kind"], first["outcome"], first["status"]) == ("text", "partial", 200)
    assert (first["silos_answered"], first["missing_silos"]) == (1, {"south": "late"})
    assert isinstance(first["milliseconds"], float)
    assert (second["kind"], second["outcome"], second["status"]) == ("item", "refused", 404)
    assert (third["kind"], third["outcome"], third["status"]) == ("page", "complete", 200)
    assert "silos_answered" not in third


def test_lines_hold_no_query_no_token_and_no_picture(
    accounts: Accounts, lines: Callable[[], list[dict[str, Any]]]
) -> None:
    client = protected(accounts)
    program = bearer(accounts, "search")
    client.get("/api/v1/search", params={"text": "hidden-words"}, headers=program)
    client.post("/api/v1/search", json={"text": "hidden-words"}, headers=program)
    client.post("/api/v1/search/picture", files={"picture": ("hidden-words.png", png())}, headers=program)
    client.get("/", params={"q": "hidden-words"})
    client.post(
        "/sign-in",
        data={"name": "hidden-words", "password": "hidden-words"},
        headers={"origin": client.base_url.__str__()},
    )
    written = json.dumps(lines())
    assert len(lines()) == 5
    assert [line["kind"] for line in lines()] == ["text", "text", "picture", "page", "account"]
    assert "hidden-words" not in written
    assert program["authorization"].removeprefix("Bearer ") not in written


def test_an_unexpected_error_has_a_line_too(lines: Callable[[], list[dict[str, Any]]]) -> None:
    backend = MadeUpBackend()
    backend.failure = RuntimeError("broken")
    answer = client_of(backend).get("/api/v1/search", params={"text": "red"})
    [line] = lines()
    assert (line["outcome"], line["status"], line["request_id"]) == ("failed", 500, answer.headers["x-request-id"])


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
        (SearchRequest(value="red"), "text"),
        (SearchRequest(value=drawn("red", "square")), "picture"),
        (SearchRequest(value=CODE), "code"),
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
    _, record = measured.do(measured.backend.search(SearchRequest(value="red")))
    assert (record.outcome, record.silos_answered, record.missing) == ("partial", 1, {"south": "late"})
    measured.made_up.missing = dict.fromkeys(measured.made_up.silos, "any text of a silo")
    _, record = measured.do(measured.backend.search(SearchRequest(value="red")))
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
        (asyncio.CancelledError(), "canceled"),
    ],
)
def test_errors_are_raised_and_counted(measured: Measured, error: Any, outcome: str) -> None:
    measured.made_up.failure = error
    with recording() as record, pytest.raises(type(error)):
        asyncio.run(measured.backend.search(SearchRequest(value="red")))
    assert (record.outcome, record.silos_answered) == (outcome, 0)
    assert measured.counted() == {("text", outcome): 1}
    assert measured.counted("silohash_query_seconds_count") == {("text",): 1}


def test_queries_outside_of_a_request_are_counted(measured: Measured) -> None:
    asyncio.run(measured.backend.search(SearchRequest(value="red")))
    assert measured.counted() == {("text", "complete"): 1}
