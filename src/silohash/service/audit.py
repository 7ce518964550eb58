"""The audit log of a silo: for each request, who sent it, what kind it was, when, and what was released.

The log is a file of JSON lines to which lines are only ever added. Each line holds the SHA-256 digest of the line before
it, so that `verify_log` detects lines that were changed or removed. A file that has reached its maximum size is renamed with
a number, and the log continues in a new file, whose first line holds the digest of the last line of the previous file.

The digests do not reveal that lines at the end of the log were removed. To detect this as well, keep the last number and
digest that `verify_log` returns in another place.
"""

import hashlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from glob import escape
from io import FileIO
from itertools import chain
from logging import ERROR
from pathlib import Path
from typing import Any

from filelock import lock_descriptor, unlock_descriptor

from silohash.base.attempts import attempted
from silohash.base.errors import AuditLogBroken, MissingFile, UnwritableFile, UserError
from silohash.base.forms import json_line
from silohash.base.visible import visible_json
from silohash.search.filters import LABELS
from silohash.search.hits import Hits, Query, SearchOptions
from silohash.search.requests import Browse, Code, Item, ItemRequest, Request, SiloStatus, StatusRequest
from silohash.search.wire import Response
from silohash.service.logs import log_event

MOST_BYTES = 64 << 20
"""Size at which a file of the log is closed and the next file is started, in bytes."""

END_BYTES = 1 << 16
"""Bytes that are read at first from the end of a file to find its last line."""

POLL_SECONDS = 0.001
"""Interval between attempts to lock the file while another process of the silo writes a line."""

FOLDER = "audit"
"""Name of the folder in a run that holds the logs of its silos."""


@dataclass(frozen=True)
class Tail:
    """The last line of a log: its number, from 1, and its SHA-256 digest in hexadecimal form; 0 and empty without one."""

    number: int = 0
    digest: str = ""


