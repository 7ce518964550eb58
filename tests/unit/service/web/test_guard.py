"""Hosts, origins, sizes of bodies, headers, and the answer to an error that nobody expected."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from silohash.service.web.guard import BODY_ROOM, HEADERS, POLICY
from silohash.service.web.uploads import Limits
from tests.served import MadeUpBackend, client_of, png


@pytest.fixture
def client() -> TestClient:
    return client_of(MadeUpBackend())


@pytest.mark.parametrize("path", ["/", "/federation", "/api/v1/status", "/nothing", "/static/page.css", "/healthz"])
def test_every_answer_has_the_headers(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "cache-control" in answer.headers


def test_the_policy_allows_nothing_from_elsewhere_and_nothing_inside_a_page() -> None:
    assert "default-src 'none'" in POLICY
    assert "unsafe" not in POLICY
    assert "http" not in POLICY
    assert "*" not in POLICY


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8765", 200),
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("[::1]:8765", 200),
        ("evil.example", 400),
        ("127.0.0.1.evil.example:8765", 400),
        ("", 400),
    ],
)
def test_only_known_hosts_are_answered(client: TestClient, host: str, status: int) -> None:
    answer = client.get("/healthz", headers={"host": host})
    assert answer.status_code == status
    assert set(HEADERS) <= set(answer.headers)
    assert client_of(MadeUpBackend(), hosts=("*",)).get("/healthz", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:8765", 200),
        (None, 200),
        ("http://evil.example", 403),
        ("http://127.0.0.1:1", 403),
        ("null", 403),
        ("http://127.0.0.1:8765.evil.example", 403),
    ],
)
def test_forms_of_other_sites_are_refused(client: TestClient, origin: str | None, status: int) -> None:
    headers = {} if origin is None else {"origin": origin}
    assert client.post("/picture", files={"picture_file": png()}, headers=headers).status_code == status
    assert client.get("/", headers=headers).status_code == 200


def test_large_bodies_are_refused_with_and_without_a_length() -> None:
    client = client_of(MadeUpBackend(), limits=Limits(most_bytes=1000))
    large = {"picture": ("a.png", b"a" * (1001 + BODY_ROOM))}
    assert client.post("/api/v1/search/picture", files=large).json()["error"]["code"] == "too_large"
    headers = {"content-type": "multipart/form-data; boundary=x"}

    def parts():
        yield b'--x\r\nContent-Disposition: form-data; name="picture"; filename="a"\r\n\r\n'
        for _ in range(20):
            yield b"a" * 10_000

    for path in ("/api/v1/search/picture", "/picture"):
        answer = client.post(path, content=parts(), headers=headers)
        assert answer.status_code == 413, "the length is not announced"
    assert client.post("/picture", content=b"", headers={"content-length": "-1"}).status_code in {400, 413}


def test_an_unexpected_error_is_a_plain_answer_and_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    backend = MadeUpBackend()
    client = client_of(backend)
    backend.failure = RuntimeError("the password is parrot")
    answer = client.get("/", params={"q": "a"})
    assert answer.status_code == 500
    assert "parrot" not in answer.text
    assert set(HEADERS) <= set(answer.headers)
    assert "the password is parrot" in caplog.text
