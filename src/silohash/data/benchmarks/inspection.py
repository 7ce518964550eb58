"""What is there of a data set in circulation: its files by layout, what a reader finds in them, which protocols fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from silohash.data.archive import Archive
from silohash.data.benchmarks.datasets import DATASETS, Option, archive_under, read_raw
from silohash.data.benchmarks.files import AUTO, Found, LayoutFiles, folder_of, state_of
from silohash.data.benchmarks.raw import Raw
from silohash.data.protocols.apply import DEFAULT, apply, protocol_of
from silohash.types import UserError

UNITS = ("bytes", "KB", "MB", "GB")


@dataclass(frozen=True)
class Reading:
    """What a reader found in a layout's files.

    Attributes:
        layout: the layout that was read.
        raw: every item of the files.
        overlaps: which stated splits share items, as ``query and database`` -> how many.
        fits: protocol -> None where the files fit it, else why not.
        protocol: the protocol that was asked for, or the first that fits.
        archive: the archive under that protocol.
    """

    layout: str
    raw: Raw
    overlaps: Mapping[str, int]
    fits: Mapping[str, str | None]
    protocol: str
    archive: Archive


def files_of(key: str, root: str = "") -> tuple[Path, tuple[LayoutFiles, ...]]:
    """Returns the folder of a data set's files and what is there of every layout."""
    folder = folder_of(key, root)
    return folder, tuple(state_of(layout, folder) for layout in DATASETS[key].layouts)


def complete(states: tuple[LayoutFiles, ...]) -> str:
    """Returns the name of the first complete layout, or an empty string."""
    return next((state.layout.name for state in states if state.complete), "")


def read(
    key: str, *, root: str = "", layout: str = AUTO, protocol: str = "", reader: Mapping[str, Option] | None = None
) -> Reading:
    """Reads a data set's files and tries every protocol on them.

    Args:
        key: the data set.
        root: the folder of its files.
        layout: a layout's name, or ``auto``.
        protocol: the protocol that must fit; empty for the usual one or, where that does not fit, the first that does.
        reader: options of the layout's reader.

    Raises:
        UserError: if files are missing, damaged or do not belong together, or do not fit the protocol asked for.
    """
    dataset = DATASETS[key]
    wanted = protocol_of(key, protocol or dataset.default_protocol)
    raw = read_raw(key, root=root, layout=layout, choice=wanted, **(reader or {}))
    fits = {name: _misfit(key, name, raw) for name in dataset.protocols}
    if not protocol and fits[wanted.name] is not None:
        wanted = protocol_of(key, next((name for name, why in fits.items() if why is None), DEFAULT))
    return Reading(
        layout=dataset.layout(layout, folder_of(key, root)).name,
        raw=raw,
        overlaps=_overlaps(raw),
        fits=fits,
        protocol=wanted.name,
        archive=archive_under(raw, wanted),
    )


def _misfit(key: str, name: str, raw: Raw) -> str | None:
    try:
        apply(raw, protocol_of(key, name))
    except UserError as error:
        return str(error)
    return None


def _overlaps(raw: Raw) -> dict[str, int]:
    found = {}
    for one, other in combinations(raw.stated, 2):
        both = len(np.intersect1d(raw.stated[one], raw.stated[other]))
        if both and {one, other} != {"train", "database"}:
            found[f"{one} and {other}"] = both
    return found


def size_in_words(size_bytes: int) -> str:
    """Returns a size as a person reads it.

    Example:
        >>> size_in_words(512), size_in_words(29_500_000_000)
        ('512 bytes', '29.5 GB')
    """
    size, unit = float(size_bytes), 0
    while size >= 1000 and unit < len(UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:,.0f} {UNITS[unit]}" if unit == 0 else f"{size:,.1f} {UNITS[unit]}"


def files_in_words(states: tuple[LayoutFiles, ...], folder: Path) -> list[str]:
    """Returns lines that say of every layout which files it needs, and what is there of them."""
    lines = []
    for state in states:
        missing = sum(entry.missing for entry in state.found)
        lines.append(f"layout {state.layout.name}: {f'{missing} missing' if missing else 'complete'}")
        lines += [f"  {_entry_in_words(entry, folder)}" for entry in state.found]
    return lines


def _entry_in_words(entry: Found, folder: Path) -> str:
    need = f"{entry.need.pattern}  ({entry.need.what})"
    if not entry.paths:
        return f"{'not there, and not needed' if entry.need.optional else 'MISSING'}: {need}"
    size = size_in_words(entry.size_bytes)
    if len(entry.paths) == 1:
        return f"{entry.paths[0].relative_to(folder)}: {size}  ({entry.need.what})"
    return f"{len(entry.paths):,} files {need}: {size}"


def files_as_json(states: tuple[LayoutFiles, ...]) -> list[dict[str, Any]]:
    """Returns the same as a JSON value."""
    return [
        {
            "name": state.layout.name,
            "summary": state.layout.summary,
            "complete": state.complete,
            "files": [
                {
                    "pattern": entry.need.pattern,
                    "what": entry.need.what,
                    "optional": entry.need.optional,
                    "found": len(entry.paths),
                    "bytes": entry.size_bytes,
                }
                for entry in state.found
            ],
        }
        for state in states
    ]
