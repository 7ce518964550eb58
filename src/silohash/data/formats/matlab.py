"""Matlab and HDF5 files: the content tells the version, the number of items tells which axis holds them.

Three kinds circulate under the endings ``.mat``, ``.h5`` and ``.h5py``, and the ending tells nothing:

- ``v5``: Matlab's version 5 to 7, which scipy reads;
- ``v7.3``: HDF5 that Matlab wrote, in which every array has its axes reversed;
- ``hdf5``: HDF5 that Python wrote, in the natural order.

Source: https://www.mathworks.com/help/matlab/import_export/mat-file-versions.html
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.data.formats.matlab_pictures import Hdf5Array, MatPictures, find_picture_axes
from silohash.data.formats.matlab_sources import (
    Hdf5Source,
    Matlab5Source,
    Source,
    Variable,
    explaining_damage,
    import_h5py,
)
from silohash.types import UserError

Kind: TypeAlias = Literal["v5", "v7.3", "hdf5"]
Swap: TypeAlias = Literal["auto", "yes", "no"]

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
HDF5_OFFSETS = (0, 512, 1024, 2048)
MATLAB73_HEADER = b"MATLAB 7.3"
MATLAB5_HEADER = b"MATLAB 5.0"
MATLAB5_BYTES = 128
SHOWN = 12


def as_shape(shape: Sequence[int]) -> str:
    """Returns a shape as people write it.

    Example:
        >>> as_shape((20015, 24))
        '20,015 x 24'
    """
    return " x ".join(f"{size:,}" for size in shape) or "one number"


def find_kind(path: Path) -> Kind:
    """Tells by its first bytes what a file is.

    Raises:
        UserError: if it is missing, or neither a Matlab nor an HDF5 file.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(HDF5_OFFSETS[-1] + len(HDF5_MAGIC))
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing.") from error
    except OSError as error:
        raise UserError(f"{path} could not be read ({error.strerror or error}).") from error
    if any(head[offset : offset + len(HDF5_MAGIC)] == HDF5_MAGIC for offset in HDF5_OFFSETS):
        return "v7.3" if head.startswith(MATLAB73_HEADER) or _has_matlab_classes(path) else "hdf5"
    if head.startswith(MATLAB5_HEADER) or (len(head) >= MATLAB5_BYTES and head[126:128] in (b"IM", b"MI")):
        return "v5"
    if head.lstrip()[:1] == b"<":
        raise UserError(
            f"{path} is a web page, not a Matlab or HDF5 file. Open its source in a browser and log in there."
        )
    raise UserError(
        f"{path} is neither a Matlab file (version 5 to 7.3) nor an HDF5 file: it begins with {head[:8]!r}. "
        "Fetch it again, or save it in Matlab with -v7 or -v7.3."
    )


def _has_matlab_classes(path: Path) -> bool:
    """Tells whether Matlab's marks stand in an HDF5 file whose header is gone."""
    package = import_h5py()
    with explaining_damage(path), package.File(path, "r", locking=False) as file:
        return any("MATLAB_class" in file[name].attrs for name in file)


def open_mat(path: Path) -> MatFile:
    """Opens a Matlab or HDF5 file; its content decides how it is read, never its name.

    Raises:
        UserError: if it is missing, damaged, or of another kind, or the package that reads it is not installed.
    """
    kind = find_kind(path)
    source: Source = Matlab5Source(path) if kind == "v5" else Hdf5Source(path, is_reversed=kind == "v7.3")
    return MatFile(path, kind, source)


