"""The variables of MATLAB and HDF5 files, read by scipy or h5py, in the shapes that MATLAB shows.

MATLAB writes version 7.3 as HDF5 with reversed axes. `Hdf5Source` reverses them again in files that MATLAB wrote, and keeps
the order in files that Python wrote. `silohash.data.formats.matlab` decides which axis holds the items.
"""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from silohash.base.errors import DamagedFile, DependencyMissing, MissingFile, WrongType
from silohash.data.formats.matlab5_check import check_contents, check_variables

if TYPE_CHECKING:
    import h5py

Holds = Literal["numbers", "strings", "other"]

MATLAB5_HOLDS: Mapping[str, Holds] = {
    **dict.fromkeys(("cell", "char"), "strings"),
    **dict.fromkeys(("sparse", "logical", "double", "single", "int8", "int16", "int32", "int64"), "numbers"),
    **dict.fromkeys(("uint8", "uint16", "uint32", "uint64"), "numbers"),
}


class Stored(NamedTuple):
    """A variable of a file.

    ``name`` is its path, in which a struct's fields are named with a slash, as ``images/IAll``. ``shape`` is as MATLAB shows
    it, without the length of strings.
    """

    name: str
    shape: tuple[int, ...]
    holds: Holds


@contextmanager
def explaining_damage(path: Path) -> Iterator[None]:
    """Replace the errors that the readers raise on damaged files by a `UserError`.

    Raises:
        UserError: If the file is missing or damaged.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise MissingFile(f"{path} is missing. Restore the file.") from error
    except (OSError, ValueError, TypeError, KeyError, EOFError, NotImplementedError, RuntimeError, zlib.error) as error:
        raise DamagedFile(
            f"{path} is damaged or incomplete ({type(error).__name__}: {error}). "
            "Compare its size with the size at its source, and download it again."
        ) from error


def import_h5py() -> Any:  # noqa: ANN401  the package has no types
    """Import h5py.

    Raises:
        UserError: If it is not installed. The error says how to install it.
    """
    try:
        import h5py
    except ImportError as error:
        raise DependencyMissing("Reading HDF5 files needs h5py. Run: pip install 'silohash[matlab]'") from error
    return h5py


def _import_scipy_io() -> Any:  # noqa: ANN401  the package has no types
    try:
        import scipy.io
        import scipy.sparse
    except ImportError as error:
        raise DependencyMissing("Reading MATLAB files needs scipy. Run: pip install 'silohash[matlab]'") from error
    return scipy.io


class Matlab5Source:
    """A ``.mat`` file of version 5 to 7, read by scipy, one whole variable at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._structs: dict[str, np.ndarray] = {}

    def variables(self) -> list[Stored]:
        """Return the file's variables. Structs are read to list their fields."""
        reader = _import_scipy_io()
        found: list[Stored] = []
        check_variables(self._path)
        with explaining_damage(self._path):
            for name, shape, kind in reader.whosmat(str(self._path), appendmat=False):
                if kind == "struct":
                    self._structs[name] = self._load(name)
                    found += _fields_of(name, self._structs[name])
                else:
                    found.append(Stored(name, tuple(shape), MATLAB5_HOLDS.get(kind, "other")))
        return found

    def numbers(self, name: str) -> np.ndarray:
        """Read an array of numbers; a sparse matrix becomes dense."""
        value = self._value(name)
        return np.asarray(value.toarray() if hasattr(value, "toarray") else value)

    def strings(self, name: str) -> npt.NDArray[np.str_]:
        """Read a cell array of strings or a matrix of characters."""
        value = np.asarray(self._value(name))
        texts = [_plain_string(element, self._path, name) for element in value.reshape(-1)]
        return np.array(texts, dtype=np.str_).reshape(value.shape)

    def _load(self, name: str) -> np.ndarray:
        check_contents(self._path, name)
        reader = _import_scipy_io()
        codec = read_units(self._path, import_module("scipy.io.matlab._mio5_params"))
        loaded = reader.loadmat(str(self._path), variable_names=[name], appendmat=False, uint16_codec=codec)
        value: np.ndarray = loaded[name]
        return value

    def _value(self, name: str) -> Any:  # noqa: ANN401  an array, or scipy's sparse matrix
        top, *fields = name.split("/")
        with explaining_damage(self._path):
            value = self._structs[top] if top in self._structs else self._load(top)
            for field in fields:
                value = value.reshape(-1)[0][field]
            return value


