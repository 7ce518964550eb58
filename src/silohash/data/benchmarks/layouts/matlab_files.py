"""Variables of MATLAB and HDF5 files, located by the names of file and variable, with the items first.

A missing file or variable raises a `UserError` that names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from silohash.base.types import UserError
from silohash.data.formats.matlab import MatFile, open_mat


@dataclass(frozen=True)
class Named:
    """Where a variable is found: the name of its file, and its possible names there, the preferred one first."""

    file: str
    variables: tuple[str, ...]


@dataclass(frozen=True)
class Variable:
    """A variable of an open file."""

    file: MatFile
    name: str

    def __str__(self) -> str:
        """Return file and variable as errors name them."""
        return f"{self.file.path.name}: {self.name}"

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape as MATLAB shows it."""
        return self.file.shape(self.name)

    def array(self, rows: int) -> np.ndarray:
        """Read it with the items along the first axis."""
        return self.file.array(self.name, rows=rows)


class MatFolder:
    """A folder of MATLAB and HDF5 files. Each file is opened once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._open = cache(open_mat)

    def variable(self, named: Named, *, near: Path | None = None) -> Variable:
        """Open a variable of a file anywhere in the folder; ``near`` is preferred as in `find_file`."""
        return self.variable_in(need_file(self.root, named.file, near=near), named.variables)

    def variable_beside(self, path: Path, named: Named, *, other_order: str = "") -> Variable:
        """Open a variable of a file in the same folder as another, as in `companion`."""
        return self.variable_in(companion(path, named.file, other_order), named.variables)

    def optional(self, named: Named, *, near: Path) -> Variable | None:
        """Open a variable, or return None if there is no such file, or if ``near`` itself lacks the variable."""
        path = find_file(self.root, named.file, near=near)
        if path is None or (path == near and not self._open(path).has(*named.variables)):
            return None
        return self.variable_in(path, named.variables)

    def variable_in(self, path: Path, names: tuple[str, ...]) -> Variable:
        """Open the first of several variables that a file has."""
        file = self._open(path)
        return Variable(file, file.find(*names))


def find_file(root: Path, *names: str, near: Path | None = None) -> Path | None:
    """Find a file by the first of several names that occurs anywhere in a folder.

    If there are several, exactly one of them must be in the folder of the file ``near``.

    Raises:
        UserError: If the name occurs more than once, in the folder of ``near`` or, if it does not occur there, in ``root``.
    """
    for name in names:
        found = sorted(path for path in root.rglob(name) if path.is_file())
        if near is not None:
            found = [path for path in found if path.parent == near.parent] or found
        if len(found) > 1:
            listed = ", ".join(str(path.relative_to(root)) for path in found)
            raise UserError(f"{root} holds {name} more than once: {listed}. Name the folder of one source.")
        if found:
            return found[0]
    return None


def need_file(root: Path, *names: str, near: Path | None = None) -> Path:
    """Find a file as `find_file` does; it must be present.

    Raises:
        UserError: If there is no such file, or there are several.
    """
    found = find_file(root, *names, near=near)
    if found is None:
        raise UserError(f"{' or '.join(names)} is missing in {root}. Add it beside the other files.")
    return found


def companion(path: Path, name: str, other_order: str = "") -> Path:
    """Return a file from the same folder as another.

    ``other_order`` is its name in the other order of rows (plain or ``-rand``), which must not be used instead.

    Raises:
        UserError: If there is no such file. If there is one in the other order of rows, the error explains the difference.
    """
    found = path.parent / name
    if found.is_file():
        return found
    if other_order and (path.parent / other_order).is_file():
        raise UserError(
            f"{path.name} and {other_order} have their rows in different orders: files with -rand are shuffled, those "
            f"without are not. Add {name} to {path.parent}."
        )
    raise UserError(
        f"{name} is missing in {path.parent}. It must come from the same folder of the same source as {path.name}, "
        "whose rows may be shuffled."
    )


def axis_notes(variables: Mapping[str, Variable], rows: int) -> dict[str, str]:
    """Return notes for the card on fields of structs, and on matrices whose items are not along the first axis."""
    notes = {}
    for what, variable in variables.items():
        if "/" in variable.name:
            notes[f"{what}: variable"] = f"{variable}, a field of a struct"
        if variable.file.row_axis(variable.name, rows) and len(variable.shape) == 2:
            notes[f"{what}: axes"] = f"{variable} holds the items along its second axis; transposed"
    return notes
