"""Example searches: they are those of a search across silos, drawn with the seed, and the stored file suffices."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from silohash.base.errors import DamagedFile
from silohash.base.types import database_target, query_modality
from silohash.index.codes import pack
from silohash.measure.evaluation import Evaluator
from silohash.report.examples import (
    OWN_PARTNER,
    SHARES_A_LABEL,
    ExampleHit,
    Examples,
    ExampleSearch,
    data_uri,
    distances_to,
    draw_examples,
    merged_hits,
    nearest,
    read_examples,
    released,
    write_examples,
)
from silohash.report.finish import finish_run
from silohash.run.config.load import load_resolved
from silohash.run.folder import Run
from silohash.run.indexing import index_run
from silohash.search.hits import Query
from silohash.search.order import tie_order
from silohash.search.silos import open_nodes
from silohash.training import experiment
from tests import runs
from tests.regions import matching_config, write_region_set
from tests.reports import item, made_up_examples
from tests.silos import ask_run


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.write_archive(tmp_path_factory.mktemp("data") / "archive")


@pytest.fixture(scope="module", params=["fedavg", "local"])
def trained(archive: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Run:
    run = runs.train(archive, tmp_path_factory.mktemp("runs") / "run", federated={"name": request.param, "rounds": 1})
    index_run(run)
    for node in open_nodes(run.index_folder):  # the first scan compiles the kernels, which may outlast a deadline
        code = run.model.encoder(run.model.deployed_by(node.name)).encode(np.zeros(runs.WIDTH, np.float32), "image")
        node.answer(Query(words=code.words[0], bits=code.bits, model_digest=code.model_digest, target="image"))
    return run


def evaluator(run: Run) -> Evaluator:
    return Evaluator(run, run.config.evaluate)


@pytest.mark.whole_run
def test_results_equal_those_of_a_search_across_silos(trained: Run) -> None:
    found = evaluator(trained)
    for task in ("t2i", "i2t", "t2item", "i2item"):
        asked = query_modality(task)
        for row in found.asked(found.rules[0], task)[:4]:
            value = np.asarray(trained.archive.values(asked)[row])
            hits = ask_run(trained, value, asked, database_target(task), k=7)
            assert hits.missing_silos == {}
            mine = merged_hits(found, int(row), task, k=7)
            assert (mine.ids, mine.silos, mine.distances, mine.ranks) == (
                hits.ids,
                hits.silos,
                hits.distances,
                hits.ranks,
            )
            assert mine.ties_at_cut == hits.ties_at_cut


@pytest.mark.whole_run
def test_searches_are_drawn_with_the_seed_and_not_by_their_results(trained: Run) -> None:
    examples = draw_examples(evaluator(trained))
    assert examples == draw_examples(evaluator(trained))
    assert [search.task for search in examples.searches] == ["t2i"] * 3 + ["i2t"] * 3
    assert "all 20 queries with the run's seed (0)" in examples.drawn
    split = {str(name) for name in trained.archive.ids[trained.archive.split("query")]}
    for search in examples.searches:
        assert search.query.item_id in split
        assert len(search.hits) == 5
        for hit in search.hits:
            assert hit.item.item_id not in split
            assert hit.relevant == bool(set(hit.item.labels) & set(search.query.labels))
            assert hit.item.silo in {silo.name for silo in trained.partition.silos}
            assert (hit.rank is None) == (trained.config.federated.name == "fedavg")
    assert len({search.query.item_id for search in examples.searches[:3]}) == 3


@pytest.mark.whole_run
def test_ignored_labels_make_nothing_relevant(archive: Path, tmp_path: Path) -> None:
    run = runs.train(archive, tmp_path / "run", federated={"rounds": 1}, evaluate={"ignore_labels": ["parrot", "tram"]})
    judged = [
        (set(search.query.labels) & set(hit.item.labels), hit.relevant)
        for search in draw_examples(evaluator(run)).searches
        for hit in search.hits
    ]
    assert all(relevant == bool(shared - {"parrot", "tram"}) for shared, relevant in judged)


@pytest.mark.whole_run
def test_without_labels_queries_search_each_other(archive: Path, tmp_path: Path, trained: Run) -> None:
    run = Run(trained.folder)
    bare = replace(trained.archive, labels=None, label_names=())
    run.__dict__.update(archive=bare, partition=trained.partition)
    examples = draw_examples(evaluator(run))
    assert examples.relevant == OWN_PARTNER
    assert draw_examples(evaluator(trained)).relevant == SHARES_A_LABEL
    split = {str(name) for name in bare.ids[bare.split("query")]}
    for search in examples.searches:
        assert {hit.item.item_id for hit in search.hits} <= split
        assert [hit.relevant for hit in search.hits] == [
            hit.item.item_id == search.query.item_id for hit in search.hits
        ]
    path = tmp_path / "examples.json"
    write_examples(path, examples)
    assert read_examples(path) == examples


@pytest.mark.whole_run
def test_model_of_one_modality_searches_within_it(tmp_path: Path) -> None:
    archive = runs.write_archive(tmp_path / "archive", text=None)
    run = runs.train(archive, tmp_path / "run", federated={"rounds": 1}, evaluate={"tasks": ["i2i"]})
    assert [search.task for search in draw_examples(evaluator(run)).searches] == ["i2i"] * 3


@pytest.mark.whole_run
def test_searches_for_items_are_shown_in_place_of_others(archive: Path, tmp_path: Path) -> None:
    tasks = ["i2t", "t2i", "i2item", "t2item"]
    run = runs.train(archive, tmp_path / "run", federated={"rounds": 1}, evaluate={"tasks": tasks})
    assert [search.task for search in draw_examples(evaluator(run)).searches] == ["t2item"] * 3 + ["i2item"] * 3


@pytest.mark.whole_run
def test_searches_by_unified_codes_are_shown_if_there_are_no_others(archive: Path, tmp_path: Path) -> None:
    run = runs.train(archive, tmp_path / "run", federated={"rounds": 1}, evaluate={"tasks": ["t2unified", "t2i"]})
    searched = Evaluator(run, run.config.evaluate)
    assert {search.task for search in draw_examples(searched).searches} == {"t2i"}
    only = Evaluator(run, run.config.evaluate.model_copy(update={"tasks": ("t2unified",)}))
    found = draw_examples(only).searches
    assert [search.task for search in found] == ["t2unified"] * 3
    assert all(len(search.hits) == 5 for search in found)


def test_nearest_items_are_ordered_by_distance_then_keyed_hash() -> None:
    outputs = np.ones((6, 16))
    for place, wrong in enumerate((2, 0, 1, 1, 1, 3)):
        outputs[place, :wrong] = -1
    words, ids = pack(outputs), list("abcdef")
    distances = distances_to(pack(np.ones((1, 16)))[0], words, 16)
    found = nearest(distances, ids, "north", 3, b"key")
    equal = sorted("cde", key=lambda name: int(tie_order(["north"], [name], b"key")[0]))
    assert found.ids == ("b", *equal[:2])
    assert found.distances == (0, 1, 1)
    assert found.silos == ("north",) * 3
    assert found.left_out == {1: 1}
    assert nearest(distances, ids, "north", 4, b"key").left_out == {}
    assert len(nearest(distances, ids, "north", 9, b"key")) == 6


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "1", "I;16"])
def test_photos_are_shrunk_and_stored_as_jpeg(mode: str) -> None:
    kind, _, content = data_uri(Image.new(mode, (640, 480))).partition(",")
    assert kind == "data:image/jpeg;base64"
    assert Image.open(io.BytesIO(base64.b64decode(content))).size == (160, 120)


def test_small_pictures_are_stored_without_loss() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (64, 32), np.uint8)
    kind, _, content = data_uri(Image.fromarray(pixels)).partition(",")
    assert kind == "data:image/png;base64"
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(base64.b64decode(content)))), pixels)
    assert data_uri(Image.new("L", (65, 10))).startswith("data:image/jpeg")


def test_examples_come_back_from_their_file(tmp_path: Path) -> None:
    examples = made_up_examples()
    write_examples(tmp_path / "examples.json", examples)
    assert read_examples(tmp_path / "examples.json") == examples
    assert read_examples(tmp_path / "none.json") is None


def changed(path: Path, change) -> None:
    write_examples(path, made_up_examples())
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda content: content.pop("searches"), "searches: field required"),
        (lambda content: content["searches"][0].pop("query"), "searches.0.query: field required"),
        (lambda content: content["searches"][0].update(hits=1), "searches.0.hits: input should be a valid"),
        (
            lambda content: content["searches"][0]["query"].update(picture="https://example.org/a.png"),
            "is not embedded",
        ),
        (
            lambda content: content["searches"][0]["query"].update(picture='data:image/png;base64,A" x="'),
            "not embedded",
        ),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, change, reason: str) -> None:
    path = tmp_path / "examples.json"
    changed(path, change)
    with pytest.raises(DamagedFile, match=f"examples.json is damaged .*{reason}.*silohash evaluate"):
        read_examples(path)


def policy(folder: Path, silo: str, text: str) -> None:
    (folder / f"{silo}.toml").write_text(text, encoding="utf-8")


def test_policies_hide_what_they_do_not_release(tmp_path: Path) -> None:
    examples = made_up_examples()
    assert released(examples, tmp_path) == examples
    policy(tmp_path, "south", 'fields = ["caption"]')
    first = released(examples, tmp_path).searches[0]
    assert first.query == examples.searches[0].query
    south = first.hits[1].item
    assert (south.item_id, south.text, south.picture, south.labels) == ("answer 1", "text answer 1", "", ())
    policy(tmp_path, "south", 'fields = ["preview", "labels"]')
    south = released(examples, tmp_path).searches[0].hits[1].item
    assert (south.text, bool(south.picture), south.labels) == ("", True, ("arrow",))
    policy(tmp_path, "north", "fields = []")
    assert released(examples, tmp_path).searches[0].query.text == ""


@pytest.mark.parametrize("text", ["rank_only = true", "code_noise = 0.1", "distance_step_bits = 2"])
def test_distances_that_a_policy_changes_are_not_shown(tmp_path: Path, text: str) -> None:
    before = made_up_examples().searches[0].hits
    policy(tmp_path, "north", text)
    after = released(made_up_examples(), tmp_path).searches[0].hits
    for hit, was in zip(after, before, strict=True):
        hides = was.item.silo == "north"
        assert (hit.distance_bits, hit.nearness) == ((None, "") if hides else (was.distance_bits, was.nearness))
    assert {hit.distance_bits is None for hit in after} == {True, False}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("max_distance_bits = 2", [0, 1, 2]),
        ("max_distance_bits = 1", [0, 1]),
        ("max_results = 2", [0, 1, 2]),
        ("max_results = 1", [0, 1]),
        ('modalities = ["text"]', [1]),
        ('modalities = ["image"]', [0, 1, 2]),
    ],
)
def test_policies_limit_the_results(tmp_path: Path, text: str, kept: list[int]) -> None:
    policy(tmp_path, "north", text)
    assert [hit.distance_bits for hit in released(made_up_examples(), tmp_path).searches[0].hits] == kept


def test_silos_of_the_examples_are_named_once_in_order_of_appearance():
    hits = (ExampleHit(item=item("b", silo="west"), distance_bits=1), ExampleHit(item=item("c"), distance_bits=2))
    searches = (
        ExampleSearch(task="t2i", query=item("a", silo="north"), hits=hits),
        ExampleSearch(task="i2t", query=item("d", silo="east"), hits=hits),
    )
    assert Examples(searches=searches).silos == ["north", "west", "east"]
    assert Examples().silos == []


@pytest.mark.whole_run
@pytest.mark.parametrize("federated", ["fedavg", "local"])
def test_a_model_that_scores_pairs_shows_its_first_results_and_all_partners(
    federated: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SILOHASH_DATA", str(write_region_set(tmp_path / "data", pictures=48)))
    settings = {"name": federated, "rounds": 1, "local_epochs": 1}
    run = experiment.train(load_resolved(matching_config(federated=settings)), tmp_path / "run")
    found = evaluator(run)
    examples = draw_examples(found)
    assert examples.relevant == OWN_PARTNER
    assert [search.task for search in examples.searches] == ["t2i"] * 3 + ["i2t"] * 3
    rows = {str(name): row for row, name in enumerate(run.archive.ids)}
    assert found.scores is not None
    for search in examples.searches:
        ranks = [hit.rank for hit in search.hits if hit.rank is not None]
        partners = [hit for hit in search.hits if hit.relevant]
        assert ranks[:5] == [1, 2, 3, 4, 5]
        assert len(partners) == (1 if search.task == "t2i" else 5)
        assert all(hit.relevant for hit in search.hits[5:])
        query = rows[search.query.item_id]
        items = found.searched(found.rules[0], search.task)
        model = run.model.deployed_by(search.query.silo)
        scores = found.scores.of_model(search.task, model, np.array([query]), items).values[0]
        for hit, rank in zip(search.hits, ranks, strict=True):
            score = scores[items == rows[hit.item.item_id]][0]
            assert hit.score == pytest.approx(float(score))
            assert (scores > score).sum() < rank <= (scores >= score).sum()
            assert bool(hit.item.picture) == (search.task == "t2i")
    write_examples(tmp_path / "examples.json", examples)
    assert read_examples(tmp_path / "examples.json") == examples
    found.rules[0].by = "labels"
    assert {len(search.hits) for search in draw_examples(found).searches} == {5}
    finish_run(run)
    page = run.report_path.read_text(encoding="utf-8")
    late = sum(hit.rank is not None and hit.rank > 5 for search in examples.searches for hit in search.hits)
    assert page.count("own partner, further down") == late > 0
    assert "score 0." in page or "score -0." in page
