"""Messages for a study's file that is not valid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from silohash.config.wrong_types import wrong_type
from silohash.registry import suggestion

UNION = ("int", "float")
"""Last part of a location if none of the types of a value applies, such as those of a number."""


def explain(
    error: ValidationError, value: Mapping[str, Any], model: type[BaseModel], models: Mapping[object, type[BaseModel]]
) -> str:
    """Return the first error as a sentence that names the axis and the choice.

    Args:
        error: what pydantic found.
        value: the content of the file.
        model: the model of the whole file.
        models: name of a table in the file -> its model.
    """
    first, root = error.errors()[0], model
    places, keys = _location(first["loc"], value)
    for part in first["loc"]:
        model = models.get(part, model)
    key = ".".join(str(part) for part in keys)
    where = f"{', '.join(places)}: " if places else ""
    if first["type"] == "extra_forbidden":
        known = [field.alias or name for name, field in model.model_fields.items()]
        return f'{where}unknown key "{key}"{suggestion(str(keys[-1]), known)}; known: {", ".join(known)}.'
    if first["type"] == "missing":
        return f'{where}"{key}" is missing.'
    return where + _wrong_value(first, keys, root)


def _wrong_value(error: Mapping[str, Any], keys: Sequence[int | str], model: type[BaseModel]) -> str:
    """Return what is wrong with the value at some keys; no keys stand for the list item itself."""
    if error["loc"] and error["loc"][-1] in UNION:
        error, keys = {**error, "type": "float_type"}, keys[:-1]
    key = ".".join(map(str, keys))
    sentences = wrong_type(error, key or ".".join(map(str, error["loc"][-2:])), model)
    return f"{key}{': ' if key else ''}{sentences}" if sentences else _message(error, key)


def _location(loc: tuple[int | str, ...], value: Mapping[str, Any]) -> tuple[list[str], list[int | str]]:
    """Return the list items on the way to an error, in words, and the keys within the last of them."""
    places: list[str] = []
    keys = list(loc)
    here: Any = value
    for number, part in enumerate(loc):
        here = _item(here, part)
        if isinstance(part, int):
            name = here.get("name") if isinstance(here, dict) else None
            places.append(f'{loc[number - 1]} "{name}"' if name else f"{loc[number - 1]} {part + 1}")
            keys = list(loc[number + 1 :])
    return places, keys


def _item(value: object, key: int | str) -> object:
    """Return an item of a list or a table, or an empty table if there is no such item."""
    if isinstance(value, list) and isinstance(key, int) and key < len(value):
        return value[key]
    return value.get(key, {}) if isinstance(value, dict) else {}


def _message(error: Mapping[str, Any], key: str) -> str:
    """Return pydantic's message with the key and the value seen."""
    message = error["msg"].removeprefix("Value error, ").rstrip(".")
    value = error.get("input")
    seen = f" (got {value!r})" if isinstance(value, str | int | float | bool) else ""
    return f"{key + ': ' if key else ''}{message[0].lower()}{message[1:]}{seen}."
