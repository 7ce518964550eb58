"""The trained model in memory: its digest, its encoders, and the folder that it writes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from silohash.base.errors import DamagedFile, UnknownName
from silohash.base.files import digest_file, read_arrays
from silohash.base.types import MODALITIES, Modality
from silohash.methods.federated.base import ServerState
from silohash.methods.traits import Traits
from silohash.run.folder import Run
from silohash.run.model.saved import SavedModel
from silohash.run.model.trained import GLOBAL, SavedTowers, TrainedModel, Weights, deployed_weights
from tests.runs import BITS, same_arrays, train, write_archive


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("encoder")
    return train(write_archive(folder / "archive", text="words"), folder / "run", federated={"rounds": 1})


@pytest.fixture(scope="module")
def trained(run: Run) -> TrainedModel:
    return run.model.trained


@pytest.mark.whole_run
@pytest.mark.parametrize("modality", MODALITIES)
def test_round_trip_gives_the_same_codes_bit_for_bit(
    run: Run, trained: TrainedModel, tmp_path: Path, modality: Modality
) -> None:
    rows = run.archive.split("database")
    before = trained.encoder().codes(run.archive, rows, modality)
    trained.save(tmp_path / "model")
    read = SavedModel.open(tmp_path / "model")
    after = read.encoder().codes(run.archive, rows, modality)
    assert before.model_digest == after.model_digest
    assert np.array_equal(before.words, after.words)
    assert (after.bits, after.modality, list(after.ids)) == (BITS, modality, list(run.archive.ids[rows]))
    assert same_arrays(trained.weights["global"].params, read.trained.weights["global"].params)
    assert read.trained.config == run.config
    assert read.record.round == trained.round


@pytest.mark.whole_run
def test_digest_changes_with_any_weight_and_with_what_comes_before_the_tower(run: Run, trained: TrainedModel) -> None:
    digests = {trained.digest()}
    weights = trained.weights["global"]
    for name in weights.params:
        params = {key: array.copy() for key, array in weights.params.items()}
        params[name].reshape(-1)[-1] += 1e-3
        digests.add(replace(trained, weights={"global": Weights(params, {})}).digest())
    assert len(digests) == 1 + len(weights.params)
    given = trained.featurizers["image"]
    shifted = replace(given, summed={**given.summed, "sum": given.summed["sum"] + 1})
    digests.add(replace(trained, featurizers={**trained.featurizers, "image": shifted}).digest())
    extra = replace(trained, weights={"global": Weights(weights.params, {"memory": np.zeros(2)})})
    digests.add(extra.digest())
    assert len(digests) == 3 + len(weights.params)
    assert trained.digest() == trained.encoder().digest == run.model.digest("global")


@pytest.mark.whole_run
def test_models_that_there_are_not(trained: TrainedModel) -> None:
    with pytest.raises(UnknownName, match=r"north.*global"):
        trained.encoder("north")


@pytest.mark.whole_run
def test_files_of_a_model(run: Run) -> None:
    names = sorted(path.name for path in run.model_folder.iterdir())
    assert names == [
        *("features-image.safetensors", "features-text.safetensors", "image-000.onnx", "model.json"),
        *("text-000.onnx", "weights-000.safetensors"),
    ]
    arrays, _ = read_arrays(run.model_folder / "weights-000.safetensors")
    assert {name.split("/")[0] for name in arrays} == {"params"}
    digests = json.loads((run.model_folder / "model.json").read_text())["digests"]
    assert digests == {name: digest_file(run.model_folder / name) for name in names if name != "model.json"}


@pytest.mark.whole_run
def test_towers_are_written_beside_the_weights_and_go_with_an_earlier_model(
    trained: TrainedModel, tmp_path: Path
) -> None:
    towers = SavedTowers({"image-000.onnx": b"tower"}, {"global": {"image": {"items": 3}}})
    trained.save(tmp_path / "model", towers)
    assert (tmp_path / "model" / "image-000.onnx").read_bytes() == b"tower"
    assert json.loads((tmp_path / "model" / "model.json").read_text())["onnx"] == towers.record
    trained.save(tmp_path / "model", SavedTowers(reason="The package onnx is not installed."))
    assert not (tmp_path / "model" / "image-000.onnx").exists()
    record = json.loads((tmp_path / "model" / "model.json").read_text())
    assert (record["onnx"], record["without_onnx"]) == ({}, "The package onnx is not installed.")


@pytest.mark.whole_run
def test_weights_of_another_shape_are_not_installed(trained: TrainedModel) -> None:
    weights = trained.weights["global"]
    other = Weights({**weights.params, "image.hash.bias": np.zeros(5, np.float32)}, {})
    with pytest.raises(DamagedFile):
        replace(trained, weights={"global": other}).encoder()


@pytest.mark.whole_run
def test_an_encoder_runs_on_the_device_that_is_asked_for(trained: TrainedModel) -> None:
    for device in (None, torch.device("cpu", 0)):
        towers = trained.encoder(device=device).towers
        assert towers.device == (device or torch.device("cpu"))  # type: ignore[attr-defined]


def weights(value: float = 1.0) -> Weights:
    return Weights({"image.hash.bias": np.full(3, value, np.float32)}, {"memory": np.ones((2, 3), np.float32)})


def test_the_digest_covers_parameters_extras_and_what_comes_before_them() -> None:
    digests = {
        weights().digest("towers"),
        weights(2.0).digest("towers"),
        weights().digest("other towers"),
        Weights(weights().params, {}).digest("towers"),
        Weights(weights().params, {"memory": np.zeros((2, 3), np.float32)}).digest("towers"),
        Weights(weights().extras, weights().params).digest("towers"),
    }
    assert len(digests) == 6
    assert weights().digest("towers") == weights().digest("towers")


def test_files_keep_parameters_and_extras_apart(tmp_path: Path) -> None:
    both = Weights({"memory": np.zeros(1, np.float32)}, {"memory": np.ones(1, np.float32)})
    both.write(tmp_path / "weights.safetensors")
    read = Weights.read(tmp_path / "weights.safetensors")
    assert same_arrays(read.params, both.params)
    assert same_arrays(read.extras, both.extras)
    assert read.digest("") == both.digest("")


def test_a_run_ends_with_global_and_personal_weights_and_only_the_extras_of_encoding() -> None:
    method = SimpleNamespace(traits=Traits(encode_extras=("memory", "absent")))
    server = ServerState({"w": np.zeros(1)}, {"memory": np.ones(2), "other": np.ones(2)})
    found = deployed_weights(method, server, {"silo-1": {"w": np.ones(1)}})  # type: ignore[arg-type]
    assert list(found) == [GLOBAL, "silo-1"]
    assert found[GLOBAL].params["w"].tolist() == [0.0]
    assert found["silo-1"].params["w"].tolist() == [1.0]
    assert all(set(each.extras) == {"memory"} for each in found.values())
