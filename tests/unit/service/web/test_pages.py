"""The pages as HTML, without a browser: what they show, their addresses, and what they refuse."""

from __future__ import annotations

import io
import os
import re
import threading
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest
from PIL import Image

from silohash.base.errors import NotFound, Unavailable, UnreadablePicture
from silohash.base.types import Modality
from silohash.evaluate.collapse import COLLAPSED
from silohash.search.composed import Composed
from silohash.search.policy import NOT_COUNTED
from silohash.service.web import pages
from silohash.service.web.app import create_app
from silohash.service.web.form import PAGE_HITS
from silohash.service.web.pages import EXPIRED, SIZES, Media, encoded, etag
from tests.served import LateBackend, MadeUpBackend, client_of, drawn, png, running

HOSTILE = "<script>alert(1)</script>\"'> \u202eevil"


class Outline(HTMLParser):
    """Collect the elements of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def all(self, tag: str, **wanted: str) -> list[dict[str, str | None]]:
        return [
            attributes
            for name, attributes in self.elements
            if name == tag and all(attributes.get(key.rstrip("_")) == value for key, value in wanted.items())
        ]


@pytest.fixture
def backend() -> MadeUpBackend:
    return MadeUpBackend()


def outline(backend: MadeUpBackend, address: str, **parameters: Any) -> Outline:
    answer = client_of(backend).get(address, params=parameters)
    assert answer.status_code == 200
    return Outline(answer.text)


def test_the_first_page_suggests_searches_and_items(backend: MadeUpBackend) -> None:
    page = outline(backend, "/")
    assert [link["href"] for link in page.all("a", class_="suggestion")] == ["/?q=red", "/?q=shape", "/?q=red+shape"]
    assert page.all("input", name="q", type="search")
    assert [box["value"] for box in page.all("input", name="silo")] == ["north", "south"]
    assert [box["value"] for box in page.all("input", name="label")] == ["red", "shape"]
    assert page.all("input", name="within")[0]["value"] == ""
    assert any(link.get("href") == "/?browse=1" for link in page.all("a"))
    assert {link["href"] for link in page.all("a") if (link["href"] or "").startswith("/item")}
    assert not backend.requests


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        (("image", "text"), "Use words, a picture or a drawing."),
        (("text",), "Use words."),
        (("image",), "Use a picture or a drawing."),
        ((), "The model takes feature vectors"),
    ],
)
def test_the_page_offers_what_the_model_takes(backend: MadeUpBackend, inputs: tuple[Modality, ...], says: str) -> None:
    backend.inputs = inputs
    text = client_of(backend).get("/").text
    page = Outline(text)
    assert says in text
    assert len(page.all("button", id="draw-open")) == len(page.all("div", id="upload")) == ("image" in inputs)
    assert ("disabled" in page.all("input", name="q")[0]) != ("text" in inputs)
    assert bool(page.all("a", class_="suggestion")) == ("text" in inputs)
    assert any((link["href"] or "").startswith("/item") for link in page.all("a")), "items to begin with"


def test_results_pages_and_filters(backend: MadeUpBackend) -> None:
    filters = {"q": "red shape", "find": "text", "silo": ["north", "south"], "label": "red", "within": "20"}
    page = outline(backend, "/", **filters)
    sent = backend.requests[-1]
    assert (sent.value, sent.target, sent.radius_bits) == ("red shape", "text", 20)
    assert [*map(str, sent.where)] == ["labels=red"]
    assert (sent.silos, sent.k, sent.offset) == (("north", "south"), PAGE_HITS + 1, 0)
    assert len(page.all("li", class_="card")) == PAGE_HITS
    [following] = page.all("a", rel="next")
    assert not page.all("a", rel="prev")
    kept = "q=red+shape&find=text&silo=north&silo=south&label=red&within=20"
    assert following["href"] == f"/?{kept}&page=2"
    second = Outline(client_of(backend).get(following["href"]).text)
    assert backend.requests[-1].offset == PAGE_HITS
    assert len(second.all("li", class_="card")) == min(PAGE_HITS, 42 - PAGE_HITS)
    assert second.all("a", rel="prev")[0]["href"] == f"/?{kept}"
    assert not second.all("a", rel="next")
    assert [radio["value"] for radio in page.all("input", name="find") if "checked" in radio] == ["text"]


def test_a_filter_alone_lists_items_with_the_counts_of_values(backend: MadeUpBackend) -> None:
    text = client_of(backend).get("/", params={"where": "museum=Louvre", "silo": "south"}).text
    sent = backend.requests[-1]
    assert (sent.value, sent.silos, [*map(str, sent.where)]) == (None, ("south",), ["museum=Louvre"])
    assert sent.facets[:2] == ("silo", "labels")
    assert {"date", "museum", "year"} == {*sent.facets[2:]}
    assert "Items 1 to 24 of 60, newest first" in text
    page = Outline(text)
    links = {link["data-filter"]: link for link in page.all("a") if "data-filter" in link}
    assert [name for name, link in links.items() if "aria-current" in link] == ["silo=south", "museum=Louvre"]
    assert links["museum=Louvre"]["href"] == "/?silo=south"
    assert links["labels=red"]["href"] == "/?silo=south&label=red&where=museum%3DLouvre"
    assert links["museum=Orsay, Paris"]["href"] == (
        "/?silo=south&where=museum%3DLouvre&where=museum%3D%22Orsay%2C+Paris%22"
    )
    [box] = page.all("input", name="where")
    assert (box["value"], "checked" in box) == ("museum=Louvre", True)
    assert page.all("a", rel="next")[0]["href"] == "/?silo=south&where=museum%3DLouvre&page=2"
    assert page.all("a", id="clear")[0]["href"] == "/?browse=1"


def test_lists_are_ordered_by_a_column_of_dates(backend: MadeUpBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    outline(backend, "/", browse="1")
    assert backend.requests[-1].newest_by is None, "no example has a date"
    payload = backend.payload
    dated = {"museum": "Louvre", "date": "2001-05", "year": "1987"}
    monkeypatch.setattr(backend, "payload", lambda name: {**payload(name), "columns": dated})
    outline(backend, "/", browse="1")
    assert backend.requests[-1].newest_by == "date"
    outline(backend, "/", q="red")
    assert backend.requests[-1].newest_by is None


def test_silos_that_do_not_count_are_named_beside_the_counts(backend: MadeUpBackend) -> None:
    backend.limited = {"south": NOT_COUNTED}
    text = client_of(backend).get("/?browse=1").text
    assert "Not counted: south." in text
    assert "released only a part" not in text
    assert "Items 1 to 24, newest first" in text
    backend.limited = {"south": f"It limits results to 5 per query. {NOT_COUNTED}"}
    assert "1 silo released only a part: south" in client_of(backend).get("/?browse=1").text


def test_labels_and_silos_of_results_are_filters(backend: MadeUpBackend) -> None:
    page = outline(backend, "/", q="x", label="red")
    links = [link["href"] for link in page.all("a")]
    assert links.count("/?q=x") > PAGE_HITS, "a label that is a filter is taken back"
    assert links.count("/?q=x&label=red&label=shape") > PAGE_HITS
    assert "/?q=x&silo=north&label=red" in links
    page = outline(backend, "/item", silo="south", id="item-3")
    assert {"/?label=red", "/?label=shape", "/?silo=south"} <= {link["href"] for link in page.all("a")}


@pytest.mark.parametrize(
    "query", ["where=colour=red", "where=year>=old", "where=museum", "column=x&operator=%3D&value=1"]
)
def test_a_condition_that_cannot_be_used_is_explained(backend: MadeUpBackend, query: str) -> None:
    answer = client_of(backend).get(f"/?q=red&{query}")
    assert answer.status_code in (400, 404, 422)
    assert "This search has no answer" in answer.text
    assert not backend.requests


AS_EVENTS = {"accept": "text/event-stream, text/html"}


def late_pages(backend: LateBackend, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Return the names and the pages of the events of a search whose late silo answers after the first of them."""
    monkeypatch.setattr(pages, "GATHER_SECONDS", 0.01)
    backend.late = {"museum": threading.Event()}
    text = ""
    with running(create_app(backend)) as address:
        answer = urlopen(Request(f"{address}/?q=red", headers=AS_EVENTS))  # noqa: S310  an address of this test
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        for line in answer:
            text += line.decode()
            if line == b"\n":
                backend.late["museum"].set()
    events = [event.split("\n") for event in text.removesuffix("\n\n").split("\n\n")]
    return [(name, "\n".join(line.removeprefix("data: ") for line in lines)) for name, *lines in events]


