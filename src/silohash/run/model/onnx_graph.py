"""From a tower of torch to an ONNX file, and the comparison of the two.

A file takes a featurizer's vectors and returns the outputs whose signs are the code. It includes the standardization of
pixels and the federated method's adaptation of the outputs.

The two programs add up products in different orders, so their outputs differ by rounding errors. A bit is the sign of an
output, and an output closer to 0 than these errors may get either sign. Such a bit is a tie, and its value does not carry
information. Every other bit must be equal.
"""

import io
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from silohash import __version__
from silohash.base.errors import NotExportable, UserError
from silohash.base.optional import missing_package, only_errors
from silohash.base.types import Arrays, Modality, Outputs
from silohash.features.onnx_session import INPUT, OUTPUT, open_session, run_session
from silohash.run.model.encoder import Towers
from silohash.run.model.torch_towers import TorchTowers
from silohash.run.model.trained import SavedTowers, TrainedModel, onnx_file

TOLERANCE = 1e-5
"""Largest accepted difference between two outputs, as a share of the largest output, or absolute if no output exceeds 1."""

MOST_BYTES = 2**31 - 1
ALIGNMENT_BYTES = 4096
"""Every array in a file of weights starts at a multiple of this, so that it can be used where it is mapped."""

PARAMETERS = "model.model."
"""Prefix of a parameter's name in a file."""


@dataclass(frozen=True)
class Parity:
    """Comparison of a file with torch.

    Attributes:
        items: Number of items that were compared.
        largest_difference: Largest absolute difference between two outputs.
        largest_output: Largest absolute output of torch.
        equal_codes: Number of items whose codes are equal.
        ties: Number of items whose codes differ only in bits where torch's output is closer to 0 than `tolerance`.
    """

    items: int
    largest_difference: float
    largest_output: float
    equal_codes: int
    ties: int

    @property
    def tolerance(self) -> float:
        """Largest accepted difference between two outputs."""
        return tolerance(self.largest_output)


def tolerance(largest_output: float) -> float:
    """Return the largest accepted difference between two outputs, given the largest absolute output."""
    return TOLERANCE * max(1.0, largest_output)


class ExportedOutputs(nn.Module):
    """A network from the featurizer's vectors of one modality to the outputs. It runs the code of `TorchTowers`."""

    def __init__(self, towers: TorchTowers, modality: Modality) -> None:
        super().__init__()
        self.model = towers.model
        self.batch = towers.batch
        self.modality = modality

    def forward(self, inputs: Tensor) -> Tensor:
        """Return ``(n, bits)`` float32 of ``(n, *shape)``."""
        outputs: Outputs = self.model(self.batch(inputs, self.modality), (self.modality,))
        return outputs.code[self.modality].float()


def onnx_bytes(network: nn.Module, given: npt.NDArray[np.generic], about: Mapping[str, str]) -> bytes:
    """Return a network as an ONNX file that takes any number of items.

    Args:
        network: ``(n, *shape) -> (n, bits)``, in evaluation mode.
        given: Some inputs, at least one.
        about: Metadata to write into the file.

    Raises:
        UserError: If the file would be larger than ONNX allows.
    """
    import onnx

    size = sum(tensor.nbytes for tensor in network.state_dict().values())
    if size > MOST_BYTES:
        raise NotExportable(f"The tower takes {size:,} bytes; one ONNX file holds at most {MOST_BYTES:,}.")
    example = torch.from_numpy(np.resize(given[:2], (2, *given.shape[1:])))  # with one item, torch would fix the number
    model = onnx.load_from_string(_traced(network, example))
    onnx.helper.set_model_props(model, dict(about))
    content: bytes = model.SerializeToString()
    return content


def _traced(network: nn.Module, example: Tensor) -> bytes:
    """Return a network as an ONNX file without metadata.

    The older exporter of torch traces one run in hundredths of a second, which is enough for towers without branches on
    values. The newer one, for operations that it does not know, takes seconds and needs onnxscript.
    """
    stream: Any = io.BytesIO()  # torch accepts streams, and its annotations do not
    # The exporters warn about their own future and about packages that are not needed.
    with only_errors("torch.onnx"), warnings.catch_warnings(action="ignore"):
        try:
            torch.onnx.export(
                network, (example,), stream, dynamo=False, input_names=[INPUT],
                output_names=[OUTPUT],
                dynamic_axes={INPUT: {0: "items"}, OUTPUT: {0: "items"}},
            )  # fmt: skip
        except (torch.onnx.errors.OnnxExporterError, TypeError):
            program = torch.onnx.export(
                network, (example,), dynamo=True, input_names=[INPUT], output_names=[OUTPUT], verbose=False,
                dynamic_shapes=({0: torch.export.Dim("items")},),
            )  # fmt: skip
            assert program is not None  # noqa: S101  this exporter always returns one
            return bytes(program.model_proto.SerializeToString())
    traced: bytes = stream.getvalue()
    return traced


