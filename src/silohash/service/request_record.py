"""The record of the request that is being answered: its id, and what its line in the log holds.

The record belongs to the context of the request (`contextvars`), so that everything that is called for the request finds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Literal, TypeAlias

from silohash.search.hits import MissingKind

Kind: TypeAlias = Literal["text", "picture", "code", "similar", "item"]
"""What a query searches with, or ``item`` for a request for a single item."""

Outcome: TypeAlias = Literal["complete", "partial", "unavailable", "refused", "failed"]
"""How a query ended.

``complete``: all silos answered. ``partial``: some silos answered. ``unavailable``: no silo answered. ``refused``: the query
is not valid, or the item does not exist. ``failed``: an unexpected error.
"""

ID_BYTES = 8


@dataclass
class Record:
    """What is known of a request while it is answered.

    Attributes:
        id: Id of the request, random hexadecimal digits.
        kind: Kind of its last query; None if there was none.
        outcome: Outcome of its last query; None if there was none.
        silos_answered: Number of silos that answered its last query.
        missing: Maps each silo that did not answer its last query to the kind of the reason.
    """

    id: str = field(default_factory=lambda: token_hex(ID_BYTES))
    kind: Kind | None = None
    outcome: Outcome | None = None
    silos_answered: int = 0
    missing: Mapping[str, MissingKind] = field(default_factory=dict)


_current: ContextVar[Record | None] = ContextVar("record", default=None)


@contextmanager
def recording() -> Iterator[Record]:
    """Begin the record of a request, which `current_record` returns within the block."""
    record = Record()
    token = _current.set(record)
    try:
        yield record
    finally:
        _current.reset(token)


def current_record() -> Record | None:
    """Return the record of the request that is being answered, or None outside of a request."""
    return _current.get()


def request_id() -> str:
    """Return the id of the request that is being answered, or an empty string outside of a request."""
    record = _current.get()
    return "" if record is None else record.id
