"""Sentences about values of the wrong type: what is expected, the value seen, and how to write it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from silohash.base.files import read_toml
from silohash.base.forms import REINSTALL, located
from silohash.run.config.sections import RunConfig
from silohash.run.config.toml import toml_value

EXPECTED: Mapping[str, str] = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    "string_type": "a string",
    "path_type": "a path",
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "a table"),
    **dict.fromkeys(("tuple_type", "list_type"), "a list"),
    "too_short": "a list with at least one item",
}
"""Type of an error of pydantic -> what the value must be."""

PLACEHOLDERS: Mapping[str, object] = {
    "a whole number": 1, "a number": 0.1, "true or false": True, "a string": "...", "a path": "folder",
}  # fmt: skip
"""What the value must be -> an example, for keys without a default."""

LONGEST_VALUE = 60
"""Most characters of a value that a message repeats."""


@dataclass(frozen=True)
class TableForm:
    """How a table is written that holds at least one key.

    Attributes:
        key: The key that a table needs most.
        default: An example of its value.
        names: The strings that can be the value of this key; any if empty.
        network: Whether any other string is taken for the name of a published network.
    """

    key: str
    default: Any
    names: tuple[str, ...] = ()
    network: bool = False

    def example(self, value: object) -> dict[str, object]:
        """Return the table that a value of the wrong type was probably meant to be."""
        value = value[0] if isinstance(value, list) and len(value) == 1 else value
        if not (isinstance(value, str) and value and isinstance(self.default, str)):
            return {self.key: self.default}
        if not self.names or value in self.names:
            return {self.key: value}
        return {self.key: "huggingface", "model": value} if self.network else {self.key: self.default}


def _read_form(key: str, about: Mapping[str, Any]) -> TableForm:
    """Return the form of a table. If the config's model lists the strings that the key can have, they are its names."""
    form = TableForm(**about)
    field, _ = located([*key.split("."), form.key], RunConfig)
    listed = [] if field is None else [name for name in get_args(field.annotation) if isinstance(name, str)]
    return replace(form, names=tuple(form.names or listed))


TABLES = {
    key: _read_form(key, about)
    for key, about in read_toml(Path(__file__).with_name("tables.toml"), remedy=REINSTALL, missing=REINSTALL).items()
}
"""Dotted key of a table in a config or a study, without the positions of list items -> its form. ``*`` is any key."""


def wrong_type(error: Mapping[str, Any], key: str, model: type[BaseModel]) -> str | None:
    """Return what is wrong and what to write, in place of pydantic's message; None if the error is of another kind.

    The location of the error starts at the model that pydantic has checked.
    """
    expected = EXPECTED.get(error["type"])
    if expected is None or not key:
        return None
    names = [part for part in key.split(".") if not part.isdigit()]
    value = error.get("input")
    example = _example(expected, value, _form(names), _default(error["loc"], model))
    item = key.split(".")[-1].isdigit()
    text = f"{toml_value(example)} in the list" if item else f"{names[-1]} = {toml_value(example)}"
    return f"the value must be {expected} (got {shown(value)}). Write {text}."


def _form(names: Sequence[str]) -> TableForm | None:
    """Return the form of the table with a dotted key, or of the tables in the list with that key."""
    keys = (".".join(names), ".".join([*names[:-1], "*"]), names[-1] if len(names) > 1 else "")
    return next((TABLES[key] for key in keys if key in TABLES), None)


def missing(key: str) -> str:
    """Return the sentences about a key that a table needs and does not have."""
    table, _, name = key.rpartition(".")
    form = TABLES.get(table)
    if form is None or form.key != name:
        return f"{key} is missing. Add it."
    return f"{key} is missing. Add it, for example {name} = {toml_value(form.default)}."


def shown(value: object) -> str:
    """Return a value of a config as TOML, cut to a readable length.

    Example:
        >>> shown(["a", 1]), shown(None)
        ('["a", 1]', 'None')
    """
    if not isinstance(value, str | int | float | list | dict):
        return str(value)
    text = toml_value(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def _example(expected: str, value: object, form: TableForm | None, default: object) -> object:
    """Return a value of the expected type that is as close as possible to the one seen."""
    if expected == "a table":
        return form.example(value) if form else {"key": "value"}
    if expected.startswith("a list"):
        return _example_list(value, form, list(default) if isinstance(default, tuple) else [])
    if expected == "a string" and isinstance(value, int | float) and not isinstance(value, bool):
        return toml_value(value)
    return PLACEHOLDERS[expected] if default in (None, "") or isinstance(default, BaseModel) else default


def _example_list(value: object, form: TableForm | None, default: list[object]) -> list[Any]:
    """Return the list that a value was probably meant to be; the default for lists of other types than strings."""
    strings = not default or not isinstance(default[0], int | float)
    items = [part.strip() for part in value.split(",")] if isinstance(value, str) and value and strings else []
    if form:
        return [form.example(item) for item in items] or [form.example(None)]
    return items or default or ["..."]


def _default(loc: Sequence[int | str], model: type[BaseModel]) -> object:
    """Return the default of the key at a location; None without one."""
    field, _ = located(loc, model)
    if field is None or field.is_required() or isinstance(loc[-1], int):
        return None
    return field.get_default(call_default_factory=True, validated_data={})
