"""MATLAB and HDF5 files: the content determines the version, the number of items determines the axis of the items.

Three kinds of file have the extensions ``.mat``, ``.h5`` and ``.h5py``, whichever the extension is:

- ``v5``: MATLAB's versions 5 to 7, read by scipy;
- ``v7.3``: HDF5 written by MATLAB, which reverses the axes of every array;
- ``hdf5``: HDF5 written by Python, in the natural order.

A file that is missing, damaged or of another kind, a missing variable, and an ambiguous axis raise a `UserError`.

Source: https://www.mathworks.com/help/matlab/import_export/mat-file-versions.html
"""

from __future__ import annotations

import codecs
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer, override

from silohash.base.errors import AmbiguousForm, ChoiceNeeded, FilesDiffer, MissingContent, WrongKindOfFile, WrongType
from silohash.base.forms import reading
from silohash.base.optional import require
from silohash.data.catalogue import check_option
from silohash.data.formats.matlab5_check import check_contents, check_variables, explaining_damage
from silohash.data.formats.matlab_pictures import MatPictures, find_picture_axes

if TYPE_CHECKING:
    import h5py

Kind: TypeAlias = Literal["v5", "v7.3", "hdf5"]
Swap: TypeAlias = Literal["auto", "yes", "no"]
Holds: TypeAlias = Literal["numbers", "strings", "other"]

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
HDF5_OFFSETS = (0, 512, 1024, 2048)
MATLAB73_HEADER = b"MATLAB 7.3"
MATLAB5_HEADER = b"MATLAB 5.0"
SHOWN = 12

