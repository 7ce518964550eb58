"""What all index servers share: the known keys, time limits, and errors without the secrets of a URL.

The URL of a server can contain a password. It is never logged, or shown in a message.
"""

import math
import time
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

import numpy as np

from silohash.base.attempts import attempted
from silohash.base.errors import ServerUnreachable
from silohash.index import base
from silohash.index.codes import CodeBytes, Words, from_bytes, to_bytes, word_type

EXTRA_ROWS = 256
"""Number of items that are requested beyond k, so that most queries see all ties at the cut in one request."""

CHANGE_SECONDS = 600.0
"""Longest time that a part of the codes is added or removed, or that all are read."""

SEARCH_SECONDS = 30.0
"""Longest time that a search waits for the server. It is less if less is left of the time limit of its request."""

HIDDEN = "***"

_END: ContextVar[float] = ContextVar("end of the time limit", default=math.inf)
"""Value of the monotonic clock after which nobody waits for a search any more."""


class ServerIndex(base.Index):
    """Codes in a collection of a server, which may be a table.

    The public methods check what they are given, limit the time, and explain the errors of the server. A subclass implements
    the private ones.

    Attributes:
        service: Name of the server in messages.
        errors: The types of errors that its client raises.
    """

    service: ClassVar[str]
    errors: ClassVar[tuple[type[Exception], ...]]

    def __init__(
        self, url: str, collection: str, bits: int, *, approximate: bool = False, create: bool = False
    ) -> None:
        """Open a collection of a server. With ``create``, it is created if it does not exist.

        If ``approximate``, the server builds an approximate index, which makes searches faster and inexact.

        Raises:
            UserError: If the server cannot be reached, or does not have the collection.
        """
        word_type(bits)
        self.bits = bits
        self.exact = not approximate
        self._url, self._name = url, collection
        self._known: base.Keys | None = None
        with self._explained():
            self._open(create=create)

    @classmethod
    def drop(cls, url: str, collection: str) -> None:
        """Remove a collection from a server if it exists.

        Raises:
            UserError: If the server cannot be reached.
        """
        with explaining_server_errors(cls.service, url, *cls.errors):
            cls._drop(url, collection)

    def __len__(self) -> int:
        if self._known is not None:
            return len(self._known)
        with self._explained():
            return self._count()

    @property
    def keys(self) -> base.Keys:
        """Live keys, in ascending order, read from the server unless they are known (see `remember`)."""
        if self._known is not None:
            return self._known
        with self._explained():
            return np.concatenate([np.empty(0, np.int64), *(keys for keys, _ in self._codes())])

    def remember(self, keys: base.Keys) -> None:
        """Take note of the live keys, in ascending order, so that they are not read from the server until a change."""
        self._known = keys

    def add(self, keys: base.Keys, words: Words) -> None:
        """Add codes under keys. See `Index.add`."""
        packed = to_bytes(words, self.bits)
        given, self._known = base.check_keys(keys, len(packed)), None
        if len(given):
            with self._explained():
                self._add(given, packed)

    def remove(self, keys: base.Keys) -> int:
        """Remove keys, and return how many of them existed."""
        given, self._known = base.distinct(np.asarray(keys, np.int64)), None
        with self._explained():
            return self._remove(given)

    def search(self, words: Words, k: int, *, allowed: base.Allowed | None = None) -> base.Neighbors:
        """Return the k nearest items of each query. See `Index.search`.

        If the index is approximate, ``ties_at_cut`` counts only the ties that the server has found.
        """
        base.check_k(k)
        queries = to_bytes(words, self.bits)
        if not len(queries):
            return base.Neighbors.empty(0, k)
        with self._explained(), time_limit(seconds_left(SEARCH_SECONDS)):
            return base.merged_answers(self._nearest(queries, k, base.chosen_keys(allowed, self)), k)

    def search_radius(
        self, words: Words, radius_bits: int, *, allowed: base.Allowed | None = None
    ) -> list[base.Neighbors]:
        """Return all items within a distance of each query. See `Index.search_radius`."""
        base.check_radius(radius_bits)
        queries = to_bytes(words, self.bits)
        with self._explained(), time_limit(seconds_left(SEARCH_SECONDS)):
            found = self._within(queries, radius_bits, base.chosen_keys(allowed, self))
        return [base.Neighbors.whole(keys, distances) for keys, distances in found]

    def stored(self) -> Iterator[tuple[base.Keys, Words]]:
        """Yield the stored keys in ascending order with their codes."""
        with self._explained():
            for keys, packed in self._codes():
                yield keys, from_bytes(packed, self.bits)

    def finish(self) -> None:
        """Prepare the server for searches, after many codes were added."""
        with self._explained():
            self._finish()

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    @classmethod
    @abstractmethod
    def _drop(cls, url: str, collection: str) -> None:
        """Remove a collection if it exists."""

    @abstractmethod
    def _open(self, *, create: bool) -> None:
        """Connect to the server, and check that the collection exists."""

    @abstractmethod
    def _count(self) -> int:
        """Return the number of items in the collection."""

    @abstractmethod
    def _codes(self) -> Iterator[tuple[base.Keys, CodeBytes]]:
        """Yield the stored keys in ascending order with their codes ``(n, bytes)``."""

    @abstractmethod
    def _add(self, keys: base.Keys, packed: CodeBytes) -> None:
        """Add codes ``(n, bytes)`` under keys, and replace those of existing keys."""

    @abstractmethod
    def _remove(self, keys: base.Keys) -> int:
        """Remove different keys, and return how many of them existed."""

    @abstractmethod
    def _finish(self) -> None:
        """Prepare the server for searches."""

    @abstractmethod
    def _nearest(self, queries: CodeBytes, k: int, chosen: base.Keys | None) -> list[base.Answer]:
        """Return the k nearest items of each query and the number of ties left out, of those that ``chosen`` names."""

    @abstractmethod
    def _within(
        self, queries: CodeBytes, radius_bits: int, chosen: base.Keys | None
    ) -> list[tuple[base.Keys, base.Distances]]:
        """Return all items within a distance of each query, in order, of those that ``chosen`` names."""

    def _explained(self) -> AbstractContextManager[None]:
        return explaining_server_errors(self.service, self._url, *self.errors)


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Limit the time that searches on servers in a block take together, in place of any limit around it; None for none."""
    token = _END.set(math.inf if seconds is None else time.monotonic() + seconds)
    try:
        yield
    finally:
        _END.reset(token)


def seconds_left(most: float) -> float:
    """Return the time that a search on a server may take: at most ``most`` seconds.

    Raises:
        UserError: If the limit around it has passed, see `time_limit`.
    """
    left = min(most, _END.get() - time.monotonic())
    if left <= 0:
        raise ServerUnreachable("The time limit of the search has passed. Search again, or allow more time.")
    return left


@contextmanager
def explaining_server_errors(service: str, url: str, *kinds: type[Exception]) -> Iterator[None]:
    """Translate some types of errors of a server into a message without the secrets of its URL.

    Raises:
        UserError: In place of such an error.
    """
    try:
        yield
    except kinds as error:
        # The text of the cause may contain the URL with its password, so it does not become part of the traceback.
        reason = " ".join(without_secrets(str(error), url).split())[:300].rstrip(".")
        raise ServerUnreachable(
            f"The {service} server of the index could not be used ({reason}). Check that it runs, and the URL that it has."
        ) from None


def without_secrets(text: str, url: str) -> str:
    """Return a text in which the password of a URL, and the URL itself, are hidden.

    Example:
        >>> without_secrets("no route to db with word 'geheim'", "postgresql://me:geheim@db/silo")
        "no route to db with word '***'"
    """
    hidden = text.replace(url, HIDDEN)
    for secret in _secrets(url):
        hidden = hidden.replace(secret, HIDDEN)
    return hidden


def _secrets(url: str) -> list[str]:
    """Return the password of a URL as it is written and as it is sent, or nothing if there is none."""
    password = attempted(lambda: urlsplit(url).password, ValueError, otherwise=None) or ""
    settings = (part.partition("=") for part in url.replace("?", " ").replace("&", " ").split())
    found: list[Any] = [password, *(value.strip("'") for name, _, value in settings if name in {"password", "token"})]
    return sorted({form for value in found for form in (value, unquote(value)) if form}, key=len, reverse=True)
