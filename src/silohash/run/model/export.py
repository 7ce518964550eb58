"""Export of towers as ONNX files, for programs without torch and silohash.

Files are written only if they give the same codes as torch (`silohash.run.model.onnx_graph`). Each file describes its input
in its metadata, and the featurizer's state is written beside it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from silohash import __version__, features
from silohash.base.errors import ModalityNeeded, NotExportable
from silohash.base.files import check_own_folder, write_bytes, write_json
from silohash.base.optional import require
from silohash.base.types import Modality, Rows
from silohash.data.archive import Archive
from silohash.features.base import Featurizer
from silohash.features.network import NETWORK_FILES
from silohash.features.vectors import vectors
from silohash.run.model.encoder import Encoder

if TYPE_CHECKING:
    from silohash.run.model.onnx_graph import Parity
    from silohash.run.model.saved import SavedModel

RECORD = "export.json"
CODE = "bit j of the code is 1 where output j is at least 0"


@dataclass(frozen=True)
class ExportedTower:
    """One exported file: its modality, its path, and its agreement with torch."""

    modality: Modality
    path: Path
    parity: Parity


def export_onnx(
    saved: SavedModel, archive: Archive, folder: Path, *, run: str = "", name: str | None = None
) -> list[ExportedTower]:
    """Write ``image.onnx``, ``text.onnx``, their featurizers and ``export.json`` into a folder, and return what was written.

    Args:
        saved: The model.
        archive: Items on which the files are compared with torch.
        folder: The folder of the files; existing files of the same names are replaced.
        run: The name of the run, which the files record.
        name: Name of the silo whose model is exported. By default, the model that every silo deploys.

    Raises:
        UserError: If a package is missing, the folder holds other files, the run has no such model, the model encodes
            items with their labels, or an exported network does not agree with torch. Nothing is written in these cases.
    """
    for package in ("torch", "onnx"):
        require(package, "Export")
    from silohash.run.model.onnx_graph import TOLERANCE, ExportedOutputs, compare, difference, onnx_bytes
    from silohash.run.model.torch_towers import TorchTowers

    check_own_folder(folder, RECORD)
    encoder = saved.trained.encoder(saved.shared_name() if name is None else name)
    assert isinstance(encoder.towers, TorchTowers)  # noqa: S101  a model in memory is run by torch
    encoder.check_without_labels("The model cannot be exported,")
    made: list[tuple[ExportedTower, bytes]] = []
    for modality, featurizer in encoder.featurizers.items():
        rows = compared_rows(archive, modality)
        given = vectors(archive, featurizer, rows)
        about = {"run": run, "config_digest": saved.trained.config.digest(), **description(encoder, modality, given)}
        content = onnx_bytes(ExportedOutputs(encoder.towers, modality).eval(), given, about)
        parity = compare(encoder.towers, modality, content, given)
        if sentence := difference(modality, parity):
            raise NotExportable(f"{sentence} Nothing was written; use `silohash encode`.")
        made.append((ExportedTower(modality, folder / f"{modality}.onnx", parity), content))
    for tower, content in made:
        write_bytes(tower.path, content)
        features.save(encoder.featurizers[tower.modality], folder / f"features-{tower.modality}.safetensors")
    towers = {tower.modality: {"file": tower.path.name, **asdict(tower.parity)} for tower, _ in made}
    about_all = {"silohash": __version__, "run": run, "model_digest": encoder.digest, "bits": encoder.bits}
    write_json(folder / RECORD, {**about_all, "tolerance": TOLERANCE, "towers": towers})
    return [tower for tower, _ in made]


def compared_rows(archive: Archive, modality: Modality) -> Rows:
    """Return the rows on which the file is compared with torch.

    These are the queries, or the database if no query has the modality.

    Raises:
        UserError: If no item has the modality.
    """
    for split in ("query", "database"):
        rows = archive.splits.get(split, np.zeros(0, np.int64))
        rows = rows[archive.has(modality)[rows]]
        if len(rows):
            return rows
    raise ModalityNeeded(
        f'Archive "{archive.card.name}" has no item with {modality}, so the export cannot be checked. '
        "Write codes instead: silohash encode"
    )


def description(encoder: Encoder, modality: Modality, given: npt.NDArray[np.generic]) -> dict[str, str]:
    """Return the metadata that is stored in the file, as strings."""
    about = plain_settings(encoder.featurizers[modality])
    return {
        "silohash": __version__,
        "model_digest": encoder.digest,
        "modality": modality,
        "bits": str(encoder.bits),
        "code": CODE,
        "input": json.dumps({"shape": ["items", *given.shape[1:]], "type": given.dtype.name}),
        "preprocessing": json.dumps({**about, "state": f"features-{modality}.safetensors"}, sort_keys=True),
    }


def plain_settings(featurizer: Featurizer) -> dict[str, Any]:
    """Return a featurizer's settings for other programs, including those of its network. Files are given by name."""
    _, about = featurizer.state()
    flat = {**about, **about.get("options", {})}
    flat.pop("options", None)
    return flat | {name: Path(flat[name]).name for name in NETWORK_FILES if flat.get(name)}