def test_scripts_get_the_results_of_fast_silos_before_those_of_late_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = LateBackend()
    (first, part), *_, (last, whole) = late_pages(backend, monkeypatch)
    assert (first, last) == ("event: partial", "event: result")
    assert "2 of 3 silos have answered so far" in part
    assert "Waiting for museum …" in part
    assert "1 silo did not answer" not in part
    found = [str(link["href"]) for link in Outline(part).all("a") if (link["href"] or "").startswith("/item")]
    assert "/item?silo=town+library&id=item-40&results=q%3Dred%26at%3D21" in found
    assert not any("museum" in link for link in found)
    assert whole == client_of(backend).get("/?q=red").text, "the last page is what browsers without scripts get"


def test_a_search_that_fails_after_its_first_results_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = LateBackend()
    backend.error = NotFound("The picture is gone.")
    *_, (name, page) = late_pages(backend, monkeypatch)
    assert name == "event: result"
    assert "The picture is gone." in page


def test_a_search_that_is_done_at_once_is_a_page_for_scripts_too(backend: MadeUpBackend) -> None:
    client = client_of(backend)
    for path in ("/", "/?q=red", "/?q=red&within=999"):
        whole, answer = client.get(path), client.get(path, headers=AS_EVENTS)
        assert (answer.text, answer.status_code) == (whole.text, whole.status_code)
        assert answer.headers["content-type"].startswith("text/html")