class AuditLog:
    """Write the log of one silo. Several processes of the silo may write to the same file.

    The file stays open between lines. Whoever writes a line holds the lock of the file meanwhile, and then makes sure that
    it still is the current file, because another process may have started the next one.
    """

    def __init__(self, path: Path, *, sync_seconds: float = 0.0, most_bytes: int = MOST_BYTES) -> None:
        """Open a log, which is created if it does not exist.

        Files that have reached their maximum size are in the same folder. Within ``sync_seconds`` a line is on the disk and
        survives a loss of power. At 0, `append` waits for the disk. A line survives the end of the process at once.

        Raises:
            UserError: If the file cannot be written, or its last line is not a line of a log.
        """
        self.path = path
        self._sync_seconds, self._most_bytes = sync_seconds, most_bytes
        self._threads = threading.Lock()
        self._timer: threading.Timer | None = None
        self._not_on_disk: OSError | None = None
        self._file: FileIO | None = None
        self._identity = (-1, -1)
        self._tail, self._size = Tail(), -1
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._locked() as (file, size):
                self._repair(file, size)
        except OSError as error:
            raise _unwritable(path, error) from error

    def append(self, entry: Mapping[str, Any]) -> None:
        """Add a line with the current time.

        Raises:
            UserError: If it cannot be written.
        """
        try:
            # The disk may work again: without this attempt, one failure would silence the silo until it is restarted.
            if self._not_on_disk is not None:
                self._sync()
            if self._not_on_disk is not None:
                raise self._not_on_disk
            with self._threads, self._locked() as (file, size):
                self._write(file, size, entry)
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def close(self) -> None:
        """Wait until all lines are on the disk, and close the file."""
        with self._threads:
            if self._timer is not None:
                self._timer.cancel()
            self._close_file()
        self._sync()

    @contextmanager
    def _locked(self) -> Iterator[tuple[FileIO, int]]:
        """Hold the lock of the current file, which an error releases by closing the file."""
        try:
            file, size = self._lock_current()
            yield file, size
            unlock_descriptor(file.fileno())
        except BaseException:
            self._close_file()
            raise

    def _lock_current(self) -> tuple[FileIO, int]:
        """Return the current file, locked, and its size in bytes, after starting the next one if it is full."""
        while True:
            file = self._file or self._open()
            # Another process may have renamed the file while this one waited for its lock, so its identity is checked after.
            lock_descriptor(file.fileno(), poll_interval=POLL_SECONDS)
            about = attempted(self.path.stat, FileNotFoundError, otherwise=None)
            if about is not None and (about.st_dev, about.st_ino) == self._identity:
                if about.st_size < self._most_bytes:
                    return file, about.st_size
                self._sync()
                closed = _closed_files(self.path)
                last = int(closed[-1].stem.rpartition(".")[2]) if closed else 0
                self.path.rename(self.path.with_name(f"{self.path.stem}.{last + 1:06d}{self.path.suffix}"))
            self._close_file()

    def _open(self) -> FileIO:
        # If it does not exist, it is created so that other users cannot read it.
        file = self._file = FileIO(self.path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600))
        about = os.fstat(file.fileno())
        self._identity = (about.st_dev, about.st_ino)
        return file

    def _close_file(self) -> None:
        """Close the current file, which releases its lock."""
        file, self._file, self._size = self._file, None, -1
        if file is not None:
            file.close()

    def _write(self, file: FileIO, size: int, entry: Mapping[str, Any]) -> None:
        """Write a line into the current file of ``size`` bytes, whose lock is held."""
        # Another size than after the last line means that another process has written, so the chain goes on from its line.
        if size != self._size:
            self._tail = _tail_of_log(self.path)
        number = self._tail.number + 1
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        document = json_line({"number": number, "time": now, **entry, "before": self._tail.digest})
        line = visible_json(document.decode()).encode()
        _append_whole(file, line + b"\n", size)
        if self._sync_seconds == 0:
            os.fsync(file.fileno())
        self._tail, self._size = Tail(number, _digest(line)), size + len(line) + 1
        if self._sync_seconds > 0 and self._timer is None:
            self._timer = threading.Timer(self._sync_seconds, self._sync)
            self._timer.daemon = True
            self._timer.start()

    def _sync(self) -> None:
        """Wait until the file is on the disk. After an error, no line is written until it is."""
        self._timer = None
        try:
            with self.path.open("rb") as file:
                os.fsync(file.fileno())
            self._not_on_disk = None
        except FileNotFoundError:  # another process closed the file, after waiting until it was on the disk
            self._not_on_disk = None
        except OSError as error:
            self._not_on_disk = error
            log_event(
                "lines of the audit log may not be on the disk", level=ERROR, file=str(self.path), reason=str(error)
            )

    def _repair(self, file: FileIO, size: int) -> None:
        """Remove an incomplete last line, as a loss of power leaves it, and add a line that records the removal."""
        if cut := len(_end_of(self.path).rpartition(b"\n")[2]):
            os.truncate(self.path, size - cut)
            entry = {"request": "none", "repaired": f"an incomplete line of {cut} bytes was removed"}
            self._write(file, size - cut, entry)


def verify_log(path: Path) -> Tail:
    """Check every line of a log, over all its files, and return the last one.

    Raises:
        UserError: If the log does not exist, or a line was changed, removed, added or truncated.
    """
    files = [*_closed_files(path), *([path] if path.exists() else [])]
    if not files:
        raise MissingFile(f"The audit log {path} does not exist. Check its path.")
    tail = Tail()
    for path in files:
        with path.open("rb") as file:
            for place, line in enumerate(file, start=1):
                tail = _verified(line.removesuffix(b"\n"), tail, f"{path}, line {place}")
    return tail


def _verified(line: bytes, before: Tail, where: str) -> Tail:
    """Check that a line follows the one before it, and return it as the new last line."""
    remedy = "The log was changed after it was written, or a part of it is missing."
    entry = _parsed(line)
    if entry is None:
        raise AuditLogBroken(f"{where} is not a line of an audit log. {remedy}")
    if entry["number"] != before.number + 1:
        raise AuditLogBroken(f"{where} has the number {entry['number']} instead of {before.number + 1}. {remedy}")
    if entry["before"] != before.digest:
        raise AuditLogBroken(f"{where} does not follow the line before it. {remedy}")
    return Tail(before.number + 1, _digest(line))


