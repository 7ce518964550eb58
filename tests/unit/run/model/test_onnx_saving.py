"""ONNX files beside the weights: which weights get one, what is recorded, and why there may be none."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from silohash.base.types import MODALITIES, Modality, UserError
from silohash.features.onnx_session import open_session, run_session
from silohash.run.folder import Run
from silohash.run.model import onnx_graph, onnx_saving
from silohash.run.model.onnx_saving import onnx_files
from silohash.run.model.trained import TrainedModel
from silohash.run.model.weights import Weights
from silohash.training import experiment
from tests.runs import BITS, WIDTH, train, write_archive

SAMPLES: dict[Modality, np.ndarray] = {
    "image": np.random.default_rng(0).normal(size=(20, WIDTH)).astype(np.float32),
    "text": np.random.default_rng(1).normal(size=(20, WIDTH)).astype(np.float32),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("saving")
    return train(write_archive(folder / "archive"), folder / "run", federated={"rounds": 1})


@pytest.fixture
def trained(run: Run) -> TrainedModel:
    return run.model.trained


def test_one_file_per_modality_with_its_agreement(trained: TrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_saving, "COMPARED_ITEMS", 7)
    towers = onnx_files(trained, SAMPLES)
    assert towers.reason == ""
    assert list(towers.contents) == ["image-000.onnx", "text-000.onnx"]
    for modality in MODALITIES:
        entry = towers.record["global"][modality]
        assert (entry["items"], entry["equal_codes"], entry["ties"]) == (7, 7, 0)
        session = open_session(towers.contents[f"{modality}-000.onnx"])
        ours = trained.encoder().outputs(SAMPLES[modality], modality)
        np.testing.assert_allclose(run_session(session, SAMPLES[modality]), ours, atol=1e-5)
        about = session.get_modelmeta().custom_metadata_map
        assert (about["model_digest"], about["modality"], about["bits"]) == (trained.digest(), modality, str(BITS))


def test_personal_models_get_files_of_their_own_and_are_traced_once(
    trained: TrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces: list[object] = []
    trace = onnx_graph._traced
    monkeypatch.setattr(onnx_graph, "_traced", lambda *arguments: traces.append(0) or trace(*arguments))
    params = trained.weights["global"].params
    personal = {f"silo-{n}": Weights({name: array + n for name, array in params.items()}, {}) for n in (1, 2)}
    both = replace(trained, weights={**trained.weights, **personal})
    towers = onnx_files(both, SAMPLES)
    assert list(towers.record) == ["silo-1", "silo-2"]
    assert list(towers.contents) == ["image-001.onnx", "text-001.onnx", "image-002.onnx", "text-002.onnx"]
    assert len(traces) == 2
    for number, name in enumerate(personal, 1):
        session = open_session(towers.contents[f"text-00{number}.onnx"])
        ours = both.encoder(name).outputs(SAMPLES["text"], "text")
        np.testing.assert_allclose(run_session(session, SAMPLES["text"]), ours, rtol=1e-5, atol=1e-5)
        assert session.get_modelmeta().custom_metadata_map["model_digest"] == both.digest(name)


def test_a_file_that_differs_is_not_kept(trained: TrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(onnx_graph.ExportedOutputs):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return super().forward(inputs) + 1e-3

    monkeypatch.setattr(onnx_saving, "ExportedOutputs", Wrong)
    towers = onnx_files(trained, SAMPLES)
    assert (towers.contents, towers.record) == ({}, {})
    assert "image tower as ONNX does not agree with torch on 20 items" in towers.reason


def test_without_the_package_onnx_the_weights_are_kept_alone(
    run: Run, trained: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert onnx_files(trained, SAMPLES).reason == "The package onnx is not installed."
    heard: list[str] = []
    again = experiment.train(run.resolved, tmp_path / "run", notify=heard.append)
    assert heard[-1:] == [
        "The model is saved without ONNX files, so searching with it needs torch. The package onnx is not installed."
    ]
    assert not list(again.model_folder.glob("*.onnx"))
    assert again.model.encoder().digest == run.model.digest("global")


def test_other_errors_are_not_hidden(trained: TrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> bytes:
        raise ImportError("cannot import name x", name="torch")

    monkeypatch.setattr(onnx_saving, "onnx_bytes", broken)
    with pytest.raises(ImportError, match="cannot import name x"):
        onnx_files(trained, SAMPLES)


def test_weights_that_silos_share_only_in_part_cannot_encode(tmp_path: Path) -> None:
    run = train(write_archive(tmp_path / "archive"), tmp_path / "run", federated={"name": "fedcmr", "rounds": 1})
    assert run.model.personalized
    assert "global" not in run.model.record.onnx
    with pytest.raises(
        UserError, match=r'"global" cannot encode, .* under "fedcmr"\. Name the model of a silo: silo-1, '
    ):
        run.model.encoder("global")
    assert run.model.encoder("silo-1").outputs(SAMPLES["image"], "image").shape == (20, BITS)
