"""Towers as ONNX files give torch's codes for any number of items; files that would not are not written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from silohash import features
from silohash.config.load import ResolvedConfig, load_config, resolve
from silohash.encode import export
from silohash.encode.trained import GLOBAL, TrainedModel, Weights
from silohash.features.vectors import vectors
from silohash.federated.base import FederatedMethod
from silohash.files import read_json
from silohash.index.codes import pack
from silohash.local.base import MethodParams
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.models.towers import HashNet
from silohash.runtime import experiment
from silohash.runtime.run import Run
from silohash.types import Arrays, Modality, Outputs, UserError
from tests import runs

ort = pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")


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
    encoder = run.model.encoder()
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
        assert tower.parity.largest_difference <= export.TOLERANCE


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
    pixels = run.model.featurisers["image"].transform(run.archive.image, np.arange(5))  # type: ignore[arg-type]
    assert pixels.dtype == np.uint8
    encoder = run.model.encoder()
    np.testing.assert_allclose(outputs_of(tower.path, pixels), encoder.outputs(pixels, "image"), atol=1e-5)
    plain = encoder.model.model.image(torch.from_numpy(pixels).float())[1].detach().numpy()
    assert np.abs(plain - encoder.outputs(pixels, "image")).max() > 1e-2


class Shifted(FederatedMethod):
    """A method that moves the outputs by what it sends beside the parameters."""

    encode_extras: ClassVar[tuple[str, ...]] = ("shift",)

    def adapt_outputs(self, outputs: Outputs, extras: Arrays) -> Outputs:
        shift = torch.as_tensor(extras["shift"])
        code = {modality: values * shift[0] + shift for modality, values in outputs.code.items()}
        return replace(outputs, code=code)


class Plain:
    """A local method that only builds."""

    def build(self, spec: ModelSpec, bits: int) -> HashNet:
        return HashNet(spec, bits, relaxation="tanh")


class NoFeaturiser:
    """A featuriser of which only the state is asked."""

    def state(self) -> tuple[Arrays, Mapping[str, Any]]:
        return {}, {}


def test_what_a_method_does_to_outputs_is_in_the_file(tmp_path: Path) -> None:
    modality: Modality = "image"
    spec = ModelSpec({modality: TowerSpec("mlp", (4,), hidden=8)}, classes=0)
    network = HashNet(spec, runs.BITS)
    params = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    shift = np.linspace(-3, 3, runs.BITS).astype(np.float32)
    weights = {GLOBAL: Weights(params, {"shift": shift})}
    config = runs.tiny_config(tmp_path)
    resolved = ResolvedConfig(config, Plain(), Shifted(MethodParams()))  # type: ignore[arg-type]
    trained = TrainedModel(resolved, spec, {modality: NoFeaturiser()}, weights, 0)  # type: ignore[dict-item]
    encoder = trained.encoder()
    given = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    content = export.onnx_bytes(export.ExportedOutputs(encoder, modality).eval(), given, {})
    parity = export.compare(encoder, modality, content, given)
    assert parity.largest_difference <= export.TOLERANCE
    assert parity.equal_share == 1.0
    (tmp_path / "shifted.onnx").write_bytes(content)
    features_alone = torch.tanh(network.eval().get_submodule("image")(torch.from_numpy(given))[1]).detach().numpy()
    np.testing.assert_allclose(
        outputs_of(tmp_path / "shifted.onnx", given), features_alone * shift[0] + shift, rtol=1e-5, atol=1e-5
    )


def test_a_file_that_differs_is_refused_and_nothing_written(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong(export.ExportedOutputs):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return super().forward(inputs) + 1e-3

    monkeypatch.setattr(export, "ExportedOutputs", Wrong)
    with pytest.raises(UserError, match=r"differ by up to 0\.001"):
        export.export_onnx(run.model, run.archive, tmp_path / "onnx", run=run.name)
    assert not (tmp_path / "onnx").exists()


def test_ties_are_counted_apart() -> None:
    class Fixed:
        def outputs(self, values: np.ndarray, modality: str) -> np.ndarray:
            return np.array([[1.0, -1.0], [1e-7, -1.0], [1e-7, -1.0]], np.float32)[: len(values)]

    class Session:
        def run(self, names: list[str], given: Mapping[str, np.ndarray]) -> list[np.ndarray]:
            return [np.array([[1.0, -1.0], [-1e-7, -1.0], [-1e-7, 1.0]], np.float32)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "_session", lambda content: Session())
        parity = export.compare(Fixed(), "image", b"", np.zeros((3, 1), np.float32))  # type: ignore[arg-type]
    assert (parity.items, parity.equal_codes, parity.ties) == (3, 1, 1)
    assert parity.equal_share == 0.5
    with pytest.raises(UserError, match="1 codes differ"):
        export.refuse_difference("image", parity)
    export.refuse_difference("image", export.Parity(3, 1e-6, 1.0, equal_codes=2, ties=1))
    with pytest.raises(UserError, match="nan"):
        export.refuse_difference("image", export.Parity(3, float("nan"), 1.0, equal_codes=3, ties=0))


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
        assert tower.parity.largest_difference <= export.TOLERANCE
