"""The words or regions of a silo's items on disk, beside its index, for models that score pairs.

The nodes of an item are read from mapped files, so scoring a few candidates reads a few kilobytes per candidate, however
many items there are. Items of the same picture share its nodes, which are stored once.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from silohash.base.errors import NotIndexed
from silohash.base.files import read_npy
from silohash.base.types import Arrays, Modality, Rows
from silohash.index.base import Keys
from silohash.index.store import Store

PLACES = "places"
"""Name of the file with the place of each item's nodes, by the item's key in the index, ``(N,)`` int64."""

REMOVED = -1
"""Place of an item that has no nodes, because it was removed or added later."""

INDEX_AGAIN = "Index the silo again."


def nodes_folder(folder: Path, modality: Modality) -> Path:
    """Return the folder with the nodes of a modality, beside the index files of a silo."""
    return folder / f"{modality}-nodes"


class NodeWriter:
    """Write the nodes of items in blocks.

    Args:
        folder: Folder of the files. It is made.
        places: ``(N,)`` place of each item's nodes, by the item's key; `REMOVED` for none.
    """

    def __init__(self, folder: Path, places: Rows) -> None:
        folder.mkdir(parents=True)
        np.save(folder / f"{PLACES}.npy", places.astype(np.int64))
        self._folder = folder
        self._count = int(places.max(initial=-1)) + 1
        self._files: dict[str, np.memmap] = {}
        self._written = 0

    def add(self, block: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Append the nodes of some items. All blocks have the same arrays, of the same shapes but for the first number."""
        for name, values in block.items():
            if name not in self._files:
                self._files[name] = np.lib.format.open_memmap(
                    self._folder / f"{name}.npy", "w+", values.dtype, (self._count, *values.shape[1:])
                )
            self._files[name][self._written : self._written + len(values)] = values
        self._written += len(next(iter(block.values())))

    def close(self) -> None:
        """Write everything to disk."""
        for file in self._files.values():
            file.flush()


class NodeFiles:
    """The nodes of the items of one silo and modality, mapped from the files that a `NodeWriter` wrote.

    Raises:
        UserError: If a file is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self._places: Rows = read_npy(folder / f"{PLACES}.npy", remedy=INDEX_AGAIN, missing=INDEX_AGAIN)
        self._files = {path.stem: read_npy(path, mapped=True, remedy=INDEX_AGAIN) for path in _files_of_nodes(folder)}
        count = int(self._places.max(initial=-1)) + 1
        if "values" not in self._files or any(len(file) < count for file in self._files.values()):
            raise NotIndexed(f"{folder} does not hold the nodes of all {count:,} items. {INDEX_AGAIN}")

    @property
    def most_shared(self) -> int:
        """The largest number of items with the same nodes, at least 1."""
        return max(1, int(np.bincount(self._places[self._places >= 0]).max(initial=1)))

    def read(self, keys: Sequence[int]) -> tuple[Arrays, Rows]:
        """Return the nodes of items, each once, and the position of each item's nodes among them.

        Raises:
            UserError: If the nodes of an item are missing.
        """
        wanted = np.asarray(keys, np.int64)
        if (wanted >= len(self._places)).any() or (self._places[wanted] == REMOVED).any():
            raise NotIndexed(f"The nodes of some items are missing. {INDEX_AGAIN}")
        places, position = np.unique(self._places[wanted], return_inverse=True)
        return {name: np.asarray(file[places]) for name, file in self._files.items()}, position


@contextmanager
def forgetting(store: Store, ids: Sequence[str]) -> Iterator[None]:
    """Overwrite the nodes that items have now with zeros, after the block has removed or replaced these items.

    Nodes that other items share are kept. Nothing happens for an index without nodes.

    Ids that the index does not have are left out.
    """
    folder = nodes_folder(store.path.parent, store.manifest.modality)
    if not (folder / f"{PLACES}.npy").exists():
        yield
        return
    keys = store.keys_of(ids)
    yield
    _forget(folder, keys[keys >= 0])


def _forget(folder: Path, keys: Keys) -> None:
    """Overwrite the nodes under keys, unless other items share them. Items that were added later have no nodes."""
    places = np.lib.format.open_memmap(folder / f"{PLACES}.npy", "r+")
    keys = keys[keys < len(places)]
    gone = np.setdiff1d(places[keys], REMOVED)
    places[keys] = REMOVED
    gone = np.setdiff1d(gone, places)
    for path in _files_of_nodes(folder):
        file = np.lib.format.open_memmap(path, "r+")
        file[gone] = 0
        file.flush()
    places.flush()


def _files_of_nodes(folder: Path) -> list[Path]:
    """Return the files with one entry per picture or text."""
    return sorted(path for path in folder.glob("*.npy") if path.stem != PLACES)
