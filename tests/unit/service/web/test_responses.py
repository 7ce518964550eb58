"""The described responses: every call lists its errors, and the headers that each response has."""

from __future__ import annotations

from silohash.service.web.app import CODES
from silohash.service.web.documents import ErrorDocument
from silohash.service.web.responses import ALWAYS, MESSAGES, responses
from tests.served import MadeUpBackend, client_of


def test_errors_of_a_call_are_described_with_their_headers() -> None:
    described = responses(503, 404, 400)
    assert list(described) == [200, 400, 401, 403, 404, 413, 422, 429, 503]
    assert set(described[200]) == {"headers"}
    for status in (*ALWAYS, 404, 503):
        assert described[status]["model"] is ErrorDocument
        assert described[status]["description"] == MESSAGES[status]
        assert described[status]["headers"]["x-request-id"]["required"]
    assert set(described[401]["headers"]) == {"x-request-id", "www-authenticate"}
    assert set(described[429]["headers"]) == {"x-request-id", "retry-after"}
    assert set(described[422]["headers"]) == {"x-request-id"}


def test_every_described_status_has_a_name() -> None:
    assert MESSAGES.keys() <= CODES.keys()


def test_the_description_lists_the_errors_of_every_call() -> None:
    described = client_of(MadeUpBackend()).get("/api/openapi.json").json()["paths"]
    further = {
        "/api/v1/search": {"404", "503"},
        "/api/v1/search/picture": {"404", "415", "503"},
        "/api/v1/search/vector": {"404", "503"},
        "/api/v1/similar": {"404", "503"},
        "/api/v1/item": {"404", "503"},
        "/api/v1/status": set(),
    }
    for path, calls in described.items():
        for call in calls.values():
            listed = set(call["responses"])
            if path in further:
                assert listed == {"200", *map(str, ALWAYS)} | further[path], path
            else:
                assert listed == ({"200", "400", "503"} if path == "/readyz" else {"200", "400"}), path
            assert all("x-request-id" in answer["headers"] for answer in call["responses"].values())
