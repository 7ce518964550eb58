"""The limits of a policy that change while a silo runs: queries per asker, and the items that are approved for release."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from silohash.base.files import read_text
from silohash.base.types import UserError

MINUTE_SECONDS = 60
DAY_SECONDS = 86_400


class LimitReached(UserError):  # noqa: N818  a refusal, not a failure
    """An asker has reached a limit of the policy."""


@dataclass
class _Window:
    """The queries of each asker in the current minute or day.

    Attributes:
        name: "minute" or "day".
        seconds: Length of the window.
        most: Maximum number of queries per asker; None for no limit.
        number: Number of the current window since the beginning of the clock.
        counts: Number of queries per asker in the current window. Those of earlier windows are forgotten.
    """

    name: str
    seconds: int
    most: int | None
    number: int = -1
    counts: dict[str, int] = field(default_factory=dict)

    def enter(self, now: float) -> None:
        """Forget the counts if a new window has begun."""
        number = int(now // self.seconds)
        if number != self.number:
            self.number, self.counts = number, {}


class Quota:
    """Count queries per asker. Minutes and days are those of UTC, and counts begin at 0 when the process starts."""

    def __init__(
        self, per_minute: int | None = None, per_day: int | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        """Set the limits.

        Args:
            per_minute: Maximum number of queries per asker and minute; None for no limit.
            per_day: Maximum number of queries per asker and day; None for no limit.
            clock: Returns the time in seconds.
        """
        windows = (_Window("minute", MINUTE_SECONDS, per_minute), _Window("day", DAY_SECONDS, per_day))
        self._windows = [window for window in windows if window.most is not None]
        self._clock = clock
        self._lock = threading.Lock()

    def admit(self, asker: str) -> None:
        """Count a query of an asker. A query that is refused does not count.

        Raises:
            LimitReached: If the asker has reached a limit.
        """
        if not self._windows:
            return
        with self._lock:
            now = self._clock()
            for window in self._windows:
                window.enter(now)
                if window.counts.get(asker, 0) == window.most:
                    queries = "query" if window.most == 1 else "queries"
                    raise LimitReached(
                        f"It limits each asker to {window.most:,} {queries} per {window.name}. Try again later."
                    )
            for window in self._windows:
                window.counts[asker] = window.counts.get(asker, 0) + 1


class Approvals:
    """Read the list of approved items, again whenever the file has changed. Without the file, no item is approved."""

    def __init__(self, path: Path) -> None:
        """Use a file. It is read when it is first needed."""
        self._path = path
        self._signature: tuple[int, int, int] | None = None
        self._ids: frozenset[str] = frozenset()
        self._lock = threading.Lock()

    def ids(self) -> frozenset[str]:
        """Return the ids of the approved items.

        Raises:
            UserError: If the file cannot be read as UTF-8 text.
        """
        with self._lock:
            try:
                about = self._path.stat()
            except FileNotFoundError:
                self._signature, self._ids = None, frozenset()
                return self._ids
            except OSError as error:
                raise UserError(f"{self._path} cannot be read ({error}). Check the list of approved items.") from error
            signature = (about.st_ino, about.st_size, about.st_mtime_ns)
            if signature != self._signature:
                self._ids = frozenset(line.strip() for line in read_text(self._path).splitlines() if line.strip())
                self._signature = signature
            return self._ids