def _fields_of(name: str, value: Any) -> Iterator[Stored]:  # noqa: ANN401  whatever scipy makes of it
    """Yield the fields of a struct, or any other value itself."""
    kind = value.dtype.kind
    if kind == "V" and value.size == 1 and value.dtype.names:
        for field in value.dtype.names:
            yield from _fields_of(f"{name}/{field}", value.reshape(-1)[0][field])
        return
    yield Stored(name, tuple(value.shape), "numbers" if kind in "biuf" else "strings" if kind in "OU" else "other")


def _plain_string(element: Any, path: Path, name: str) -> str:  # noqa: ANN401  whatever lies in a cell
    """Return the stripped string in a cell, or in cells nested in it."""
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


class Hdf5Source:
    """An HDF5 file, read by h5py. ``is_reversed`` tells that MATLAB wrote it, so that its axes are reversed."""

    def __init__(self, path: Path, *, is_reversed: bool) -> None:
        self._path = path
        self._is_reversed = is_reversed

    @contextmanager
    def _open(self) -> Iterator[h5py.File]:
        package = import_h5py()
        with explaining_damage(self._path), package.File(self._path, "r", locking=False) as file:
            yield file

    def variables(self) -> list[Stored]:
        """Return the file's variables; groups are structs."""
        with self._open() as file:
            return list(self._walk(file, ""))

    def _walk(self, group: h5py.Group, prefix: str) -> Iterator[Stored]:
        for key in group:
            item, name = group[key], prefix + key
            if key.startswith("#"):
                continue
            if hasattr(item, "shape"):
                yield self._variable(name, item)
            elif "MATLAB_sparse" in item.attrs:
                yield Stored(name, (int(item.attrs["MATLAB_sparse"]), len(item["jc"]) - 1), "numbers")
            else:
                yield from self._walk(item, f"{name}/")

    def _variable(self, name: str, dataset: h5py.Dataset) -> Stored:
        if dataset.attrs.get("MATLAB_empty", 0):
            return Stored(name, _empty_shape(dataset), "numbers")
        shape = tuple(dataset.shape[::-1] if self._is_reversed else dataset.shape)
        if _is_characters(dataset):
            return Stored(name, shape[:-1], "strings")
        if import_h5py().check_ref_dtype(dataset.dtype) or dataset.dtype.kind in "OS":
            return Stored(name, shape, "strings")
        return Stored(name, shape, "numbers" if dataset.dtype.kind in "biuf" else "other")

    def numbers(self, name: str) -> np.ndarray:
        """Read an array of numbers; a sparse matrix becomes dense."""
        with self._open() as file:
            item = file[name]
            if not hasattr(item, "shape"):
                return _dense(item)
            if item.attrs.get("MATLAB_empty", 0):
                return np.zeros(_empty_shape(item))
            values: np.ndarray = item[()]
            return values.T if self._is_reversed else values

    def strings(self, name: str) -> npt.NDArray[np.str_]:
        """Read a cell array of strings, a matrix of characters, or an array of names that Python wrote."""
        with self._open() as file:
            dataset = file[name]
            values = dataset[()].T if self._is_reversed else dataset[()]
            if _is_characters(dataset):
                return np.array([_of_units(line) for line in values], dtype=np.str_)
            if import_h5py().check_ref_dtype(dataset.dtype):
                texts = [self._cell(file, reference, name) for reference in values.reshape(-1)]
            else:
                texts = [_plain_string(value, self._path, name) for value in np.reshape(values, -1)]
            return np.array(texts, dtype=np.str_).reshape(values.shape)

    def _cell(self, file: h5py.File, reference: h5py.Reference, name: str) -> str:
        target = file[reference]
        if target.attrs.get("MATLAB_empty", 0):
            return ""
        if hasattr(target, "shape") and import_h5py().check_ref_dtype(target.dtype) and target.size == 1:
            return self._cell(file, target[()].reshape(-1)[0], name)
        if not _is_characters(target):
            raise WrongType(f'{self._path}: a cell of "{name}" does not hold a string. Use a file of names.')
        return _of_units(target[()].reshape(-1))


