"""Move the indexes of a run to another backend, and remove the copies on servers that are not used any more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from silohash.base.errors import NotIndexed, UserError
from silohash.base.files import PART
from silohash.base.locks import locked_run
from silohash.base.types import MODALITIES, Modality, Notify
from silohash.index.config import IndexConfig, read_index_config, write_index_config
from silohash.index.copies import (
    Copy,
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

    If the move is interrupted, repeat it: what was copied is kept.

    Args:
        folder: The folder of the run.
        config: The new backend.
        notify: Called with a line per index, and for each copy that could not be removed from its server.

    Returns:
        The moved indexes, in the order of the silos' names.

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
        for silo, modality, path in _index_files(folder / INDEX):
            with Store.open(path) as store:
                count, digest = (
                    digest_of(store.codes(), store.manifest.bits) if config.in_memory else copy_codes(store, config)
                )
            moved.append(Moved(silo, modality, count, digest))
            notify(f"{silo}, {modality}: {count:,} items, digest {digest[:12]}")
        if not moved:
            raise NotIndexed(f"There is no index in {folder / INDEX}. Build it: silohash index {folder}")
        # Searches follow this file, so it changes after the last copy was made.
        write_index_config(folder, _with_absolute_file(config))
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
        for _, _, path in _index_files(folder / INDEX):
            with Store.open(path) as store:
                refresh_copy(store, config)
    remove_unused(folder, notify)


def remove_unused(folder: Path, notify: Notify = lambda text: None) -> None:
    """Remove the copies on servers that searches do not use any more. What cannot be removed remains listed."""
    config, copies = read_index_config(folder), created_copies(folder / INDEX)
    used = {copy.collection for copy in _used_copies(folder / INDEX, config)}
    kept = tuple(copy for copy in copies if copy.collection in used or not _removed(copy, notify))
    if kept != copies:
        list_copies(folder / INDEX, kept)
    for _, _, path in _index_files(folder / INDEX):
        for record in path.parent.glob(f"{path.stem}.*.json"):
            if record != copy_path(path, config.backend):
                record.unlink()


def _used_copies(index_folder: Path, config: IndexConfig) -> Iterator[Copy]:
    """Yield the records of the copies that searches use."""
    if not config.in_memory:
        copies = (read_copy(path, config) for _, _, path in _index_files(index_folder))
        yield from (copy for copy in copies if copy is not None)


def _removed(copy: Created, notify: Notify) -> bool:
    """Remove a copy from its server, and return whether it is gone."""
    try:
        drop_copy(copy.server, copy.collection)
    except UserError as error:
        notify(f"The copy {copy.collection} could not be removed, and remains listed: {error}")
        return False
    return True


def _with_absolute_file(config: IndexConfig) -> IndexConfig:
    """Return the choice with an absolute path of its URL file, because commands run in any folder."""
    return config if config.url_file is None else config.model_copy(update={"url_file": config.url_file.resolve()})


def _index_files(index_folder: Path) -> Iterator[tuple[str, Modality, Path]]:
    """Yield the name of a silo, a modality and the path of its index file, in the order of the silos' names."""
    for silo in sorted(index_folder.glob("*")):
        for modality in MODALITIES:
            path = silo / f"{modality}.sqlite"
            if path.exists() and not PART.fullmatch(silo.name):
                yield silo.name, modality, path