def test_pages_are_stable_and_lose_nothing(backend: MadeUpBackend) -> None:
    client, address, found = client_of(backend), "/?q=red", []
    while address:
        page = Outline(client.get(address).text)
        found += [link["href"] for link in page.all("a") if (link["href"] or "").startswith("/item")]
        address = next((str(link["href"]) for link in page.all("a", rel="next")), "")
    assert [re.search(r"item-\d+", str(link))[0] for link in found] == [f"item-{n}" for n in range(60)]


def test_silent_silos_are_named_with_their_reasons() -> None:
    backend = MadeUpBackend(silos=("east", "north", "south"))
    backend.missing = {"east": "It is asleep."}
    page = client_of(backend).get("/", params={"q": "red"}).text
    assert "2 of 3 silos answered" in page
    assert "It is asleep." in page
    backend.missing = dict.fromkeys(backend.silos, "It is asleep.")
    page = client_of(backend).get("/", params={"q": "red"}).text
    assert "0 of 3 silos answered" in page
    assert "No silo could be searched" in page
    assert "Search all silos" not in page, "all of them were asked"


def test_a_search_of_silent_silos_leads_to_all_silos() -> None:
    backend = MadeUpBackend(silos=("east", "north", "south"))
    backend.missing = {"east": "It is asleep.", "south": "It is off."}
    text = client_of(backend).get("/?q=red&silo=south&find=image").text
    assert "No results · 0 of 1 silo answered" in text
    assert "<p>south did not answer. The reason is above.</p>" in text
    assert '<a href="/?q=red&amp;find=image">Search all silos</a>' in text
    text = client_of(backend).get("/?q=red&silo=south&silo=east").text
    assert "<p>No silo could be searched. The reasons are above.</p>" in text
    assert '<a href="/?q=red">Search all silos</a>' in text


def test_filters_that_nothing_passes_can_be_cleared() -> None:
    backend = MadeUpBackend(items=0)
    text = client_of(backend).get("/?q=red&silo=south").text
    assert 'Nothing passes the filters. <a href="/?q=red">Search without them</a>.' in text
    text = client_of(backend).get("/?q=red&silo=south&label=red").text
    assert '<a href="/?q=red">Search without them</a> or <a href="/?q=red&amp;label=red">search all silos</a>.' in text
    assert "The silos returned nothing." in client_of(backend).get("/?q=red").text


def test_the_line_between_pages_counts_like_the_heading() -> None:
    backend = MadeUpBackend(items=2_000)
    assert client_of(backend).get("/?q=red&page=50").text.count("Results 1,177 to 1,200") == 2
    text = client_of(backend).get("/?q=red&page=90").text
    assert "No further results" in text
    assert not re.search(r"Results [0-9]", text), "an empty page has no range"
    assert Outline(text).all("a", rel="prev")


