"""The change of a silo to the model of a new run, while it answers.

All items of the old index are encoded again from their archive, in small batches, into a folder beside the indexes of the
new run. The items of the items folder follow. The folder then becomes the silo's index in the new run by a single rename. A
build that was interrupted continues with the items that are missing.

The process that keeps the index builds the new one, and removes the old one. Every process of the silo opens the new index
when it is finished, and closes the old one when nobody has searched it for some time.
"""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, closing
from logging import WARNING
from pathlib import Path

import numpy as np

from silohash.base.errors import NotSupported, SettingNeeded, UserError
from silohash.base.files import closed_on_error, explaining_disk_errors, read_json
from silohash.base.memory import return_unused
from silohash.base.types import MODALITIES, Modality, Rows
from silohash.data.archive import Archive
from silohash.data.catalogue import open_archive
from silohash.index.listing import is_indexed, note_indexed
from silohash.index.source import SOURCE
from silohash.index.store import Store
from silohash.run.folder import Run
from silohash.run.indexing import NOTE, encodable_rows, fields_to_store
from silohash.run.model.node_files import nodes_folder
from silohash.search.policy import Policy
from silohash.search.silos import open_node
from silohash.service.config import SiloConfig
from silohash.service.items.indexer import Indexer, encoder_of, open_indexer
from silohash.service.items.keeper import Keeper, Server
from silohash.service.items.ledger import LEDGER, Ledger
from silohash.service.logs import log_event, logged_errors
from silohash.service.models import SiloModels

SECONDS_PER_HOUR = 3600.0
LAST_QUERY_SECONDS = 1.0

BUILDING = "index-next"
"""Name of the folder in the new run in which indexes are built."""

BATCH_ROWS = 256
"""Number of items of the archive that are encoded at the same time."""

KEYS_AT_ONCE = 10_000
FAILED = "the change to the new model failed"
"""Event of an unexpected error, after which the process answers with the old model."""

NAMED = 10
"""Number of items without a new code that one line of the log names. Each has a line of its own with the reason."""


class ModelChange:
    """Keep the index of a silo, and change this process to a new model. Use it in a ``with`` block.

    Attributes:
        keeper: Keeps the index; None if neither items nor a new run change it.
        successor: Builds the new index; None if there is no new run, or the change is over.
    """

    def __init__(
        self, config: SiloConfig, models: SiloModels, executor: Executor, serve_items: Server | None = None
    ) -> None:
        """Begin to keep the index, and to change to the new run that the config names, if it is not indexed yet.

        The executor runs the answers, one at a time. ``serve_items`` serves the API of `ItemsSettings.listen`.

        Raises:
            UserError: If the index cannot be opened, the API cannot be served, or the new run does not have a model.
        """
        self._models, self._executor, self._serve_items = models, executor, serve_items
        self._config = config
        self._looking = threading.Lock()
        self._kept = ExitStack()
        self.keeper: Keeper | None = None
        self.successor: Successor | None = None
        with ExitStack() as begun:
            begun.callback(self._kept.close)
            if config.items is not None or config.next_run is not None:
                self.keeper = self._keep()
            self.begin(config)
            begun.pop_all()

    def __enter__(self) -> ModelChange:
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()

    def begin(self, config: SiloConfig) -> None:
        """Begin to change to the new run that a config names, unless the change to it is under way.

        Raises:
            UserError: If the folder does not hold a trained run, or the change to another run is under way.
        """
        awaited = self._config.next_run
        if self.successor is not None and config.next_run != awaited:
            raise NotSupported(
                f"next_run was changed while the silo changes to the model of {awaited}. Start the silo again to use "
                "another run."
            )
        self._config = config
        if config.next_run is None or self.successor is not None:
            return
        successor = successor_of(config, self._models.policy)
        if successor.is_searched_alone:
            return
        self.keeper = self.keeper or self._keep()
        self.successor = successor
        self._models.unready = successor.unready
        self.keeper.follow(successor)

    def look(self) -> None:
        """Open the new index if it is finished, and close the old one if nobody needs it."""
        successor = self.successor
        if successor is None:
            return
        with self._looking:
            if len(self._models.nodes) == 1 and successor.finished:
                node = open_node(successor.new.index_folder, successor.silo, self._models.policy, run=successor.new)
                self._models.add(node)
                log_event("answering with the new model, too", silo=successor.silo, model=node.model_digest)
            unused = self._models.unused_seconds()
            if unused is not None and unused >= self._config.keep_old_hours * SECONDS_PER_HOUR:
                oldest = self._models.drop_oldest()
                # A query may still be answered from it; the executor that answers closes it, so never during an answer.
                time.sleep(LAST_QUERY_SECONDS)
                self._executor.submit(oldest.close).result()
                if self.keeper is not None:
                    self.keeper.drop_old()
                return_unused()
                self.successor = None
                log_event("answering with the new model only", silo=successor.silo)

    def _keep(self) -> Keeper:
        run, silo, folder = Run.open(self._config.run), self._config.silo, self._config.items_folder
        following = None if self._config.next_run is None else Run.open(self._config.next_run)

        def opener() -> Indexer:
            """Open the index of the new run if the old one was removed."""
            kept = run if following is None or not is_replaced(run, following, silo) else following
            return open_indexer(kept, silo, folder, self._models.policy.stored)

        keeper = Keeper(folder, run.index_folder / f".{silo}.items.lock", opener, self._serve_items)
        return self._kept.enter_context(keeper)

    async def look_again(self) -> None:
        """Do `look` in a thread, and log the error with which it ends."""
        with logged_errors("the change to the new model does not go on", FAILED):
            await asyncio.to_thread(self.look)

    async def reload(self, read: Callable[[], SiloConfig]) -> None:
        """Read the file of the silo again, and begin to change to the new run that it names.

        Other changes of the file need a restart.
        """
        with logged_errors("the config cannot be read again", FAILED):
            await asyncio.to_thread(lambda: self.begin(read()))
            log_event("the config was read again", next_run=str(self._config.next_run or ""))


