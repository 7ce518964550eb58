"""Bring the index of a silo up to the items of its items folder, in batches.

Codes are computed by the model that built the index. Each batch is one transaction per index file. Searches see it when it
has been written, and are answered meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from logging import WARNING
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np

from silohash.base.errors import ModelsDiffer, UserError
from silohash.base.files import closed_on_error
from silohash.base.types import MODALITIES, Modality, Rows
from silohash.data.archive import Archive, ArchiveCard, as_texts, multi_hot
from silohash.data.pictures.reading import PictureFiles
from silohash.index.codes import Codes
from silohash.index.listing import note_indexed
from silohash.index.store import Store
from silohash.run.folder import Run
from silohash.run.indexing import cannot_encode, create_store, encodable_rows, fields_to_store, shown_of
from silohash.run.model.encoder import Encoder
from silohash.run.model.node_files import forgetting
from silohash.service.items.ledger import LEDGER, Entry, Ledger
from silohash.service.items.scan import FolderItem, Scan
from silohash.service.logs import log_event

T = TypeVar("T")

BATCH_ITEMS = 64
"""Number of items that are encoded at the same time. More take more memory, and let a program that puts an item wait."""

MOST_LOG_ENTRIES = 2_000
"""Number of entries of an index's log from which it is compacted, when there is nothing else to do."""

Part: TypeAlias = tuple[Codes, list[str], list[bytes | None] | None]
"""The codes of some items, their payloads, and their previews."""


@dataclass(frozen=True)
class Change:
    """Count the items that an update added or replaced, removed, and skipped.

    Items that had been skipped for the same reason before, and are tried again, do not count.
    """

    added: int = 0
    removed: int = 0
    skipped: int = 0

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.skipped)

    def __add__(self, other: Change) -> Change:
        return Change(self.added + other.added, self.removed + other.removed, self.skipped + other.skipped)


