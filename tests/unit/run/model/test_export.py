"""Towers as ONNX files give torch's codes for any number of items; files that would not are not written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from silohash import features
from silohash.base.errors import NotExportable
from silohash.base.files import read_json
from silohash.features.vectors import vectors
from silohash.index.codes import pack
from silohash.run.config.load import load_config, resolve
from silohash.run.folder import Run
from silohash.run.model import export, onnx_graph
from silohash.training import experiment
from tests import runs

pytestmark = pytest.mark.whole_run

ort = pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")


def session(path: Path) -> Any:
    return ort.InferenceSession(path, providers=["CPUExecutionProvider"])


def outputs_of(path: Path, given: np.ndarray) -> np.ndarray:
    found: np.ndarray = session(path).run(["outputs"], {"inputs": given})[0]
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("export")
    archive = runs.write_archive(folder / "archive", text="words")
    return runs.train(archive, folder / "run", federated={"rounds": 1})


@pytest.fixture(scope="module")
def written(run: Run) -> list[export.ExportedTower]:
    return export.export_onnx(run.model, run.archive, run.onnx_folder, run=run.name)


def test_the_files_give_the_codes_of_the_encoder(run: Run, written: list[export.ExportedTower]) -> None:
    encoder = run.model.trained.encoder()
    assert [tower.modality for tower in written] == ["image", "text"]
    for tower in written:
        rows = np.arange(7)
        given = vectors(run.archive, features.load(run.onnx_folder / f"features-{tower.modality}.safetensors"), rows,
                        np.ones(7, bool))  # fmt: skip
        ours = encoder.codes(run.archive, rows, tower.modality)
        np.testing.assert_array_equal(pack(outputs_of(tower.path, given)), ours.words)
        assert outputs_of(tower.path, given[:1]).shape == (1, runs.BITS)
        assert tower.parity.items == len(run.archive.split("query"))
        assert tower.parity.equal_codes == tower.parity.items
        assert tower.parity.largest_output > 0
        assert tower.parity.largest_difference <= onnx_graph.TOLERANCE


def test_the_files_tell_what_they_are(run: Run, written: list[export.ExportedTower]) -> None:
    about = session(written[0].path).get_modelmeta().custom_metadata_map
    assert about["bits"] == str(runs.BITS)
    assert about["model_digest"] == run.model.encoder().digest
    assert json.loads(about["input"]) == {"shape": ["items", runs.WIDTH], "type": "float32"}
    assert json.loads(about["preprocessing"])["kind"] == "given"
    onnx.checker.check_model(onnx.load(written[0].path))
    record = read_json(run.onnx_folder / "export.json", dict[str, Any])
    assert record["model_digest"] == about["model_digest"]
    assert record["towers"]["text"]["equal_codes"] == record["towers"]["text"]["items"]


def test_pixels_are_standardised_inside(tmp_path: Path) -> None:
    config = load_config(
        {
            **runs.tiny(tmp_path, federated={"rounds": 1, "local_epochs": 1}, partition={"silos": 2}),
            "data": {"name": "glyphs", "options": {"faces": 1, "limit": 300}},
            "features": {"image": {"size": 16, "cache": False}, "text": {"buckets": 64}},
        }
    )
    run = experiment.train(resolve(config), tmp_path / "run")
    tower = export.export_onnx(run.model, run.archive, tmp_path / "onnx", run=run.name)[0]
    pixels = run.model.featurizers["image"].transform(run.archive.image, np.arange(5))  # type: ignore[arg-type]
    assert pixels.dtype == np.uint8
    encoder = run.model.trained.encoder()
    np.testing.assert_allclose(outputs_of(tower.path, pixels), encoder.outputs(pixels, "image"), atol=1e-5)
    plain = encoder.towers.model.model.image(torch.from_numpy(pixels).float())[1].detach().numpy()
    assert np.abs(plain - encoder.outputs(pixels, "image")).max() > 1e-2


def test_a_file_that_differs_is_refused_and_nothing_written(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong(onnx_graph.ExportedOutputs):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return super().forward(inputs) + 1e-3

    monkeypatch.setattr(onnx_graph, "ExportedOutputs", Wrong)
    with pytest.raises(NotExportable, match=r"0\.001"):
        export.export_onnx(run.model, run.archive, tmp_path / "onnx", run=run.name)
    assert not (tmp_path / "onnx").exists()


def test_the_command_says_how_well_it_agrees(run: Run, tmp_path: Path) -> None:
    said = runs.silohash("export", run.folder, "--onnx", "--out", tmp_path / "here", "--json")
    assert said.code == 0, said.err
    towers = said.document()["towers"]
    assert [tower["parity"]["ties"] for tower in towers] == [0, 0]
    assert Path(towers[1]["path"]) == tmp_path / "here" / "text.onnx"
    assert (tmp_path / "here" / "text.onnx").is_file()
    refused = runs.silohash("export", run.folder)
    assert (refused.code, refused.out) == (2, "")
    assert "--onnx" in refused.err
    assert runs.silohash("export", run.folder, "--onnx", "--model", "nobody").code == 2


def test_real_photos_and_captions_get_equal_codes(
    tmp_path: Path, shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SILOHASH_DATA", str(shared_data))
    config = load_config(
        {
            **runs.tiny(tmp_path, model={"hidden": 64}, local={"bits": 32}, partition={"silos": 2}),
            "data": {"name": "coco18", "options": {"text": "bow"}},
            "federated": {"rounds": 1, "local_epochs": 1},
            "train": {"batch": 256, "learning_rate": 0.005, "device": "cpu", "threads": 1},
        }
    )
    run = experiment.train(resolve(config), tmp_path / "run")
    for tower in export.export_onnx(run.model, run.archive, tmp_path / "onnx", run=run.name):
        assert tower.parity.items == 1_000
        assert tower.parity.equal_codes + tower.parity.ties == 1_000
        assert tower.parity.largest_difference <= onnx_graph.TOLERANCE
