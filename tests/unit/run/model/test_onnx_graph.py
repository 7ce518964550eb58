"""From towers of torch to ONNX files: what the files hold, and how equality of codes is judged."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx
import pytest
import torch

from silohash.base.errors import NotExportable, UserError
from silohash.base.types import MODALITIES, Arrays, Modality, Outputs
from silohash.features.onnx_session import open_session, run_session
from silohash.methods.federated.base import FederatedMethod
from silohash.methods.local.base import MethodParams
from silohash.models.parameters import params_of
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.models.towers import Adapted, HashNet
from silohash.run.folder import Run
from silohash.run.model import onnx_graph
from silohash.run.model.onnx_graph import (
    ALIGNMENT_BYTES,
    ExportedOutputs,
    Parity,
    compare,
    difference,
    onnx_bytes,
    onnx_files,
    tolerance,
    with_parameters,
    without_weights,
)
from silohash.run.model.torch_towers import TorchTowers
from silohash.run.model.trained import TrainedModel, Weights
from silohash.training import experiment
from tests.runs import BITS, WIDTH, train, write_archive


class Shifted(FederatedMethod):
    """A method that moves the outputs by what it sends beside the parameters."""

    encode_extras: ClassVar[tuple[str, ...]] = ("shift",)

    def adapt_outputs(self, outputs: Outputs, extras: Mapping[str, torch.Tensor]) -> Outputs:
        shift = extras["shift"]
        code = {modality: values * shift[0] + shift for modality, values in outputs.code.items()}
        return replace(outputs, code=code)


SHIFT = np.linspace(-3, 3, BITS).astype(np.float32)
GIVEN = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)


def towers_of(network: HashNet) -> TorchTowers:
    return TorchTowers(Adapted(network, Shifted(MethodParams()), {"shift": SHIFT}), {}, torch.device("cpu"))


def network_of(hidden: int = 8) -> HashNet:
    return HashNet(ModelSpec({"image": TowerSpec("mlp", (4,), hidden=hidden)}, classes=0), BITS, relaxation="tanh")


def test_what_a_method_does_to_outputs_is_in_the_file() -> None:
    network = network_of()
    towers = towers_of(network)
    content = onnx_bytes(ExportedOutputs(towers, "image").eval(), GIVEN, {"bits": "16"})
    onnx.checker.check_model(onnx.load_from_string(content))
    parity = compare(towers, "image", content, GIVEN)
    assert (parity.items, parity.equal_codes, difference("image", parity)) == (9, 9, "")
    plain = torch.tanh(network.eval().get_submodule("image")(torch.from_numpy(GIVEN))[1]).detach().numpy()
    session = open_session(content)
    np.testing.assert_allclose(run_session(session, GIVEN), plain * SHIFT[0] + SHIFT, rtol=1e-5, atol=1e-5)
    assert run_session(session, GIVEN[:1]).shape == (1, BITS)
    assert session.get_modelmeta().custom_metadata_map == {"bits": "16"}


def test_other_parameters_need_no_second_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = network_of(), network_of()
    content = onnx_bytes(ExportedOutputs(towers_of(first), "image").eval(), GIVEN, {"digest": "first", "bits": "16"})
    monkeypatch.setattr(onnx_graph, "_traced", lambda *_: pytest.fail("traced again"))
    changed = with_parameters(content, params_of(second), {"digest": "second"})
    assert changed is not None
    np.testing.assert_allclose(
        run_session(open_session(changed), GIVEN), towers_of(second).outputs(GIVEN, "image"), atol=1e-5
    )
    assert open_session(changed).get_modelmeta().custom_metadata_map == {"digest": "second", "bits": "16"}
    without = {name: array for name, array in params_of(second).items() if name != "image.hash.bias"}
    assert with_parameters(content, without, {}) is None


def test_weights_in_a_file_of_their_own_start_where_pages_do(tmp_path: Path) -> None:
    towers = towers_of(network_of(hidden=2000))
    content = onnx_bytes(ExportedOutputs(towers, "image").eval(), GIVEN, {"bits": "16"})
    graph, weights = without_weights(content, "numbers.bin")
    whole, split = onnx.load_from_string(content).graph.initializer, onnx.load_from_string(graph).graph.initializer
    places = []
    for before, after in zip(whole, split, strict=True):
        assert before.name == after.name
        if len(before.raw_data) < ALIGNMENT_BYTES:
            assert after.raw_data == before.raw_data
            continue
        about = {entry.key: entry.value for entry in after.external_data}
        start, length = int(about["offset"]), int(about["length"])
        assert about["location"] == "numbers.bin"
        assert not after.raw_data
        assert weights[start : start + length] == before.raw_data
        places.append((start, length))
    assert sorted(places) == places
    assert [start % ALIGNMENT_BYTES for start, _ in places] == [0] * len(places)
    assert len(places) == 3  # the bias of the code is too small
    (tmp_path / "graph.onnx").write_bytes(graph)
    (tmp_path / "numbers.bin").write_bytes(weights)
    np.testing.assert_allclose(
        run_session(open_session(tmp_path / "graph.onnx", few_items=True), GIVEN),
        towers.outputs(GIVEN, "image"),
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.whole_run
def test_operations_that_the_older_exporter_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxscript")
    exporter = torch.onnx.export

    def newer_only(*arguments: object, dynamo: bool, **options: object) -> object:
        """Refuse to trace."""
        if not dynamo:
            raise torch.onnx.errors.OnnxExporterError("unknown operation")
        return exporter(*arguments, dynamo=True, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(torch.onnx, "export", newer_only)
    towers = towers_of(network_of())
    content = onnx_bytes(ExportedOutputs(towers, "image").eval(), GIVEN, {})
    assert compare(towers, "image", content, GIVEN).equal_codes == len(GIVEN)


def test_a_tower_that_is_too_large_for_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    network = ExportedOutputs(towers_of(network_of()), "image")
    size = sum(tensor.nbytes for tensor in network.state_dict().values())
    monkeypatch.setattr(onnx_graph, "MOST_BYTES", size)
    assert onnx_bytes(network.eval(), GIVEN, {})
    monkeypatch.setattr(onnx_graph, "MOST_BYTES", size - 1)
    with pytest.raises(NotExportable, match=f"{size:,}.*{size - 1:,}"):
        onnx_bytes(network.eval(), GIVEN, {})


class Fixed:
    """Towers with given outputs."""

    def __init__(self, *outputs: tuple[float, ...]) -> None:
        self.given = np.array(outputs, np.float32)

    def outputs(self, values: np.ndarray, modality: str) -> np.ndarray:
        return self.given[: len(values)]


def fixed(monkeypatch: pytest.MonkeyPatch, ours: Fixed, *theirs: tuple[float, ...]) -> Parity:
    monkeypatch.setattr(onnx_graph, "open_session", lambda content: content)
    monkeypatch.setattr(onnx_graph, "run_session", lambda session, values: np.array(theirs, np.float32))
    return compare(ours, "image", b"", np.zeros((len(theirs), 1), np.float32))  # type: ignore[arg-type]


def test_ties_are_counted_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Fixed((1.0, -1.0), (1e-7, -1.0), (1e-7, -1.0))
    parity = fixed(monkeypatch, ours, (1.0, -1.0), (-1e-7, -1.0), (-1e-7, 1.0))
    assert (parity.items, parity.equal_codes, parity.ties) == (3, 1, 1)
    assert parity.largest_difference == 2.0
    assert "1 codes differ" in difference("image", parity)


def test_an_output_of_zero_of_either_sign_is_a_set_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    parity = fixed(monkeypatch, Fixed((0.0, -0.0, 1.0)), (-0.0, 0.0, 1.0))
    assert (parity.equal_codes, parity.ties, parity.largest_difference) == (1, 0, 0.0)


@pytest.mark.parametrize(("largest", "allowed"), [(0.0, 1e-5), (1.0, 1e-5), (3.0, 3e-5), (200.0, 2e-3)])
def test_the_tolerance_grows_with_outputs_above_one(largest: float, allowed: float) -> None:
    assert tolerance(largest) == pytest.approx(allowed, rel=1e-12)
    agrees = Parity(3, allowed, largest, equal_codes=2, ties=1)
    assert difference("image", agrees) == ""
    assert "differ by up to" in difference("image", replace(agrees, largest_difference=1.01 * allowed))


def test_numbers_that_are_not_numbers_do_not_agree() -> None:
    assert "nan" in difference("text", Parity(3, float("nan"), 1.0, equal_codes=3, ties=0))
    assert difference("text", Parity(2, 0.0, 1.0, equal_codes=0, ties=2)) == ""


def test_parameters_are_copied_bit_for_bit() -> None:
    network = network_of()
    params: Arrays = params_of(network)
    content = onnx_bytes(ExportedOutputs(towers_of(network), "image").eval(), GIVEN, {})
    stored = {
        each.name.removeprefix(onnx_graph.PARAMETERS): onnx.numpy_helper.to_array(each)
        for each in onnx.load_from_string(content).graph.initializer
    }
    assert stored.keys() == params.keys()
    assert all(stored[name].tobytes() == array.tobytes() for name, array in params.items())


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


@pytest.mark.whole_run
def test_one_file_per_modality_with_its_agreement(trained: TrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_graph, "COMPARED_ITEMS", 7)
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


@pytest.mark.whole_run
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


@pytest.mark.whole_run
def test_a_file_that_differs_is_not_kept(trained: TrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(onnx_graph.ExportedOutputs):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return super().forward(inputs) + 1e-3

    monkeypatch.setattr(onnx_graph, "ExportedOutputs", Wrong)
    towers = onnx_files(trained, SAMPLES)
    assert (towers.contents, towers.record) == ({}, {})
    assert "image tower as ONNX does not agree with torch on 20 items" in towers.reason


@pytest.mark.whole_run
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


@pytest.mark.whole_run
def test_other_errors_are_not_hidden(trained: TrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> bytes:
        raise ImportError("cannot import name x", name="torch")

    monkeypatch.setattr(onnx_graph, "onnx_bytes", broken)
    with pytest.raises(ImportError, match="cannot import name x"):
        onnx_files(trained, SAMPLES)


@pytest.mark.whole_run
def test_weights_that_silos_share_only_in_part_cannot_encode(tmp_path: Path) -> None:
    run = train(write_archive(tmp_path / "archive"), tmp_path / "run", federated={"name": "fedcmr", "rounds": 1})
    assert run.model.personalized
    assert "global" not in run.model.record.onnx
    with pytest.raises(
        UserError, match=r'"global" cannot encode, .* under "fedcmr"\. Name the model of a silo: silo-1, '
    ):
        run.model.encoder("global")
    assert run.model.encoder("silo-1").outputs(SAMPLES["image"], "image").shape == (20, BITS)
