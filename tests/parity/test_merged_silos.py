"""What the silos of a trained run answer together is what one index of all their items answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from silohash.base.types import MODALITIES, TARGETS, modalities_of
from silohash.index.flat import FlatIndex
from silohash.run.folder import Run
from silohash.run.indexing import index_run
from silohash.search.hits import Query
from silohash.search.order import question_key, tie_order
from silohash.search.silos import open_nodes
from tests.runs import train, write_archive
from tests.silos import ask, ask_run

pytestmark = pytest.mark.whole_run

SECRET = b"hub"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("merged")
    found = train(write_archive(folder / "archive", count=150, text="words"), folder / "run")
    index_run(found)
    return found


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("asked_by", MODALITIES)
@pytest.mark.parametrize("k", [1, 10, 1000])
def test_merged_answer_equals_one_pooled_index(run: Run, asked_by, target, k: int) -> None:
    archive, encoder = run.archive, run.model.encoder()
    items = archive.split("database")
    holder = {
        str(archive.ids[row]): silo.name for silo in run.partition.silos for row in silo.split(archive, "database")
    }
    ids = [str(name) for name in archive.ids[items]]
    silos = [holder[name] for name in ids]
    pooled = []
    for modality in modalities_of(target):
        pooled.append(FlatIndex(encoder.bits))
        pooled[-1].add(np.arange(len(items)), encoder.codes(archive, items, modality).words)
    nodes = open_nodes(run.index_folder)
    assert len(nodes) == 3
    for row in archive.split("query")[:5]:
        code = encoder.encode(archive.values(asked_by)[row], asked_by)
        query = Query(words=code.words[0], bits=code.bits, model_digest=code.model_digest, target=target, k=k)
        hits = ask(nodes, query, secret=SECRET)
        distances = dict.fromkeys(ids, encoder.bits + 1)
        for index in pooled:
            found = index.search(code.words, len(items))
            for key, distance in zip(found.keys[0], found.distances[0], strict=True):
                distances[ids[key]] = min(distances[ids[key]], int(distance))
        places = dict(zip(ids, tie_order(silos, ids, question_key(SECRET, [code.words[0]])), strict=True))
        expected = sorted(ids, key=lambda name: (distances[name], int(places[name])))
        assert list(hits.ids) == expected[:k]
        assert list(hits.silos) == [holder[name] for name in expected[:k]]
        assert list(hits.distances) == [distances[name] for name in expected[:k]]
        cut = distances[expected[:k][-1]]
        assert hits.ties_at_cut == sum(distances[name] == cut for name in expected[k:])
        assert not hits.missing_silos


def test_asking_a_run_is_asking_its_silos(run: Run) -> None:
    row = int(run.archive.split("query")[0])
    caption = run.archive.caption(row)
    hits = ask_run(run, caption, "text", "image", k=1000)
    code = run.model.encoder().encode(caption, "text")
    words = run.model.encoder().codes(run.archive, run.archive.split("database"), "image").words
    distances = np.bitwise_count(words ^ code.words).sum(axis=1)
    assert sorted(hits.distances) == np.sort(distances).tolist()
    assert hits.comparable


def test_silos_with_models_of_their_own_are_asked_by_their_own_codes(tmp_path: Path) -> None:
    run = train(write_archive(tmp_path / "archive", text="words"), tmp_path / "run", federated={"name": "local"})
    index_run(run)
    hits = ask_run(run, "parrot and zebra", "text", "image", k=100)
    assert not hits.comparable
    assert not hits.missing_silos
    assert len(hits) == len(run.archive.split("database"))
    for silo in run.partition.silos:
        encoder = run.model.encoder(silo.name)
        items = silo.split(run.archive, "database")
        words = encoder.codes(run.archive, items, "image").words
        near = np.bitwise_count(words ^ encoder.encode("parrot and zebra", "text").words).sum(axis=1)
        found = [d for d, name in zip(hits.distances, hits.silos, strict=True) if name == silo.name]
        assert found == sorted(near.tolist())
        ranks = [rank for rank, name in zip(hits.ranks, hits.silos, strict=True) if name == silo.name]
        assert ranks == [1 + int((near < distance).sum()) for distance in found]
