"""The backend over a finished run: it finds what the run finds, item by item, and names silos that do not answer."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from silohash.api.runs import open_run
from silohash.base.errors import EmptyInput, NotFound, Unavailable
from silohash.search.hits import Hits
from silohash.service.backend import Code, SearchOptions, SearchRequest
from silohash.service.local import LocalBackend
from tests.served import drawn, served_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return served_run(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def backend(folder: Path) -> Iterator[LocalBackend]:
    opened = LocalBackend.open(folder)
    yield opened
    opened.close()


def search(backend: LocalBackend, **request: Any) -> Hits:
    return asyncio.run(backend.search(SearchRequest(**request)))


def places(hits: Hits) -> list[tuple[str, str, int]]:
    return list(zip(hits.silos, hits.ids, hits.distances, strict=True))


@pytest.mark.parametrize("target", ["item", "image", "text"])
def test_words_and_pictures_find_what_the_run_finds(folder: Path, backend: LocalBackend, target: str) -> None:
    with open_run(folder) as run:
        for given, request in (
            ({"text": "red square"},) * 2,
            ({"image": drawn("blue", "frame")}, {"picture": drawn("blue", "frame")}),
        ):
            expected = run.search(**given, find=target, k=7, offset=2)
            found = search(backend, **request, target=target, k=7, offset=2)
            assert places(found) == places(expected)
            assert found.payloads == expected.payloads
            assert found.folders == expected.folders


def test_the_model_is_loaded_once(backend: LocalBackend) -> None:
    assert len(backend.silos._encoders) == 1, "before the first search"
    first = search(backend, text="red square")
    [encoder] = backend.silos._encoders.values()
    assert places(search(backend, text="red square")) == places(first)
    assert [*backend.silos._encoders.values()] == [encoder]


def test_the_options_reach_the_silos(backend: LocalBackend) -> None:
    assert {label for hit in search(backend, text="red square", label="blue", k=50) for label in hit.labels} >= {"blue"}
    assert all("blue" in hit.labels for hit in search(backend, text="red square", label="blue", k=50))
    near = search(backend, text="red square", radius_bits=4, k=50)
    assert max(near.distances) <= 4
    assert set(search(backend, text="red square", silos=("silo-2",), k=50).silos) == {"silo-2"}
    assert not any(hit.preview_url for hit in search(backend, text="red square", previews=False))
    with pytest.raises(NotFound, match=r'There is no silo "silo-9"\. Choose from: silo-1, silo-2'):
        search(backend, text="red square", silos=("silo-9",))
    with pytest.raises(EmptyInput):
        search(backend, text="red square", silos=())


def test_a_code_finds_what_its_words_find(backend: LocalBackend) -> None:
    status = asyncio.run(backend.status())
    encoder = backend.silos.run.model.encoder()
    words = encoder.encode("red square", "text").words[0]
    code = Code(words=words, bits=status.bits, model_digest=status.silos[0].model_digest)
    assert places(search(backend, code=code)) == places(search(backend, text="red square"))
    other = search(backend, code=Code(words=words, bits=status.bits, model_digest="0" * 8))
    assert not other.answered
    assert set(other.missing_silos) == {"silo-1", "silo-2"}


def test_similar_items_are_nearest_to_the_items_own_code_and_leave_it_out(backend: LocalBackend) -> None:
    first = search(backend, text="red square", target="image", k=1)[0]
    store = backend.silos.nodes[first.silo].loaded("image").store
    code = Code(words=store.words([first.id])[0], bits=store.manifest.bits, model_digest=store.manifest.model_digest)
    everything = search(backend, code=code, target="image", k=100)
    expected = [place for place in places(everything) if place[:2] != (first.silo, first.id)]
    assert len(expected) == len(everything) - 1

    def similar(**options: Any) -> Hits:
        return asyncio.run(backend.similar(first.silo, first.id, SearchOptions(target="image", **options), "image"))

    whole = similar(k=100)
    assert places(whole) == expected
    pages = [similar(k=5, offset=offset) for offset in range(0, len(expected), 5)]
    assert [place for page in pages for place in places(page)] == expected
    last = pages[0].distances[-1]
    assert pages[0].ties_at_cut == sum(place[2] == last for place in expected) - pages[0].distances.count(last)


def test_an_item_is_found_by_either_of_its_codes(backend: LocalBackend) -> None:
    first = search(backend, text="red square", k=1)[0]
    by_text = asyncio.run(backend.similar(first.silo, first.id, SearchOptions(target="text", k=3), "text"))
    assert by_text.distances[0] == 0, "an item with the same text has the same code"
    by_either = asyncio.run(backend.similar(first.silo, first.id, SearchOptions(target="image", k=3)))
    by_picture = asyncio.run(backend.similar(first.silo, first.id, SearchOptions(target="image", k=3), "image"))
    assert places(by_either) == places(by_picture)


def test_an_item_shows_what_its_silo_releases(backend: LocalBackend) -> None:
    hit = search(backend, text="green frame", k=1)[0]
    item = asyncio.run(backend.item(hit.silo, hit.id))
    assert (item.id, item.silo, item.modalities) == (hit.id, hit.silo, ("image", "text"))
    assert (item.caption, item.labels, item.path) == (hit.caption, hit.labels, hit.path)
    assert item.preview_url == hit.preview_url != None  # noqa: E711
    assert item.path is not None
    assert item.path.name == f"{item.id}.png"
    for silo, name in ((hit.silo, "nothing"), ("silo-9", hit.id)):
        with pytest.raises(NotFound):
            asyncio.run(backend.item(silo, name))
        with pytest.raises(NotFound):
            asyncio.run(backend.similar(silo, name, SearchOptions()))


def test_the_status_describes_run_and_silos(backend: LocalBackend) -> None:
    status = asyncio.run(backend.status())
    assert (status.name, status.archive, status.bits, status.inputs) == ("run", "shapes", 32, ("image", "text"))
    assert [silo.name for silo in status.silos] == ["silo-1", "silo-2"]
    counts = [silo.items for silo in status.silos]
    assert all(set(count) == {"image", "text"} for count in counts)
    assert [record.round for record in status.rounds] == [0, 1]
    assert status.chosen_round in {0, 1}
    first = status.silos[0]
    assert (first.reachable, first.reason) == (True, "")
    assert first.fields == ("caption", "labels", "preview", "file")
    assert sum(first.labels[color] for color in ("red", "green", "blue", "yellow")) == first.items["image"]
    assert len({item.id for item in first.examples}) == len(first.examples) == 8
    assert all(item.preview_url and item.caption for item in first.examples)


def test_a_policy_limits_items_and_status(folder: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(folder, tmp_path / "run")
    (copied / "policies").mkdir()
    (copied / "policies" / "silo-1.toml").write_text('fields = []\nmodalities = ["image"]\n')
    backend = LocalBackend.open(copied)
    [name] = (
        backend.silos.nodes["silo-1"]
        .loaded("image")
        .store.item_ids(backend.silos.nodes["silo-1"].loaded("image").index.keys[:1])
    )
    item = asyncio.run(backend.item("silo-1", name))
    assert (item.modalities, item.caption, item.labels, item.preview_url, item.path) == (("image",), "", (), None, None)
    with pytest.raises(NotFound, match="does not have the code of a text"):
        asyncio.run(backend.similar("silo-1", name, SearchOptions(), "text"))
    status = asyncio.run(backend.status()).silos[0]
    assert (set(status.items), status.labels, status.fields) == ({"image"}, {}, ())
    assert "does not allow searching for texts" in status.reason
    assert status.reachable
    backend.close()


def test_a_silo_without_its_index_is_named(folder: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(folder, tmp_path / "run")
    for path in (copied / "index" / "silo-1").glob("*.sqlite*"):
        path.write_bytes(b"")
    backend = LocalBackend.open(copied)
    hits = search(backend, text="red square")
    assert set(hits.missing_silos) == {"silo-1"}
    assert set(hits.silos) == {"silo-2"}
    status = asyncio.run(backend.status()).silos[0]
    assert not status.reachable
    assert status.reason
    with pytest.raises(Unavailable, match=r"The silo silo-1 cannot be searched"):
        asyncio.run(backend.item("silo-1", "anything"))
    with pytest.raises(Unavailable):
        asyncio.run(backend.similar("silo-1", "anything", SearchOptions()))
    backend.close()


def test_examples_have_the_paths_of_their_pictures(folder: Path, backend: LocalBackend) -> None:
    silo = asyncio.run(backend.status()).silos[0]
    assert silo.examples
    assert all(item.path is not None and item.path.is_file() for item in silo.examples)
    without = LocalBackend(backend.silos.run, [*backend.silos.nodes.values()])
    without.silos.folders = {}
    assert all(item.path is None for item in asyncio.run(without.status()).silos[0].examples)
