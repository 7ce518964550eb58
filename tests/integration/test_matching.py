"""Methods that score pairs, through the command line: they train, are measured and reported, indexed and searched."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from silohash.base.files import read_arrays
from silohash.features.vectors import vectors
from silohash.index.store import Store
from silohash.models.matching_net import nodes_of, scores_of
from silohash.report.tables import read_results
from silohash.run.config.toml import to_toml
from silohash.run.folder import Run
from silohash.run.model.scores import ArchiveScores
from silohash.search.hits import SearchOptions
from silohash.search.requests import SearchRequest
from silohash.service.backends import LocalBackend
from silohash.service.web.cards import hit_cards
from silohash.service.web.language import language
from tests import backbones
from tests.detectors import detector
from tests.regions import THINGS, matching_config, write_region_set, write_split
from tests.runs import same_arrays, silohash

SCAN: dict[str, object] = {"name": "scan", "bits": 32, "direction": "t2i"}
OWN: dict[str, dict[str, object]] = {
    "federated": {"name": "local", "rounds": 1},
    "evaluate": {"evaluations": ["PL", "PG", "XS"]},
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the data and the runs that tests only look at."""
    folder = tmp_path_factory.mktemp("matching")
    write_region_set(folder / "data")
    return folder


@pytest.fixture
def folder(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SILOHASH_DATA", str(shared / "data"))
    return tmp_path


@pytest.fixture
def run(folder: Path, shared: Path) -> Run:
    """A run that is trained once, and is not to be changed."""
    measures = ["R@1[by=pairs]", "RSum[by=pairs]", "R@10[by=scores]", "R@25[by=scores]"]
    return once(shared, "run", evaluate={"measures": measures}, local={"bits": 32})


def once(shared: Path, name: str, **sections: dict[str, object]) -> Run:
    """Train a run unless a test has trained it, and return it."""
    return Run.open(shared / name) if (shared / name).exists() else trained(shared, name, **sections)


def trained(folder: Path, name: str, **sections: dict[str, object]) -> Run:
    """Train a run by its command, and return it."""
    config = folder / f"{name}.toml"
    config.write_text(to_toml(matching_config(**sections)))
    said = silohash("train", config, "--out", folder / name)
    assert said.code == 0, said.err
    return Run.open(folder / name)


def test_a_matching_run_is_measured_by_scores(run: Run) -> None:
    found = {(row.task, row.measure): row for row in read_results(run.results_path) if row.evaluation == "GG"}
    for task in ("i2t", "t2i"):
        recall, total = found[task, "R@1[by=pairs]"], found[task, "RSum[by=pairs]"]
        assert total.value > 3 * total.prior
        assert recall.value <= total.value <= 3
        assert (recall.bits, recall.database_code) == (0, "scores of pairs of the items of the split query")
        assert recall.round_by == "validation on pairs"
    assert found["i2t", "R@1[by=pairs]"].queries == 25
    assert found["t2i", "R@1[by=pairs]"].queries == 125
    assert "for candidates; scores of pairs are measured" in run.report_path.read_text()
    assert "scores pairs of a picture and a text" in (run.model_folder / "card.md").read_text()
    again = silohash("evaluate", run.folder, "--json", "--measure", "R@5[by=pairs]")
    assert {row["measure"] for row in json.loads(again.out)["results"]} == {"R@5[by=pairs]"}


def test_a_text_finds_the_pictures_with_the_highest_scores(run: Run) -> None:
    text = "A dog and a cat and a boat."
    said = silohash("search", run.folder, text, "-k", "375", "--json", "--candidates", "75")
    found = json.loads(said.out)
    assert found["order"] == "score"
    assert found["missing_silos"] == found["limited_silos"] == {}
    hits = {hit["id"]: hit["score"] for hit in found["hits"]}
    assert list(hits.values()) == sorted(hits.values(), reverse=True)
    archive, network = run.archive, run.model.trained.network()
    rows = archive.split("database")
    assert set(hits) == set(archive.ids[rows].tolist())
    featurizers = run.model.featurizers
    regions = torch.from_numpy(vectors(archive, featurizers["image"], rows))
    words = torch.from_numpy(featurizers["text"].encode_one(text))
    exact = scores_of(network, nodes_of(network, regions, "image"), nodes_of(network, words, "text"))[:, 0]
    for name, score in zip(archive.ids[rows].tolist(), exact.tolist(), strict=True):
        assert hits[name] == pytest.approx(score, abs=5e-3)
    few = json.loads(silohash("search", run.folder, text, "-k", "5", "--json", "--candidates", "1").out)["hits"]
    assert len({hit["id"].split("#")[0] for hit in few}) <= len(run.silo_names)
    said = silohash("search", run.folder, f"{text} -zebra -boat", "-k", "375", "--json", "--candidates", "75")
    kept = {hit["id"]: hit["score"] for hit in json.loads(said.out)["hits"]}
    without = {hit["id"]: hit["score"] for hit in found["hits"] if "boat" not in hit["caption"]}
    assert kept == pytest.approx(without, abs=1e-5)
    assert len(kept) < len(hits)


def test_regions_find_texts_and_codes_find_the_same_modality(folder: Path, shared: Path) -> None:
    run = once(shared, "t2i", local=SCAN)
    row = int(run.archive.split("query")[0])
    np.save(folder / "regions.npy", run.archive.image.of(np.array([row]))[0])
    found = json.loads(silohash("search", run.folder, "--vector", folder / "regions.npy", "--json").out)
    assert found["order"] == "score"
    assert {side for hit in found["hits"] for side in hit["found_by"]} == {"text"}
    alike = json.loads(silohash("search", run.folder, "A dog.", "--find", "text", "--json").out)
    assert alike["order"] == "outputs"
    assert not any("score" in hit for hit in alike["hits"])


def test_the_search_page_scores_pictures(run: Run) -> None:
    backend = LocalBackend.open(run.folder)
    try:
        hits = asyncio.run(backend.search(SearchRequest(k=3, value="A dog and a cat.")))
        status = asyncio.run(backend.status())
        [card, *_] = hit_cards(hits, status, language("en"))
        alike = asyncio.run(backend.similar(hits.silos[0], hits.ids[0], SearchOptions(k=2)))
    finally:
        backend.close()
    assert hits.order == "score"
    assert not hits.missing_silos
    assert card.distance == f"score {hits.scores[0]:.3f}"
    assert alike.order == "distance"


@pytest.mark.whole_run
def test_parses_of_the_texts_are_the_edges_of_the_sparse_graph(folder: Path) -> None:
    local = {"name": "gsmn", "graph": "sparse", "blocks": 4, "bits": 32}
    short = {"rounds": 1, "local_epochs": 1}
    plain = trained(folder, "window", local=local, federated=short)
    captions = [plain.archive.caption(row) for row in range(len(plain.archive))]
    parses = [
        json.dumps({"text": text, "words": text.rstrip(".").split(), "heads": [2, 0, *[1] * (text.count(" ") - 1)]})
        for text in captions[::2]
    ]
    (folder / "parses.jsonl").write_text("\n".join(parses))
    text = {"kind": "words", "length": 12, "parses": str(folder / "parses.jsonl")}
    run = trained(folder, "parsed", local=local, federated=short, features={"text": text})
    edges = np.load(run.index_folder / run.silo_names[0] / "text-nodes/edges.npy")
    assert edges.shape[1:] == (12, 12)
    assert len({int(each.sum()) for each in edges}) > 1, (
        "some texts have the edges of a parse, others those of a window"
    )
    [first, second] = (read_arrays(each.model_folder / "weights-000.safetensors")[0] for each in (plain, run))
    assert not same_arrays(first, second)
    found = json.loads(silohash("search", run.folder, "A dog and a cat.", "--json").out)
    assert found["order"] == "score"
    assert found["limited_silos"] == {}
    refused = folder / "refused.toml"
    refused.write_text(to_toml(matching_config(features={"text": text})))
    said = silohash("train", refused, "--out", folder / "refused")
    assert said.code == 2
    assert 'features.text.parses has no effect on local.name "vsepp"' in said.err


def test_removed_items_leave_no_regions_behind(run: Run, folder: Path) -> None:
    run = Run.open(shutil.copytree(run.folder, folder / "removed"))
    silo = run.silo_names[0]
    with Store(run.index_folder / silo / "image.sqlite") as store:
        ids = store.item_ids(np.arange(len(store)))
    nodes = np.load(run.index_folder / silo / "image-nodes/values.npy")
    assert nodes.any(axis=(1, 2)).all()
    assert silohash("index", run.folder, "--remove", ",".join(ids)).code == 0
    assert not np.load(run.index_folder / silo / "image-nodes/values.npy").any()


def test_the_first_stage_is_measured(run: Run) -> None:
    found = {row.measure: row for row in read_results(run.results_path) if row.task == "t2i"}
    some, every = found["R@10[by=scores]"], found["R@25[by=scores]"]
    assert some.bits == 32
    assert some.database_code == "one view of the items of the split query"
    assert 1.5 * some.prior < some.value < 1
    assert every.value == 1


@pytest.mark.whole_run
def test_codes_cannot_be_compared_with_scores_that_do_not_exist(folder: Path) -> None:
    config = folder / "hashing.toml"
    config.write_text(
        to_toml(
            {
                "data": {"name": "flickr8k-1k", "options": {"image": "regions"}},
                "local": {"name": "dgcpn"},
                "evaluate": {"measures": ["R@1[by=scores]"]},
            }
        )
    )
    said = silohash("train", config, "--out", folder / "hashing")
    assert said.code == 2
    assert 'local.name = "dgcpn" has only codes' in said.err


@pytest.mark.whole_run
def test_scores_are_measured_by_labels(tmp_path: Path, shared_data: Path) -> None:
    data = {"name": "nlvr-graphs", "options": {"image": "scene", "labels": "true"}}
    config = matching_config(data=data, federated={"rounds": 1}, evaluate={"measures": ["mAP@all"]})
    (tmp_path / "run.toml").write_text(to_toml(config))
    said = silohash("train", tmp_path / "run.toml", "--out", tmp_path / "run")
    assert said.code == 0, said.err
    found = {(row.evaluation, row.task): row for row in read_results(tmp_path / "run/results.csv")}
    assert found["GG", "t2i"].value > 1.5 * found["GG", "t2i"].prior
    assert found["GG", "t2i"].database_code == "scores of pairs"


def test_scores_of_runs_are_averaged(folder: Path, shared: Path) -> None:
    first = once(shared, "t2i", local=SCAN)
    second = trained(folder, "i2t", local={**SCAN, "direction": "i2t"})
    said = silohash("evaluate", first.folder, "--with", second.folder, "--measure", "MedR[by=pairs]", "--json")
    [found] = [row for row in json.loads(said.out)["results"] if (row["task"], row["evaluation"]) == ("t2i", "GG")]
    archive, queries = first.archive, first.archive.split("query")
    pictures = queries[::5]
    mean = sum(
        ArchiveScores(run.model, archive).of_model("t2i", "global", queries, pictures).values for run in (first, second)
    )
    ranks = [1 + (scores > scores[place // 5]).sum() for place, scores in enumerate(mean)]
    assert found["value"] == np.median(ranks)
    other = once(shared, "own", **OWN)
    refused = silohash("evaluate", first.folder, "--with", other.folder)
    assert refused.code == 2
    assert "does not have one model for all silos that scores pairs" in refused.err


def test_fedbignns_weights_silos_by_size_and_recall(folder: Path) -> None:
    nested = {"kind": "nested", "silos": 2, "fractions": [0.5, 1.0]}
    federated = {"name": "fedbignns", "rounds": 2}
    run = trained(folder, "weighted", federated=federated, partition=nested)
    assert all(record.validation is not None for record in run.rounds())
    alone = trained(folder, "by-size", federated={**federated, "weighting": "examples"}, partition=nested)
    [first, second] = (read_arrays(each.model_folder / "weights-000.safetensors")[0] for each in (run, alone))
    assert not same_arrays(first, second)


def test_silos_can_keep_models_of_their_own(folder: Path, shared: Path) -> None:
    run = once(shared, "own", **OWN)
    assert {row.evaluation for row in read_results(run.results_path)} == {"PL", "PG"}


@pytest.mark.whole_run
@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"local": {"name": "dgcpn", "word_width": None}}, '"regions" gives several nodes per item'),
        ({"features": {"text": {"kind": "tfidf"}}}, 'features.text are "tfidf"'),
    ],
)
def test_features_of_the_other_kind_are_refused(
    folder: Path, sections: dict[str, dict[str, object]], message: str
) -> None:
    config = matching_config(**sections)
    config["local"] = {name: value for name, value in config["local"].items() if value is not None}
    (folder / "run.toml").write_text(to_toml(config))
    said = silohash("train", folder / "run.toml", "--out", folder / "run")
    assert said.code == 2
    assert message in said.err


