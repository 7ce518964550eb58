"""Writing configs as TOML."""

from collections.abc import Mapping
from typing import Any

import tomlkit
from tomlkit.items import Item


def to_toml(value: Mapping[str, Any]) -> str:
    """Return a nested mapping of JSON values as TOML, without None values and empty tables."""
    document = tomlkit.document()
    _fill(document, value)
    return tomlkit.dumps(document)


def toml_value(value: object) -> str:
    """Return a JSON value as TOML on one line; a mapping becomes an inline table without its None values.

    Example:
        >>> toml_value({"rule": "median", "faulty": 0.3, "server": None})
        '{rule = "median", faulty = 0.3}'
    """
    return _inline(value).as_string()


def _fill(table: tomlkit.TOMLDocument | tomlkit.items.Table, value: Mapping[str, Any]) -> None:
    """Add the plain keys of a mapping to a table, then the tables within it."""
    for name, item in value.items():
        if item is not None and not isinstance(item, Mapping):
            table.add(name, _inline(item))
    for name, item in value.items():
        if isinstance(item, Mapping) and item:
            inner = tomlkit.table()
            _fill(inner, item)
            table.add(name, inner)


def _inline(value: object) -> Item:
    if isinstance(value, Mapping):
        table = tomlkit.inline_table()
        table.update({name: _inline(item) for name, item in value.items() if item is not None})
        return table
    if isinstance(value, list | tuple):
        array = tomlkit.array()
        for item in value:
            array.append(_inline(item))
        return array
    return tomlkit.item(value)
