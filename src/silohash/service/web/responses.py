"""The responses of the API as its description for programs lists them: statuses, documents and headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from silohash.service.web.documents import ErrorDocument

MESSAGES: Mapping[int, str] = {
    400: "The request cannot be read, or it is for another host.",
    401: "The service has accounts, and the request has neither a session nor a valid token.",
    403: "The token or the account does not permit the request, or the request comes from a page of another site.",
    404: "A named silo or item does not exist.",
    413: "The request or its picture is too large.",
    415: "The file is not a picture of a supported format.",
    422: "The request is not valid, or cannot be encoded.",
    429: "There were too many requests.",
    503: "No silo that the request needs answers.",
}
"""The errors of the API by status."""

ALWAYS = (400, 401, 403, 413, 422, 429)
"""Statuses that every call can have."""

REQUEST_ID: Mapping[str, Any] = {
    "x-request-id": {
        "description": "Id of the request, which is in the logs of the hub and of the silos.",
        "required": True,
        "schema": {"type": "string", "pattern": "^[0-9a-f]{16}$"},
    }
}
"""Header of every response."""

HEADERS: Mapping[int, Mapping[str, Any]] = {
    401: {
        "www-authenticate": {
            "description": "How to send a token.",
            "required": True,
            "schema": {"type": "string", "enum": ["Bearer"]},
        }
    },
    429: {
        "retry-after": {
            "description": "Seconds until the request is allowed.",
            "required": True,
            "schema": {"type": "integer", "minimum": 1},
        }
    },
}
"""Further headers of some errors."""


def responses(*further: int) -> dict[int | str, dict[str, Any]]:
    """Return the description of the responses of a call.

    Args:
        further: Statuses of errors that the call can have besides `ALWAYS`.
    """
    described: dict[int | str, dict[str, Any]] = {200: {"headers": REQUEST_ID}}
    for status in sorted({*ALWAYS, *further}):
        described[status] = {
            "model": ErrorDocument,
            "description": MESSAGES[status],
            "headers": {**REQUEST_ID, **HEADERS.get(status, {})},
        }
    return described