class Indexer:
    """Write the items of an items folder to the index of a silo. Several threads may use it, one at a time writes.

    Every method that writes raises a `UserError` if the index cannot be written.
    """

    def __init__(self, index: Path, silo: str, folder: Path, encoder: Encoder, fields: Collection[str]) -> None:
        """Open the index files, which are created if they do not exist.

        The ``fields`` of an item that the policy releases are stored with its codes.

        Raises:
            UserError: If a file is damaged or was built with another model, or the model encodes items with their labels.
        """
        encoder.check_without_labels("Items cannot be added,")
        self.index, self.digest, self.encoder = index, encoder.digest, encoder
        self._folder = folder
        # Paths of files would be relative to another folder than that of the archive.
        self._fields = frozenset(fields) - {"file"}
        self._lock = threading.RLock()
        with ExitStack() as opened:
            self._stores = {
                modality: opened.enter_context(_opened(index, silo, modality, encoder))
                for modality in encoder.featurizers
            }
            self.ledger = Ledger(index / LEDGER)
            opened.callback(self.ledger.close)
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Close the files, after a batch that is being written."""
        with self._lock:
            self._opened.close()

    @property
    def modalities(self) -> tuple[Modality, ...]:
        """The modalities that the model encodes."""
        return tuple(self._stores)

    def update(
        self, scan: Scan, before: Mapping[str, str], is_current: Callable[[FolderItem], bool], stopped: threading.Event
    ) -> Change:
        """Bring the index up to a scan of the folder, and return what has changed.

        What was added since `Ledger.stamps` returned ``before``, or is no longer as the scan found it, is left alone. The
        update ends early when ``stopped`` is set.
        """
        changed = [item for name, item in scan.items.items() if before.get(name) != item.stamp]
        gone = set(before) - set(scan.items) - scan.waiting if scan.complete else set()
        change = Change()
        for batch in _batches(sorted(gone)):
            with self._lock:
                absent = [name for name in batch if is_current(FolderItem(name))]
                self.remove(absent)
            change += Change(removed=len(absent))
        for items in _batches(changed):
            if stopped.is_set():
                break
            with self._lock:
                change += self.add([item for item in items if is_current(item)])
        return change

    def add(self, items: Sequence[FolderItem]) -> Change:
        """Add items, in place of former ones with the same ids, and return what has changed. Deleted ones are removed.

        An item that cannot be encoded is noted with the reason, and does not prevent the others.
        """
        with self._lock:
            deleted = [item for item in items if item.deleted]
            if deleted:
                self._drop([item.id for item in deleted])
                self.ledger.write(Entry(item.id, item.stamp, "removed", replaced=True) for item in deleted)
            return Change(removed=len(deleted)) + self._add_encodable([item for item in items if not item.deleted])

    def add_rows(self, archive: Archive, rows: Rows, modality: Modality, fields: Collection[str]) -> None:
        """Encode rows of an archive that have a modality, and add those that the index lacks, with some fields."""
        with self._lock:
            store = self._stores[modality]
            missing = rows[store.keys_of(archive.ids[rows].tolist()) < 0] if len(rows) else rows
            for part in self._parts(archive, missing, modality, fields):
                store.add_codes(*part)

    def _parts(self, archive: Archive, rows: Rows, modality: Modality, fields: Collection[str]) -> Iterator[Part]:
        """Yield the codes of rows. If they cannot be encoded together, each is encoded by itself or logged."""
        if not len(rows):
            return
        try:
            yield self._encoded(archive, rows, modality, fields)
        except UserError as error:
            if len(rows) == 1:
                log_event("item skipped", level=WARNING, id=str(archive.ids[rows[0]]), reason=str(error))
            else:
                for row in rows:
                    yield from self._parts(archive, np.array([row]), modality, fields)

    def remove(self, ids: Sequence[str]) -> None:
        """Remove items from the index."""
        with self._lock:
            self._drop(ids)
            self.ledger.forget(ids)

    def has(self, name: str) -> tuple[Modality, ...]:
        """Return the modalities of which the index holds a code of an item."""
        return tuple(modality for modality, store in self._stores.items() if store.has(name))

    def compact(self) -> None:
        """Shorten the log of each index file if it has grown long, so that processes start faster."""
        for store in self._stores.values():
            if store.version()[1] > MOST_LOG_ENTRIES:
                with self._lock:
                    store.compact()

    def _add_encodable(self, items: Sequence[FolderItem]) -> Change:
        """Encode and write items. If they cannot be encoded together, each is encoded by itself or skipped."""
        if not items:
            return Change()
        try:
            encoded = self._encode(items)
        except Exception as error:  # a decoder or a model may fail in any way on a damaged file
            if len(items) > 1:
                return sum((self._add_encodable([item]) for item in items), Change())
            return Change(skipped=self._skip(items[0], str(error) or type(error).__name__))
        with_code = {name for codes, _, _ in encoded.values() for name in codes.ids.tolist()}
        skipped = sum(self._skip(item, self._reason(item)) for item in items if item.id not in with_code)
        kept = [item for item in items if item.id in with_code]
        if kept:
            self._write(kept, encoded)
        return Change(added=len(kept), skipped=skipped)

    def _encode(self, items: Sequence[FolderItem]) -> dict[Modality, Part]:
        archive = archive_of(self._folder, items)
        encodable = encodable_rows(archive, self.encoder.featurizers, np.arange(len(items)))
        stored = fields_to_store(encodable, self._fields)
        return {name: self._encoded(archive, encodable[name], name, fields) for name, fields in stored.items()}

    def _encoded(self, archive: Archive, rows: Rows, modality: Modality, fields: Collection[str]) -> Part:
        return (self.encoder.codes(archive, rows, modality), *shown_of(archive, rows, fields))

    def _reason(self, item: FolderItem) -> str:
        if item.text and not item.picture and "text" in self.modalities:
            return "its text does not contain a word that the model knows"
        return cannot_encode(self.modalities)

    def _write(self, items: Sequence[FolderItem], encoded: Mapping[Modality, Part]) -> None:
        entries = [Entry(item.id, item.stamp, "pending", replaced=self._replaces(item.id)) for item in items]
        # Pending first: if the process ends between the files, the next one indexes these items again.
        self.ledger.write(entries)
        for modality, store in self._stores.items():
            part = encoded.get(modality)
            with_code = set() if part is None else set(part[0].ids.tolist())
            _remove_from(store, [item.id for item in items if item.id not in with_code])
            if part is not None:
                with forgetting(store, part[0].ids.tolist()):
                    store.add_codes(*part)
        self.ledger.write(replace(entry, state="indexed") for entry in entries)

    def _replaces(self, name: str) -> bool:
        """Return whether an item has the id of one of the first indexing, which is in the index if nothing else is known."""
        known = self.ledger.entry(name)
        return bool(self.has(name)) if known is None else known.replaced

    def _skip(self, item: FolderItem, reason: str) -> bool:
        """Note that an item cannot be indexed, and remove its former version. Return whether this was not known before."""
        entry = Entry(item.id, item.stamp, "skipped", reason, self._replaces(item.id))
        if entry == self.ledger.entry(item.id):
            return False
        # In this order: an item that is noted as skipped is never looked for in the index again.
        self._drop([item.id])
        self.ledger.write([entry])
        log_event("item skipped", level=WARNING, id=item.id, picture=item.picture, reason=reason)
        return True

    def _drop(self, ids: Sequence[str]) -> None:
        for store in self._stores.values():
            _remove_from(store, ids)


def prepare_index(run: Run, silo: str) -> None:
    """Create the index files of a silo that do not exist, so that items can be added and searched. See `encoder_of`."""
    folder = run.index_folder / silo
    encoder = encoder_of(run, silo)
    missing = [modality for modality in encoder.featurizers if not (folder / f"{modality}.sqlite").exists()]
    for modality in missing:
        try:
            create_store(folder, silo, modality, encoder).close()
        except UserError:
            if not (folder / f"{modality}.sqlite").exists():  # otherwise another process has just created it
                raise
    if missing:
        note_indexed(run.index_folder, silo, tuple(encoder.featurizers), run.silo_names)


def open_indexer(run: Run, silo: str, folder: Path, fields: Collection[str]) -> Indexer:
    """Open the index of a silo in a run for writing, with the run's model. The other arguments are those of `Indexer`."""
    return Indexer(run.index_folder / silo, silo, folder, encoder_of(run, silo), fields)


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
            with Store(path) as store:
                return run.model.encoder(run.model.name_of(store.manifest.model_digest))
    return run.model.encoder(run.model.shared_name())


