"""The towers of a trained model as ONNX files beside its weights, so that searching does not need torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import numpy as np
import numpy.typing as npt

from silohash import __version__
from silohash.base.optional import missing_package
from silohash.base.types import Modality, UserError
from silohash.run.model.onnx_graph import ExportedOutputs, Parity, compare, difference, onnx_bytes, with_parameters
from silohash.run.model.torch_towers import TorchTowers
from silohash.run.model.trained import SavedTowers, TrainedModel, onnx_file

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
    trained: TrainedModel,
    name: str,
    modality: Modality,
    given: npt.NDArray[np.generic],
    traced: dict[Modality, bytes],
) -> tuple[bytes, Parity]:
    """Return one tower as a file, and its agreement with torch.

    Args:
        trained: The model.
        name: Name of the weights.
        modality: Modality of the tower.
        given: Vectors to compare on.
        traced: The first file of each modality, whose structure the files of further weights share. It is filled here.

    Raises:
        UserError: If the file does not agree with torch, or the model encodes items with their labels.
    """
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
        raise UserError(sentence)
    return content, parity
