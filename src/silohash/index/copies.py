"""Copies of indexes on a server: how they are made, follow their index files, and are removed.

The index file stays the source of truth: it holds ids, payloads and a log of codes. A copy is a table or a collection of the
server. A record beside the index file, such as ``image.pgvector.json``, names the copy and the state of the file that it
holds. When an index is built again, its folder is replaced, and the record with it, so a copy is never taken for that of
another index. The file ``collections.json`` in the index folder lists every copy that was created, so that those that no
record names any more can be removed.
"""

import hashlib
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from silohash.base.errors import CopyMissing, IndexDiffers, NotIndexed, UserError
from silohash.base.files import closed_on_error, read_json, write_json
from silohash.base.locks import locked, locked_run
from silohash.base.types import Modality, Notify
from silohash.index import SERVERS
from silohash.index.base import Index, Keys, positions
from silohash.index.codes import Words, to_bytes
from silohash.index.config import IndexConfig, read_index_config, write_index_config
from silohash.index.listing import index_files
from silohash.index.server import ServerIndex, time_limit
from silohash.index.store import Store

INDEX = "index"
COLLECTIONS = "collections.json"
WAIT_SECONDS = 60.0

Backend: TypeAlias = str | IndexConfig
"""A backend in memory by its name, or any backend with its settings."""

MOVE_AGAIN = "Remove it, and run silohash index move again."


class Copy(BaseModel, frozen=True):
    """The record of a copy.

    Attributes:
        collection: Name of the table or collection on the server.
        approximate: Whether the server has an approximate index.
        version: `Store.version` of the index file whose items the copy holds; None until all of them were copied.
    """

    collection: str
    approximate: bool = False
    version: tuple[int, int, int] | None = None


class Created(BaseModel, frozen=True):
    """A copy that was created, and how to reach its server."""

    collection: str
    server: IndexConfig


class _Listed(BaseModel):
    """The form of ``collections.json``."""

    collections: tuple[Created, ...] = ()


def connect(config: IndexConfig, collection: str, bits: int, *, create: bool = False) -> ServerIndex:
    """Return the index of a collection.

    Raises:
        UserError: If the packages of the backend are not installed, the server cannot be reached, or the collection does not
            exist.
    """
    opened: ServerIndex = SERVERS.resolve(config.backend)(
        config.url(), collection, bits, approximate=config.approximate, create=create
    )
    return opened


def drop_copy(config: IndexConfig, collection: str) -> None:
    """Remove a collection from its server if it exists.

    Raises:
        UserError: If the packages of the backend are not installed, or the server cannot be used.
    """
    SERVERS.resolve(config.backend).drop(config.url(), collection)


def open_copy(store: Store, config: IndexConfig) -> ServerIndex:
    """Return the index of a store on a server, after bringing it up to date with the store.

    This takes as long as it needs, also if the search that comes first has a time limit. It would otherwise begin again with
    each search.

    Raises:
        UserError: If the index was not moved to the server, or the server cannot be used.
    """
    copy = read_copy(store.path, config)
    if copy is None or copy.version is None or copy.approximate != config.approximate:
        raise CopyMissing(
            f"The codes of {store.path} are not on the {config.backend} server. "
            f"Run: silohash index move RUN --to {config.backend}"
        )
    with closed_on_error(connect(config, copy.collection, store.manifest.bits)) as index:
        if copy.version != store.version():
            with time_limit(None), locked(store.path.parent, wait_seconds=WAIT_SECONDS):
                _follow(store, config, index, read_copy(store.path, config) or copy)
        index.remember(_live_keys(store))
    return index


def load_index(store: Store, backend: Backend, *, small_items: int | None = None, trie: bool = False) -> Index:
    """Build the index of a store in memory (`Store.load`), or connect to its copy on a server, see `open_copy`.

    The store closes the connection when it is closed, or connected again.

    Raises:
        UserError: If the file is damaged, the backend is unknown or not installed, or the server cannot be used.
    """
    if isinstance(backend, IndexConfig) and not backend.in_memory:
        copy = open_copy(store, backend)
        store.keep_open(copy)
        return copy
    name = backend if isinstance(backend, str) else backend.backend
    return store.load(name, small_items=small_items, trie=trie)


def copy_codes(store: Store, config: IndexConfig) -> tuple[int, str]:
    """Copy the codes of a store to a server, or bring an earlier copy up to date, and compare both.

    An interrupted copy is continued.

    Returns:
        The number of items, and the digest of their keys and codes.

    Raises:
        UserError: If the server cannot be used, or holds other codes than the store after they were copied again.
    """
    with locked(store.path.parent, wait_seconds=WAIT_SECONDS):
        for _ in range(2):
            index, copy = _opened(store, config)
            try:
                _follow(store, config, index, copy)
                expected, found = digest_of(store.codes(), store.manifest.bits), digest_of(index.stored(), index.bits)
                if found == expected:
                    return expected
            finally:
                index.close()
            drop_copy(config, copy.collection)
            copy_path(store.path, config.backend).unlink()
    raise IndexDiffers(
        f"The {config.backend} server holds {found[0]:,} codes with digest {found[1][:12]} instead of {expected[0]:,} with "
        f"{expected[1][:12]}, after copying {store.path} twice. Check whether another program writes to its collections."
    )


