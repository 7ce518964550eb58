"""The trained model on disk, and its codes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from silohash.encode.trained import TrainedModel, Weights
from silohash.files import read_arrays, write_arrays
from silohash.runtime.run import Run
from silohash.types import MODALITIES, UserError
from tests.runs import BITS, same_arrays, train, write_archive


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("encoder")
    return train(write_archive(folder / "archive", text="words"), folder / "run", federated={"rounds": 1})


@pytest.mark.parametrize("modality", MODALITIES)
def test_round_trip_gives_the_same_codes_bit_for_bit(run: Run, tmp_path: Path, modality) -> None:
    rows = run.archive.split("database")
    before = run.model.encoder().codes(run.archive, rows, modality)
    run.model.save(tmp_path / "model")
    read = TrainedModel.load(tmp_path / "model")
    after = read.encoder().codes(run.archive, rows, modality)
    assert before.model_digest == after.model_digest
    assert np.array_equal(before.words, after.words)
    assert (after.bits, after.modality, list(after.ids)) == (BITS, modality, list(run.archive.ids[rows]))
    assert same_arrays(run.model.weights["global"].params, read.weights["global"].params)
    assert read.config == run.config
    assert read.round == run.model.round


def test_digest_changes_with_any_weight_and_with_what_comes_before_the_tower(run: Run) -> None:
    model = run.model
    digests = {model.encoder().digest}
    weights = model.weights["global"]
    for name in weights.params:
        params = {key: array.copy() for key, array in weights.params.items()}
        params[name].reshape(-1)[-1] += 1e-3
        digests.add(replace(model, weights={"global": Weights(params, {})}).encoder().digest)
    assert len(digests) == 1 + len(weights.params)
    given = model.featurisers["image"]
    shifted = replace(given, summed={**given.summed, "sum": given.summed["sum"] + 1})
    digests.add(replace(model, featurisers={**model.featurisers, "image": shifted}).encoder().digest)
    extra = replace(model, weights={"global": Weights(weights.params, {"memory": np.zeros(2)})})
    digests.add(extra.encoder().digest)
    assert len(digests) == 3 + len(weights.params)
    assert model.encoder().digest == TrainedModel.load(run.model_folder).encoder().digest


def test_models_that_there_are_not(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r'The run has no model "north"\. Its models are: global'):
        run.model.encoder("north")
    assert run.model.deployed_by("north") == "global"
    assert not run.model.personalized
    with pytest.raises(UserError, match=r"has no trained model yet\. Run: silohash resume"):
        TrainedModel.load(tmp_path / "model")


def test_damaged_folders(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    run.model.save(folder)
    about = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**about, "format_version": 2}))
    with pytest.raises(UserError, match="written by a newer silohash"):
        TrainedModel.load(folder)
    (folder / "model.json").write_text("{")
    with pytest.raises(UserError, match=r"model\.json is damaged"):
        TrainedModel.load(folder)
    run.model.save(folder)
    again = rf"Restore it, or write it again: silohash resume {tmp_path}$"
    for path in sorted(folder.glob("*.safetensors")):
        content = path.read_bytes()
        for damaged in (content[:-9], content[:-1] + bytes([content[-1] ^ 1])):
            path.write_bytes(damaged)
            with pytest.raises(UserError, match=rf"{path.name} does not match its digest in model\.json.*{again}"):
                TrainedModel.load(folder)
        path.unlink()
        with pytest.raises(UserError, match=rf"{path.name} is missing\. {again}"):
            TrainedModel.load(folder)
        path.write_bytes(content)
    assert TrainedModel.load(folder).encoder().digest == run.model.encoder().digest


def test_a_model_of_an_earlier_version_has_no_digests(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    run.model.save(folder)
    without_digests(folder)
    assert TrainedModel.load(folder).encoder().digest == run.model.encoder().digest
    (folder / "weights-000.safetensors").write_bytes(b"cut")
    with pytest.raises(UserError, match=r"weights-000\.safetensors is damaged"):
        TrainedModel.load(folder)


def test_weights_of_another_run_are_refused(run: Run, tmp_path: Path) -> None:
    """The file is whole and fits the towers, so that only its digest tells."""
    folder = tmp_path / "model"
    run.model.save(folder)
    arrays, about = read_arrays(folder / "weights-000.safetensors")
    other = {name: array[..., ::-1].copy() for name, array in arrays.items()}
    write_arrays(folder / "weights-000.safetensors", other, about)
    with pytest.raises(UserError, match="it was damaged or replaced"):
        TrainedModel.load(folder)


def without_digests(folder: Path) -> None:
    about = json.loads((folder / "model.json").read_text())
    assert set(about.pop("digests")) == {path.name for path in folder.glob("*.safetensors")}
    (folder / "model.json").write_text(json.dumps(about))


def test_files_of_a_model(run: Run) -> None:
    names = sorted(path.name for path in run.model_folder.iterdir())
    assert names == ["features-image.safetensors", "features-text.safetensors", "model.json", "weights-000.safetensors"]
    arrays, _ = read_arrays(run.model_folder / "weights-000.safetensors")
    assert {name.split("/")[0] for name in arrays} == {"params"}


def test_weights_of_another_shape_are_not_installed(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    run.model.save(folder)
    without_digests(folder)
    arrays, _ = read_arrays(folder / "weights-000.safetensors")
    write_arrays(folder / "weights-000.safetensors", {**arrays, "params/image.hash.bias": np.zeros(5, np.float32)})
    with pytest.raises(RuntimeError, match="size"):
        TrainedModel.load(folder).encoder()


def test_weights_are_found_by_the_digest_of_their_codes(run: Run) -> None:
    changed = {name: array + 1 for name, array in run.model.weights["global"].params.items()}
    both = replace(run.model, weights={**run.model.weights, "silo-0": Weights(params=changed, extras={})})
    for name in ("global", "silo-0"):
        assert both.name_of(both.encoder(name).digest) == name
    with pytest.raises(UserError, match="nonsense, which the run does not have"):
        both.name_of("nonsense")


def test_an_encoder_runs_on_the_device_that_is_asked_for(run: Run) -> None:
    assert run.model.encoder().device == torch.device("cpu")
    assert run.model.encoder(device=torch.device("cpu", 0)).device == torch.device("cpu", 0)
