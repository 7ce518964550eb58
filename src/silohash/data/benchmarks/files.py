"""Where the files of a data set are looked for, which of them are there, and what their digests are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from silohash.data.benchmarks.raw import Layout, Need
from silohash.files import digest_file, read_json, write_json
from silohash.types import UserError

VARIABLE = "SILOHASH_DATA"
CHECKSUMS = "checksums.json"
AUTO = "auto"


@dataclass(frozen=True)
class Found:
    """A file that a layout asks for, and what was found of it.

    Attributes:
        need: what is asked for.
        paths: the files that match, in alphabetical order.
        size_bytes: of all of them.
    """

    need: Need
    paths: tuple[Path, ...]
    size_bytes: int

    @property
    def missing(self) -> bool:
        """Whether the layout cannot be read for want of it."""
        return not self.paths and not self.need.optional


@dataclass(frozen=True)
class LayoutFiles:
    """A layout and the files of it that are there."""

    layout: Layout
    found: tuple[Found, ...]

    @property
    def complete(self) -> bool:
        """Whether nothing is missing."""
        return not any(entry.missing for entry in self.found)


def folder_of(key: str, root: str = "") -> Path:
    """Returns the folder of a data set's files: the one given, else ``$SILOHASH_DATA/<key>``, else ``./data/<key>``."""
    if root:
        return Path(root).expanduser()
    named = os.environ.get(VARIABLE)
    if named and (Path(named) / key).is_dir():
        return Path(named) / key
    return Path("data") / key


def state_of(layout: Layout, folder: Path) -> LayoutFiles:
    """Looks for a layout's files under a folder."""
    entries = []
    for need in layout.needs:
        paths = tuple(sorted(path for path in folder.glob(need.pattern) if path.is_file()))
        entries.append(Found(need, paths, sum(path.stat().st_size for path in paths)))
    return LayoutFiles(layout, tuple(entries))


def complete_layout(key: str, folder: Path, layouts: Sequence[Layout]) -> Layout:
    """Returns the first layout whose needed files are all there.

    Raises:
        UserError: if there is none; lists for every layout which files are needed and where they go.
    """
    for layout in layouts:
        if not layout.missing(folder):
            return layout
    raise UserError(missing_files(key, folder, layouts))


def missing_files(key: str, folder: Path, layouts: Sequence[Layout]) -> str:
    """Returns in words which files each layout needs, which of them are missing, and where they go."""
    there = "does not exist" if not folder.is_dir() else "holds no complete layout"
    lines = [
        f"The files of {key} are not here: {folder.resolve()} {there}. Put the files of one layout into it, or name the "
        f'folder that holds them: root = "..." in [data.options], or {VARIABLE} for the folder above {key}/.'
    ]
    for layout in layouts:
        lines.append(f"  layout {layout.name}: {layout.summary}")
        for need in layout.needs:
            if not need.optional:
                found = "is there" if any(folder.glob(need.pattern)) else "missing "
                lines.append(f"    {found}  {need.pattern}  ({need.what})")
    return "\n".join(lines)


def digests(folder: Path, paths: Sequence[Path]) -> dict[str, str]:
    """Returns the BLAKE2 digest of each file, by its name relative to the folder."""
    return {path.relative_to(folder).as_posix(): digest_file(path) for path in paths}


def compared(folder: Path, found: dict[str, str]) -> dict[str, str]:
    """Compares digests with those in ``checksums.json``.

    Returns:
        File -> ``as noted``, ``differs`` or ``not noted``; empty where there is no such file.

    Raises:
        UserError: if the file is damaged.
    """
    path = folder / CHECKSUMS
    if not path.exists():
        return {}
    noted = read_json(path)
    if not isinstance(noted, dict):
        raise UserError(f"{path} is damaged: it is no table of files and digests. Write it anew: --write-checksums.")
    return {
        name: "not noted" if name not in noted else "as noted" if noted[name] == digest else "differs"
        for name, digest in found.items()
    }


def write_checksums(folder: Path, found: dict[str, str]) -> Path:
    """Writes ``checksums.json`` beside the files."""
    path = folder / CHECKSUMS
    write_json(path, found)
    return path
