"""MATLAB and HDF5 files: the content determines the version, the number of items determines the axis of the items.

Three kinds of file have the extensions ``.mat``, ``.h5`` and ``.h5py``, whichever the extension is:

- ``v5``: MATLAB's versions 5 to 7, read by scipy;
- ``v7.3``: HDF5 written by MATLAB, which reverses the axes of every array;
- ``hdf5``: HDF5 written by Python, in the natural order.

A file that is missing, damaged or of another kind, a missing variable, and an ambiguous axis raise a `UserError`.

Source: https://www.mathworks.com/help/matlab/import_export/mat-file-versions.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.base.errors import (
    AmbiguousForm,
    ChoiceNeeded,
    FilesDiffer,
    MissingContent,
    MissingFile,
    UnreadableFile,
    WrongChoice,
    WrongKindOfFile,
    WrongType,
)
from silohash.data.formats import matlab_sources as sources
from silohash.data.formats.matlab_pictures import Hdf5Array, MatPictures, find_picture_axes

Kind: TypeAlias = Literal["v5", "v7.3", "hdf5"]
Swap: TypeAlias = Literal["auto", "yes", "no"]

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
HDF5_OFFSETS = (0, 512, 1024, 2048)
MATLAB73_HEADER = b"MATLAB 7.3"
MATLAB5_HEADER = b"MATLAB 5.0"
SHOWN = 12


def as_shape(shape: Sequence[int]) -> str:
    """Return a shape as text.

    Example:
        >>> as_shape((20015, 24))
        '20,015 x 24'
    """
    return " x ".join(f"{size:,}" for size in shape) or "one number"


def find_kind(path: Path) -> Kind:
    """Return the kind of a file, by its first bytes.

    Raises:
        UserError: If the file is missing, cannot be read, or is neither a MATLAB nor an HDF5 file.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(HDF5_OFFSETS[-1] + len(HDF5_MAGIC))
    except FileNotFoundError as error:
        raise MissingFile(f"{path} is missing. Restore the file.") from error
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read ({error.strerror or error}). Check its permissions.") from error
    if any(head.startswith(HDF5_MAGIC, offset) for offset in HDF5_OFFSETS):
        return "v7.3" if head.startswith(MATLAB73_HEADER) or _has_matlab_classes(path) else "hdf5"
    if head.startswith(MATLAB5_HEADER) or head[126:128] in (b"IM", b"MI"):
        return "v5"
    if head.lstrip()[:1] == b"<":
        raise WrongKindOfFile(
            f"{path} is a web page, not a MATLAB or HDF5 file. Open its source in a browser, log in there, and download it."
        )
    raise WrongKindOfFile(
        f"{path} is neither a MATLAB file (version 5 to 7.3) nor an HDF5 file: it begins with {head[:8]!r}. "
        "Download it again, or save it in MATLAB with -v7 or -v7.3."
    )


def _has_matlab_classes(path: Path) -> bool:
    """Tell whether an HDF5 file without MATLAB's header has MATLAB's attributes."""
    package = sources.import_h5py()
    with sources.explaining_damage(path), package.File(path, "r", locking=False) as file:
        return any("MATLAB_class" in file[name].attrs for name in file)


def open_mat(path: Path) -> MatFile:
    """Open a MATLAB or HDF5 file. Its content decides how it is read, not its name."""
    kind = find_kind(path)
    source: sources.Source = (
        sources.Matlab5Source(path) if kind == "v5" else sources.Hdf5Source(path, is_reversed=kind == "v7.3")
    )
    return MatFile(path, kind, source)


class MatFile:
    """A MATLAB or HDF5 file of a kind."""

    def __init__(self, path: Path, kind: Kind, source: sources.Source) -> None:
        self.path = path
        self.kind = kind
        self.source = source
        self.variables = {stored.name: Variable(self, *stored) for stored in source.variables()}

    def has(self, *wanted: str) -> bool:
        """Tell whether the file has one of the variables."""
        return any(self._matches(name) for name in wanted)

    def variable(self, *wanted: str) -> Variable:
        """Return the first of several variables that the file has, at the top level or in a struct.

        Raises:
            UserError: If the file does not have any of them, or has one several times.
        """
        for want in wanted:
            matches = self._matches(want)
            if len(matches) > 1:
                raise ChoiceNeeded(
                    f'{self.path} holds several variables "{want}": {", ".join(matches)}. Keep one of them.'
                )
            if matches:
                return self.variables[matches[0]]
        names = ", ".join(f"{one.name} ({as_shape(one.shape)})" for one in list(self.variables.values())[:SHOWN])
        raise MissingContent(f"{self.path} has no variable {' or '.join(wanted)}; it has: {names or 'none'}.")

    def _matches(self, want: str) -> list[str]:
        if want in self.variables:
            return [want]
        parts = {name: name.casefold().split("/") for name in self.variables}
        return [name for name, words in parts.items() if want.casefold() in (words[0], words[-1])]