MATLAB5_HOLDS: Mapping[str, Holds] = {
    **dict.fromkeys(("cell", "char"), "strings"),
    **dict.fromkeys(("sparse", "logical", "double", "single"), "numbers"),
    **dict.fromkeys((f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "numbers"),
}
"""What a variable of version 5 holds, by its class."""

UTF16 = 17
"""The type of an element of version 5 that holds units of UTF-16."""

UNIT_CODECS = {"<": "silohash_units_le", ">": "silohash_units_be"}
"""Codecs that decode each unit of UTF-16 to one character, by the byte order of the file."""


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
    with reading(path, missing="Restore the file."), path.open("rb") as stream:
        head = stream.read(HDF5_OFFSETS[-1] + len(HDF5_MAGIC))
    if any(head.startswith(HDF5_MAGIC, offset) for offset in HDF5_OFFSETS):
        if head.startswith(MATLAB73_HEADER):
            return "v7.3"
        with _open_hdf5(path) as file:
            return "v7.3" if any("MATLAB_class" in file[name].attrs for name in file) else "hdf5"
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


def open_mat(path: Path) -> MatFile:
    """Open a MATLAB or HDF5 file. Its content decides how it is read, not its name."""
    kind = find_kind(path)
    return Matlab5File(path, kind) if kind == "v5" else Hdf5File(path, kind)


@dataclass(frozen=True)
class Variable:
    """A variable of an open file, which is read on demand, or a field of a struct, such as ``images/IAll``.

    The shape is as MATLAB shows it, without the length of strings.
    """

    file: MatFile
    name: str
    shape: tuple[int, ...]
    holds: Holds

    def __str__(self) -> str:
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
        axis = self._axis("numbers", rows)
        values = self.file.numbers(self.name)
        return np.moveaxis(values, axis, 0) if axis else values

    def strings(self, rows: int | None = None) -> npt.NDArray[np.str_]:
        """Read strings as ``(rows,)``, or ``(rows, k)`` if each item has several; see `MatFile.strings`."""
        axis = self._axis("strings", rows)
        values = self.file.strings(self.name)
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
        self._axis("numbers", None)
        check_option("swap", swap, ("auto", "yes", "no"))
        path, kind = self.file.path, self.file.kind
        swapped = kind == "v7.3" if swap == "auto" else swap == "yes"
        stored = self.file.numbers(self.name) if kind == "v5" else Hdf5Array(path, self.name)
        axes = find_picture_axes(tuple(stored.shape), rows, swapped=swapped, where=f'{path}: "{self.name}"')
        return MatPictures(stored, axes, path=path, name=self.name)

    def _axis(self, holds: Holds, rows: int | None) -> int:
        """Return the axis of the items, after a check of what the variable holds."""
        if self.holds != holds:
            raise WrongType(f'{self.file.path}: "{self.name}" holds {self.holds} instead of {holds}. Check the file.')
        return 0 if rows is None else self.row_axis(rows)


class MatFile(ABC):
    """A MATLAB or HDF5 file, whose variables have the shapes that MATLAB shows."""

    def __init__(self, path: Path, kind: Kind) -> None:
        self.path = path
        self.kind = kind
        self.variables = {variable.name: variable for variable in self._list()}

    @abstractmethod
    def numbers(self, name: str) -> np.ndarray:
        """Read an array of numbers; a sparse matrix becomes dense."""

    @abstractmethod
    def strings(self, name: str) -> npt.NDArray[np.str_]:
        """Read a cell array of strings, a matrix of characters, or an array of names that Python wrote."""

    @abstractmethod
    def _list(self) -> list[Variable]:
        """Return the file's variables and the fields of its structs."""

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


class Matlab5File(MatFile):
    """A ``.mat`` file of version 5 to 7, read by scipy, one whole variable at a time. Structs are kept in memory."""

    def __init__(self, path: Path, kind: Kind) -> None:
        self._structs: dict[str, np.ndarray] = {}
        super().__init__(path, kind)

    @override
    def _list(self) -> list[Variable]:
        from scipy.io import whosmat

        found: list[Variable] = []
        check_variables(self.path)
        with explaining_damage(self.path):
            for name, shape, kind in whosmat(str(self.path), appendmat=False):
                if kind == "struct":
                    self._structs[name] = self._load(name)
                    found += self._fields(name, self._structs[name])
                else:
                    found.append(Variable(self, name, tuple(shape), MATLAB5_HOLDS.get(kind, "other")))
        return found

    def _fields(self, name: str, value: Any) -> Iterator[Variable]:  # noqa: ANN401  whatever scipy makes of it
        """Yield the fields of a struct, or any other value itself."""
        kind = value.dtype.kind
        if kind == "V" and value.size == 1 and value.dtype.names:
            for field in value.dtype.names:
                yield from self._fields(f"{name}/{field}", value.reshape(-1)[0][field])
            return
        holds: Holds = "numbers" if kind in "biuf" else "strings" if kind in "OU" else "other"
        yield Variable(self, name, tuple(value.shape), holds)

    @override
    def numbers(self, name: str) -> np.ndarray:
        """Read numbers by scipy; a sparse matrix becomes dense."""
        value = self._value(name)
        return np.asarray(value.toarray() if hasattr(value, "toarray") else value)

    @override
    def strings(self, name: str) -> npt.NDArray[np.str_]:
        """Read texts by scipy."""
        value = np.asarray(self._value(name))
        texts = [_plain_string(element, self.path, name) for element in value.reshape(-1)]
        return np.array(texts, dtype=np.str_).reshape(value.shape)

    def _load(self, name: str) -> Any:  # noqa: ANN401  an array, or scipy's sparse matrix
        from scipy.io import loadmat

        check_contents(self.path, name)
        # scipy decodes the units of a whole array at once. It fails if characters take two of them, and reads only one byte
        # of each if the file calls them numbers. No argument of loadmat replaces its codecs (scipy 1.14 to 1.17).
        parameters: Any = import_module("scipy.io.matlab._mio5_params")
        for order, codec in UNIT_CODECS.items():
            parameters.MDTYPES[order]["codecs"][UTF16] = codec
        with self.path.open("rb") as stream:
            codec = UNIT_CODECS[">" if stream.read(128)[126:] == b"MI" else "<"]
        return loadmat(str(self.path), variable_names=[name], appendmat=False, uint16_codec=codec)[name]

    def _value(self, name: str) -> Any:  # noqa: ANN401  an array, or scipy's sparse matrix
        top, *fields = name.split("/")
        with explaining_damage(self.path):
            value = self._structs[top] if top in self._structs else self._load(top)
            for field in fields:
                value = value.reshape(-1)[0][field]
            return value


def _plain_string(element: Any, path: Path, name: str) -> str:  # noqa: ANN401  whatever lies in a cell
    while isinstance(element, np.ndarray):
        if not element.size:
            return ""
        if element.size > 1:
            break
        element = element.reshape(-1)[0]
    if isinstance(element, bytes):
        return element.decode("utf-8", "replace").strip()
    if isinstance(element, str):
        return joined(element).strip()
    raise WrongType(
        f'{path}: a cell of "{name}" holds {type(element).__name__} instead of a string. Use a file of names.'
    )


@contextmanager
def _open_hdf5(path: Path) -> Iterator[h5py.File]:
    require("h5py", "Reading HDF5 files")
    import h5py

    with explaining_damage(path), h5py.File(path, "r", locking=False) as file:
        yield file


class Hdf5File(MatFile):
    """An HDF5 file, read by h5py. In a file of MATLAB, groups are structs, and the axes of arrays are reversed."""

    @override
    def _list(self) -> list[Variable]:
        with _open_hdf5(self.path) as file:
            return list(self._walk(file, ""))

    def _walk(self, group: h5py.Group, prefix: str) -> Iterator[Variable]:
        for key in group:
            item, name = group[key], prefix + key
            if key.startswith("#"):
                continue
            if hasattr(item, "shape"):
                yield Variable(self, name, *self._form(item))
            elif "MATLAB_sparse" in item.attrs:
                yield Variable(self, name, (int(item.attrs["MATLAB_sparse"]), len(item["jc"]) - 1), "numbers")
            else:
                yield from self._walk(item, f"{name}/")

    def _form(self, dataset: h5py.Dataset) -> tuple[tuple[int, ...], Holds]:
        """Return the shape that MATLAB shows, and what the dataset holds."""
        if dataset.attrs.get("MATLAB_empty", 0):
            return _empty_shape(dataset), "numbers"
        shape = tuple(dataset.shape[::-1] if self.kind == "v7.3" else dataset.shape)
        if _is_cells(dataset) or dataset.dtype.kind in "OS":
            return shape, "strings"
        if _is_characters(dataset):
            return shape[:-1], "strings"
        return shape, "numbers" if dataset.dtype.kind in "biuf" else "other"

    def _stored(self, dataset: h5py.Dataset) -> np.ndarray:
        return np.transpose(dataset[()]) if self.kind == "v7.3" else np.asarray(dataset[()])

    @override
    def numbers(self, name: str) -> np.ndarray:
        """Read numbers by h5py; a sparse matrix becomes dense."""
        with _open_hdf5(self.path) as file:
            item = file[name]
            if not hasattr(item, "shape"):
                starts, stores = item["jc"][()].astype(np.int64), "data" in item
                shape = int(item.attrs["MATLAB_sparse"]), len(starts) - 1
                dense = np.zeros(shape, item["data"].dtype if stores else np.float64)
                if stores:
                    columns = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
                    dense[item["ir"][()].astype(np.int64), columns] = item["data"][()]
                return dense
            return np.zeros(_empty_shape(item)) if item.attrs.get("MATLAB_empty", 0) else self._stored(item)

    @override
    def strings(self, name: str) -> npt.NDArray[np.str_]:
        """Read characters or cells by h5py."""
        with _open_hdf5(self.path) as file:
            dataset = file[name]
            values = self._stored(dataset)
            if _is_characters(dataset):
                return np.array([_of_units(line) for line in values], dtype=np.str_)
            if _is_cells(dataset):
                texts = [self._cell(file, reference, name) for reference in values.reshape(-1)]
            else:
                texts = [_plain_string(value, self.path, name) for value in np.reshape(values, -1)]
            return np.array(texts, dtype=np.str_).reshape(values.shape)

    def _cell(self, file: h5py.File, reference: h5py.Reference, name: str) -> str:
        target = file[reference]
        if target.attrs.get("MATLAB_empty", 0):
            return ""
        if hasattr(target, "shape") and _is_cells(target) and target.size == 1:
            return self._cell(file, target[()].reshape(-1)[0], name)
        if not _is_characters(target):
            raise WrongType(f'{self.path}: a cell of "{name}" does not hold a string. Use a file of names.')
        return _of_units(target[()].reshape(-1))


class Hdf5Array:
    """An array in an HDF5 file, which each process opens on its first read; ``chunks`` is a stored chunk's shape."""

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self._name = name
        self._opened: tuple[int, h5py.File] | None = None
        dataset = self._dataset()
        self.shape: tuple[int, ...] = tuple(dataset.shape)
        self.dtype: np.dtype[Any] = dataset.dtype
        self.chunks: tuple[int, ...] | None = dataset.chunks

    def _dataset(self) -> h5py.Dataset:
        import h5py

        with explaining_damage(self._path):
            # The handle of another process is unusable after a fork.
            if self._opened is None or self._opened[0] != os.getpid():
                self._opened = os.getpid(), h5py.File(self._path, "r", locking=False)
            return self._opened[1][self._name]

    def __getitem__(self, key: Any) -> np.ndarray:  # noqa: ANN401  any index
        dataset = self._dataset()
        with explaining_damage(self._path):
            return np.asarray(dataset[key])

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the open file, which belongs to this process."""
        return {**self.__dict__, "_opened": None}


def _is_cells(dataset: h5py.Dataset) -> bool:
    """Tell whether a dataset holds references to others, as a cell array of MATLAB does."""
    import h5py

    return h5py.check_ref_dtype(dataset.dtype) is not None


def _is_characters(item: Any) -> bool:  # noqa: ANN401  a dataset or a group of h5py
    kind = item.attrs.get("MATLAB_class", b"")
    return hasattr(item, "shape") and kind in (b"char", "char") and item.dtype.kind == "u"


def _of_units(line: npt.NDArray[np.unsignedinteger[Any]]) -> str:
    return joined("".join(map(chr, line))).strip()


def _empty_shape(dataset: h5py.Dataset) -> tuple[int, ...]:
    """Return the shape of an empty array, which MATLAB stores as the values of a dataset."""
    return tuple(int(size) for size in np.ravel(dataset[()]))


def joined(units: str) -> str:
    r"""Return a text whose characters are units of UTF-16. Half of a pair without the other becomes U+FFFD.

    Example:
        >>> joined("a \ud83d\ude00"), joined("\ud83d b")
        ('a 😀', '\ufffd b')
    """
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _find_codec(name: str) -> codecs.CodecInfo | None:
    """Return the codec of one byte order, by its name. It decodes each unit of UTF-16 to one character."""
    order = next((order for order, codec in UNIT_CODECS.items() if codec == name), None)
    if order is None:
        return None

    def _encode(text: str, _: str = "strict", /) -> tuple[bytes, int]:
        return text.encode(f"utf-16-{name[-2:]}", "surrogatepass"), len(text)

    def _decode(content: Buffer, _: str = "strict", /) -> tuple[str, int]:
        units = np.frombuffer(bytes(content), f"{order}u2")
        return "".join(map(chr, units.tolist())), units.nbytes

    return codecs.CodecInfo(_encode, _decode, name=name)


codecs.register(_find_codec)
