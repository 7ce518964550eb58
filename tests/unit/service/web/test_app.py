"""The application: health, readiness, static files, the choice between errors for programs and for people."""

from __future__ import annotations

import pytest
from fastapi import HTTPException, Request

from silohash.service.web import state
from silohash.service.web.app import FOREVER
from silohash.service.web.guard import DEFAULT_CACHE
from silohash.service.web.page_templates import static_address
from tests.served import HangingBackend, MadeUpBackend, client_of


def test_health_and_readiness() -> None:
    backend = MadeUpBackend()
    client = client_of(backend)
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ready", "silos": ["north", "south"], "missing_silos": {}}
    backend.missing = dict.fromkeys(backend.silos, "It is asleep.")
    asleep = client_of(backend).get("/readyz")
    assert asleep.status_code == 503
    assert asleep.json()["missing_silos"] == backend.missing


def test_strangers_learn_only_whether_the_service_is_ready() -> None:
    async def nobody(request: Request) -> str:
        raise HTTPException(401, "No.")

    client = client_of(MadeUpBackend(), access=nobody, hosts=["silos.example.org"])
    assert client.get("/readyz", headers={"host": "silos.example.org"}).json() == {"status": "ready"}

    async def ada(request: Request) -> str:
        return "ada"

    client = client_of(MadeUpBackend(), access=ada, hosts=["silos.example.org"])
    told = client.get("/readyz", headers={"host": "silos.example.org"}).json()
    assert told == {"status": "ready", "silos": ["north", "south"], "missing_silos": {}}


def test_silos_that_hang_delay_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "STATUS_SECONDS", -1.0)
    monkeypatch.setattr(state, "FRESH_SECONDS", 0.05)
    backend = HangingBackend()
    pages = ("/", "/?q=red", "/federation", "/item?silo=north&id=item-1")
    with client_of(backend) as client:
        for path in (*pages, "/readyz", "/api/v1/status", "/api/v1/search?text=red"):
            assert client.get(path).status_code == 200, path
        assert (backend.asked, backend.silos_answer.is_set()) == (2, False)


def test_readiness_shows_silos_that_answer_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "STATUS_SECONDS", -1.0)
    backend = MadeUpBackend()
    backend.missing = dict.fromkeys(backend.silos, "It is asleep.")
    with client_of(backend) as client:
        assert client.get("/readyz").status_code == 503
        backend.missing = {}
        assert client.get("/readyz").status_code == 200
        backend.missing = {"south": "It is off."}
        assert "It is off." in client.get("/federation").text


def test_static_files_are_kept_only_under_an_address_with_a_version() -> None:
    client = client_of(MadeUpBackend())
    for name in ("page.css", "search.js", "draw.js", "pictures.js", "icon.svg"):
        assert client.get(static_address(name)).headers["cache-control"] == FOREVER
        assert client.get(f"/static/{name}").headers["cache-control"] == DEFAULT_CACHE
    assert client.get("/static/../app.py").status_code == 404
    assert client.get("/static/nothing.js").json()["error"]["code"] == "not_found"


def test_errors_are_pages_for_people_and_documents_for_programs() -> None:
    client = client_of(MadeUpBackend())
    page = client.get("/nothing")
    assert page.status_code == 404
    assert page.headers["content-type"].startswith("text/html")
    assert "Back to the search" in page.text
    assert client.get("/api/nothing").json()["error"]["status"] == 404
    assert client.get("/docs").status_code == 404, "it would load scripts from another site"


@pytest.mark.parametrize(
    "path", ["/", "/federation", "/item?silo=north&id=item-1", "/api/v1/status", "/api/v1/search?text=a"]
)
def test_one_rule_decides_who_may_ask(path: str) -> None:
    names = []

    async def only_with_key(request: Request) -> str:
        names.append(request.url.path)
        if request.headers.get("x-key") != "parrot":
            raise HTTPException(401, "Sign in first.", {"www-authenticate": "Bearer"})
        return "ann"

    client = client_of(MadeUpBackend(), access=only_with_key)
    refused = client.get(path)
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    assert "Sign in first." in refused.text
    assert client.get(path, headers={"x-key": "parrot"}).status_code == 200
    assert client.get("/healthz").status_code == 200
    assert len(names) == 2