Source: TypeAlias = Matlab5Source | Hdf5Source
"""A reader of one kind of file."""


def _is_characters(item: Any) -> bool:  # noqa: ANN401  a dataset or a group of h5py
    """Tell whether an HDF5 item is a MATLAB array of characters."""
    kind = item.attrs.get("MATLAB_class", b"")
    return hasattr(item, "shape") and kind in (b"char", "char") and item.dtype.kind == "u"


def _of_units(line: npt.NDArray[np.unsignedinteger[Any]]) -> str:
    """Return the stripped text of units of UTF-16."""
    return joined("".join(map(chr, line))).strip()


def _empty_shape(dataset: h5py.Dataset) -> tuple[int, ...]:
    """Return the shape of an empty array, which MATLAB stores as the values of a dataset."""
    return tuple(int(size) for size in np.ravel(dataset[()]))


def _dense(group: h5py.Group) -> np.ndarray:
    """Return MATLAB's sparse matrix (compressed columns) as a dense one."""
    rows = int(group.attrs["MATLAB_sparse"])
    starts = group["jc"][()].astype(np.int64)
    dense = np.zeros((rows, len(starts) - 1), dtype=group["data"].dtype if "data" in group else np.float64)
    if "data" in group:
        columns = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        dense[group["ir"][()].astype(np.int64), columns] = group["data"][()]
    return dense


UTF16 = 17
"""The type of an element that holds units of UTF-16."""

ORDERS = {"<": "le", ">": "be"}
PREFIX = "silohash_units_"


def joined(units: str) -> str:
    r"""Return a text whose characters are units of UTF-16. Half of a pair without the other becomes U+FFFD.

    Example:
        >>> joined("a \ud83d\ude00"), joined("\ud83d b")
        ('a 😀', '\ufffd b')
    """
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def read_units(path: Path, parameters: Any) -> str:  # noqa: ANN401  a module of scipy, which has no types
    """Let scipy read one character per unit, and return the codec that does so for the byte order of a file.

    scipy decodes the units of UTF-16 of a whole array at once. It fails if characters take two of them, because fewer
    characters are left than the array has, and it reads only one byte of each unit if the file calls them numbers.

    Args:
        path: A file of version 5 to 7.
        parameters: The module ``scipy.io.matlab._mio5_params`` with the codecs by byte order and type of element, which no
            argument of ``scipy.io.loadmat`` can replace (scipy 1.14 to 1.17).
    """
    for order, name in ORDERS.items():
        parameters.MDTYPES[order]["codecs"][UTF16] = PREFIX + name
    with path.open("rb") as stream:
        return PREFIX + ("be" if stream.read(128)[126:] == b"MI" else "le")


def _find_codec(name: str) -> codecs.CodecInfo | None:
    """Return the codec of one byte order, by its name."""
    if not name.startswith(PREFIX):
        return None
    encoding = f"utf-16-{name[-2:]}"
    unit = np.dtype("<u2" if name.endswith("le") else ">u2")

    def encode(text: str, _: str = "strict", /) -> tuple[bytes, int]:
        """Return the units of a text."""
        return text.encode(encoding, "surrogatepass"), len(text)

    def decode(content: Buffer, _: str = "strict", /) -> tuple[str, int]:
        """Return one character per unit."""
        units = np.frombuffer(bytes(content), unit)
        return "".join(map(chr, units.tolist())), units.nbytes

    return codecs.CodecInfo(encode, decode, name=name)


codecs.register(_find_codec)