def refresh_copy(store: Store, config: IndexConfig) -> None:
    """Bring the copy of a store up to date, and create it if there is none. See `copy_codes`, which also compares both."""
    copy = read_copy(store.path, config)
    if copy is None or copy.version is None or copy.approximate != config.approximate:
        copy_codes(store, config)
    elif copy.version != store.version():
        open_copy(store, config).close()


def digest_of(parts: Iterable[tuple[Keys, Words]], bits: int) -> tuple[int, str]:
    """Return the number of codes, and a digest of their keys and codes, which does not depend on the size of the parts."""
    count, keys_digest, codes_digest = 0, hashlib.sha256(), hashlib.sha256()
    for keys, words in parts:
        count += len(keys)
        keys_digest.update(keys.astype("<i8").tobytes())
        codes_digest.update(to_bytes(words, bits).tobytes())
    return count, hashlib.sha256(keys_digest.digest() + codes_digest.digest()).hexdigest()


def copy_path(path: Path, backend: str) -> Path:
    """Return the path of the record of a copy.

    Example:
        >>> copy_path(Path("index/north/image.sqlite"), "pgvector").as_posix()
        'index/north/image.pgvector.json'
    """
    return path.with_suffix(f".{backend}.json")


def read_copy(path: Path, config: IndexConfig) -> Copy | None:
    """Return the record of the copy of an index file, or None if there is none.

    Raises:
        UserError: If the record is damaged.
    """
    place = copy_path(path, config.backend)
    return read_json(place, Copy, remedy=MOVE_AGAIN) if place.exists() else None


def created_copies(folder: Path) -> tuple[Created, ...]:
    """Return the copies that were created for the silos of an index folder, and were not removed since.

    Raises:
        UserError: If the list is damaged.
    """
    path = folder / COLLECTIONS
    return read_json(path, _Listed, remedy=MOVE_AGAIN).collections if path.exists() else ()


def list_copies(folder: Path, copies: Iterable[Created]) -> None:
    """Write the list of created copies."""
    write_json(folder / COLLECTIONS, _Listed(collections=tuple(copies)).model_dump(mode="json"))


def _opened(store: Store, config: IndexConfig) -> tuple[ServerIndex, Copy]:
    """Return the copy of a store, which is created if there is none, and its record."""
    copy = read_copy(store.path, config)
    if copy is None or copy.approximate != config.approximate:
        copy = Copy(collection=f"silohash_{secrets.token_hex(8)}", approximate=config.approximate)
        folder = store.path.parent.parent
        # The list and the record are written before the collection is created, so that no collection is forgotten.
        with locked(folder, wait_seconds=WAIT_SECONDS):
            list_copies(folder, [*created_copies(folder), Created(collection=copy.collection, server=config)])
        _write_copy(store, config, copy)
    if copy.version is not None:
        try:
            return connect(config, copy.collection, store.manifest.bits), copy
        except UserError:
            # The server was replaced by an empty one, or does not answer, which the last line finds out.
            copy = copy.model_copy(update={"version": None})
    return connect(config, copy.collection, store.manifest.bits, create=True), copy


def _follow(store: Store, config: IndexConfig, index: ServerIndex, copy: Copy) -> None:
    """Bring a copy up to date with its store, and note it in the record."""
    version = store.version()
    if copy.version == version:
        return
    known = 0 if copy.version is None else copy.version[0]
    if known:
        _add(index, store, lambda keys: keys >= known)
    if len(index) != len(store):
        if known:
            index.remove(store.removed_keys())
        if len(index) != len(store):
            _equalize(store, index)
    if not known:
        index.finish()
    _write_copy(store, config, copy.model_copy(update={"version": version}))


def _equalize(store: Store, index: ServerIndex) -> None:
    """Make the keys of a copy those of its store. The code of a key never changes in an index file, so keys suffice."""
    there = index.keys
    live = _live_keys(store)
    extra = there[~positions(live, there)[1]]
    if len(extra):
        index.remove(extra)
    _add(index, store, lambda keys: ~positions(there, keys)[1])


def _live_keys(store: Store) -> Keys:
    return np.concatenate([np.empty(0, np.int64), *(keys for keys, _ in store.codes())])


def _add(index: ServerIndex, store: Store, is_new: Callable[[Keys], npt.NDArray[np.bool_]]) -> None:
    """Add the codes of a store whose keys are new."""
    for keys, words in store.codes():
        new = is_new(keys)
        if new.any():
            index.add(keys[new], words[new])


def _write_copy(store: Store, config: IndexConfig, copy: Copy) -> None:
    write_json(copy_path(store.path, config.backend), copy.model_dump(mode="json"))


@dataclass(frozen=True)
class Moved:
    """An index that was moved. The digest of its keys and codes is the same in the index file and in the new backend."""

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
            raise NotIndexed(f"There is no index in {folder / INDEX}. Build it: silohash index {folder}")
        if config.url_file is not None:
            # Commands run in any folder.
            config = config.model_copy(update={"url_file": config.url_file.resolve()})
        # Searches follow this file, so it changes after the last copy was made.
        kept = {"outputs": read_index_config(folder).outputs}
        write_index_config(folder, config.model_copy(update=kept))
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
