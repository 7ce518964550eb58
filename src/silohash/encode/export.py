"""Export of towers as ONNX files, for programs without torch and silohash.

Files are written only if they give the same codes as torch.

A file takes a featurizer's vectors (the featurizer's state is written beside it) and returns the outputs whose signs
are the code. It includes the standardization of pixels and the federated method's adaptation of the outputs.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from silohash import __version__, features
from silohash.data.archive import Archive
from silohash.encode.encoder import Encoder
from silohash.encode.trained import TrainedModel
from silohash.features.base import Featuriser, blocks
from silohash.features.network import NETWORK_FILES
from silohash.features.vectors import vectors
from silohash.files import write_bytes, write_json
from silohash.types import Modality, Rows, UserError

TOLERANCE = 1e-5
"""Largest difference from torch's outputs that is accepted. A file that differs more is not written."""

BLOCK_ROWS = 256
MOST_BYTES = 2**31 - 1
INPUT, OUTPUT = "inputs", "outputs"
RECORD = "export.json"
CODE = "bit j of the code is 1 where output j is at least 0"


@dataclass(frozen=True)
class Parity:
    """Comparison of an exported network with torch, on the queries of the run.

    Attributes:
        items: number of items that were compared.
        largest_difference: largest absolute difference between two outputs.
        largest_output: largest absolute output of torch, as a scale for the difference.
        equal_codes: number of items whose codes are equal.
        ties: number of items whose codes differ only in bits where torch's output is closer to 0 than the tolerance.
    """

    items: int
    largest_difference: float
    largest_output: float
    equal_codes: int
    ties: int

    @property
    def equal_share(self) -> float:
        """Share of items with equal codes, not counting ties."""
        counted = self.items - self.ties
        return self.equal_codes / counted if counted else 1.0


@dataclass(frozen=True)
class ExportedTower:
    """One exported file: its modality, its path, and its agreement with torch."""

    modality: Modality
    path: Path
    parity: Parity


class ExportedOutputs(nn.Module):
    """A network from the featurizer's vectors of one modality to the outputs. It runs the code of the encoder."""

    def __init__(self, encoder: Encoder, modality: Modality) -> None:
        super().__init__()
        self.model = encoder.model
        self.encoder = encoder
        self.modality = modality

    def forward(self, inputs: Tensor) -> Tensor:
        """Return ``(n, bits)`` float32 of ``(n, *shape)``."""
        batch = self.encoder.batch(inputs, self.modality)
        return self.encoder.model(batch, (self.modality,)).code[self.modality].float()  # type: ignore[no-any-return]


def export_onnx(
    trained: TrainedModel, archive: Archive, folder: Path, *, run: str = "", name: str | None = None
) -> list[ExportedTower]:
    """Write ``image.onnx``, ``text.onnx``, their featurisers and ``export.json`` into a folder.

    Args:
        trained: the model.
        archive: items on which the files are compared with torch.
        folder: the folder of the files; existing files of the same names are replaced.
        run: the name of the run, which the files record.
        name: name of the silo whose model is exported. By default, the model that every silo deploys.

    Returns:
        One entry per file, with its agreement with torch.

    Raises:
        UserError: if a package is missing, the run has no such model, or an exported network does not agree with
            torch. Nothing is written in these cases.
    """
    check_packages()
    encoder = trained.encoder(trained.shared_name() if name is None else name)
    made: list[tuple[ExportedTower, bytes]] = []
    for modality, featuriser in encoder.featurisers.items():
        rows = compared_rows(archive, modality)
        given = vectors(archive, featuriser, rows)
        about = {"run": run, "config_digest": trained.config.digest(), **description(encoder, modality, given)}
        content = onnx_bytes(ExportedOutputs(encoder, modality).eval(), given, about)
        parity = compare(encoder, modality, content, given)
        refuse_difference(modality, parity)
        made.append((ExportedTower(modality, folder / f"{modality}.onnx", parity), content))
    for tower, content in made:
        write_bytes(tower.path, content)
        features.save(encoder.featurisers[tower.modality], folder / f"features-{tower.modality}.safetensors")
    towers = {tower.modality: {"file": tower.path.name, **asdict(tower.parity)} for tower, _ in made}
    about_all = {"silohash": __version__, "run": run, "model_digest": encoder.digest, "bits": encoder.bits}
    write_json(folder / RECORD, {**about_all, "tolerance": TOLERANCE, "towers": towers})
    return [tower for tower, _ in made]


def check_packages() -> None:
    """Check that the packages that write and run ONNX files are installed.

    Raises:
        UserError: if one is missing.
    """
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise UserError(f"Export needs packages that are missing ({error}): pip install 'silohash[onnx]'") from error