@pytest.mark.parametrize(("limit", "is_filter"), [("", False), ("31", True)])
def test_filters_can_be_cleared_if_there_are_any(backend: MadeUpBackend, limit: str, is_filter: bool) -> None:
    page = outline(backend, "/", q="red", find="item", label="", within=limit)
    [clear] = page.all("a", id="clear")
    assert clear["class"] == ("clear" if is_filter else "clear unused")


def test_the_first_page_knows_which_silos_do_not_answer(
    backend: MadeUpBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[dict[str, Any]] = []
    page = pages.page
    monkeypatch.setattr(pages, "page", lambda *asked, **values: shown.append(values) or page(*asked, **values))
    for missing in ({}, {"south": "It is off."}, dict.fromkeys(backend.silos, "It is off.")):
        backend.missing = missing
        client_of(backend).get("/")
        assert {silo.name: silo.reason for silo in shown[-1]["silent"]} == missing


def test_a_sent_picture_gets_an_address_that_keeps_the_filters(backend: MadeUpBackend) -> None:
    client = client_of(backend)
    content = png(drawn("blue", "frame"))
    sent = client.post(
        "/picture",
        data={"find": "image", "silo": ["north"], "q": "x"},
        files={"picture_file": content},
        follow_redirects=False,
    )
    assert sent.status_code == 303
    address = sent.headers["location"]
    assert re.fullmatch(r"/\?picture=[\w-]{20,}&q=x&find=image&silo=north", address)
    page = Outline(client.get(address).text)
    value = backend.requests[-1].value
    assert (type(value), value.text) == (Composed, "x"), "the words are kept"
    assert np.array_equal(np.asarray(value.picture), np.asarray(drawn("blue", "frame")))
    assert page.all("a", id="no-words")[0]["href"] == address.replace("&q=x", "")
    assert page.all("a", class_="drop", href="/?q=x&find=image&silo=north")
    assert backend.requests[-1].silos == ("north",)
    [chip] = page.all("img", alt="The picture of this search")
    small = client.get(str(chip["src"]))
    assert small.headers["content-type"] == "image/png"
    client.get(address + "&page=2")
    assert backend.requests[-1].offset == PAGE_HITS
    other = client_of(backend).get(address).text
    assert EXPIRED in other, "another service does not know it"
    assert not Outline(other).all("img", alt="The picture of this search")
    assert not Outline(other).all("input", name="picture")
    assert "Add words to the picture" not in other


def test_a_drawing_is_fitted() -> None:
    backend = MadeUpBackend(archive="glyphs")
    client_of(backend).post("/picture", data={"drawing": "1"}, files={"picture_file": png()})
    assert backend.requests[-1].value.size == (32, 32)


@pytest.mark.parametrize(("content", "status"), [(b"", 422), (b"<svg/>", 415), (png()[:70], 422)])
def test_refused_pictures(backend: MadeUpBackend, content: bytes, status: int) -> None:
    answer = client_of(backend).post("/picture", files={"picture_file": ("a.png", content)})
    assert answer.status_code == status
    assert 'role="alert"' in answer.text
    assert ("up to 20.0 MB" in answer.text) == (status == 415)
    assert client_of(backend).post("/picture", data={"picture_file": "text"}).status_code == 422
    assert client_of(backend).post("/picture", content=b"x").status_code == 422


def test_words_with_the_name_of_a_picture_only_are_refused(backend: MadeUpBackend) -> None:
    answer = client_of(backend).get("/", params={"q": "boats", "picture_file": "harbor.png"})
    assert answer.status_code == 422
    assert pages.NOT_SENT in answer.text
    assert not backend.requests


def test_an_empty_file_is_told_from_no_file(backend: MadeUpBackend) -> None:
    client = client_of(backend)
    for name, says in (("a.png", "The picture file is empty."), ("", pages.NOT_SENT)):
        head = f'--x\r\ncontent-disposition: form-data; name="picture_file"; filename="{name}"\r\n'
        body = f"{head}content-type: application/octet-stream\r\n\r\n\r\n--x--\r\n"  # as browsers send it
        kind = {"content-type": "multipart/form-data; boundary=x"}
        answer = client.post("/picture", content=body, headers=kind)
        assert answer.status_code == 422
        assert says in answer.text


@pytest.mark.parametrize(
    ("parameters", "status"),
    [
        ({"q": "a", "find": "sound"}, 422),
        ({"q": "a", "page": "0"}, 422),
        ({"q": "a", "page": "1e9"}, 422),
        ({"q": "a", "within": "-1"}, 422),
        ({"q": "a", "silo": "east"}, 404),
        ({"q": "a" * 3000}, 422),
        ({"picture": "unknown"}, 404),
    ],
)
def test_searches_that_are_refused_keep_the_form(
    backend: MadeUpBackend, parameters: dict[str, str], status: int
) -> None:
    answer = client_of(backend).get("/", params=parameters)
    assert answer.status_code == status
    page = Outline(answer.text)
    assert page.all("div", class_="notice", role="alert")
    assert page.all("form", id="search")


def test_an_item_shows_what_is_released(backend: MadeUpBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    payload = backend.payload
    columns = {"museum": "Prado", "source": "https://example.org/1", "script": "javascript:alert(1)"}
    monkeypatch.setattr(backend, "payload", lambda name: {**payload(name), "columns": columns})
    backend.about = {"url": "https://example.org/{id}?a=b", "rights": "CC BY 4.0", "contact": "https://example.org/us"}
    client = client_of(backend)
    text = client.get("/item", params={"silo": "north", "id": "item-3"}).text
    page, links = Outline(text), [link["href"] for link in Outline(text).all("a")]
    assert not backend.requests, "no code is sent unasked, and nothing is searched"
    assert "<dt>museum</dt>" in text
    assert "CC BY 4.0" in text
    assert {"https://example.org/item-3?a=b", "https://example.org/1", "https://example.org/us"} <= {*links}
    assert all(link["rel"] == "noreferrer" for link in page.all("a") if str(link["href"]).startswith("http"))
    assert not [link for link in links if str(link).startswith("javascript")]
    assert {f"/?like=item-3&of=north&by={side}" for side in ("image", "text")} <= {*links}
    backend.about = {"url": "javascript:alert('{id}')"}
    assert "alert(&#39;item-3" not in client_of(backend).get("/item?silo=north&id=item-3").text
    assert client.get("/item", params={"silo": "north", "id": "nothing"}).status_code == 404
    assert client.get("/item", params={"silo": "north"}).status_code == 422
    backend.missing = {"north": "It is asleep."}
    assert client.get("/item", params={"silo": "north", "id": "item-3"}).status_code == 503


def test_an_item_of_results_tells_why_it_was_found_and_leads_to_those_beside_it(backend: MadeUpBackend) -> None:
    client = client_of(backend)
    page = Outline(client.get("/?q=red&label=red&page=2").text)
    address = next(str(link["href"]) for link in page.all("a") if str(link["href"]).startswith("/item"))
    text = client.get(address).text
    sent = backend.requests[-1]
    assert (sent.value, sent.offset, [*map(str, sent.where)]) == ("red", PAGE_HITS - 1, ["labels=red"])
    assert "<dt>Result</dt><dd>25 · 12 bits</dd>" in text
    assert "<dt>Found by its</dt><dd>picture</dd>" in text
    assert Outline(text).all("a", href="/?q=red&label=red&page=2")
    [before], [after] = (Outline(text).all("a", rel=name) for name in ("prev", "next"))
    assert tuple(int(re.search(r"id=item-(\d+)&", str(link["href"]))[1]) for link in (before, after)) == (
        PAGE_HITS - 1,
        PAGE_HITS + 1,
    )
    first = Outline(client.get("/item?silo=north&id=item-0&results=q%3Dred%26at%3D1").text)
    assert not first.all("a", rel="prev")
    assert first.all("a", rel="next")
    assert len(Outline(client.get("/?q=red&at=5").text).all("li", class_="card")) == PAGE_HITS
    last = Outline(client.get("/item?silo=south&id=item-59&results=q%3Dred%26at%3D60").text)
    assert (len(last.all("a", rel="prev")), len(last.all("a", rel="next"))) == (1, 0)


def test_an_item_of_a_list_leads_to_those_beside_it(backend: MadeUpBackend) -> None:
    page = Outline(client_of(backend).get("/item?silo=south&id=item-3&results=browse%3D1%26at%3D4").text)
    assert page.all("a", href="/?browse=1")
    assert (len(page.all("a", rel="prev")), len(page.all("a", rel="next"))) == (1, 1)


@pytest.mark.parametrize(
    "results", ["", "q=red", "q=red&at=7", "q=red&at=0", "at=1", "page=x&at=1", "picture=gone&at=1"]
)
def test_an_item_that_is_not_among_its_results_is_shown_without_them(backend: MadeUpBackend, results: str) -> None:
    text = client_of(backend).get("/item", params={"silo": "north", "id": "item-0", "results": results}).text
    assert "red shape 0" in text
    assert "Back to the results" not in text


def test_very_long_captions_are_cut_and_can_be_opened(backend: MadeUpBackend) -> None:
    backend.captions = {"item-0": "long words " * 340}
    text = client_of(backend).get("/item?silo=north&id=item-0").text
    assert text.count("long words") < 340 + 60
    assert text.count("<summary>The whole text</summary>") == 1


def test_a_released_file_is_sent_in_the_sizes_of_the_page(backend: MadeUpBackend, tmp_path: Path) -> None:
    client = client_of(backend)
    address = {"silo": "north", "id": "item-3"}
    assert client.get("/picture", params=address).status_code == 404
    backend.path = tmp_path / "a.png"
    backend.path.write_bytes(png(drawn("red", "square").resize((2000, 1000))))
    found = client.get("/picture", params=address)
    assert found.headers["content-type"] == "image/jpeg"
    assert client.get("/picture", params=address, headers={"if-none-match": found.headers["etag"]}).status_code == 304
    assert client.get("/picture", params={**address, "size": 999}).status_code == 404
    backend.path.write_bytes(b"<script>")
    assert client.get("/picture", params=address).status_code == 422


def test_the_federation_page_shows_silos_and_rounds(backend: MadeUpBackend) -> None:
    backend.missing = {"south": "It is asleep."}
    page = client_of(backend).get("/federation").text
    assert "1 of 2 silos can be searched" in page
    assert "It is asleep." in page
    assert "6.0 MB" in page
    assert "3.0 MB" in page
    assert page.count("<polyline") == 2
    assert "The model of round 2 is deployed." in page
    assert "<dt>Models</dt><dd>1</dd>" in page
    cells = Outline(page).all("table", class_="stacked") and Outline(page).all("td")
    names = [cell["data-name"] for cell in cells if "data-name" in cell]
    assert names == ["State", "Items", "Codes", "Releases", "Model"] * 2, "shown beside the values on phones"


def test_the_federation_page_tells_which_codes_collapsed_and_what_to_do(backend: MadeUpBackend) -> None:
    page = client_of(backend).get("/federation").text
    assert "<p>Images: 93 % distinct, 0.20 bits of mutual information per bit.</p>" in page
    assert page.count(COLLAPSED) == 1
    assert "The codes of texts collapsed." in page


def test_items_like_an_item_are_results_with_filters_and_pages(backend: MadeUpBackend) -> None:
    text = client_of(backend).get("/?like=item-1&of=north&by=text&find=image&label=red&within=9").text
    silo, name, options, by = backend.requests[-1]
    assert (silo, name, by, options.target, options.silos) == ("north", "item-1", "text", "image", None)
    assert ([*map(str, options.where)], options.radius_bits) == (["labels=red"], 9)
    page = Outline(text)
    assert {field["name"]: field["value"] for field in page.all("input", type="hidden")} == {
        "like": "item-1", "of": "north", "by": "text"
    }  # fmt: skip
    assert page.all("a", href="/?find=image&label=red&within=9"), "the item is taken back"
    assert page.all("a", href="/item?silo=north&id=item-1")
    client_of(backend).get("/?like=item-1&of=north&by=smell")
    assert backend.requests[-1][3] is None


def test_a_silo_that_refuses_items_like_its_own_is_explained(
    backend: MadeUpBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise Unavailable("The silo north cannot be searched: Its policy does not allow it.")

    monkeypatch.setattr(backend, "similar", refuse)
    answer = client_of(backend).get("/?like=item-1&of=north&by=image")
    assert answer.status_code == 503
    assert "Its policy does not allow it." in answer.text


def test_the_reasons_are_open_if_no_silo_answers(backend: MadeUpBackend) -> None:
    backend.missing = {"south": "It is off."}
    assert '<details class="note warning">' in client_of(backend).get("/?q=red").text
    backend.missing = dict.fromkeys(backend.silos, "It is off.")
    assert '<details class="note warning" open>' in client_of(backend).get("/?q=red").text


def test_a_silent_silo_is_shown_without_figures(backend: MadeUpBackend) -> None:
    backend.missing = {"south": "It is off."}
    page = client_of(backend).get("/federation").text
    assert "It is off." in page
    assert "ids only" not in page
    assert page.count('<td data-name="Items" class="number">–</td>') == 1


@pytest.mark.parametrize("address", ["/", "/?q=red", "/item?silo=north&id=item-1", "/federation", "/nothing"])
def test_pages_have_landmarks_names_and_nothing_that_the_policy_forbids(backend: MadeUpBackend, address: str) -> None:
    text = client_of(backend).get(address).text
    page = Outline(text)
    for landmark in ("header", "main", "footer", "h1"):
        assert len(page.all(landmark)) == 1, landmark
    assert page.all("a", class_="skip", href="#main")
    assert page.all("html", lang="en")
    assert not [
        element for element in page.elements if "style" in element[1] or any(k.startswith("on") for k in element[1])
    ]
    assert not page.all("style")
    assert all(str(script["src"]).startswith("/static/") for script in page.all("script"))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    labeled = {label.get("for") for label in page.all("label")}
    for field in (*page.all("input", type="search"), *page.all("input", type="file")):
        assert field["id"] in labeled
    for image in page.all("img"):
        assert image.get("alt") is not None
    for svg in page.all("svg"):
        assert svg.get("aria-hidden") == "true" or (svg.get("role") == "img" and svg.get("aria-label"))
    for _, attributes in page.elements:
        for value in (attributes.get("src"), attributes.get("href"), attributes.get("action")):
            assert value is None or value.startswith(("/", "#", "?", "data:image/")), "nothing is loaded from elsewhere"


def test_texts_of_silos_and_queries_are_escaped() -> None:
    backend = MadeUpBackend(silos=("north", HOSTILE))
    backend.captions = {f"item-{number}": HOSTILE for number in range(60)}
    client = client_of(backend)
    for address, parameters in (
        ("/", {}),
        ("/", {"q": HOSTILE, "silo": [HOSTILE], "label": HOSTILE}),
        ("/item", {"silo": HOSTILE, "id": "item-1"}),
        ("/federation", {}),
        ("/", {"q": HOSTILE, "find": HOSTILE}),
    ):
        text = client.get(address, params=parameters).text
        assert "<script>alert" not in text
        assert "\u202e" not in text
        scripts = Outline(text).all("script")
        assert all(str(script.get("src")).startswith("/static/") for script in scripts)


def size_of(content: bytes) -> tuple[int, int]:
    return Image.open(io.BytesIO(content)).size


def test_pictures_are_scaled_down_and_never_up() -> None:
    assert size_of(encoded(Image.new("RGB", (2000, 1000)), 480)[0]) == (480, 240)
    content, media_type = encoded(Image.new("L", (32, 32)), 480)
    assert (size_of(content), media_type) == ((32, 32), "image/png")
    assert encoded(Image.new("RGB", (129, 20)), 480)[1] == "image/jpeg"


def test_what_follows_a_picture_in_its_file_is_not_sent(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    Image.new("RGB", (300, 200)).save(path, comment=b"secret place")
    path.write_bytes(path.read_bytes() + b"<script>")
    content, _ = Media().picture(path, SIZES[0])
    assert b"secret" not in content
    assert b"<script>" not in content


def test_pictures_are_remembered_until_their_file_changes(tmp_path: Path) -> None:
    path, media = tmp_path / "a.png", Media()
    Image.new("RGB", (300, 200), "red").save(path)
    first = media.picture(path, 480)
    assert media.picture(path, 480) is first
    assert media.picture(path, 1600) is not first
    Image.new("RGB", (300, 200), "blue").save(path)
    os.utime(path, (1, 1))
    assert media.picture(path, 480) != first
    assert etag(first[0]) != etag(media.picture(path, 480)[0])


def test_memory_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("silohash.service.web.pages.MOST_BYTES", 1)
    media = Media()
    Image.new("RGB", (300, 200), "red").save(tmp_path / "a.png")
    first = media.picture(tmp_path / "a.png", 480)
    assert media.picture(tmp_path / "a.png", 480) is not first


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UnreadablePicture):
        Media().picture(tmp_path / "a.png", 480)
    (tmp_path / "a.png").write_bytes(b"no picture")
    with pytest.raises(UnreadablePicture, match="not a picture"):
        Media().picture(tmp_path / "a.png", 480)
