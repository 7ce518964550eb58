"""The files of a data set: the folder they are expected in, which of them are present, and their digests."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from silohash.base.files import digest_file, read_json, write_json
from silohash.base.types import UserError
from silohash.data.benchmarks.layouts.reading import Layout, Need

VARIABLE = "SILOHASH_DATA"
CHECKSUMS = "checksums.json"
AUTO = "auto"


@dataclass(frozen=True)
class Found:
    """A file that a layout needs, the matching files in alphabetical order, and their total size."""

    need: Need
    paths: tuple[Path, ...]
    size_bytes: int

    @property
    def missing(self) -> bool:
        """Whether the layout cannot be read without it."""
        return not self.paths and not self.need.optional


@dataclass(frozen=True)
class LayoutFiles:
    """A layout and its files that are present."""

    layout: Layout
    found: tuple[Found, ...]

    @property
    def complete(self) -> bool:
        """Whether every required file is present."""
        return not any(entry.missing for entry in self.found)


def folder_of(key: str, root: str = "") -> Path:
    """Return the folder of a data set's files: the given one, or ``$SILOHASH_DATA/<key>`` if present, or ``data/<key>``."""
    if root:
        return Path(root).expanduser()
    named = os.environ.get(VARIABLE)
    if named and (Path(named) / key).is_dir():
        return Path(named) / key
    return Path("data") / key


def find_layout_files(layout: Layout, folder: Path) -> LayoutFiles:
    """Look for a layout's files in a folder."""
    entries = []
    for need in layout.needs:
        paths = tuple(sorted(path for path in folder.glob(need.pattern) if path.is_file()))
        entries.append(Found(need, paths, sum(path.stat().st_size for path in paths)))
    return LayoutFiles(layout, tuple(entries))


def complete_layout(key: str, folder: Path, layouts: Sequence[Layout]) -> Layout:
    """Return the first layout whose required files are all present.

    Raises:
        UserError: If no layout is complete. The error lists what is missing.
    """
    for layout in layouts:
        if not layout.missing(folder):
            return layout
    raise UserError(missing_files(key, folder, layouts))


def missing_files(key: str, folder: Path, layouts: Sequence[Layout]) -> str:
    """Return a text that lists each layout's required files, which of them are missing, and where they belong."""
    state = "does not contain a complete layout" if folder.is_dir() else "does not exist"
    lines = [
        f"The files of {key} are missing: {folder.resolve()} {state}. Put the files of one layout there, or name the "
        f'folder that holds them: root = "..." in [data.options], or {VARIABLE} for the folder above {key}/.'
    ]
    for layout in layouts:
        lines.append(f"  layout {layout.name}: {layout.summary}")
        missing = layout.missing(folder)
        for need in layout.needs:
            if not need.optional:
                lines.append(f"    {'missing' if need in missing else 'present'}  {need.pattern}  ({need.what})")
    return "\n".join(lines)


def digests(folder: Path, paths: Sequence[Path]) -> dict[str, str]:
    """Return the BLAKE2 digest of each file by its path relative to the folder."""
    return {path.relative_to(folder).as_posix(): digest_file(path) for path in paths}


def compare_checksums(folder: Path, found: Mapping[str, str]) -> dict[str, str]:
    """Return whether each digest is ``as noted`` in ``checksums.json``, ``differs`` or is ``not noted``, if it exists."""
    path = folder / CHECKSUMS
    if not path.exists():
        return {}
    noted = read_json(path, dict[str, str], remedy="Rewrite it with --write-checksums.")
    return {
        name: "not noted" if name not in noted else "as noted" if noted[name] == digest else "differs"
        for name, digest in found.items()
    }


def write_checksums(folder: Path, found: Mapping[str, str]) -> Path:
    """Write digests into ``checksums.json`` beside the files."""
    path = folder / CHECKSUMS
    write_json(path, dict(found))
    return path