def compared_rows(archive: Archive, modality: Modality) -> Rows:
    """Return the rows on which the file is compared with torch.

    These are the queries, or the database if no query has the modality.

    Raises:
        UserError: if no item has the modality.
    """
    for split in ("query", "database"):
        rows = archive.splits.get(split, np.zeros(0, np.int64))
        rows = rows[archive.has(modality)[rows]]
        if len(rows):
            return rows
    raise UserError(
        f'Archive "{archive.card.name}" has no item with {modality}, so the export cannot be checked. '
        "Write codes instead: silohash encode"
    )


def description(encoder: Encoder, modality: Modality, given: npt.NDArray[np.generic]) -> dict[str, str]:
    """Return the metadata that is stored in the file, as strings."""
    about = plain_settings(encoder.featurisers[modality])
    return {
        "silohash": __version__,
        "model_digest": encoder.digest,
        "modality": modality,
        "bits": str(encoder.bits),
        "code": CODE,
        "input": json.dumps({"shape": ["items", *given.shape[1:]], "type": given.dtype.name}),
        "preprocessing": json.dumps({**about, "state": f"features-{modality}.safetensors"}, sort_keys=True),
    }


def plain_settings(featuriser: Featuriser) -> dict[str, Any]:
    """Return a featurizer's settings for other programs, including those of its network. Files are given by name."""
    _, about = featuriser.state()
    flat = {**about, **about.get("options", {})}
    flat.pop("options", None)
    return flat | {name: Path(flat[name]).name for name in NETWORK_FILES if flat.get(name)}


def onnx_bytes(tower: nn.Module, given: npt.NDArray[np.generic], about: Mapping[str, str]) -> bytes:
    """Return a network as an ONNX file that takes any number of items.

    Args:
        tower: ``(n, *shape) -> (n, bits)``.
        given: some inputs, at least one.
        about: metadata to write into the file.

    Raises:
        UserError: if the file would be larger than ONNX allows.
    """
    import onnx

    example = torch.from_numpy(np.resize(given[:2], (2, *given.shape[1:])))  # with one item, torch would fix the number
    with _quiet():
        program = torch.onnx.export(
            tower, (example,), dynamo=True, input_names=[INPUT], output_names=[OUTPUT], verbose=False,
            dynamic_shapes=({0: torch.export.Dim("items")},),
        )  # fmt: skip
    assert program is not None  # noqa: S101  this exporter always returns one
    model = program.model_proto
    if model.ByteSize() > MOST_BYTES:
        raise UserError(f"The tower takes {model.ByteSize():,} bytes; one ONNX file holds at most {MOST_BYTES:,}.")
    onnx.helper.set_model_props(model, dict(about))
    content: bytes = model.SerializeToString()
    return content


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's warnings about packages that are not needed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        logger.setLevel(level)


def compare(encoder: Encoder, modality: Modality, content: bytes, given: npt.NDArray[np.generic]) -> Parity:
    """Compare the outputs of the file and of the encoder for the same vectors, ``(n, *shape)``."""
    session = _session(content)
    difference, size, equal, ties = 0.0, 0.0, 0, 0
    for _, rows in blocks(np.arange(len(given)), BLOCK_ROWS):
        ours = encoder.outputs(given[rows], modality)
        theirs = session.run([OUTPUT], {INPUT: np.ascontiguousarray(given[rows])})[0]
        difference = max(difference, float(np.abs(ours - theirs).max()))
        size = max(size, float(np.abs(ours).max()))
        differ = (ours >= 0) != (theirs >= 0)
        same = ~differ.any(axis=1)
        equal += int(same.sum())
        ties += int((~same & ~(differ & (np.abs(ours) >= TOLERANCE)).any(axis=1)).sum())
    return Parity(len(given), difference, size, equal, ties)


def _session(content: bytes) -> Any:  # noqa: ANN401  a class of onnxruntime, which has no types
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def refuse_difference(modality: Modality, parity: Parity) -> None:
    """Check that an exported network agrees with torch.

    Raises:
        UserError: if an output differs by more than the tolerance (or is not a number), or a code differs.
    """
    if not parity.largest_difference <= TOLERANCE or parity.equal_share < 1:
        raise UserError(
            f"The {modality} tower as ONNX does not agree with torch on {parity.items:,} items: outputs of up to "
            f"{parity.largest_output:.3g} differ by up to {parity.largest_difference:.2g} ({TOLERANCE:.0e} is allowed), and "
            f"{parity.items - parity.ties - parity.equal_codes:,} codes differ. Nothing was written; use `silohash encode`."
        )