class MatFile:
    """A Matlab or HDF5 file whose variables are read one at a time.

    Attributes:
        path: the file.
        kind: ``v5``, ``v7.3`` or ``hdf5``.
        variables: what is in it, by name.
    """

    def __init__(self, path: Path, kind: Kind, source: Source) -> None:
        self.path = path
        self.kind = kind
        self._source = source
        self.variables: dict[str, Variable] = source.variables()

    def names(self) -> tuple[str, ...]:
        """Returns the names of the variables; the fields of a struct stand behind a slash, as ``images/IAll``."""
        return tuple(self.variables)

    def has(self, *wanted: str) -> bool:
        """Tells whether `find` would find something."""
        return any(self._matches(name) for name in wanted)

    def find(self, *wanted: str) -> str:
        """Returns the variable of one of several names, in their order: itself, or inside a struct.

        Raises:
            UserError: if there is none, or a struct holds several.
        """
        for want in wanted:
            matches = self._matches(want)
            if len(matches) > 1:
                raise UserError(
                    f'{self.path} holds several variables "{want}": {", ".join(matches)}. Keep one of them.'
                )
            if matches:
                return matches[0]
        names = ", ".join(f"{one.name} ({as_shape(one.shape)})" for one in list(self.variables.values())[:SHOWN])
        raise UserError(f"{self.path} has no variable {' or '.join(wanted)}; it has: {names or 'none at all'}.")

    def _matches(self, want: str) -> list[str]:
        if want in self.variables:
            return [want]
        parts = {name: name.casefold().split("/") for name in self.variables}
        return [name for name, words in parts.items() if want.casefold() in (words[0], words[-1])]

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns a variable's shape as Matlab shows it."""
        return self.variables[self.find(name)].shape

    def row_axis(self, name: str, rows: int) -> int:
        """Returns which axis of the shape that Matlab shows holds the items.

        Raises:
            UserError: if no axis has that many rows, or several have.
        """
        name = self.find(name)
        shape = self.shape(name)
        axes = [axis for axis, size in enumerate(shape) if size == rows]
        if not axes:
            raise UserError(
                f'{self.path}: "{name}" is {as_shape(shape)}, and there are {rows:,} items by the other files. '
                "Take all files from one folder of one source."
            )
        if len(axes) > 1 and rows > 1:
            raise UserError(
                f'{self.path}: {len(axes)} axes of "{name}" ({as_shape(shape)}) have the size {rows:,} of the items, so '
                "it cannot be told which one holds them. Leave out an item, or write the array as .npy."
            )
        return axes[0]

    def array(self, name: str, *, rows: int | None = None) -> np.ndarray:
        """Reads an array of numbers with the items along the first axis; a sparse matrix is filled up with zeros.

        Args:
            name: of the variable.
            rows: how many items there are; None for the order of axes that Matlab shows.

        Returns:
            ``(rows, ...)``, in the type that the file has.

        Raises:
            UserError: if the variable is missing or holds no numbers, or its axis of items cannot be told.
        """
        name = self._find_of(name, "numbers")
        axis = 0 if rows is None else self.row_axis(name, rows)
        values = self._source.numbers(name)
        return np.moveaxis(values, axis, 0) if axis else values

    def strings(self, name: str, *, rows: int | None = None) -> npt.NDArray[np.str_]:
        """Reads strings: a cell array, a matrix of characters, or an array of names.

        Args:
            name: of the variable.
            rows: how many items there are, where it is known.

        Returns:
            ``(rows,)``, or ``(rows, k)`` where each item has several.

        Raises:
            UserError: if the variable is missing or holds no strings, or its axis of items cannot be told.
        """
        name = self._find_of(name, "strings")
        axis = 0 if rows is None else self.row_axis(name, rows)
        values = np.moveaxis(self._source.strings(name), axis, 0) if axis else self._source.strings(name)
        return values.reshape(-1) if values.size == max(values.shape, default=0) else values

    def _find_of(self, name: str, holds: str) -> str:
        name = self.find(name)
        if self.variables[name].holds != holds:
            raise UserError(f'{self.path}: "{name}" holds {self.variables[name].holds}; {holds} are needed there.')
        return name

    def pictures(self, name: str, *, rows: int | None = None, swap: Swap = "auto") -> MatPictures:
        """Opens an array of colour pictures; HDF5 is read block by block when a picture is asked for, v5 whole.

        Channels are the axis of size 3 beside or at the far end from the items'. Height and width cannot be told
        apart in a square picture: with ``swap="auto"`` they are taken to be exchanged where Matlab wrote HDF5, and in
        the natural order elsewhere. A file that Python wrote of what it had read from Matlab's needs ``swap="yes"``.

        Args:
            name: of the variable, of four axes.
            rows: how many items there are, where it is known.
            swap: whether the first of the two axes of a picture is its width.

        Raises:
            UserError: if the variable is missing, or its axes cannot be told.
        """
        name = self._find_of(name, "numbers")
        if swap not in ("auto", "yes", "no"):
            raise UserError(f'swap = "{swap}" is none of auto, yes, no.')
        swapped = self.kind == "v7.3" if swap == "auto" else swap == "yes"
        stored = self._source.numbers(name) if self.kind == "v5" else Hdf5Array(self.path, name)
        axes = find_picture_axes(tuple(stored.shape), rows, swapped=swapped, where=f'{self.path}: "{name}"')
        return MatPictures(stored, axes, path=self.path, name=name)
