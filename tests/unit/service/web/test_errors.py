"""Errors of the API: what is wrong with a request, in sentences, and how every call describes its errors."""

from __future__ import annotations

from typing import Any

import pytest

from silohash.service.web.documents import ErrorDocument
from silohash.service.web.errors import ALWAYS, ERRORS, responses
from tests.served import MadeUpBackend, client_of

JSON = {"content-type": "application/json"}
SEARCH = "/api/v1/search"


def message(method: str, path: str, status: int = 422, **request: Any) -> str:
    """Return the message with which a request is refused."""
    answer = client_of(MadeUpBackend()).request(method, path, **request)
    assert answer.status_code == status
    return str(answer.json()["error"]["message"])


@pytest.mark.parametrize("kind", [None, "application/x-www-form-urlencoded", "text/plain; charset=utf-8", "a b", ""])
@pytest.mark.parametrize("body", [b'{"text": "red"}', b""])
def test_a_body_that_is_not_declared_as_json(kind: str | None, body: bytes) -> None:
    headers = {} if kind is None else {"content-type": kind}
    found = message("POST", SEARCH, content=body, headers=headers)
    assert found == "The request is not sent as JSON. Send JSON with Content-Type: application/json."


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "application/ld+json"])
def test_declared_json_is_read(kind: str) -> None:
    answer = client_of(MadeUpBackend()).post(SEARCH, content=b'{"text": "red"}', headers={"content-type": kind})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{text: "a"}', "The body is not valid JSON: Expecting property name enclosed in double quotes"),
        (b"text=a", "The body is not valid JSON: Expecting value at character 1."),
        (b"[1]", "The request is not valid. The body is not a JSON object."),
        (b"", "The request is not valid. The body is empty. Send a JSON object."),
    ],
)
def test_bodies_that_are_not_a_json_object(body: bytes, says: str) -> None:
    found = message("POST", SEARCH, content=body, headers=JSON)
    assert says in found
    assert found.endswith(".")


def test_bytes_that_cannot_be_decoded() -> None:
    assert message("POST", SEARCH, 400, content=b'{"text": "\xff"}', headers=JSON).endswith("Send JSON in UTF-8.")


def test_the_parameters_that_exist_are_named() -> None:
    found = message("GET", SEARCH, params={"text": "a", "foo": "1"})
    names = (
        "find, k, offset, radius_bits, label, where, facets, facet_values, newest_by, silo, previews, "
        "deadline_seconds, bar, share_words, text"
    )
    assert found == f'The request is not valid. There is no parameter "foo". Choose from: {names}.'
    assert 'There is no parameter "foo". Choose from: ' in message("POST", f"{SEARCH}/picture", params={"foo": "a"})
    body = {"text": "a", "foo": 1, "code": {"hex": "00", "bits": 8, "model_digest": "m", "bar": 1}}
    found = message("POST", SEARCH, json=body)
    assert 'There is no field "foo".' in found
    assert 'There is no field "code.bar".' in found


def test_other_faults_are_sentences_with_the_name_of_the_value() -> None:
    found = message("GET", SEARCH, params={"find": "sound", "k": "0"})
    assert found.startswith("The request is not valid. find: Input should be 'item', 'image' or 'text'. k: ")
    assert message("POST", f"{SEARCH}/picture") == "The request is not valid. picture: Field required."


def test_errors_of_a_call_are_described_with_their_headers() -> None:
    described = responses(503, 404, 400)
    assert list(described) == [200, 400, 401, 403, 404, 408, 413, 422, 429, 503]
    assert set(described[200]) == {"headers"}
    for status in (*ALWAYS, 404, 503):
        assert described[status]["model"] is ErrorDocument
        assert described[status]["description"] == ERRORS[status][1]
        assert described[status]["headers"]["x-request-id"]["required"]
    assert set(described[401]["headers"]) == {"x-request-id", "www-authenticate"}
    assert set(described[429]["headers"]) == {"x-request-id", "retry-after"}
    assert set(described[503]["headers"]) == {"x-request-id", "retry-after"}
    assert set(described[422]["headers"]) == {"x-request-id"}


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
