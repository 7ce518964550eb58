"""Inspect a data set's files: which are present, what the reader finds in them, and which protocols they match."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from silohash.data.archive import Archive
from silohash.data.benchmarks.dataset import Dataset, Option
from silohash.data.benchmarks.files import AUTO, LayoutFiles, find_layout_files, folder_of
from silohash.data.protocols.apply import DEFAULT, apply
from silohash.data.protocols.contents import Contents
from silohash.types import UserError


@dataclass(frozen=True)
class Inspection:
    """The findings about the files of the layout that was read, and the archive under the protocol that was chosen.

    Attributes:
        overlaps: number of items that two stated splits share, by their names, such as ``query and database``.
        mismatches: protocol -> None if the files match it, else the reason why they do not.
    """

    layout: str
    contents: Contents
    overlaps: Mapping[str, int]
    mismatches: Mapping[str, str | None]
    protocol: str
    archive: Archive


def files_of(dataset: Dataset, root: str = "") -> tuple[Path, tuple[LayoutFiles, ...]]:
    """Return the folder of a data set's files, and the files of each layout that are present."""
    folder = folder_of(dataset.key, root)
    return folder, tuple(find_layout_files(layout, folder) for layout in dataset.layouts)


def first_complete(states: tuple[LayoutFiles, ...]) -> str:
    """Return the name of the first complete layout, or an empty string."""
    return next((state.layout.name for state in states if state.complete), "")


def inspect(
    dataset: Dataset,
    *,
    root: str = "",
    layout: str = AUTO,
    protocol: str = "",
    reader: Mapping[str, Option] | None = None,
) -> Inspection:
    """Read a data set's files and try every protocol on them.

    If ``protocol`` is empty, the usual one is chosen or, if that does not match, the first that does. The other arguments
    are those of a call of the data set.

    Raises:
        UserError: if files are missing or damaged, do not belong together, or do not match the requested protocol.
    """
    choice = dataset.protocol(protocol)
    contents = dataset.read(root=root, layout=layout, choice=choice, **(reader or {}))
    mismatches = {name: _mismatch(dataset, name, contents) for name in dataset.protocols}
    if not protocol and mismatches[choice.name] is not None:
        choice = dataset.protocol(next((name for name, reason in mismatches.items() if reason is None), DEFAULT))
    return Inspection(
        layout=dataset.layout(layout, folder_of(dataset.key, root)).name,
        contents=contents,
        overlaps=_overlaps(contents),
        mismatches=mismatches,
        protocol=choice.name,
        archive=dataset.archive(contents, choice),
    )


def _mismatch(dataset: Dataset, name: str, contents: Contents) -> str | None:
    try:
        apply(contents, dataset.protocol(name))
    except UserError as error:
        return str(error)
    return None


def _overlaps(contents: Contents) -> dict[str, int]:
    found = {}
    for one, other in combinations(contents.stated, 2):
        both = len(np.intersect1d(contents.stated[one], contents.stated[other]))
        if both and {one, other} != {"train", "database"}:
            found[f"{one} and {other}"] = both
    return found
