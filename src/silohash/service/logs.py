"""Structured logs: one JSON object per line on standard error, with the time, the level, the event and its fields."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

from silohash.base.visible import visible_json
from silohash.service.request_record import request_id

_log = logging.getLogger("silohash.service")

END_OF_TLS = "returning true from eof_received() has no effect when using ssl"
"""Warning of asyncio and uvloop whenever an encrypted connection of nats-py ends. It does not point to a fault."""


def is_logged(level: int) -> bool:
    """Return whether events of a level are written, for callers that would collect the fields of many in vain."""
    return _log.isEnabledFor(level)


def log_event(event: str, *, level: int = logging.INFO, **fields: object) -> None:
    """Log an event of a server.

    Args:
        event: What happened, in a few words.
        level: Level of the line, as in `logging`.
        fields: JSON values that describe the event. They must not contain secrets.
    """
    _log.log(level, event, extra={"fields": fields})


def start_logging(stream: TextIO | None = None, *, level: int = logging.INFO) -> None:
    """Write the logs of this process as JSON lines, except `END_OF_TLS`.

    Args:
        stream: Output stream; standard error if None.
        level: Lowest level that is written.
    """
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonLines())
    handler.addFilter(lambda record: record.getMessage() != END_OF_TLS)
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
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            document["error"] = self.formatException(record.exc_info)
        return visible_json(json.dumps(document, ensure_ascii=False, default=str))
