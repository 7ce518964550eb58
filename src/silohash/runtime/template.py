"""A config to begin with: every key with its default and what it means, drawn from the models that read it."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from silohash.data.catalogue import ARCHIVES, named_or_folder
from silohash.federated import FEDERATED_METHODS
from silohash.local import LOCAL_METHODS
from silohash.runtime.config import RunConfig, to_toml, toml_value
from silohash.types import MODALITIES, TASKS, UserError, database_modality, query_modality

WIDTH = 116


def config_template(file: Path, *, local: str, federated: str, data: str) -> str:
    """Returns a commented TOML config.

    Args:
        file: where it will be written; its first line says how to run it, and a data path is relative to it.
        local: name of the local method.
        federated: name of the federated method.
        data: a named archive, or the path of a folder.

    Raises:
        UserError: if a method's name is unknown, or it cannot be loaded.
    """
    chosen: dict[str, dict[str, Any]] = {"local": {"name": local}, "federated": {"name": federated}}
    chosen["data"] = {"name": data} if data in ARCHIVES else {"path": _relative(data, file)}
    remarks: dict[str, dict[str, str]] = {}
    chosen["evaluate"], remarks["evaluate"] = _tasks(data)
    parts = [f"# silohash train {file} --out runs/{file.stem}\n", "seed = 0  # of every draw\n"]
    methods = {"local": LOCAL_METHODS.resolve(local), "federated": FEDERATED_METHODS.resolve(federated)}
    for name, method in methods.items():
        presets = _listed(f"`{preset}`" for preset in method.presets)
        own = chosen[name]["name"]
        remarks[name] = {"preset": f"{own} has {presets}; `silohash list {name} {own}` shows what they set."}
    for name, about in RunConfig.model_fields.items():
        kind = about.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            about_keys = remarks.get(name, {})
            parts.append(f"\n[{name}]\n" + _keys(kind, chosen.get(name, {}), about_keys, skip_unset=name == "data"))
            if getattr(methods.get(name), "averages", False):
                parts.append(_optional_tables(kind))
            if name in methods and methods[name].Params.model_fields:
                parts.append(f"# {chosen[name]['name']}'s own parameters; a preset sets them unless they stand here:\n")
                parts.append(_keys(methods[name].Params, {}, {}, commented=True))
    return "".join(parts)


def _listed(words: Iterable[str]) -> str:
    """Return words as an English list: "a", "a and b", "a, b and c"."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _relative(data: str, file: Path) -> str:
    return os.path.relpath(Path(data).resolve(), file.resolve().parent)


def _tasks(data: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns the table's key ``tasks`` and its comment: what an archive of one modality permits, else the default."""
    try:
        archive = named_or_folder(data)
    except UserError:
        return {}, {"tasks": 'i2t, t2i, i2i, t2t; ["i2i"] where there are pictures only, ["t2t"] where texts only.'}
    there = {modality for modality in MODALITIES if archive.has(modality).any()}
    if len(there) == len(MODALITIES):
        return {}, {}
    possible = [task for task in TASKS if {query_modality(task), database_modality(task)} <= there]
    return {"tasks": possible}, {"tasks": f"i2t, t2i, i2i, t2t; the archive has {' and '.join(there)} only."}


def _optional_tables(kind: type[BaseModel]) -> str:
    """Returns the tables that a section may have, as comments with an example."""
    lines = []
    for name, about in kind.model_fields.items():
        for table in get_args(about.annotation):
            if isinstance(table, type) and issubclass(table, BaseModel):
                example = {key: _example(field) for key, field in table.model_fields.items()}
                lines += [f"# {line}" for line in textwrap.wrap(about.description or "", WIDTH)]
                lines.append(f"# {name} = {toml_value(example)}")
    return "".join(f"{line}\n" for line in lines)


def _example(field: FieldInfo) -> Any:  # noqa: ANN401  as the field's type says
    """Returns a field's default; the first of the choices where it must be given."""
    return get_args(field.annotation)[0] if field.is_required() else field.get_default(call_default_factory=True)


def _keys(
    kind: type[BaseModel],
    chosen: Mapping[str, Any],
    remarks: Mapping[str, str],
    *,
    skip_unset: bool = False,
    commented: bool = False,
) -> str:
    """Returns a table's keys, each under what it means: the remark on it, else its own description."""
    lines = []
    for name, about in kind.model_fields.items():
        value = chosen.get(name, about.get_default(call_default_factory=True))
        if value is None or (skip_unset and name not in chosen):
            continue
        if isinstance(value, dict):
            entry = f"{name} = {{ {', '.join(f'{k} = {json.dumps(v)}' for k, v in value.items())} }}"
        else:
            entry = to_toml({name: value}).strip()
        lines += [f"# {line}" for line in textwrap.wrap(remarks.get(name, about.description or ""), WIDTH)]
        lines.append(f"# {entry}" if commented else entry)
    return "".join(f"{line}\n" for line in lines)