@dataclass(frozen=True)
class Variable:
    """A variable of an open file, which is read on demand. Its shape is as MATLAB shows it."""

    file: MatFile
    name: str
    shape: tuple[int, ...]
    holds: sources.Holds

    def __str__(self) -> str:
        """Return file and variable as errors name them."""
        return f"{self.file.path.name}: {self.name}"

    def row_axis(self, rows: int) -> int:
        """Return the one axis of the items in the shape that MATLAB shows.

        Raises:
            UserError: If no axis or more than one has the size ``rows``.
        """
        where = f'{self.file.path}: "{self.name}"'
        axes = [axis for axis, size in enumerate(self.shape) if size == rows]
        if not axes:
            raise FilesDiffer(
                f"{where} is {as_shape(self.shape)}, but the other files hold {rows:,} items. "
                "Take all files from one folder of one source."
            )
        if len(axes) > 1 and rows > 1:
            raise AmbiguousForm(
                f'{self.file.path}: {len(axes)} axes of "{self.name}" ({as_shape(self.shape)}) have the size {rows:,}, so '
                "the axis of the items is ambiguous. Remove one item from every file, or write a folder with metadata.csv "
                "and the array in image.npy or text.npy, whose first axis holds the items."
            )
        return axes[0]

    def array(self, rows: int | None = None) -> np.ndarray:
        """Read an array of numbers as ``(rows, ...)``, in the type that the file has; a sparse matrix becomes dense.

        Without ``rows``, the axes are in the order that MATLAB shows.
        """
        self._check_holds("numbers")
        axis = 0 if rows is None else self.row_axis(rows)
        values = self.file.source.numbers(self.name)
        return np.moveaxis(values, axis, 0) if axis else values

    def strings(self, rows: int | None = None) -> npt.NDArray[np.str_]:
        """Read strings from a cell array, a matrix of characters, or an array of names.

        They are returned as ``(rows,)``, or ``(rows, k)`` if each item has several.
        """
        self._check_holds("strings")
        axis = 0 if rows is None else self.row_axis(rows)
        values = self.file.source.strings(self.name)
        values = np.moveaxis(values, axis, 0) if axis else values
        return values.reshape(-1) if values.size == max(values.shape, default=0) else values

    def pictures(self, rows: int | None = None, *, swap: Swap = "auto") -> MatPictures:
        """Open an array of color pictures; HDF5 is read in blocks on demand, v5 as a whole.

        The channels are the axis of size 3, next to the items' axis or at the opposite end. Height and width cannot be
        distinguished in square pictures: with ``swap="auto"`` they are swapped in HDF5 files that MATLAB wrote, and in
        natural order in others. A file that Python wrote with MATLAB's order of axes needs ``swap="yes"``.

        Raises:
            UserError: If the variable does not hold pictures, its axes are ambiguous, or ``swap`` has another value.
        """
        self._check_holds("numbers")
        if swap not in ("auto", "yes", "no"):
            raise WrongChoice(f'swap cannot be "{swap}"; it can be: auto, yes, no.')
        path, kind = self.file.path, self.file.kind
        swapped = kind == "v7.3" if swap == "auto" else swap == "yes"
        stored = self.file.source.numbers(self.name) if kind == "v5" else Hdf5Array(path, self.name)
        axes = find_picture_axes(tuple(stored.shape), rows, swapped=swapped, where=f'{path}: "{self.name}"')
        return MatPictures(stored, axes, path=path, name=self.name)

    def _check_holds(self, holds: sources.Holds) -> None:
        if self.holds != holds:
            raise WrongType(f'{self.file.path}: "{self.name}" holds {self.holds} instead of {holds}. Check the file.')