def test_archives_of_region_arrays_are_trained_and_searched(tmp_path: Path) -> None:
    files = tmp_path / "coco"
    files.mkdir()
    for part, pictures in (("train", 24), ("test", 8)):
        write_split(files, part, pictures)
        np.save(files / f"{part}_boxes.npy", np.tile([0.0, 0.0, 0.5, 1.0], (pictures, 4, 1)))
    options = {"root": str(files), "captions": "each", "parts": "train|test"}
    config = matching_config(
        data={"name": "coco", "protocol": "default", "options": options},
        federated={"rounds": 1, "local_epochs": 1},
    )
    (tmp_path / "run.toml").write_text(to_toml(config))
    assert silohash("train", tmp_path / "run.toml", "--out", tmp_path / "run").code == 0
    assert silohash("search", tmp_path / "run", "caption").code == 0
    # Without regions, the error says so. It does not ask to change the validation.
    said = silohash("train", tmp_path / "run.toml", "--out", tmp_path / "no", "--set", "data.options.regions=none")
    assert said.err.splitlines()[-1].strip() == "[modality-needed]"
    assert "data.options.regions" in said.err
    assert "evaluate.validation" not in said.err


def test_regions_are_found_in_own_pictures(tmp_path: Path) -> None:
    files = tmp_path / "own"
    pictures = backbones.jpegs(files, 24)
    lines = [f"{name},a {THINGS[number % 4]}" for number, name in enumerate(pictures.files) for _ in range(2)]
    (files / "metadata.csv").write_text("\n".join(["file_name,text", *lines]) + "\n")
    detector(tmp_path / "d.onnx", [[0.0, 0.0, 0.5, 1.0], [0.5, 0.0, 1.0, 1.0]], [0.9, 0.8])
    # The path of the detector is relative to the config.
    image = {"kind": "picture_regions", "detector": "d.onnx", "vectors": "colors", "regions": 4}
    config = matching_config(
        features={"image": image, "text": {"kind": "words", "length": 12}},
        federated={"rounds": 1, "local_epochs": 1},
    )
    config["data"] = {"path": str(files)}
    (tmp_path / "run.toml").write_text(to_toml(config))
    said = silohash("train", tmp_path / "run.toml", "--out", tmp_path / "run")
    assert said.code == 0, said.err
    found = silohash("search", tmp_path / "run", "--image", files / "0003.jpg", "--find", "text", "--json")
    assert found.code == 0, found.err
    assert json.loads(found.out)["hits"]
    # Both texts of a picture share its regions.
    stored = np.load(next((tmp_path / "run" / "index").glob("*/image-nodes/places.npy")))
    assert len(set(stored.tolist())) == len(stored) / 2
