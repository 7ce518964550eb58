"""Keep the index of a silo up to its items folder: watch the folder, and take items from programs.

If several processes answer for a silo, one of them keeps the index, and another takes over when it ends. All of them see
what changes, because an index file tells when it was changed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import asdict, dataclass
from logging import ERROR, WARNING, getLogger
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from filelock import FileLock, Timeout

from silohash.base.errors import InUse, MissingFile, UserError
from silohash.base.files import explaining_disk_errors
from silohash.base.memory import return_unused
from silohash.base.optional import require
from silohash.base.types import Modality
from silohash.service.items.indexer import Change, Indexer
from silohash.service.items.scan import PUT, FolderItem, FolderScanner, Record
from silohash.service.logs import log_event, logged_errors

if TYPE_CHECKING:
    from silohash.service.items.change import Successor

LOOK_MILLISECONDS = 500
"""Longest time between two looks for changes that were reported."""

QUIET_MILLISECONDS = 200
"""Changes are reported when there was none for this time, or at the latest after `LOOK_MILLISECONDS`."""

RESCAN_SECONDS = 300.0
"""The whole folder is read at least this often, because some network file systems do not report changes. Items that were
skipped are then tried again, because the disk or the network may have failed for a while."""

RETRY_SECONDS = 5.0
"""Pause after an index could not be written, as when the disk is full."""

TAKEOVER_SECONDS = 2.0
"""Pause between two attempts to become the process that keeps the index."""

BACKGROUND_PRIORITY = 10
"""Niceness of the thread that encodes items of the folder. Queries come first."""

NOT_MOUNTED = f"it does not have the subfolder {PUT}. If the folder is the right one, create the subfolder"
"""Why a folder is not read that may be the empty one of a disk that is not mounted."""

MOST_LOGGED = 20
"""Number of problems that are logged one by one at a time."""

Server: TypeAlias = "Callable[[Keeper], AbstractContextManager[object]]"
"""A function that serves the items API while its context lasts."""


@dataclass(frozen=True)
class ItemState:
    """Describe an item as the keeper knows it: whether searches can find it and, if not, the problem.

    The index holds a code of each of its modalities, which the model with the digest computed.
    """

    id: str
    indexed: bool = False
    modalities: tuple[Modality, ...] = ()
    model_digest: str = ""
    problem: str = ""


class Keeper:
    """Keep the index of a silo up to its items folder while a block runs.

    `put` and `delete` raise a `UserError` if an item cannot be written, or the folder is not the one of the index.
    """

    def __init__(self, folder: Path, lock: Path, opener: Callable[[], Indexer], server: Server | None = None) -> None:
        """Prepare to keep the index of an items folder, which is created if it does not exist.

        The process that holds the lock opens the index and, if there is a server, serves the API for programs.
        """
        require("watchfiles", "Watching the items folder")
        self.folder = folder
        self._lock_path, self._opener, self._server = lock, opener, server
        self._scanner = FolderScanner(folder)
        self._indexer: Indexer | None = None
        self._following: Indexer | None = None
        self._successor: Successor | None = None
        self._builder: threading.Thread | None = None
        self._changing = threading.RLock()
        self._updating = threading.RLock()
        self._scanning = threading.Lock()
        self._stopped = threading.Event()
        self._problems: dict[str, str] = {}
        self._unsettled = False
        self._kept = ExitStack()
        self._thread = threading.Thread(target=self._run, name="items", daemon=True)
        self.first_update = threading.Event()
        """Set when the whole folder was read for the first time."""

    def __enter__(self) -> Keeper:
        """Start to keep the index, or to wait until the process that does so ends."""
        with explaining_disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        self._begin()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, after the batch that is being written."""
        self._stopped.set()
        self._thread.join()
        if self._builder is not None:
            self._builder.join()
        self._kept.close()

    @property
    def keeps(self) -> bool:
        """Whether this process keeps the index."""
        return self._indexer is not None

    def put(self, record: Record, picture: bytes = b"", suffix: str = "") -> ItemState:
        """Write an item to the folder and to the index, in place of a former one with the same id, and return its state.

        The arguments are those of `Records.write`. The item is then on the disk and, unless it has a problem, can be found.
        """
        with self._changing:
            self._check_mounted()
            self._write(record, picture, suffix)
        return self.state(record.id) or ItemState(record.id)

    def delete(self, name: str) -> bool:
        """Remove an item from the index and from the folder, and return whether it existed.

        The files of the user stay: an item of theirs, or of the first indexing, is hidden.
        """
        with self._changing:
            self._check_mounted()
            writer, records = self._writer(), self._scanner.records
            if self.state(name) is None:
                return False
            entry, record = writer.ledger.entry(name), records.read(name)
            alone = record is not None and entry is not None and not entry.replaced
            if alone and self.first_update.is_set() and name not in self._scanner.names:
                records.remove(name)
                for each in self._writers():
                    each.remove([name])
            else:
                self._write(Record(id=name, deleted=True))
            return True

    def _write(self, record: Record, picture: bytes = b"", suffix: str = "") -> None:
        item = self._scanner.of_record(self._scanner.records.write(record, picture, suffix))
        for writer in self._writers():
            writer.add([item])

    def state(self, name: str) -> ItemState | None:
        """Return the state of an item, or None if the silo does not have it."""
        writer = self._writer()
        entry, modalities = writer.ledger.entry(name), writer.has(name)
        if not modalities if entry is None else entry.state == "removed":
            return None
        digest = writer.digest if modalities else ""
        return ItemState(name, bool(modalities), modalities, digest, "" if entry is None else entry.problem)

    def page(self, after: str = "", most: int = 100) -> list[ItemState]:
        """Return the states of at most ``most`` items of the folder with ids after ``after``, in the order of the ids."""
        states = [self.state(entry.id) for entry in self._writer().ledger.page(after, most)]
        return [state for state in states if state is not None]

    def update(self, *, again: bool = False) -> Change:
        """Bring the index up to the folder. Items that were skipped are tried ``again``, or else when they change."""
        with self._updating:
            if not self._is_mounted(self._writer()):
                return Change()
            self._unsettled = False
            changes = [self._bring_up(writer, again=again) for writer in self._writers()]
            return changes[0]

    def follow(self, successor: Successor) -> None:
        """Build the index of a new model while this process keeps the index, and keep it besides the present one."""
        if self._successor is not successor:
            self._successor = successor
            self._builder = threading.Thread(target=self._build, args=(successor,), name="new model", daemon=True)
            self._builder.start()

    def drop_old(self) -> None:
        """Keep only the index of the new model, and remove the old one. A process that keeps no index does nothing."""
        with self._updating, self._changing:
            successor, following = self._successor, self._following
            if successor is None or following is None:
                return
            old, self._indexer = self._indexer, following
            # From left to right: while the successor is set, a missing index would make its builder begin again.
            self._successor = self._following = None
            if old is not None:
                old.close()
            successor.remove_old()

    def _bring_up(self, writer: Indexer, *, again: bool = False) -> Change:
        before = writer.ledger.stamps(again=again)
        with self._scanning:
            scan = self._scanner.scan()
        self._unsettled |= scan.unsettled
        self._log_problems(scan.problems)
        started = time.monotonic()
        change = writer.update(scan, before, self._is_current, self._stopped)
        if change:
            log_event("items indexed", **asdict(change), seconds=round(time.monotonic() - started, 3))
        elif not scan.unsettled:
            writer.compact()
        return change

    def _build(self, successor: Successor) -> None:
        _lower_priority()
        while not self._stopped.is_set() and self._following is None and self._successor is successor:
            with _logged():
                if self.keeps:
                    self._build_once(successor)
            if self._following is None:
                self._stopped.wait(RETRY_SECONDS if self.keeps else TAKEOVER_SECONDS)

    def _build_once(self, successor: Successor) -> None:
        """Build the index of a new model, add the items of the folder, and put it into place."""
        if successor.finished:
            self._following = successor.open()
            return
        indexer = successor.build(self._stopped)
        try:
            if not self._stopped.is_set() and self._is_mounted(self._writer()):
                self._bring_up(indexer)
                with self._changing:  # programs wait while the last changes are added
                    self._bring_up(indexer)
                    if not self._stopped.is_set():
                        self._following = successor.finish(indexer)
        finally:
            indexer.close()
            return_unused()  # the archive took more memory than its codes do
        self._unsettled = True  # the folder may have changed since

    def _writers(self) -> tuple[Indexer, ...]:
        return (self._writer(), *(() if self._following is None else (self._following,)))

    def _writer(self) -> Indexer:
        if self._indexer is None:
            raise InUse("Another process keeps the index of this silo. Send the request to that process.")
        return self._indexer

    def _is_mounted(self, writer: Indexer) -> bool:
        """Return whether the folder may be read: it has the subfolder, or no item of it is indexed yet."""
        # An empty folder, as of a disk that is not mounted, would otherwise remove all items.
        mark = self.folder / PUT
        if not mark.is_dir() and self.folder.is_dir() and not writer.ledger.counts():
            with explaining_disk_errors(mark):
                mark.mkdir(exist_ok=True)
        if mark.is_dir():
            return True
        self._log_problems({str(self.folder): NOT_MOUNTED})
        return False

    def _check_mounted(self) -> None:
        if not self._is_mounted(self._writer()):
            raise MissingFile(f"The items folder {self.folder} cannot be used: {NOT_MOUNTED}.")

    def _is_current(self, item: FolderItem) -> bool:
        """Return whether an item of a scan is still what the folder holds. Programs may have changed it meanwhile."""
        try:
            record = self._scanner.records.read(item.id)
        except UserError:
            return False
        return record is None if not item.put else record is not None and self._scanner.of_record(record) == item

    def _log_problems(self, problems: dict[str, str]) -> None:
        """Log problems that were not there at the last look."""
        new = {name: reason for name, reason in problems.items() if self._problems.get(name) != reason}
        for name, reason in list(new.items())[:MOST_LOGGED]:
            log_event("item left out", level=WARNING, item=name, reason=reason)
        if len(new) > MOST_LOGGED:
            log_event("more items left out", level=WARNING, items=len(new) - MOST_LOGGED)
        self._problems = problems

    def _begin(self) -> bool:
        """Become the process that keeps the index, if there is no other, and return whether it did."""
        with ExitStack() as opened:
            self._lock_path.parent.mkdir(parents=True, exist_ok=True)
            # filelock keeps its state per thread by default, but the lock may be released by another thread than took it.
            lock = FileLock(self._lock_path, thread_local=False)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                return False
            opened.callback(lock.release)
            self._scanner.records.remove_leftovers()
            self._indexer = self._opener()
            opened.callback(self._end)
            if self._server is not None:
                opened.enter_context(self._server(self))
            self._kept = opened.pop_all()
        log_event("keeping the index", folder=str(self.folder))
        return True

    def _end(self) -> None:
        indexers = filter(None, (self._indexer, self._following))
        self._indexer = self._following = None
        for indexer in indexers:
            indexer.close()

    def _run(self) -> None:
        _lower_priority()
        while not self.keeps and not self._stopped.wait(TAKEOVER_SECONDS):
            with _logged():
                self._begin()
        while not self._stopped.is_set():
            with _logged():
                self._watch()
            self._stopped.wait(RETRY_SECONDS)

    def _watch(self) -> None:
        """Update the index whenever the folder changes, once at the beginning, and every `RESCAN_SECONDS`."""
        from watchfiles import watch

        getLogger("watchfiles").setLevel(WARNING)  # it logs every change
        due = 0.0
        put = str((self.folder / PUT).resolve()) + os.sep
        for changes in watch(
            self.folder.resolve(),
            # This process writes the subfolder of programs itself, and has indexed those items already.
            watch_filter=lambda _, path: not path.startswith(put),
            debounce=LOOK_MILLISECONDS,
            step=QUIET_MILLISECONDS,
            rust_timeout=LOOK_MILLISECONDS,
            yield_on_timeout=True,
            stop_event=self._stopped,
            raise_interrupt=False,
        ):
            again = time.monotonic() >= due
            if changes or self._unsettled or again:
                self.update(again=again)
                self.first_update.set()
            if again:
                due = time.monotonic() + RESCAN_SECONDS


def _lower_priority() -> None:
    with suppress(OSError, AttributeError):  # not every system has priorities of threads
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), BACKGROUND_PRIORITY)


def _logged() -> AbstractContextManager[None]:
    return logged_errors("the items cannot be indexed", "indexing items failed", level=ERROR)
