"""The items API over a keeper in memory: tokens, limits, states, and the Python client."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from silohash.base.errors import ReadableByOthers, RequestRefused, UnusableSecret, UserError
from silohash.service.clients.items import Items
from silohash.service.items.keeper import ItemState
from silohash.service.items.scan import Record
from silohash.service.web.items import items_app, read_token, serving
from tests.ports import free_port
from tests.served import drawn, png

TOKEN = "t" * 32


class Kept:
    """A keeper in memory. It cannot encode the text "zzz", and cannot write the item "full"."""

    def __init__(self) -> None:
        self.put_items: dict[str, tuple[Record, bytes, str]] = {}

    def put(self, record: Record, picture: bytes = b"", suffix: str = "") -> ItemState:
        if record.id == "full":
            raise UserError("The disk is full.")
        self.put_items[record.id] = (record, picture, suffix)
        return self.state(record.id) or ItemState(record.id)

    def delete(self, name: str) -> bool:
        return self.put_items.pop(name, None) is not None

    def state(self, name: str) -> ItemState | None:
        if name not in self.put_items:
            return None
        record, picture, _ = self.put_items[name]
        if record.text == "zzz":
            return ItemState(name, problem="its text is unknown")
        return ItemState(name, True, ("image",) if picture else ("text",), "digest")

    def page(self, after: str, most: int) -> list[ItemState]:
        names = [name for name in sorted(self.put_items) if name > after][:most]
        return [state for name in names if (state := self.state(name))]


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def client(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    monkeypatch.setattr("silohash.service.web.uploads.MOST_BYTES", 10_000)
    monkeypatch.setattr("silohash.service.web.uploads.MOST_PIXELS", 1_000)
    app = items_app(kept, TOKEN)  # type: ignore[arg-type]
    return TestClient(
        app, "http://127.0.0.1:8766", raise_server_exceptions=False, headers={"authorization": f"Bearer {TOKEN}"}
    )


def put(client: TestClient, name: str = "a", picture: bytes | None = None, **fields: Any) -> Any:
    files = None if picture is None else {"picture": ("x", picture)}
    return client.put(f"/v1/items/{name}", data=fields, files=files)


def test_an_item_is_put_read_listed_and_deleted(client: TestClient, kept: Kept) -> None:
    answer = put(client, "a/b", png(), text=" red ", labels=["x", "y", "x"])
    expected = {"id": "a/b", "indexed": True, "modalities": ["image"], "model_digest": "digest", "problem": ""}
    assert (answer.status_code, answer.json()) == (200, expected)
    assert kept.put_items["a/b"] == (Record(id="a/b", text="red", labels=("x", "y")), png(), ".png")
    assert client.get("/v1/items/a%2Fb").json() == expected
    put(client, "c", text="blue")
    page = client.get("/v1/items?limit=1").json()
    assert ([each["id"] for each in page["items"]], page["after"]) == (["a/b"], "a/b")
    page = client.get("/v1/items?after=a/b&limit=2").json()
    assert ([each["id"] for each in page["items"]], page["after"]) == (["c"], None)
    assert client.delete("/v1/items/a/b").status_code == 204
    assert client.delete("/v1/items/a/b").status_code == 404
    assert "does not have an item" in client.get("/v1/items/a/b").json()["error"]["message"]


def test_an_item_without_a_code_is_accepted_with_the_reason(client: TestClient) -> None:
    answer = put(client, text="zzz")
    assert (answer.status_code, answer.json()["problem"]) == (202, "its text is unknown")


@pytest.mark.parametrize("sent", [None, "Bearer", f"Bearer {TOKEN}x", "Bearer \xe9", f"Basic {TOKEN}"])
def test_requests_without_the_token_are_refused(client: TestClient, kept: Kept, sent: str | None) -> None:
    headers = {"authorization": b"" if sent is None else sent.encode("latin-1")}
    for method in ("PUT", "GET", "DELETE"):
        answer = client.request(method, "/v1/items/a", headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthorized")
    assert client.get("/v1/items", headers=headers).status_code == 401
    assert not kept.put_items


@pytest.mark.parametrize(
    ("fields", "picture", "status", "message"),
    [
        ({}, None, 422, "neither a picture nor a text"),
        ({"text": " "}, None, 422, "neither a picture nor a text"),
        ({"text": "a\0b"}, None, 422, "NUL"),
        ({"text": "x" * 50_001}, None, 422, "at most 50000"),
        ({"text": "a", "labels": ["x"] * 101}, None, 422, "at most 100"),
        ({}, b"x", 415, "not a picture"),
        ({}, b"x" * 10_001, 413, "MB"),
        ({}, png(drawn("red", "square").resize((50, 50))), 413, "50 x 50 pixels"),
        ({}, png()[:90], 422, "damaged"),
    ],
)
def test_what_is_not_an_item_is_refused(
    client: TestClient, kept: Kept, fields: dict[str, Any], picture: bytes | None, status: int, message: str
) -> None:
    answer = put(client, "a", picture, **fields)
    assert (answer.status_code, not kept.put_items) == (status, True), answer.text
    assert message in answer.json()["error"]["message"]


def test_other_hosts_large_bodies_and_failures_have_plain_answers(client: TestClient) -> None:
    assert client.get("/v1/items", headers={"host": "evil.example"}).status_code == 400
    assert put(client, "a", b"x" * 1_000_000).status_code == 413
    assert put(client, "x" * 1_001, text="red").status_code == 422
    answer = put(client, "full", text="red")
    assert (answer.status_code, answer.json()["error"]["message"]) == (503, "The disk is full.")
    assert client.get("/docs").status_code == 404


@pytest.fixture
def served(kept: Kept) -> Iterator[str]:
    port = free_port()
    with serving(kept, ("127.0.0.1", port), TOKEN):  # type: ignore[arg-type]
        yield f"http://127.0.0.1:{port}"


def test_the_python_client_does_the_same(served: str, kept: Kept, tmp_path: Any) -> None:
    items = Items(served, TOKEN)
    (tmp_path / "a.jpg").write_bytes(png())
    assert items.put("ä/b", tmp_path / "a.jpg", text="rot ß", labels=("x", "y"))["indexed"]
    assert kept.put_items["ä/b"] == (Record(id="ä/b", text="rot ß", labels=("x", "y")), png(), ".png")
    assert items.state("ä/b")["modalities"] == ["image"]
    for number in range(101):
        items.put(f"{number:03}", text="red")
    assert [state["id"] for state in items][::50] == ["000", "050", "100"]
    items.delete("ä/b")
    with pytest.raises(RequestRefused, match="ä/b"):
        items.state("ä/b")
    with pytest.raises(RequestRefused):
        Items(served, "other").state("a")


def test_a_taken_port_is_named(served: str) -> None:
    port = int(served.rpartition(":")[2])
    with (
        pytest.raises(UserError, match=rf"Port {port} of 127\.0\.0\.1 cannot be used .*Change listen in \[items\]"),
        serving(Kept(), ("127.0.0.1", port), TOKEN),  # type: ignore[arg-type]
    ):
        pass


@pytest.mark.parametrize(
    ("kind", "suffix"), [("TIFF", ".tif"), ("JPEG2000", ".jp2"), ("AVIF", ".avif"), ("MPO", ".jpg")]
)
def test_a_picture_is_kept_under_the_suffix_of_its_format(
    client: TestClient, kept: Kept, kind: str, suffix: str
) -> None:
    content = io.BytesIO()
    options = {"save_all": True, "append_images": [drawn("blue", "square")]} if kind == "MPO" else {}
    drawn("red", "square").save(content, kind, **options)
    assert put(client, "a", content.getvalue()).status_code == 200
    assert kept.put_items["a"][1:] == (content.getvalue(), suffix)


def test_a_token_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "secrets" / "items.token"
    token = read_token(path)
    assert len(token) >= 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_token(path) == token
    assert read_token(tmp_path / "other.token") != token


def test_a_token_that_is_not_secret_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "items.token"
    read_token(path)
    for mode in (0o640, 0o604):
        path.chmod(mode)
        with pytest.raises(ReadableByOthers, match=r"others have access .*chmod 600"):
            read_token(path)
    path.chmod(0o600)
    path.write_text("x" * 31)
    with pytest.raises(UnusableSecret, match=r"31.*32"):
        read_token(path)