def successor_of(config: SiloConfig, policy: Policy) -> Successor:
    """Return what builds the index of the new run that a config names.

    Raises:
        UserError: If the config does not name one, or its folder does not hold a trained run.
    """
    if config.next_run is None:
        raise SettingNeeded("The file of the silo does not name a new run. Set next_run.")
    runs = Run.open(config.run), Run.open(config.next_run)
    return Successor(*runs, config.silo, folder=config.items_folder, fields=policy.stored, archive=config.archive)


def is_replaced(run: Run, following: Run, silo: str) -> bool:
    """Return whether the index of a new run is finished, and that of the old run was removed."""
    return is_indexed(following.index_folder, silo) and not is_indexed(run.index_folder, silo)


class Successor:
    """Build the index of a silo for the model of a new run."""

    def __init__(
        self, old: Run, new: Run, silo: str, *, folder: Path, fields: Collection[str], archive: Path | None = None
    ) -> None:
        """Prepare to build with the model of the new run.

        The policy releases ``fields``. The old index was built from the archive; None for the one that is noted beside it.
        """
        self.old, self.new, self.silo = old, new, silo
        self._folder, self._fields, self._archive = folder, fields, archive
        self._digests = frozenset(new.model.digest(name) for name in new.model.names)
        self._done = self._total = 0

    @property
    def index(self) -> Path:
        """Folder of the finished index."""
        return self.new.index_folder / self.silo

    @property
    def is_searched_alone(self) -> bool:
        """Whether the change is over: the new index is finished, and the old one was removed."""
        return is_replaced(self.old, self.new, self.silo)

    @property
    def finished(self) -> bool:
        """Whether the index is finished."""
        return is_indexed(self.new.index_folder, self.silo)

    def unready(self, model_digest: str) -> str:
        """Return why a model of the new run cannot be searched with yet; empty for other models."""
        count = f" ({self._done:,} of {self._total:,} are done)" if self._total else ""
        return f"It is still encoding its items with the new model{count}." if model_digest in self._digests else ""

    def build(self, stopped: threading.Event) -> Indexer:
        """Encode the items of the old index, and return the index, which is still in the folder for unfinished ones.

        The build ends early when ``stopped`` is set.
        """
        place = self.new.folder / BUILDING / self.silo
        encoder = encoder_of(self.new, self.silo)
        if not _is_of_model(place, encoder.digest):
            shutil.rmtree(place, ignore_errors=True)  # it was begun for another model
        with closed_on_error(Indexer(place, self.silo, self._folder, encoder, self._fields)) as indexer:
            self._encode_old(indexer, stopped)
        return indexer

    def finish(self, indexer: Indexer) -> Indexer:
        """Make the result of `build` the index of the silo in the new run, and return it opened in its new place.

        The items of the folder have been added to the indexer, which is closed.
        """
        place, modalities = indexer.index, indexer.modalities
        surplus = _ids(place) - self._old_ids()
        indexer.remove(sorted(surplus))  # removed from the old index since they were encoded
        self._log_lost(place, modalities)
        self._write_nodes(indexer)
        indexer.close()
        for name in (SOURCE, NOTE):
            if (self.old.index_folder / self.silo / name).exists():
                shutil.copyfile(self.old.index_folder / self.silo / name, place / name)
        # One rename, after everything is written: an index in this place is complete.
        with explaining_disk_errors(self.index):
            self.index.parent.mkdir(parents=True, exist_ok=True)
            place.rename(self.index)
        note_indexed(self.new.index_folder, self.silo, modalities, self.new.silo_names)
        log_event(
            "all items are encoded with the new model", silo=self.silo, items=self._done, run=str(self.new.folder)
        )
        return self.open()

    def open(self) -> Indexer:
        """Return the finished index, opened for writing."""
        return open_indexer(self.new, self.silo, self._folder, self._fields)

    def remove_old(self) -> None:
        """Remove the old index of the silo."""
        shutil.rmtree(self.old.index_folder / self.silo, ignore_errors=True)
        log_event("the index of the old model was removed", silo=self.silo, run=str(self.old.folder))

    def _encode_old(self, indexer: Indexer, stopped: threading.Event) -> None:
        wanted = self._old_ids()
        self._total = len(wanted)
        if not wanted:
            return
        archive, rows = self._archive_rows(wanted)
        if len(rows) < len(wanted):
            log_event(
                "items are not in the archive any more",
                level=WARNING, silo=self.silo, items=len(wanted) - len(rows), archive=archive.card.name,
            )  # fmt: skip
        encodable = encodable_rows(archive, indexer.encoder.featurizers, rows)
        fields = fields_to_store(encodable, self._fields)
        held = {modality: np.isin(rows, present) for modality, present in encodable.items()}
        for start in range(0, len(rows), BATCH_ROWS):
            if stopped.is_set():
                return
            batch = rows[start : start + BATCH_ROWS]
            for modality in fields:
                indexer.add_rows(archive, batch[held[modality][start : start + BATCH_ROWS]], modality, fields[modality])
            self._done = start + len(batch)

    def _log_lost(self, place: Path, modalities: Sequence[Modality]) -> None:
        for modality in modalities:
            lost = sorted(_ids(self.old.index_folder / self.silo, [modality]) - _ids(place, [modality]))
            if lost:
                log_event(
                    f"{modality}s of the old index are not in the new one, because they could not be read or encoded",
                    level=WARNING, silo=self.silo, items=len(lost), examples=lost[:NAMED],
                )  # fmt: skip

    def _write_nodes(self, indexer: Indexer) -> None:
        if not self.new.model.record.spec.scores_pairs:
            return
        from silohash.run.model.matcher import write_nodes

        archive, rows = self._archive_rows(_ids(indexer.index))
        for modality in indexer.modalities:
            shutil.rmtree(nodes_folder(indexer.index, modality), ignore_errors=True)  # begun before an interruption
            with Store(indexer.index / f"{modality}.sqlite") as store:
                keys = store.keys_of(archive.ids[rows].tolist())
            write_nodes(indexer.index, indexer.encoder, archive, rows[keys >= 0], modality, keys[keys >= 0])

    def _old_ids(self) -> set[str]:
        """Return the ids of the items of the old index that do not come from the items folder."""
        return _ids(self.old.index_folder / self.silo)

    def _archive_rows(self, ids: Collection[str]) -> tuple[Archive, Rows]:
        """Return the archive that the old index was built from, and its rows with some ids."""
        archive = self._open_archive()
        return archive, np.array([row for row, name in enumerate(archive.ids.tolist()) if name in ids], np.int64)

    def _open_archive(self) -> Archive:
        if self._archive is not None:
            return open_archive(None, self._archive)
        note = self.old.index_folder / self.silo / NOTE
        folder = read_json(note, dict[str, str | None]).get("folder") if note.exists() else None
        try:
            return self.old.archive if folder is None else open_archive(None, Path(folder))
        except UserError as error:
            raise error.reworded(
                f"{error} Or set archive in the file of the silo to the folder of its items."
            ) from error


def _is_of_model(place: Path, digest: str) -> bool:
    """Return whether an unfinished index was begun with a model. An empty folder counts as one."""
    for modality in MODALITIES:
        path = place / f"{modality}.sqlite"
        if path.exists():
            try:
                with Store(path) as store:
                    if store.manifest.model_digest != digest:
                        return False
            except UserError:  # it is damaged
                return False
    return True


def _ids(folder: Path, modalities: Sequence[Modality] = MODALITIES) -> set[str]:
    """Return the ids of the items of an index that do not come from the items folder, and have one of some modalities."""
    found: set[str] = set()
    for modality in modalities:
        if (folder / f"{modality}.sqlite").exists():
            with Store(folder / f"{modality}.sqlite") as store:
                keys = np.concatenate([np.empty(0, np.int64), *(keys for keys, _ in store.codes())])
                for start in range(0, len(keys), KEYS_AT_ONCE):
                    found.update(store.item_ids(keys[start : start + KEYS_AT_ONCE]))
    if (folder / LEDGER).exists():
        with closing(Ledger(folder / LEDGER)) as ledger:
            found -= ledger.indexed_ids()
    return found