def with_parameters(content: bytes, params: Arrays, about: Mapping[str, str]) -> bytes | None:
    """Return a file with other parameters, by their names in the model, and with other metadata, without tracing again.

    The result is None if the file has numbers that are not parameters of the model.
    """
    import onnx

    model = onnx.load_from_string(content)
    for stored in model.graph.initializer:
        name = stored.name.removeprefix(PARAMETERS)
        if name == stored.name or name not in params:
            return None
        stored.CopyFrom(onnx.numpy_helper.from_array(np.ascontiguousarray(params[name]), stored.name))
    onnx.helper.set_model_props(model, {p.key: p.value for p in model.metadata_props} | dict(about))
    changed: bytes = model.SerializeToString()
    return changed


def without_weights(content: bytes, name: str) -> tuple[bytes, bytes]:
    """Return an ONNX file that takes its weights from another file of the same folder, and the content of that file."""
    import onnx

    model = onnx.load_from_string(content)
    parts: list[bytes] = []
    offset = 0
    for stored in model.graph.initializer:
        values = stored.raw_data
        if len(values) >= ALIGNMENT_BYTES:
            onnx.external_data_helper.set_external_data(stored, location=name, offset=offset, length=len(values))
            stored.ClearField("raw_data")
            parts += values, bytes(-len(values) % ALIGNMENT_BYTES)
            offset += len(parts[-2]) + len(parts[-1])
    graph: bytes = model.SerializeToString()
    return graph, b"".join(parts)


def compare(towers: Towers, modality: Modality, content: bytes, given: npt.NDArray[np.generic]) -> Parity:
    """Compare the outputs of a file with those of torch for the same vectors, ``(n, *shape)``."""
    ours = towers.outputs(given, modality)
    theirs = run_session(open_session(content), given)
    size = float(np.abs(ours).max())
    differ = (ours >= 0) != (theirs >= 0)
    same = ~differ.any(axis=1)
    clear = np.abs(ours) >= tolerance(size)
    return Parity(
        items=len(given),
        largest_difference=float(np.abs(ours - theirs).max()),
        largest_output=size,
        equal_codes=int(same.sum()),
        ties=int((~same & ~(differ & clear).any(axis=1)).sum()),
    )


def difference(modality: Modality, parity: Parity) -> str:
    """Return in what a file does not agree with torch, as a sentence; empty if it agrees.

    It does not agree if an output differs by more than the tolerance or is not a number, or if a code differs in a bit
    that is not a tie.
    """
    differing = parity.items - parity.ties - parity.equal_codes
    if parity.largest_difference <= parity.tolerance and not differing:
        return ""
    return (
        f"The {modality} tower as ONNX does not agree with torch on {parity.items:,} items: outputs of up to "
        f"{parity.largest_output:.3g} differ by up to {parity.largest_difference:.2g} ({parity.tolerance:.0e} is allowed), "
        f"and {differing:,} codes differ."
    )


COMPARED_ITEMS = 256
"""Number of items on which a file is compared with torch."""


def onnx_files(trained: TrainedModel, samples: Mapping[Modality, npt.NDArray[np.generic]]) -> SavedTowers:
    """Return the towers that silos encode with as ONNX files, after checking that they give the same codes as torch.

    Args:
        trained: The model.
        samples: Vectors of some items of each modality, ``(n, *shape)``, at least one. The files are compared with torch
            on the first `COMPARED_ITEMS` of them.

    Returns:
        The files. If a package is missing, or a file does not agree with torch, there are none, and the result says why.
    """
    if trained.spec.scores_pairs:
        return SavedTowers(reason="Models that score pairs run with torch only.")
    contents: dict[str, bytes] = {}
    record: dict[str, dict[Modality, dict[str, float]]] = {}
    traced: dict[Modality, bytes] = {}
    try:
        for number, name in enumerate(trained.weights):
            if name not in trained.deployed:
                continue
            record[name] = {}
            for modality in trained.featurizers:
                content, parity = _tower(trained, name, modality, samples[modality][:COMPARED_ITEMS], traced)
                contents[onnx_file(modality, number)] = content
                record[name][modality] = asdict(parity)
    except UserError as error:
        return SavedTowers(reason=str(error))
    except ImportError as error:
        if missing_package(error) is None:
            raise
        return SavedTowers(reason=f"The package {missing_package(error)} is not installed.")
    return SavedTowers(contents, record)


def _tower(
    trained: TrainedModel, name: str, modality: Modality, given: npt.NDArray[np.generic], traced: dict[Modality, bytes]
) -> tuple[bytes, Parity]:
    """Return one tower as a file, and its agreement with torch."""
    encoder = trained.encoder(name)
    encoder.check_without_labels("There are none,")
    assert isinstance(encoder.towers, TorchTowers)  # noqa: S101  a trained model is run by torch
    about = {"silohash": __version__, "model_digest": encoder.digest, "modality": modality, "bits": str(encoder.bits)}
    content = None
    if modality in traced:
        content = with_parameters(traced[modality], trained.weights[name].params, about)
    if content is None:
        content = onnx_bytes(ExportedOutputs(encoder.towers, modality).eval(), given, about)
        traced.setdefault(modality, content)
    parity = compare(encoder.towers, modality, content, given)
    if sentence := difference(modality, parity):
        raise NotExportable(sentence)
    return content, parity
