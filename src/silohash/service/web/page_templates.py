"""The templates and static files of the pages."""

import hashlib
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jinja2
from fastapi import Request
from fastapi.responses import HTMLResponse

from silohash.base.files import size_in_words
from silohash.base.templates import html_environment
from silohash.service.web.language import CODES, COOKIE, COOKIE_SECONDS, PARAMETER, language, language_of

STATIC = Path(__file__).parent / "static"


@cache
def static_address(name: str) -> str:
    """Return the address of a static file, which changes with its content, so that browsers may keep it forever."""
    digest = hashlib.blake2b((STATIC / name).read_bytes(), digest_size=6).hexdigest()
    return f"/static/{name}?v={digest}"


def address(path: str, **parameters: Any) -> str:  # noqa: ANN401  any values that can be written in an address
    """Return an address with a query string. Parameters that are None or empty are left out.

    Example:
        >>> address("/", q="two parrots", silo=["a", "b"], label="", page=None)
        '/?q=two+parrots&silo=a&silo=b'
    """
    given = {name: value for name, value in parameters.items() if value not in (None, "", [], ())}
    return f"{path}?{urlencode(given, doseq=True, errors='replace')}" if given else path


@cache
def _environment() -> jinja2.Environment:
    environment = html_environment("silohash.service.web")
    environment.globals.update(static=static_address, address=address)
    environment.filters.update(size=size_in_words)
    return environment


def page(request: Request, template: str, code: int = 200, **values: Any) -> HTMLResponse:  # noqa: ANN401  what it shows
    """Return a page in the language that a request asks for. Its menu of languages leads to the same page."""
    path = "" if request.url.path != "/picture" else "/"  # what was sent there cannot be asked for
    menu = [(each, f"{path}?{request.url.include_query_params(**{PARAMETER: each}).query}") for each in CODES]
    shown = {"t": language_of(request), "languages": [(language(code), link) for code, link in menu], **values}
    answer = HTMLResponse(_environment().get_template(template).render(**shown), code)
    if (chosen := request.query_params.get(PARAMETER)) in CODES:
        answer.set_cookie(COOKIE, str(chosen), COOKIE_SECONDS, httponly=True, samesite="lax")
    return answer
