"""Move the indexes of a run to another backend, and remove the copies on servers that are not used any more."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from silohash.base.locks import locked_run
from silohash.base.types import Modality, Notify, UserError
from silohash.index.config import IndexConfig, read_index_config, write_index_config
from silohash.index.copies import (
    Created,
    copy_codes,
    copy_path,
    created_copies,
    digest_of,
    drop_copy,
    list_copies,
    read_copy,
    refresh_copy,
)
from silohash.index.listing import index_files
from silohash.index.store import Store

INDEX = "index"


@dataclass(frozen=True)
class Moved:
    """An index that was moved.

    Attributes:
        silo: Name of the silo.
        modality: Modality of the codes.
        count: Number of items.
        digest: Digest of their keys and codes, which is the same in the index file and in the new backend.
    """

    silo: str
    modality: Modality
    count: int
    digest: str


def move_indexes(folder: Path, config: IndexConfig, notify: Notify = lambda text: None) -> list[Moved]:
    """Move the indexes of all silos of a run to another backend. Searches use the former backend until all were moved.

    If the move is interrupted, repeat it: what was copied is kept. ``notify`` gets a line per index, in the order of the
    silos' names, and for each copy that could not be removed from its server.

    Raises:
        UserError: If the run is not indexed, the server cannot be used, a copy differs from its index file, or another
            process writes to the run.
    """
    config.check_installed()
    if not config.in_memory:
        # Without the URL, copies would be listed that cannot be made.
        config.url()
    with locked_run(folder):
        moved = []
        for silo, modality, path in index_files(folder / INDEX):
            with Store(path) as store:
                count, digest = (
                    digest_of(store.codes(), store.manifest.bits) if config.in_memory else copy_codes(store, config)
                )
            moved.append(Moved(silo, modality, count, digest))
            notify(f"{silo}, {modality}: {count:,} items, digest {digest[:12]}")
        if not moved:
            raise UserError(f"There is no index in {folder / INDEX}. Build it: silohash index {folder}")
        if config.url_file is not None:
            # Commands run in any folder.
            config = config.model_copy(update={"url_file": config.url_file.resolve()})
        # Searches follow this file, so it changes after the last copy was made.
        write_index_config(folder, config)
        remove_unused(folder, notify)
    return moved


def follow_indexes(folder: Path, notify: Notify = lambda text: None) -> None:
    """Bring the copies on a server up to date after the indexes of a run have changed. Does nothing for backends in memory.

    ``notify`` gets a line for each copy that could not be removed from its server.

    Raises:
        UserError: If the server cannot be used. A later search or a repeated move brings the copies up to date.
    """
    config = read_index_config(folder)
    if not config.in_memory:
        for _, _, path in index_files(folder / INDEX):
            with Store(path) as store:
                refresh_copy(store, config)
    remove_unused(folder, notify)


def remove_unused(folder: Path, notify: Notify = lambda text: None) -> None:
    """Remove the copies on servers that searches do not use any more. What cannot be removed remains listed."""
    config, copies = read_index_config(folder), created_copies(folder / INDEX)
    paths = [path for _, _, path in index_files(folder / INDEX)]
    records = [] if config.in_memory else [read_copy(path, config) for path in paths]
    used = {copy.collection for copy in records if copy is not None}
    kept = tuple(copy for copy in copies if copy.collection in used or not _removed(copy, notify))
    if kept != copies:
        list_copies(folder / INDEX, kept)
    for path in paths:
        for record in path.parent.glob(f"{path.stem}.*.json"):
            if record != copy_path(path, config.backend):
                record.unlink()


def _removed(copy: Created, notify: Notify) -> bool:
    """Remove a copy from its server, and return whether it is gone."""
    try:
        drop_copy(copy.server, copy.collection)
    except UserError as error:
        notify(f"The copy {copy.collection} could not be removed, and remains listed: {error}")
        return False
    return True
