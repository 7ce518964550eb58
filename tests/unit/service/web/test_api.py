"""The JSON API: what each call takes and returns, and one form for all errors."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi import Request
from starlette.testclient import TestClient

from silohash.base.errors import OutOfRange
from silohash.base.types import Modality
from silohash.index.codes import pack
from silohash.search.composed import TEXT_WEIGHT
from silohash.search.fields import hexadecimal
from silohash.search.filters import Condition
from silohash.search.hits import Hits, SearchOptions
from silohash.search.requests import Code, SearchRequest
from silohash.service.config import BusSettings, HubConfig, SealingSettings
from silohash.service.envelope import new_key
from silohash.service.exclusions import Exclusions
from silohash.service.web.api import exclusion_calls
from silohash.service.web.auth import Gate, app_for
from silohash.service.web.documents import MOST_HITS
from silohash.service.web.form import FARTHEST_OFFSET
from tests.accounts import PASSWORD, bearer, quick_accounts, sign_in
from tests.served import MadeUpBackend, client_of, drawn, npy, png

MODEL = "m" * 32
CODE = Code(words=pack([[1, -1] * 16])[0], bits=32, model_digest=MODEL)


@pytest.fixture
def backend() -> MadeUpBackend:
    return MadeUpBackend()


def error_of(answer: Any, status: int) -> str:
    """Return the message of an error, after checking its form."""
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(answer.json()) == {"error"}
    assert set(error) <= {"status", "code", "message", "key"}
    assert error["status"] == status
    assert error["code"].isidentifier()
    return str(error["message"])


def test_words_are_searched_with_all_options(backend: MadeUpBackend) -> None:
    client = client_of(backend)
    found = client.get("/api/v1/search", params={"text": "two parrots"}).json()
    assert [hit["id"] for hit in found["hits"]] == [f"item-{n}" for n in range(10)]
    assert found["hits"][2] == {
        "id": "item-2",
        "silo": "north",
        "distance_bits": 1,
        "score": None,
        "rank": None,
        "found_by": ["image", "text"],
        "probability": None,
        "strength": None,
        "matched": [],
        "caption": "red shape 2",
        "labels": ["red", "shape"],
        "preview": backend.payload("item-2")["preview"],
        "columns": {},
    }
    assert (found["order"], found["silos_asked"], found["silos_answered"]) == ("distance", 2, 2)
    assert (found["missing_silos"], found["ties_at_cut"], found["unknown_words"]) == ({}, 0, [])
    options = {
        "find": "text",
        "k": 3,
        "offset": 4,
        "radius_bits": 9,
        "label": ["red", "shape"],
        "where": ["year>=1900", 'museum="Orsay, Paris",Prado'],
        "facets": ["museum", "silo"],
        "facet_values": 4,
        "silo": ["south"],
        "previews": "false",
        "deadline_seconds": "0.5",
    }
    assert len(client.get("/api/v1/search", params={"text": "parrot", **options}).json()["hits"]) == 3
    sent = backend.requests[-1]
    assert (sent.value, sent.target, sent.k, sent.offset, sent.radius_bits) == ("parrot", "text", 3, 4, 9)
    assert (sent.silos, sent.previews, sent.deadline_seconds) == (("south",), False, 0.5)
    stated = ["year>=1900", 'museum="Orsay, Paris",Prado', "labels=red", "labels=shape"]
    assert [*map(str, sent.where)] == stated
    assert (sent.facets, sent.facet_values) == (("museum", "silo"), 4)
    assert client.get("/api/v1/search", params={"text": "a", "silo": ["south"]}).json()["silos_asked"] == 1


def test_a_filter_by_a_column_that_no_silo_releases_is_refused(backend: MadeUpBackend) -> None:
    client = client_of(backend)
    for params in ({"where": "color=red"}, {"newest_by": "color", "silo": "south"}, {"where": "preview=x"}):
        said = error_of(client.get("/api/v1/search", params=params), 422)
        assert "caption, date, labels, museum, year" in said
    assert not backend.requests


def test_filters_without_words_list_items(backend: MadeUpBackend) -> None:
    client = client_of(backend)
    assert client.get("/api/v1/search", params={"where": "year>=1900", "newest_by": "date"}).status_code == 200
    sent = backend.requests[-1]
    assert (sent.value, sent.newest_by, [*map(str, sent.where)]) == (None, "date", ["year>=1900"])
    assert client.post("/api/v1/search", json={"label": "red"}).status_code == 200
    assert backend.requests[-1].where == (Condition("labels", "=", ("red",)),)
    for wrong in ({}, {"where": "year"}, {"where": "year>old"}, {"where": "a=b", "radius_bits": 3}):
        error_of(client.get("/api/v1/search", params=wrong), 422)
    error_of(client.get("/api/v1/search", params={"text": "red", "newest_by": "date"}), 422)


def test_a_document_searches_for_words_or_a_code(backend: MadeUpBackend) -> None:
    client = client_of(backend)
    assert client.post("/api/v1/search", json={"text": "parrot", "k": 2}).json()["hits"]
    code = {"hex": hexadecimal(CODE.words, CODE.bits), "bits": CODE.bits, "model_digest": CODE.model_digest}
    assert code == {"hex": "55555555", "bits": 32, "model_digest": MODEL}
    assert client.post("/api/v1/search", json={"code": code}).json()["hits"]
    assert np.array_equal(backend.requests[-1].value.words, CODE.words)
    error_of(client.post("/api/v1/search", json={}), 422)
    assert "exactly one" in error_of(client.post("/api/v1/search", json={"text": "parrot", "code": code}), 422)
    assert "8 hexadecimal digits" in error_of(
        client.post("/api/v1/search", json={"code": {**code, "hex": "5555"}}), 422
    )
    shorter = {"hex": "5555", "bits": 16, "model_digest": MODEL}
    assert "has 16 bits, but" in error_of(client.post("/api/v1/search", json={"code": shorter}), 422)
    other = {**code, "model_digest": "other"}
    assert f"Use a code of one of: {MODEL}." in error_of(client.post("/api/v1/search", json={"code": other}), 422)
    padded = {**code, "hex": "ffffffff", "bits": 31}
    assert "beyond bit 31" in error_of(client.post("/api/v1/search", json={"code": padded}), 422)


def test_a_picture_or_a_drawing_is_searched(backend: MadeUpBackend) -> None:
    client = client_of(backend)
    picture = drawn("blue", "frame")
    answer = client.post("/api/v1/search/picture", params={"k": 2}, files={"picture": png(picture)})
    assert len(answer.json()["hits"]) == 2
    assert np.array_equal(np.asarray(backend.requests[-1].value), np.asarray(picture))
    client.post("/api/v1/search/picture", params={"drawing": "true"}, files={"picture": png(picture)})
    assert backend.requests[-1].value.size == (256, 256)


def test_a_region_of_a_picture_is_searched_with_words(backend: MadeUpBackend) -> None:
    client, picture = client_of(backend), drawn("blue", "frame")

    def send(status: int = 200, **options: Any) -> Any:
        answer = client.post("/api/v1/search/picture", params=options, files={"picture": png(picture)})
        assert answer.status_code == status, answer.text
        return backend.requests[-1].value

    both = send(text="red -square", text_weight=0.2, region="0,0.5,0.25,1")
    assert (both.text, both.text_weight, both.picture.size) == ("red -square", 0.2, (6, 12))
    assert send(text="red").text_weight == TEXT_WEIGHT
    assert np.array_equal(np.asarray(send(region="0,0,0.5,1")), np.asarray(picture)[:, :12])
    for wrong in ({"region": "0,0,2,1"}, {"region": "1"}, {"text_weight": 2}, {"region": "0,0,1,1", "drawing": True}):
        send(422, **wrong)


@pytest.mark.parametrize(
    ("content", "status"), [(b"", 422), (b"<svg/>", 415), (png()[:60], 422), (png() + b"PK", 422), (b"\0" * 3000, 413)]
)
def test_pictures_that_are_refused(
    backend: MadeUpBackend, content: bytes, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("silohash.service.web.uploads.MOST_BYTES", 2500)
    client = client_of(backend)
    error_of(client.post("/api/v1/search/picture", files={"picture": ("a.png", content)}), status)
    assert not backend.requests


def test_a_vector_is_searched(backend: MadeUpBackend) -> None:
    client, content = client_of(backend), npy(np.arange(6.0).reshape(2, 3))
    vector = {"vector": content}
    assert len(client.post("/api/v1/search/vector", params={"k": 2}, files=vector).json()["hits"]) == 2
    sent = backend.requests[-1]
    assert (sent.value.tolist(), sent.modality) == ([[0, 1, 2], [3, 4, 5]], "image")
    client.post("/api/v1/search/vector", params={"of": "text"}, files=vector)
    assert backend.requests[-1].modality == "text"
    for wrong in (b"", b"\x93NUMPY", content[:-1], png()):
        message = error_of(client.post("/api/v1/search/vector", files={"vector": ("a.npy", wrong)}), 422)
        assert message.endswith("Save the vector with numpy.save.")
    error_of(client.post("/api/v1/search/vector", params={"of": "sound"}, files=vector), 422)
    assert len(backend.requests) == 2


def test_similar_items_items_and_status(backend: MadeUpBackend) -> None:
    client = client_of(backend)
    answer = client.get("/api/v1/similar", params={"of_silo": "north", "of_id": "item-3", "by": "text", "k": 4})
    assert len(answer.json()["hits"]) == 4
    silo, name, options, by = backend.requests[-1]
    assert (silo, name, options.k, by) == ("north", "item-3", 4, "text")
    item = client.get("/api/v1/item", params={"silo": "north", "id": "item-3"}).json()
    assert (item["caption"], item["modalities"]) == ("red shape 3", ["image", "text"])
    status = client.get("/api/v1/status").json()
    assert (status["name"], status["bits"], status["rounds"]) == ("made-up", 32, 3)
    assert (status["inputs"], status["vectors"]) == (["image", "text"], [])
    assert status["silos"][0] == {
        "name": "north",
        "reachable": True,
        "reason": "",
        "items": {"image": 30, "text": 20},
        "model_digest": "m" * 32,
        "version": "",
        "releases": ["caption", "labels", "preview"],
        "about": {},
    }


def test_silos_that_do_not_answer_are_named() -> None:
    backend = MadeUpBackend()
    backend.missing = {"south": "It is asleep."}
    client = client_of(backend)
    found = client.get("/api/v1/search", params={"text": "parrot"}).json()
    assert (found["silos_asked"], found["silos_answered"], found["missing_silos"]) == (2, 1, {"south": "It is asleep."})
    assert "It is asleep" in error_of(client.get("/api/v1/item", params={"silo": "south", "id": "item-1"}), 503)
    backend.missing = dict.fromkeys(backend.silos, "It is asleep.")
    assert "No silo answered." in error_of(client.get("/api/v1/search", params={"text": "parrot"}), 503)


@pytest.mark.parametrize(
    ("address", "parameters", "status"),
    [
        ("search", {}, 422),
        ("search", {"text": ""}, 422),
        ("search", {"text": " "}, 422),
        ("search", {"text": "a", "k": 0}, 422),
        ("search", {"text": "a", "k": MOST_HITS + 1}, 422),
        ("search", {"text": "a", "offset": FARTHEST_OFFSET + 1}, 422),
        ("search", {"text": "a", "radius_bits": -1}, 422),
        ("search", {"text": "a", "find": "sound"}, 422),
        ("search", {"text": "a", "unknown": "1"}, 422),
        ("search", {"text": "a", "silo": "east"}, 404),
        ("search", {"text": "a" * 3000}, 422),
        ("item", {"silo": "north", "id": "nothing"}, 404),
        ("item", {"silo": "east", "id": "item-1"}, 404),
        ("item", {"silo": "north"}, 422),
        ("similar", {"of_silo": "north", "of_id": "nothing"}, 404),
        ("nothing", {}, 404),
    ],
)
def test_requests_that_are_refused(
    backend: MadeUpBackend, address: str, parameters: dict[str, Any], status: int
) -> None:
    reason = error_of(client_of(backend).get(f"/api/v1/{address}", params=parameters), status)
    assert reason[0].isupper()
    assert reason.endswith(".")


def test_an_error_that_the_user_can_mend_has_its_key(backend: MadeUpBackend) -> None:
    client = client_of(backend)
    for address, key in (("item?silo=east&id=item-1", "not-found"), ("search?text=a&find=sound", None)):
        assert client.get(f"/api/v1/{address}").json()["error"].get("key") == key


def test_other_errors_have_the_same_form(backend: MadeUpBackend) -> None:
    client = client_of(backend)
    error_of(client.delete("/api/v1/search"), 405)
    error_of(client.post("/api/v1/search", content=b"{", headers={"content-type": "application/json"}), 422)
    error_of(client.post("/api/v1/search/picture"), 422)
    backend.failure = RuntimeError("the password is parrot")
    assert "parrot" not in error_of(client.get("/api/v1/search", params={"text": "a"}), 500)


def test_the_description_has_examples_and_every_error(backend: MadeUpBackend) -> None:
    described = client_of(backend).get("/api/openapi.json").json()
    assert {path for path in described["paths"] if path.startswith("/api")} == {
        *("/api/v1/search", "/api/v1/search/picture", "/api/v1/search/vector", "/api/v1/similar"),
        *("/api/v1/item", "/api/v1/status"),
    }
    schemas = described["components"]["schemas"]
    for name in ("ResultsDocument", "ItemDocument", "SearchDocument"):
        assert schemas[name]["examples"]
    assert "404" in described["paths"]["/api/v1/search"]["get"]["responses"]
    assert described["paths"]["/api/v1/search"]["get"]["summary"] == "Search for words"
    for path in ("search", "search/picture", "search/vector", "similar"):
        for call in described["paths"][f"/api/v1/{path}"].values():
            assert set(call["responses"]["200"]["content"]) == {"application/json", "text/event-stream"}


class Arriving(MadeUpBackend):
    """A federation whose silos answer one after the other."""

    async def search(self, request: SearchRequest) -> Hits:
        await self.arrive(request)
        return await super().search(request)

    async def similar(self, silo: str, name: str, options: SearchOptions, by: Modality | None = None) -> Hits:
        await self.arrive(options)
        return await super().similar(silo, name, options, by)

    async def arrive(self, options: SearchOptions) -> None:
        """Tell what is found after each answer of a silo."""
        assert options.progress is not None
        missing = dict(self.missing)
        waiting = [silo for silo in self.silos if silo not in missing]
        while waiting:
            del waiting[0]
            self.missing = {**missing, **dict.fromkeys(waiting, "It has not answered yet.")}
            await asyncio.to_thread(options.progress, self.hits(options))


def events_of(answer: Any) -> list[tuple[str, Any]]:
    """Return the names and the documents of server-sent events."""
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [event.split("\n") for event in answer.text.removesuffix("\n\n").split("\n\n")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in lines]


AS_EVENTS = {"accept": "text/event-stream"}


def test_results_are_sent_as_events_after_each_answer_of_a_silo(backend: MadeUpBackend) -> None:
    client = client_of(Arriving())
    backend.unknown_words = client.app.state.service.backend._backend.unknown_words = ("zebra",)
    code = {"hex": hexadecimal(CODE.words, CODE.bits), "bits": CODE.bits, "model_digest": CODE.model_digest}
    for method, path, sent in (
        ("GET", "search", {"params": {"text": "red zebra", "k": 3}}),
        ("POST", "search", {"json": {"code": code, "k": 3}}),
        ("POST", "search/picture", {"params": {"k": 3}, "files": {"picture": png()}}),
        ("POST", "search/vector", {"params": {"k": 3}, "files": {"vector": npy(np.arange(6.0))}}),
        ("GET", "similar", {"params": {"of_silo": "north", "of_id": "item-3", "k": 3}}),
    ):
        whole = client_of(backend).request(method, f"/api/v1/{path}", **sent).json()
        first, second, last = events_of(client.request(method, f"/api/v1/{path}", **sent, headers=AS_EVENTS))
        assert first[0] == second[0] == "partial"
        assert (first[1]["silos_asked"], first[1]["silos_answered"]) == (2, 1)
        assert first[1]["missing_silos"] == {"south": "It has not answered yet."}
        assert {hit["silo"] for hit in first[1]["hits"]} == {"north"}
        assert last == ("result", whole)
        assert second[1] == whole


def test_errors_of_searches_whose_results_are_events_have_their_form_and_status(backend: MadeUpBackend) -> None:
    client = client_of(backend)
    assert "east" in error_of(client.get("/api/v1/search?text=a&silo=east", headers=AS_EVENTS), 404)
    error_of(client.get("/api/v1/search", headers=AS_EVENTS), 422)
    error_of(client.get("/api/v1/similar?of_silo=north&of_id=nothing", headers=AS_EVENTS), 404)
    backend.failure = OutOfRange("Choose 0.1 to 60 seconds.")
    assert "60" in error_of(client.get("/api/v1/search?text=a&deadline_seconds=90", headers=AS_EVENTS), 422)
    silent = Arriving()
    silent.missing = dict.fromkeys(silent.silos, "It is asleep.")
    assert "No silo answered" in error_of(client_of(silent).get("/api/v1/search?text=a", headers=AS_EVENTS), 503)
    silent.missing.pop("north")
    assert [name for name, _ in events_of(client_of(silent).get("/api/v1/search?text=a", headers=AS_EVENTS))] == [
        "partial",
        "result",
    ]


def test_administrators_exclude_silos_and_take_them_back(tmp_path: Path) -> None:
    silos = {"north": "CN=north"}
    bus = BusSettings(servers=("tls://127.0.0.1:4222",), certificate=tmp_path / "hub.pem", key=tmp_path / "hub.key")
    sealing = SealingSettings(key=tmp_path / "sealing.key", silos={"north": new_key(tmp_path / "north.key")})
    path = tmp_path / "excluded.txt"
    config = HubConfig(federation="f", run=tmp_path, bus=bus, sealing=sealing, silos=silos, excluded=path)
    with quick_accounts(tmp_path) as accounts:
        accounts.add("ada", PASSWORD, admin=True)
        accounts.add("bob", PASSWORD)
        app = app_for(MadeUpBackend(), Gate(accounts))
        exclusions = Exclusions(config)
        app.include_router(exclusion_calls(exclusions))
        client = TestClient(app, base_url="https://127.0.0.1:8765", follow_redirects=False)
        put = partial(client.put, "/api/v1/excluded?silo=north")
        assert put(headers=bearer(accounts, "search")).status_code == 403
        program = bearer(accounts, "admin")
        assert put(headers=program).json() == ["north"]
        assert exclusions.names() == {"north"}
        assert client.delete("/api/v1/excluded?silo=north", headers=program).json() == []
        error_of(client.put("/api/v1/excluded?silo=east", headers=program), 404)
        origin = {"origin": str(client.base_url)}
        sign_in(client, "bob")
        assert put(headers=origin).status_code == 403
        sign_in(client, "ada")
        assert put().status_code == 403, "a page of another site"
        assert put(headers=origin).json() == ["north"]
    assert client_of(MadeUpBackend()).put("/api/v1/excluded?silo=north").status_code == 404, "not without accounts"


def test_silos_get_the_name_of_who_asks(backend: MadeUpBackend) -> None:
    async def ann(_: Request) -> str:
        return "ann"

    client = client_of(backend, access=ann)
    assert client.get("/api/v1/search", params={"text": "red"}).status_code == 200
    assert client.post("/api/v1/search", json={"text": "red"}).status_code == 200
    assert client.post("/api/v1/search/picture", files={"picture": png()}).status_code == 200
    assert client.get("/", params={"q": "red", "text": "red"}).status_code == 200
    assert client.get("/api/v1/similar", params={"of_silo": "north", "of_id": "item-1"}).status_code == 200
    assert client.get("/", params={"like": "item-1", "of": "north", "by": "image"}).status_code == 200
    asked = [request[2] if isinstance(request, tuple) else request for request in backend.requests]
    assert len(asked) >= 5
    assert {options.asker for options in asked} == {"ann"}
    assert client.get("/api/v1/item", params={"silo": "north", "id": "item-1"}).status_code == 200
    client.get("/picture", params={"silo": "north", "id": "item-1"})
    assert backend.askers == ["ann"] * 5
