"""The errors of the APIs: their JSON documents, what they say, and how they are described for programs."""

import logging
from collections.abc import Callable, Mapping
from email.message import Message
from pathlib import Path
from typing import Any, TypeAlias

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from silohash.base.errors import InUse, NotFound, Unavailable, UploadRefused, UserError
from silohash.base.files import read_toml
from silohash.base.forms import REINSTALL
from silohash.service.web.documents import ErrorDocument

LOG = logging.getLogger("silohash.service")

Answer: TypeAlias = Callable[[Request, int, str, str], Response]
"""A function that returns an error with a status, a message and a key, which is empty for errors of the framework."""

_TEXTS = read_toml(Path(__file__).with_name("errors.toml"), remedy=REINSTALL, missing=REINSTALL)
ERRORS: Mapping[int, tuple[str, str]] = {
    int(status): (name, about) for status, (name, about) in _TEXTS["errors"].items()
}
"""The name of each kind of error in a JSON document, and its description, by status."""

ALWAYS = (400, 401, 403, 408, 413, 422, 429, 503)
"""Statuses that every call can have."""

REQUEST_ID: Mapping[str, Any] = _TEXTS["request_id"]
"""Header of every response."""

HEADERS: Mapping[int, Mapping[str, Any]] = {int(status): headers for status, headers in _TEXTS["headers"].items()}
"""Further headers of some errors."""


FAILED, RETRY_SECONDS = "The service cannot answer. Its log has the reason.", 2
"""What strangers learn of an error, whose text may name files and silos; and when to try again if something is locked."""

ASKER = "silohash.asker"
"""Key of the scope of a request whose sender is known."""

MOST_FAULTS = 5
"""Maximum number of faults that are reported at once."""

SEND_JSON = "The request is not sent as JSON. Send JSON with Content-Type: application/json."


def responses(*further: int) -> dict[int | str, dict[str, Any]]:
    """Return the description of the responses of a call, which can have errors of `ALWAYS` and of further statuses."""
    described: dict[int | str, dict[str, Any]] = {200: {"headers": REQUEST_ID}}
    for status in sorted({*ALWAYS, *further}):
        headers = {**REQUEST_ID, **HEADERS.get(status, {})}
        described[status] = {"model": ErrorDocument, "description": ERRORS[status][1], "headers": headers}
    return described


def error_document(status: int, code: str, message: str, key: str = "") -> dict[str, object]:
    """Return the JSON document of an error. All errors of the API have this form.

    Example:
        >>> error_document(404, "not_found", "There is no silo.")
        {'error': {'status': 404, 'code': 'not_found', 'message': 'There is no silo.'}}
    """
    return {"error": {"status": status, "code": code, "message": message, **({"key": key} if key else {})}}


def json_answer(_: Request, status: int, message: str, key: str) -> Response:
    """Return an error as JSON."""
    return JSONResponse(error_document(status, ERRORS.get(status, ("error",))[0], message, key), status)


def handle_errors(
    app: FastAPI,
    *,
    status: Callable[[UserError], int],
    answer: Answer = json_answer,
    reasons: Mapping[str, str] | None = None,
) -> None:
    """Let an application answer with sentences when a request fails.

    ``status`` returns the HTTP status code of an error, and ``reasons`` has sentences for the framework's phrases.
    """

    async def explained(request: Request, error: Exception) -> Response:
        """Answer with the sentence of the error, or with what is wrong with the request."""
        if isinstance(error, RequestValidationError):
            return answer(request, 422, message_of(error, request), "")
        if isinstance(error, HTTPException):
            message = str(error.detail)
            response = answer(request, error.status_code, (reasons or {}).get(message, message), "")
            response.headers.update(error.headers or {})
        else:
            assert isinstance(error, UserError)  # noqa: S101  no other type is registered
            code, text = status(error), str(error)
            if ASKER not in request.scope and not isinstance(error, InUse):
                LOG.error("%s: %s", request.url.path, text)
                code, text = 503, FAILED
            response = answer(request, code, text, error.key)
        if response.status_code == 503:
            response.headers.setdefault("retry-after", str(RETRY_SECONDS))
        return response

    for kind in (UserError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, explained)


def status_of(error: UserError) -> int:
    """Return the HTTP status code of an error."""
    if isinstance(error, UploadRefused):
        return error.status
    if isinstance(error, NotFound):
        return 404
    return 503 if isinstance(error, Unavailable | InUse) else 422


def message_of(error: RequestValidationError, request: Request) -> str:
    """Return what is wrong with a request, from the faults that FastAPI found."""
    faults: list[Mapping[str, Any]] = list(error.errors()[:MOST_FAULTS])
    if any(fault["loc"] == ("body",) for fault in faults) and not _is_json(request):
        return SEND_JSON
    return f"The request is not valid. {' '.join(_sentence(fault, request) for fault in faults)}"


def _sentence(fault: Mapping[str, Any], request: Request) -> str:
    kind, (place, *path) = fault["type"], fault["loc"]
    name = ".".join(map(str, path))
    if kind == "json_invalid":
        return f"The body is not valid JSON: {fault['ctx']['error']} at character {path[0] + 1}."
    if fault["loc"] == ("body",):
        return "The body is empty. Send a JSON object." if kind == "missing" else "The body is not a JSON object."
    if kind == "extra_forbidden" and place == "query":
        call = request.app.openapi()["paths"][request.scope["route"].path][request.method.lower()]
        known = [parameter["name"] for parameter in call["parameters"] if parameter["in"] == "query"]
        return f'There is no parameter "{name}". Choose from: {", ".join(known)}.'
    if kind == "extra_forbidden":
        return f'There is no field "{name}".'
    return f"{name}: {fault['msg']}."


def _is_json(request: Request) -> bool:
    """Return whether the content type of a request is JSON, as FastAPI decides it."""
    message = Message()
    message["content-type"] = request.headers.get("content-type", "text/plain")
    kind = message.get_content_subtype()
    return message.get_content_maintype() == "application" and (kind == "json" or kind.endswith("+json"))