def archive_of(folder: Path, items: Sequence[FolderItem]) -> Archive:
    """Return items of a folder as an archive, without reading their pictures."""
    names = sorted({label for item in items for label in item.labels})
    everything, nothing = np.arange(len(items)), np.zeros(0, np.int64)
    return Archive(
        ids=np.array([item.id for item in items], np.str_),
        image=PictureFiles(folder, [item.picture for item in items]),
        text=as_texts([item.text for item in items])[0],
        labels=multi_hot([item.labels for item in items], names),
        label_names=tuple(names),
        splits={"query": nothing, "database": everything, "train": nothing},
        card=ArchiveCard(name=folder.name, source="items of a silo", license="the silo's own"),
        has_image=np.array([bool(item.picture) for item in items]),
        has_text=np.array([bool(item.text) for item in items]),
    )


def _batches(values: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(values), BATCH_ITEMS):
        yield values[start : start + BATCH_ITEMS]


def _opened(index: Path, silo: str, modality: Modality, encoder: Encoder) -> Store:
    path = index / f"{modality}.sqlite"
    if not path.exists():
        return create_store(index, silo, modality, encoder)
    with closed_on_error(Store(path)) as store:
        store.manifest.check_holder(silo, modality)
        if store.manifest.model_digest != encoder.digest:
            raise ModelsDiffer(
                f"{path} was built with model {store.manifest.model_digest[:12]}, and the run has {encoder.digest[:12]}. "
                "Index the silo again: silohash index RUN"
            )
    return store


def _remove_from(store: Store, ids: Sequence[str]) -> None:
    if len(ids):
        present = store.keys_of(ids) >= 0
        if present.any():
            with forgetting(store, ids):
                store.remove([name for name, there in zip(ids, present.tolist(), strict=True) if there])
