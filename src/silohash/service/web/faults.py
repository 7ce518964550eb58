"""What is wrong with a request that does not fit the description of the API, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from email.message import Message
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError

MOST_FAULTS = 5
"""Maximum number of faults that are reported at once."""

SEND_JSON = "The request is not sent as JSON. Send JSON with Content-Type: application/json."


def message_of(error: RequestValidationError, request: Request) -> str:
    """Return what is wrong with a request.

    Args:
        error: The faults that FastAPI found.
        request: The request.
    """
    faults: list[Mapping[str, Any]] = list(error.errors()[:MOST_FAULTS])
    if any(fault["loc"] == ("body",) for fault in faults) and not _is_json(request):
        return SEND_JSON
    return f"The request is not valid. {' '.join(_sentence(fault, request) for fault in faults)}"


def _sentence(fault: Mapping[str, Any], request: Request) -> str:
    """Return one fault as a sentence."""
    kind, (place, *path) = fault["type"], fault["loc"]
    name = ".".join(map(str, path))
    if kind == "json_invalid":
        return f"The body is not valid JSON: {fault['ctx']['error']} at character {path[0] + 1}."
    if fault["loc"] == ("body",):
        return "The body is empty. Send a JSON object." if kind == "missing" else "The body is not a JSON object."
    if kind == "extra_forbidden" and place == "query":
        return f'There is no parameter "{name}". Choose from: {", ".join(_parameters(request))}.'
    if kind == "extra_forbidden":
        return f'There is no field "{name}".'
    return f"{name}: {fault['msg']}."


def _is_json(request: Request) -> bool:
    """Return whether the content type of a request is JSON, as FastAPI decides it."""
    message = Message()
    message["content-type"] = request.headers.get("content-type", "text/plain")
    kind = message.get_content_subtype()
    return message.get_content_maintype() == "application" and (kind == "json" or kind.endswith("+json"))


def _parameters(request: Request) -> list[str]:
    """Return the names of the parameters that may follow the address of a request."""
    call = request.app.openapi()["paths"][request.scope["route"].path][request.method.lower()]
    return [parameter["name"] for parameter in call["parameters"] if parameter["in"] == "query"]
