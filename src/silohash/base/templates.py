"""Jinja environments for the HTML that silohash writes: everything is escaped, and invisible characters are shown."""

from functools import cache

import jinja2
from markupsafe import Markup

from silohash.base.visible import visible


def visible_value(value: object) -> object:
    """Return a value of a template with its invisible characters replaced, if it is a text. Markup remains unchanged."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def html_environment(package: str) -> jinja2.Environment:
    """Return the environment of a package's HTML templates in its folder ``templates``, which compiles each once."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        autoescape=True,
        finalize=visible_value,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
