"""The templates and static files of the pages."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jinja2
from markupsafe import Markup

from silohash.visible import visible

STATIC = Path(__file__).parents[1] / "static"


def visible_value(value: object) -> object:
    """Return a text of a template with its invisible characters replaced. Our own markup and numbers stay as they are."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


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
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("silohash.service.web"),
        autoescape=True,
        finalize=visible_value,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(static=static_address, address=address)
    environment.filters["thousands"] = lambda number: f"{number:,}"
    return environment


def render(template: str, **values: Any) -> str:  # noqa: ANN401  what the template shows
    """Return a page as HTML."""
    return _environment().get_template(template).render(**values)
