"""The client against a real server on this machine: it gives what the backend gives, and explains errors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import silohash
from silohash.base.errors import (
    NotFound,
    OneInputNeeded,
    ServerUnreachable,
    UnreadableFile,
    UploadRefused,
    WrongAddress,
)
from silohash.features.truncation import Unread
from silohash.search.filters import Condition
from silohash.search.hits import Hits, SearchOptions
from silohash.service.clients.search import Client, _hits
from silohash.service.web.app import create_app
from silohash.service.web.documents import ResultsDocument
from tests.ports import free_port
from tests.served import MadeUpBackend, drawn, png, running


@pytest.fixture(scope="module")
def backend() -> MadeUpBackend:
    return MadeUpBackend()


@pytest.fixture(scope="module")
def url(backend: MadeUpBackend) -> Iterator[str]:
    with running(create_app(backend)) as address:
        yield address


def test_results_have_the_form_of_hits(url: str, backend: MadeUpBackend) -> None:
    client = silohash.connect(url)
    hits = client.search(
        "red",
        k=3,
        silos=["north"],
        previews=False,
        radius_bits=20,
        find="text",
        label="red",
        offset=1,
        deadline_seconds=2.5,
    )
    sent = backend.requests[-1]
    assert (sent.value, sent.k, sent.silos, sent.previews) == ("red", 3, ("north",), False)
    assert (sent.radius_bits, sent.target, sent.offset) == (20, "text", 1)
    assert sent.where == (Condition("labels", "=", ("red",)),)
    assert sent.deadline_seconds == 2.5
    expected = backend.hits(sent)
    assert (hits.ids, hits.distances, hits.silos, hits.found_by) == (
        expected.ids,
        expected.distances,
        expected.silos,
        expected.found_by,
    )
    assert hits.payloads == tuple({k: v for k, v in payload.items() if v} for payload in expected.payloads)
    assert hits.answered
    assert hits[0].preview is not None


def test_filters_and_counts_have_the_form_of_hits(
    url: str, backend: MadeUpBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {"museum": "Louvre"}
    found = Hits(
        ids=("a",),
        distances=(None,),
        silos=("north",),
        payloads=({"columns": columns},),
        newest=True,
        facets={"museum": {"Louvre": 1}},
        model_digests=frozenset({"m"}),
    )
    monkeypatch.setattr(backend, "hits", lambda options: found)
    condition = Condition("museum", "=", ("Orsay, Paris", "Louvre"))
    hits = silohash.connect(url).search(where=[condition, "year>=1900"], facets="museum", newest_by="year")
    assert backend.requests[-1].where == (condition, Condition("year", ">=", ("1900",)))
    assert (hits.order, hits.facets, hits[0].columns) == ("newest", found.facets, columns)
    assert "museum: Louvre (1)." in repr(hits)


def test_pictures_drawings_items_and_status(url: str, backend: MadeUpBackend, tmp_path: Path) -> None:
    client = Client(url + "/")
    (tmp_path / "a.png").write_bytes(png(drawn("blue", "frame")))
    assert len(client.search(image=tmp_path / "a.png", k=2)) == 2
    assert backend.requests[-1].value.size == (24, 24)
    client.search(image=png(), drawing=True)
    assert backend.requests[-1].value.size == (256, 256)
    client.search("red -blue", image=png(drawn("blue", "frame")), text_weight=0.25, region=(0, 0, 0.5, 1))
    both = backend.requests[-1].value
    assert (both.text, both.text_weight, both.picture.size) == ("red -blue", 0.25, (12, 24))
    np.save(tmp_path / "a.npy", np.arange(3.0))
    for vector in (tmp_path / "a.npy", [0.0, 1.0, 2.0]):
        assert len(client.search(vector=vector, vector_modality="text", k=2)) == 2
        sent = backend.requests[-1]
        assert (sent.value.tolist(), sent.modality) == ([0, 1, 2], "text")
    assert len(client.similar("north", "item-1", by="text", k=4)) == 4
    assert backend.requests[-1][3] == "text"
    assert client.item("north", "item-1")["caption"] == "red shape 1"
    assert client.status()["bits"] == 32


def test_errors_are_explained(url: str, tmp_path: Path) -> None:
    client = Client(url)
    with pytest.raises(OneInputNeeded):
        client.search()
    with pytest.raises(OneInputNeeded):
        client.search("red", vector=[1.0])
    with pytest.raises(NotFound, match="east"):
        client.search("a", silos=["east"])
    with pytest.raises(NotFound, match="nothing"):
        client.item("north", "nothing")
    with pytest.raises(UploadRefused, match="Send"):
        client.search(image=b"not a picture")
    with pytest.raises(UnreadableFile):
        client.search(image=tmp_path / "nothing.png")
    with pytest.raises(WrongAddress):
        silohash.connect("127.0.0.1:8765")
    with pytest.raises(ServerUnreachable, match=r"search.*service"):
        silohash.connect(f"{url}/static/page.css?")
    with pytest.raises(ServerUnreachable):
        silohash.connect(f"http://127.0.0.1:{free_port()}")


def test_ranks_and_missing_silos_come_back() -> None:
    hits = MadeUpBackend().hits(SearchOptions(k=3))
    given = replace(
        hits,
        ranks=(1, 1, 2),
        left_out={2: 5},
        missing_silos={"south": "It is asleep."},
        unknown_words=("zebra",),
        unread=Unread("foo", 5, "words"),
    )
    found = _hits(ResultsDocument.of(given, asked=2).model_dump())
    assert (found.ranks, found.ties_at_cut, found.missing_silos) == ((1, 1, 2), 5, {"south": "It is asleep."})
    assert found.unknown_words == ("zebra",)
    hidden = replace(given, distances=(None, 1, None))
    assert _hits(ResultsDocument.of(hidden, asked=2).model_dump()).distances == (None, 1, None)
    assert found.unread == given.unread
    assert _hits(ResultsDocument.of(hits, asked=2).model_dump()).unread is None
    assert (hits.scores, found.scores) == (None, None)
    scored = replace(MadeUpBackend().hits(SearchOptions(k=3)), scores=(0.75, 0.5, -1.0))
    assert _hits(ResultsDocument.of(scored, asked=2).model_dump()).scores == (0.75, 0.5, -1.0)
    ordered = replace(hits, cosines=(65536, 65000, 65000), left_out={-1 - 65000: 2})
    found = _hits(ResultsDocument.of(ordered, asked=1).model_dump())
    assert (found.order, found.cosines, found.ties_at_cut) == ("outputs", (None, None, None), 2)
    assert repr(Client("http://a")) == 'Client("http://a")'
