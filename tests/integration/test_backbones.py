"""Runs over published backbones, frozen and trained on, from picture files to codes of later queries."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from silohash.base.errors import UserError

pytest.importorskip("transformers")


from silohash.data.partitions.base import partition
from silohash.measure.evaluation import evaluate_run
from silohash.models.huggingface import read_backbone
from silohash.run.config.load import load_config, resolve
from silohash.run.folder import Run, archive_of
from silohash.training.experiment import prepare_run
from silohash.training.prepared import Prepared
from silohash.training.worker import Worker
from tests import backbones
from tests.runs import labels_of, silohash, tiny_config, train, write_metadata

COUNT = 36


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("SILOHASH_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "archive"
    pictures, texts, labels = backbones.jpegs(folder, COUNT), backbones.sentences(COUNT), labels_of(COUNT, 4)
    rows = [
        {
            "id": f"item-{number:03d}",
            "file_name": pictures.names[number],
            "text": str(texts[number]),
            "labels": "|".join(backbones.WORDS[column] for column in np.flatnonzero(labels[number])),
            "split": "query" if number % 6 == 0 else "train",
        }
        for number in range(COUNT)
    ]
    write_metadata(folder, rows)
    return folder


def sections(folder: Path, *, freeze: bool = False) -> dict[str, dict[str, object]]:
    backbone = {"backbone": "huggingface", "model": str(folder), "freeze": freeze}
    return {
        "features": {
            "image": {"kind": "pixels", "size": backbones.SIDE, "channels": 3},
            "text": {"kind": "tokens", "model": str(folder), "length": 10},
        },
        "model": {"image": backbone, "text": backbone},
        "partition": {"silos": 2},
        "federated": {"rounds": 2, "local_epochs": 1},
        "evaluate": {"measures": ["mAP@all"], "evaluations": ["GG"], "validation": 0.0},
    }


def codes(run: Run) -> np.ndarray:
    return run.model.encoder().codes(run.archive, np.arange(COUNT), "image").words


@pytest.mark.whole_run
@pytest.mark.parametrize("freeze", [False, True])
def test_towers_trained_on_from_a_published_model(archive, tmp_path, freeze):
    folder = backbones.clip(tmp_path / "clip")
    published, _ = read_backbone(folder, torch.zeros(1, 3, backbones.SIDE, backbones.SIDE), "image", "auto")
    run = train(archive, tmp_path / "run", **sections(folder, freeze=freeze))
    params = run.model.trained.weights["global"].params
    start = "image.backbone.network."
    kept = {name.removeprefix(start): array for name, array in params.items() if name.startswith(start)}
    assert kept.keys() == published.state_dict().keys()
    same = [np.array_equal(array, published.state_dict()[name]) for name, array in kept.items()]
    assert all(same) if freeze else sum(same) < len(same) / 2
    distances = [np.abs(array - published.state_dict()[name].numpy()).max() for name, array in kept.items()]
    assert max(distances) < 0.2
    before = codes(run)
    shutil.rmtree(folder)
    again = Run(run.folder)
    np.testing.assert_array_equal(codes(again), before)
    assert again.model.encoder().encode("two red parrots", "text").words.shape == (1, 1)
    assert evaluate_run(again).rows


def test_workers_start_from_the_published_weights_without_the_folder(archive, tmp_path):
    folder = backbones.clip(tmp_path / "clip")
    run = Run(tmp_path / "run")
    config = tiny_config(archive, **sections(folder))
    opened = archive_of(config.data)
    prepared, _ = prepare_run(opened, partition(opened, "iid", 2, 0), resolve(config))
    here = Worker(prepared, torch.device("cpu"))
    run.folder.mkdir()
    prepared.save(run.folder)
    shutil.rmtree(folder)
    there = Worker(Prepared.load(run.folder), torch.device("cpu"))
    for name, values in here.model.state_dict().items():
        torch.testing.assert_close(there.model.state_dict()[name], values, rtol=0, atol=0)
    embedded = prepared.published["text/network.text_model.embeddings.token_embedding.weight"]
    found = there.model.state_dict()["text.backbone.network.network.text_model.embeddings.token_embedding.weight"]
    np.testing.assert_array_equal(found, embedded)


@pytest.mark.whole_run
def test_a_second_run_encodes_nothing_again(archive, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("SILOHASH_CACHE", str(tmp_path / "cache"))
    folder = backbones.clip(tmp_path / "clip")
    frozen = {"kind": "huggingface", "model": str(folder)}
    settings = {**sections(folder), "features": {"image": frozen, "text": frozen}, "model": {}}
    monkeypatch.setattr("silohash.features.network.REPORTED_ITEMS", 1)
    first = train(archive, tmp_path / "first", **settings)
    before = codes(first)
    assert "Encoding 15 pictures with" in capsys.readouterr().err
    np.testing.assert_array_equal(codes(train(archive, tmp_path / "second", **settings)), before)
    assert "Encoding" not in capsys.readouterr().err
    code = first.model.encoder().encode("two red parrots", "text").words
    shutil.rmtree(folder)  # the cache holds the network for queries
    np.testing.assert_array_equal(Run(first.folder).model.encoder().encode("two red parrots", "text").words, code)
    shutil.rmtree(tmp_path / "cache" / "onnx")
    with pytest.raises(UserError, match=r"the folder .* does not exist"):
        Run(first.folder).model.encoder().encode("two red parrots", "text")


@pytest.mark.whole_run
def test_tokens_of_clip_from_training_to_a_search(archive, tmp_path, capsys):
    clip = {"kind": "huggingface", "model": str(backbones.clip(tmp_path / "clip")), "pooling": "tokens"}
    settings = {**sections(tmp_path), "features": {"image": clip, "text": {**clip, "length": 8}}, "model": {}}
    run = train(archive, tmp_path / "run", **{**settings, "local": {"name": "mith", "layers": 1}})
    assert "ONNX" not in capsys.readouterr().err
    spec = run.model.trained.spec.towers
    assert {m: (tower.kind, tower.shape) for m, tower in spec.items()} == {
        "image": ("tokens", (17, 10)), "text": ("tokens", (9, 10))
    }  # fmt: skip
    assert evaluate_run(run).rows
    assert silohash("index", run.folder).code == 0
    row = int(run.archive.split("database")[3])
    text, picture = str(run.archive.text[row]), archive / run.archive.image.names[row]
    for query, found in (([text], "text"), (["--image", picture], "image")):
        done = silohash("search", run.folder, *query, "--find", found, "-k", COUNT, "--json")
        assert done.code == 0, done.err
        hits = {hit["id"]: hit["distance_bits"] for hit in done.document()["hits"]}
        assert hits[str(run.archive.ids[row])] == 0
    encoder = run.model.trained.encoder()
    for modality in ("image", "text"):
        rows = np.arange(COUNT)
        stored, again = (model.codes(run.archive, rows, modality).words for model in (run.model.encoder(), encoder))
        np.testing.assert_array_equal(stored, again)


@pytest.mark.whole_run
def test_tokens_need_a_tower_for_them(archive, tmp_path):
    folder = backbones.clip(tmp_path / "clip")
    with pytest.raises(UserError, match="requires a text tower that is fine-tuned from a published network"):
        train(archive, tmp_path / "run", **{**sections(folder), "model": {}})


def test_models_lie_where_the_config_says(archive, tmp_path, monkeypatch):
    folder = backbones.clip(tmp_path / "models" / "clip")
    (tmp_path / "recipes").mkdir()
    config = tmp_path / "recipes" / "run.toml"
    tables = tiny_config(archive, **sections(folder)).to_toml().replace(str(folder), "../models/clip")
    config.write_text(tables, encoding="utf-8")
    read = load_config(config)
    assert read.features.text["model"] == read.model.image["model"] == str(folder)
    config.write_text(tables.replace("../models/clip", "openai/clip-vit-base-patch32"), encoding="utf-8")
    assert load_config(config).model.text["model"] == "openai/clip-vit-base-patch32"
    monkeypatch.chdir(tmp_path)
    over = load_config(config, ["model.text.model=models/clip"])
    assert over.model.text["model"] == str(folder)
