"""Open the index of a silo for writing, with the model that built it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from silohash.base.types import MODALITIES, UserError
from silohash.index.base import IndexManifest
from silohash.index.listing import note_indexed
from silohash.index.store import Store
from silohash.run.folder import Run
from silohash.run.model.encoder import Encoder
from silohash.service.items.indexer import Indexer


def prepare_index(run: Run, silo: str) -> None:
    """Create the index files of a silo that do not exist, so that items can be added and searched.

    Raises:
        UserError: If the run does not have a model, or it is not known which personal model the silo uses.
    """
    folder = run.index_folder / silo
    encoder = encoder_of(run, silo)
    missing = [modality for modality in encoder.featurizers if not (folder / f"{modality}.sqlite").exists()]
    for modality in missing:
        path = folder / f"{modality}.sqlite"
        try:
            Store.create(path, IndexManifest(encoder.digest, encoder.bits, modality, silo=silo)).close()
        except UserError:
            if not path.exists():  # otherwise another process of the silo has just created it
                raise
    if missing:
        note_indexed(run.index_folder, silo, tuple(encoder.featurizers), run.silo_names)


def open_indexer(run: Run, silo: str, folder: Path, fields: Collection[str], index: Path | None = None) -> Indexer:
    """Open the index of a silo for writing.

    Args:
        run: The run whose model encodes the items.
        silo: Name of the silo.
        folder: The items folder.
        fields: The fields that the policy of the silo releases.
        index: Folder of the index; None for that of the silo in the run.

    Raises:
        UserError: As `Indexer` and `prepare_index`.
    """
    return Indexer(index or run.index_folder / silo, silo, folder, encoder_of(run, silo), fields)


def encoder_of(run: Run, silo: str) -> Encoder:
    """Return the encoder of a silo: of its personal model, of the model that built its index, or of the global model.

    Raises:
        UserError: If the run does not have a model, or silos use personal models and none can be told for this silo.
    """
    if not run.model.personalized or silo in run.model.names:
        return run.model.encoder(run.model.deployed_by(silo))
    for modality in MODALITIES:
        path = run.index_folder / silo / f"{modality}.sqlite"
        if path.exists():
            with Store.open(path) as store:
                return run.model.encoder(run.model.name_of(store.manifest.model_digest))
    return run.model.encoder(run.model.shared_name())
