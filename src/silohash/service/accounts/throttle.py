"""Limits on how often someone asks, and how long to wait after wrong passwords. The counts are kept in memory."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

MOST_KEYS = 50_000
"""Number of names and addresses that are remembered. The ones seen longest ago are forgotten first."""

FREE_TRIES = 5
"""Number of wrong passwords before the first wait."""

FREE_TRIES_IN_ALL = 50
"""Number of wrong passwords for one account from all addresses, or from one address for all accounts, before a wait."""

LONGEST_WAIT_SECONDS = 900.0
FORGET_SECONDS = 3_600.0
"""Wrong passwords are forgotten after this time without another one."""


class RateLimit:
    """Limit requests per key, with a bucket that fills at a constant rate.

    Example:
        >>> now = 0.0
        >>> limit = RateLimit(per_minute=60, burst=2, clock=lambda: now)
        >>> [limit.wait_seconds("a") for _ in range(3)]
        [0.0, 0.0, 1.0]
    """

    def __init__(self, *, per_minute: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Create a limit.

        Args:
            per_minute: Requests per minute that are allowed permanently.
            burst: Requests that are allowed at once.
            clock: Returns a time in seconds that never decreases.
        """
        self._per_second = per_minute / 60
        self._burst = float(burst)
        self._clock = clock
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def wait_seconds(self, key: Hashable) -> float:
        """Count a request, and return 0 if it is allowed, or after how many seconds it would be."""
        now = self._clock()
        left, since = self._buckets.get(key, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._per_second)
        allowed = left >= 1
        self._buckets[key] = (left - 1 if allowed else left, now)
        _forget_oldest(self._buckets, key)
        return 0.0 if allowed else (1 - left) / self._per_second


@dataclass
class _Failures:
    count: int
    last: float


class BackOff:
    """Let someone wait longer after each wrong password: 1 s after the sixth, then twice as long each time, at most 15 min.

    Wrong passwords are counted per account and address together, so that strangers cannot lock a person out from elsewhere.
    Larger counts per account and per address slow down attempts that are spread over addresses or over accounts.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Create a record without failures. The clock returns a time in seconds that never decreases."""
        self._clock = clock
        self._failures: OrderedDict[Hashable, _Failures] = OrderedDict()

    def wait_seconds(self, account: str, address: str) -> float:
        """Return for how many seconds a password of an account is not checked; 0 if it is checked now."""
        return max(self._wait(key, free) for key, free in _keys(account, address))

    def failed(self, account: str, address: str) -> None:
        """Note a wrong password."""
        now = self._clock()
        for key, _ in _keys(account, address):
            known = self._failures.get(key)
            count = 0 if known is None or now - known.last > FORGET_SECONDS else known.count
            self._failures[key] = _Failures(count + 1, now)
            _forget_oldest(self._failures, key)

    def succeeded(self, account: str, address: str) -> None:
        """Forget the wrong passwords of an account from an address, after the right one."""
        self._failures.pop(_keys(account, address)[0][0], None)

    def _wait(self, key: Hashable, free: int) -> float:
        known = self._failures.get(key)
        if known is None or known.count <= free:
            return 0.0
        wait = min(LONGEST_WAIT_SECONDS, 2.0 ** min(known.count - free - 1, 60))
        return max(0.0, known.last + wait - self._clock())


def _keys(account: str, address: str) -> tuple[tuple[Hashable, int], ...]:
    """Return what wrong passwords are counted for, each with the number of free tries. The first is the pair of both."""
    return (
        (("both", account, address), FREE_TRIES),
        (("account", account), FREE_TRIES_IN_ALL),
        (("address", address), FREE_TRIES_IN_ALL),
    )


def _forget_oldest(known: OrderedDict[Hashable, T], key: Hashable) -> None:
    """Note that a key was just seen, and forget those seen longest ago if there are too many."""
    known.move_to_end(key)
    while len(known) > MOST_KEYS:
        known.popitem(last=False)
