"""Hosts, origins, sizes of bodies, headers, and the answer to an error that nobody expected."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.testclient import TestClient

from silohash.service.web import guard
from silohash.service.web.app import create_app
from silohash.service.web.guard import BODY_ROOM, FORM_BYTES, HEADERS, POLICY, UPLOADS
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


def test_large_bodies_are_refused_with_and_without_a_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("silohash.service.web.uploads.MOST_BYTES", 1000)
    client = client_of(MadeUpBackend())
    page = client.post("/picture", files={"picture_file": b"a" * (1001 + BODY_ROOM)})
    assert (page.status_code, page.headers["content-type"]) == (413, "text/html; charset=utf-8")
    assert "A picture file may have up to 1.0 kB." in page.text, "people get a page that names the limit"
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
    assert client.post("/picture", content=b"", headers={**headers, "content-length": "-1"}).status_code in {400, 413}


def test_an_unexpected_error_is_a_plain_answer_and_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    backend = MadeUpBackend()
    client = client_of(backend)
    backend.failure = RuntimeError("the password is parrot")
    answer = client.get("/", params={"q": "a"})
    assert answer.status_code == 500
    assert "parrot" not in answer.text
    assert set(HEADERS) <= set(answer.headers)
    assert "the password is parrot" in caplog.text


@pytest.mark.parametrize("path", ["/", "/federation", "/api/v1/search?text=red", "/static/page.css", "/healthz", "/x"])
def test_head_answers_like_get_without_the_content(client: TestClient, path: str) -> None:
    found, whole = client.head(path), client.get(path)
    assert (found.status_code, found.content) == (whole.status_code, b"")
    differ = {"x-request-id"}
    assert {k: v for k, v in found.headers.items() if k not in differ} == {
        k: v for k, v in whole.headers.items() if k not in differ
    }


class Sent:
    """A request that is sent in parts, without a server. ``None`` is a part that never arrives.

    Attributes:
        answered: what was answered, as messages of ASGI.
        received: the parts of the body that were received.
    """

    def __init__(self, app: Any, parts: Iterable[bytes | None], **headers: str) -> None:
        self.answered: list[dict[str, Any]] = []
        self.received = 0
        self.parts = list(parts)
        lines = {"host": "127.0.0.1", "content-type": "multipart/form-data; boundary=x", "content-length": "19000000"}
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/picture",
            "raw_path": b"/picture",
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in (lines | headers).items()],
            "client": ("198.51.100.7", 1),
        }
        asyncio.run(app(scope, self.receive, self.send))
        self.status = self.answered[0]["status"]
        self.headers = dict(self.answered[0]["headers"])

    async def receive(self) -> dict[str, Any]:
        self.received += 1
        part = self.parts.pop(0) if self.parts else None
        if part is None:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": part, "more_body": True}

    async def send(self, message: dict[str, Any]) -> None:
        self.answered.append(message)


async def nobody(request: Request) -> str:
    raise HTTPException(401, "No.")


async def ada(request: Request) -> str:
    return "ada"


PART = b'--x\r\ncontent-disposition: form-data; name="picture_file"; filename="a.png"\r\n\r\n'


def test_the_body_of_a_stranger_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "LINGER_SECONDS", 0.05)
    app = create_app(MadeUpBackend(), access=nobody)
    refused = Sent(app, [PART, b"a" * 1_000_000, None])
    assert refused.status == 401
    assert refused.headers[b"connection"] == b"close"
    assert [message.get("more_body", False) for message in refused.answered[1:]] == [True, False]
    assert refused.received == 3, "the answer is complete before the rest is dropped"
    assert Sent(app, [PART], expect="100-continue").received == 0, "nobody asks for the body"


def test_a_slow_body_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.05)
    monkeypatch.setattr(guard, "LINGER_SECONDS", 0.05)
    slow = Sent(create_app(MadeUpBackend(), access=ada), [PART, None])
    assert (slow.status, slow.headers[b"connection"]) == (408, b"close")


@pytest.mark.parametrize("key", [("account", "ada"), ("address", "198.51.100.7"), ("service", "all")])
def test_uploads_at_once_are_limited(monkeypatch: pytest.MonkeyPatch, key: tuple[str, str]) -> None:
    monkeypatch.setattr(guard, "LINGER_SECONDS", 0.05)
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.05)
    app = create_app(MadeUpBackend(), access=ada)
    TestClient(app, base_url="http://127.0.0.1").get("/healthz")
    inside = app.middleware_stack
    while not isinstance(inside, guard.Guard):
        inside = inside._app if hasattr(inside, "_app") else inside.app
    large = [PART, b"a" * FORM_BYTES, None]
    inside.uploads[key] = UPLOADS[key[0]] - 1
    assert Sent(app, large).status == 408, "there is room for one"
    assert inside.uploads[key] == UPLOADS[key[0]] - 1, "one that has ended is not counted"
    inside.uploads[key] += 1
    refused = Sent(app, large)
    assert (refused.status, refused.headers[b"retry-after"]) == (429, b"5")
    assert Sent(app, [PART, None]).status == 408, "small ones are not counted"
