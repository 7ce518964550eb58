"""Structured logs: one JSON object per line on standard error, with the time, the level, the event and its fields.

While a request is answered, its record has its id and what its line in the log holds. The record belongs to the context of
the request (`contextvars`), so that everything that is called for the request finds it.
"""

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from secrets import token_hex
from typing import Literal, TextIO, TypeAlias

from silohash.base.errors import UserError
from silohash.base.visible import visible_json
from silohash.search.reasons import MissingKind

_log = logging.getLogger("silohash.service")

END_OF_TLS = "returning true from eof_received() has no effect when using ssl"
"""Warning of asyncio and uvloop whenever an encrypted connection of nats-py ends. It does not point to a fault."""


def is_logged(level: int) -> bool:
    """Return whether events of a level are written, for callers that would collect the fields of many in vain."""
    return _log.isEnabledFor(level)


def log_event(event: str, *, level: int = logging.INFO, **fields: object) -> None:
    """Log an event of a server, in a few words, with JSON values that describe it. They must not contain secrets."""
    _log.log(level, event, extra={"fields": fields})


@contextmanager
def logged_errors(refused: str, failed: str, *, level: int = logging.WARNING) -> Iterator[None]:
    """Log the error with which a block ends, so that the process goes on.

    A `UserError` is the event ``refused`` of a level, and any other the event ``failed``.
    """
    try:
        yield
    except UserError as error:
        log_event(refused, level=level, reason=str(error))
    except Exception as error:
        log_event(failed, level=logging.ERROR, reason=f"{type(error).__name__}: {error}")


def start_logging(stream: TextIO | None = None, *, level: int = logging.INFO) -> None:
    """Write the logs of this process as JSON lines to a stream (standard error if None), except `END_OF_TLS`."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonLines())
    handler.addFilter(lambda record: record.getMessage() != END_OF_TLS)
    # Without force, basicConfig does nothing if a library has set up a handler already.
    logging.basicConfig(handlers=[handler], level=level, force=True)


class JsonLines(logging.Formatter):
    """Format each record as one line of JSON. Invisible characters are escaped.

    Lines that are written while a request is answered hold its id.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        document = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **({"request_id": current} if (current := request_id()) else {}),
            **record.__dict__.get("fields", {}),
        }
        if record.exc_info:
            document["error"] = self.formatException(record.exc_info)
        return visible_json(json.dumps(document, ensure_ascii=False, default=str))


Kind: TypeAlias = Literal["text", "picture", "code", "similar", "item"]
"""What a query searches with, or ``item`` for a request for a single item."""

Outcome: TypeAlias = Literal["complete", "partial", "unavailable", "refused", "canceled", "failed"]
"""How a query ended.

``complete``: all silos answered. ``partial``: some silos answered. ``unavailable``: no silo answered. ``refused``: the query
is not valid, or the item does not exist. ``canceled``: nobody waits for the answer. ``failed``: an unexpected error.
"""

ID_BYTES = 8


@dataclass
class Record:
    """What is known of a request while it is answered, above all of its last query, if there was one.

    ``missing`` maps each silo that did not answer that query to the kind of the reason.
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