def entry_of(response: Response) -> dict[str, Any]:
    """Return the line for an answer: the request without its code and content, and what was released."""
    entry, answer = _of_request(response.request), response.answer
    if response.error is not None:
        return {**entry, "refused": str(response.error)}
    if isinstance(answer, Hits) and answer.missing_silos:
        return {**entry, "refused": " ".join(answer.missing_silos.values())}
    if isinstance(answer, Hits):
        limits = " ".join(answer.limited_silos.values())
        released = {"released": list(answer.ids), "fields": sorted(set(chain(*answer.payloads)))}
        return {**entry, **released, **({"limits": limits} if limits else {})}
    if isinstance(answer, Code):
        return {**entry, "released": [entry["id"]], "fields": ["code"]}
    if isinstance(answer, Item):
        return {**entry, "released": [answer.id], "fields": sorted(answer.payload)}
    if isinstance(answer, SiloStatus):
        return {**entry, "released": [item.id for item in answer.examples], "fields": _fields_of(answer)}
    return {**entry, "released": []}


def _fields_of(summary: SiloStatus) -> list[str]:
    values: dict[str, list[object]] = {
        "caption": [item.caption for item in summary.examples],
        "labels": [summary.labels, *(item.labels for item in summary.examples)],
        "preview": [item.preview_url for item in summary.examples],
    }
    return [name for name, found in values.items() if any(found)]


def _of_request(request: Request | None) -> dict[str, Any]:
    """Return the part of a line that describes the request. The label and the text of a query are not logged."""
    if request is None:
        return {"request": "unreadable", "asker": ""}
    if isinstance(request, StatusRequest):
        return {"request": "status", "asker": "", "request_id": request.request_id}
    sender = {"asker": request.asker, "request_id": request.request_id}
    if isinstance(request, Browse):
        return {"request": "browse", **sender, "k": request.k, "offset": request.offset, **_filters_of(request)}
    if isinstance(request, Query):
        return {
            "request": "search", **sender, "target": request.target, "k": request.k, "offset": request.offset,
            "radius_bits": request.radius_bits, **_filters_of(request), "with_content": request.content is not None,
            "with_words": request.text is not None, "previews": request.previews,
        }  # fmt: skip
    return {"request": "item" if isinstance(request, ItemRequest) else "code", **sender, "id": request.id}


def _filters_of(options: SearchOptions) -> dict[str, Any]:
    """Return the part of a line that describes the filters: the names of columns, and no values."""
    columns = sorted({condition.column for condition in options.where})
    return {
        "by_label": options.label is not None or LABELS in columns,
        "by_columns": columns,
        "facets": list(options.facets),
    }


def _append_whole(file: FileIO, content: bytes, size: int) -> None:
    """Append to a file of ``size`` bytes. If only a part can be written, it is removed again."""
    rest = memoryview(content)
    try:
        while rest:
            rest = rest[os.write(file.fileno(), rest) :]
    except OSError:
        os.ftruncate(file.fileno(), size)
        raise


def _closed_files(path: Path) -> list[Path]:
    """Return the closed files of a log, in the order of their numbers."""
    return sorted(path.parent.glob(f"{escape(path.stem)}.[0-9][0-9][0-9][0-9][0-9][0-9]{path.suffix}"))


def _tail_of_log(path: Path) -> Tail:
    """Return the last line of a log."""
    for file in (path, *reversed(_closed_files(path))):
        lines = _end_of(file).splitlines() if file.exists() else []
        if lines:
            line = lines[-1]
            entry = _parsed(line)
            if entry is None:
                raise AuditLogBroken(
                    f"The last line of {file} is not a line of an audit log. Move the file to another folder."
                )
            return Tail(entry["number"], _digest(line))
    return Tail()


def _end_of(path: Path) -> bytes:
    """Return the end of a file with its last complete line, however long that is, and what follows it."""
    length = END_BYTES
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        while True:
            file.seek(max(0, size - length))
            content = file.read(length)
            if length >= size or content.count(b"\n") > 1:
                return content
            length *= 4


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Return the content of a line, or None if it is not a line of a log."""
    entry = attempted(lambda: json.loads(line), ValueError, otherwise=None)
    whole = isinstance(entry, dict) and isinstance(entry.get("number"), int) and isinstance(entry.get("before"), str)
    return entry if whole else None


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _unwritable(path: Path, error: OSError) -> UserError:
    return UnwritableFile(
        f"The audit log {path} cannot be written ({error}). Free disk space, or correct the permissions."
    )
