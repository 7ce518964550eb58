"""Calls of the Python clients to a server of silohash. They need nothing but the standard library."""

from __future__ import annotations

import urllib.error
import urllib.request
from http.client import HTTPException, IncompleteRead
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from silohash.base.files import read_bytes
from silohash.base.types import UserError

TIMEOUT_SECONDS = 60.0
MOST_ANSWER_BYTES = 64_000_000


def checked_address(url: str, what: str, example: str) -> str:
    """Return the address of a server without a slash at its end, after checking its form.

    Args:
        url: The address.
        what: What the server is, with its article.
        example: A valid address.

    Raises:
        UserError: If the address is not valid.
    """
    try:
        parts = urlsplit(url)
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise UserError(f'"{url}" is not the address of {what}. Use one such as {example}.')
    return url.rstrip("/")


def read_file(path: Path) -> bytes:
    """Return the content of a file that a user names.

    Raises:
        UserError: If it cannot be read.
    """
    try:
        return read_bytes(path)
    except OSError as error:
        raise UserError(f'"{path}" cannot be read ({error.strerror}). Check the path.') from error


def authorization(token: str) -> dict[str, str]:
    """Return the header that sends a token, which may end with a line break, as in a file."""
    return {"authorization": f"Bearer {token.strip()}"}


def answer_to(
    request: urllib.request.Request, *, timeout_seconds: float, server: str, remedy: str
) -> tuple[int, bytes]:
    """Return the status and the content of the answer to a request.

    Args:
        request: The request, with a checked address.
        timeout_seconds: Time limit.
        server: Address of the server, for the error.
        remedy: Sentence of the error on what to do if the server cannot be reached.

    Raises:
        UserError: If the server cannot be reached, or does not speak HTTP.
    """
    try:
        try:
            answer: Any = urllib.request.urlopen(request, timeout=timeout_seconds)  # noqa: S310  the scheme is checked
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            content = answer.read(MOST_ANSWER_BYTES)
            length = answer.headers.get("content-length", "")
        if length.isdecimal() and len(content) < min(int(length), MOST_ANSWER_BYTES):
            raise IncompleteRead(content)
        return answer.status, content
    except HTTPException as error:
        raise UserError(f"{server} did not answer like a server of silohash. Check the address.") from error
    except OSError as error:
        reason = getattr(error, "reason", None) or error
        raise UserError(f"{server} cannot be reached ({reason}). {remedy}") from error
