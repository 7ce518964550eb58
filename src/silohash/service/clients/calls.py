"""Calls of the Python clients to a server of silohash. They need nothing but the standard library."""

import json
import secrets
import urllib.error
import urllib.request
from collections.abc import Iterable
from http import HTTPStatus
from http.client import HTTPException, IncompleteRead
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from silohash.base.attempts import attempted
from silohash.base.errors import RequestRefused, ServerUnreachable, UnreadableFile, WrongAddress, restored
from silohash.base.files import read_bytes

TIMEOUT_SECONDS = 60.0
MOST_ANSWER_BYTES = 64_000_000


def read_file(path: Path) -> bytes:
    """Return the content of a file that a user names.

    Raises:
        UserError: If it cannot be read.
    """
    try:
        return read_bytes(path)
    except OSError as error:
        raise UnreadableFile(f'"{path}" cannot be read ({error.strerror}). Check the path.') from error


def form(fields: Iterable[tuple[str, bytes]], **files: bytes) -> tuple[bytes, str]:
    """Return the body of a form with texts and files, and its content type."""
    boundary = secrets.token_hex(16)
    file = '%s"; filename="%s"\r\nContent-Type: application/octet-stream'
    parts = [*((f'{name}"', value) for name, value in fields), *((file % (name, name), files[name]) for name in files)]
    body = b"".join(
        b'--%s\r\nContent-Disposition: form-data; name="%s\r\n\r\n%s\r\n' % (boundary.encode(), head.encode(), value)
        for head, value in parts
    )
    return b"%s--%s--\r\n" % (body, boundary.encode()), f"multipart/form-data; boundary={boundary}"


class Connection:
    """Calls to one server of silohash, whose kind errors name. They give an example of its address, or a remedy."""

    kind: ClassVar[str]
    example: ClassVar[str]
    remedy: ClassVar[str]

    def __init__(self, url: str, *, token: str = "", timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        """Keep the address of a server, and a token, which may end with a line break, as in a file; empty for none.

        Raises:
            UserError: If the address is not valid.
        """
        try:
            parts = urlsplit(url)
            valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        except ValueError:
            valid = False
        if not valid:
            raise WrongAddress(f'"{url}" is not the address of {self.kind}. Use one such as {self.example}.')
        self.url, self._timeout = url.rstrip("/"), timeout_seconds
        self._headers = {"accept": "application/json"} | ({"authorization": f"Bearer {token.strip()}"} if token else {})

    def __repr__(self) -> str:
        return f'{type(self).__name__}("{self.url}")'

    def _request(self, method: str, path: str, body: bytes | None = None, content_type: str = "") -> dict[str, Any]:
        """Return the JSON document of an answer; empty without one. A refusal is the error that the server names by key."""
        headers = self._headers | ({"content-type": content_type} if content_type else {})
        request = urllib.request.Request(self.url + path, body, headers, method=method)  # noqa: S310  it is checked
        status, content = self._answer(request)
        document = attempted(lambda: json.loads(content) if content else {}, ValueError, otherwise=None)
        if not isinstance(document, dict):
            raise ServerUnreachable(f"{self.url} did not answer like {self.kind} of silohash. Check the address.")
        if status < HTTPStatus.BAD_REQUEST:
            return document
        told = document.get("error")
        error = told if isinstance(told, dict) else {}
        message = str(error.get("message") or f"{self.url} answered with the status {status}. Check the address.")
        raise restored(str(error.get("key")), message) or RequestRefused(message)

    def _answer(self, request: urllib.request.Request) -> tuple[int, bytes]:
        try:
            try:
                answer: Any = urllib.request.urlopen(request, timeout=self._timeout)  # noqa: S310  as above
            except urllib.error.HTTPError as error:
                answer = error
            with answer:
                content = answer.read(MOST_ANSWER_BYTES)
                length = answer.headers.get("content-length", "")
            # http.client does not notice the end of a connection before the announced end of an answer that is read in part.
            if length.isdecimal() and len(content) < min(int(length), MOST_ANSWER_BYTES):
                raise IncompleteRead(content)
            return answer.status, content
        except HTTPException as error:
            raise ServerUnreachable(f"{self.url} did not answer like a server of silohash. Check the URL.") from error
        except OSError as error:
            # urllib wraps the error of the socket in a URLError, but a time limit while reading is not wrapped.
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise ServerUnreachable(f"{self.url} cannot be reached ({reason}). {self.remedy}") from error
