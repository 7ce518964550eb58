"""How ``silohash data check`` shows the files of a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from silohash.data.benchmarks.files import Found, LayoutFiles

UNITS = ("bytes", "KB", "MB", "GB")


def format_size(size_bytes: int) -> str:
    """Return a size with a unit.

    Example:
        >>> format_size(512), format_size(29_500_000_000)
        ('512 bytes', '29.5 GB')
    """
    size, unit = float(size_bytes), 0
    while size >= 1000 and unit < len(UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:,.0f} {UNITS[unit]}" if unit == 0 else f"{size:,.1f} {UNITS[unit]}"


def describe_files(states: tuple[LayoutFiles, ...], folder: Path) -> list[str]:
    """Return lines that list the files each layout needs, and those that are present."""
    lines = []
    for state in states:
        missing = sum(entry.missing for entry in state.found)
        lines.append(f"layout {state.layout.name}: {f'{missing} missing' if missing else 'complete'}")
        lines += [f"  {_describe_entry(entry, folder)}" for entry in state.found]
    return lines


def _describe_entry(entry: Found, folder: Path) -> str:
    need = f"{entry.need.pattern}  ({entry.need.what})"
    if not entry.paths:
        return f"{'absent, but optional' if entry.need.optional else 'MISSING'}: {need}"
    size = format_size(entry.size_bytes)
    if len(entry.paths) == 1:
        return f"{entry.paths[0].relative_to(folder)}: {size}  ({entry.need.what})"
    return f"{len(entry.paths):,} files {need}: {size}"


def files_as_json(states: tuple[LayoutFiles, ...]) -> list[dict[str, Any]]:
    """Return the layouts and their files as a JSON value."""
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
