"""The templates and static files of the pages."""

import hashlib
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jinja2

from silohash.base.files import size_in_words
from silohash.base.templates import html_environment

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
    environment.filters.update(thousands=lambda number: f"{number:,}", size=size_in_words)
    return environment


def render(template: str, **values: Any) -> str:  # noqa: ANN401  what the template shows
    """Return a page as HTML."""
    return _environment().get_template(template).render(**values)
