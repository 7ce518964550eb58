"""Paths in a config: relative to its file, or to the working directory where they were not read from one."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

from silohash.features.network import NETWORK_FILES
from silohash.types import MODALITIES


def make_absolute(value: Mapping[str, Any], base: Path) -> None:
    """Makes the paths in what a config file holds absolute, in place.

    Args:
        value: the tables by name.
        base: the folder that paths are relative to. A model that is not there is taken for a name, and stays as it is.
    """
    data = _table(value, "data")
    for table, key in ((data, "path"), (_table(data, "options"), "root")):
        if isinstance(table.get(key), str) and table[key]:
            table[key] = str((base / Path(table[key]).expanduser()).resolve())
    for section, modality, key in product(("features", "model"), MODALITIES, NETWORK_FILES):
        table = _table(_table(value, section), modality)
        there = base / Path(str(table.get(key) or "")).expanduser()
        if table.get(key) and there.exists():
            table[key] = str(there.resolve())


def _table(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}
