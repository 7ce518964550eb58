"""A config to begin with: every key with its default and what it means, drawn from the models that read it."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from silohash.data import ARCHIVES
from silohash.federated import FEDERATED_METHODS
from silohash.local import LOCAL_METHODS
from silohash.runtime.config import RunConfig, to_toml

WIDTH = 116


def config_template(file: Path, *, local: str, federated: str, data: str) -> str:
    """Returns a commented TOML config.

    Args:
        file: where it will be written; its first line says how to run it, and a data path is relative to it.
        local: name of the local method.
        federated: name of the federated method.
        data: a named archive, or the path of a folder.

    Raises:
        UserError: if a method's name is unknown.
    """
    chosen: dict[str, dict[str, Any]] = {"local": {"name": local}, "federated": {"name": federated}}
    chosen["data"] = {"name": data} if data in ARCHIVES else {"path": _relative(data, file)}
    parts = [f"# silohash train {file} --out runs/{file.stem}\n", "seed = 0  # of every draw\n"]
    methods = {
        "local": LOCAL_METHODS.resolve(local).Params,
        "federated": FEDERATED_METHODS.resolve(federated).Params,
    }
    for name, about in RunConfig.model_fields.items():
        kind = about.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            parts.append(f"\n[{name}]\n" + _keys(kind, chosen.get(name, {}), skip_unset=name == "data"))
            if name in methods and methods[name].model_fields:
                parts.append(f"# {chosen[name]['name']}'s own parameters; a preset sets them unless they stand here:\n")
                parts.append(_keys(methods[name], {}, commented=True))
    return "".join(parts)


def _relative(data: str, file: Path) -> str:
    return os.path.relpath(Path(data).resolve(), file.resolve().parent)


def _keys(
    kind: type[BaseModel], chosen: Mapping[str, Any], *, skip_unset: bool = False, commented: bool = False
) -> str:
    lines = []
    for name, about in kind.model_fields.items():
        value = chosen.get(name, about.get_default(call_default_factory=True))
        if value is None or (skip_unset and name not in chosen):
            continue
        if isinstance(value, dict):
            entry = f"{name} = {{ {', '.join(f'{k} = {json.dumps(v)}' for k, v in value.items())} }}"
        else:
            entry = to_toml({name: value}).strip()
        lines += [f"# {line}" for line in textwrap.wrap(about.description or "", WIDTH)]
        lines.append(f"# {entry}" if commented else entry)
    return "".join(f"{line}\n" for line in lines)
