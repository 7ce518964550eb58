"""From towers of torch to ONNX files: what the files hold, and how equality of codes is judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx
import pytest
import torch

from silohash.base.types import Arrays, Outputs, UserError
from silohash.features.onnx_session import open_session, run_session
from silohash.methods.federated.base import FederatedMethod
from silohash.methods.local.base import MethodParams
from silohash.models.parameters import params_of
from silohash.models.specs import ModelSpec, TowerSpec
from silohash.models.towers import Adapted, HashNet
from silohash.run.model import onnx_graph
from silohash.run.model.onnx_graph import (
    ALIGNMENT_BYTES,
    ExportedOutputs,
    Parity,
    compare,
    difference,
    onnx_bytes,
    tolerance,
    with_parameters,
    without_weights,
)
from silohash.run.model.torch_towers import TorchTowers
from tests.runs import BITS


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
    with pytest.raises(UserError, match=f"takes {size:,} bytes; one ONNX file holds at most {size - 1:,}"):
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
    assert parity.equal_share == 0.5
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
    assert Parity(2, 0.0, 1.0, equal_codes=0, ties=2).equal_share == 1.0


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
