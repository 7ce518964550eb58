"""Arrays of a user's in the forms in which they are held: NumPy, torch, lists, SciPy, pandas, polars, pyarrow.

None of these libraries but NumPy is imported: an object of a library exists only if the user has imported the library.
"""

import math
import sys
from collections.abc import Iterator, KeysView, Sequence, ValuesView
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.base.errors import EmptyInput, OrderDiffers, OutOfMemory, OutOfRange, UserError, WrongShape, WrongType
from silohash.base.visible import visible

LONGEST_DETAIL = 200
NUMBERS = "biuf"
"""Kinds of data types that hold real numbers."""

Values: TypeAlias = npt.NDArray[Any] | list[Any]
"""An array of numbers or texts, or a list whose elements are values of any type, such as rows of different lengths."""


@dataclass(frozen=True)
class Given:
    """Hold what a user gave, apart from its form: rows of values, and what they are, in the plural, for error messages.

    A data frame has names of columns, and a pandas object has an index, which names its rows.
    """

    what: str
    values: Values
    columns: tuple[object, ...] = ()
    index: Any = None

    def __len__(self) -> int:
        return len(self.values)


def given(what: str, value: Any) -> Given:  # noqa: ANN401  an object of any library
    """Return what a user gave as an array, tensor, sparse matrix, data frame, series, list or tuple, also of such objects.

    Raises:
        UserError: If the value is of another type, does not have rows, or has masked values.

    Example:
        >>> given("labels", ((1, 0), (0, 1))).values
        [(1, 0), (0, 1)]
    """
    try:
        values = _plain(value)
        columns = tuple(value.columns) if hasattr(value, "to_numpy") and hasattr(value, "columns") else ()
        index = value.index if hasattr(value, "index") and hasattr(value.index, "equals") else None
    except UserError as error:
        raise error.reworded(f"The {what} {error}") from error
    # Each library reports what it cannot convert in its own way, with errors of many types.
    except Exception as error:
        reason = visible(f"{type(error).__name__}: {error}")[:LONGEST_DETAIL]
        raise WrongType(
            f"The {what} cannot be read ({reason}). Give a NumPy array or a list with one row per item."
        ) from error
    return Given(what, values, columns, index)


def _plain(value: Any) -> Values:  # noqa: ANN401  an object of any library
    """Return the values in an array or a list. The texts of errors go on from "The codes"."""
    array = _converted(value)
    if array is None:
        raise WrongType(f"are of type {type(value).__name__}. Give a NumPy array or a list with one row per item.")
    if isinstance(array, np.ndarray):
        if array.ndim == 0 or array.dtype.names is not None:
            kind = f"an array with the fields {', '.join(array.dtype.names or ())}" if array.ndim else "a single value"
            raise WrongType(f"are {kind}. Give a NumPy array or a list with one row per item.")
        if array.dtype.kind not in "OT":
            return array
    return [_element(part) for part in (array.tolist() if isinstance(array, np.ndarray) else array)]


def _element(part: Any) -> Any:  # noqa: ANN401  an element of a list
    """Return a row in plain form: a tensor or a series as an array. Numbers, texts, lists and sets remain as they are."""
    if part is None or isinstance(part, str | int | float | list | tuple | set | frozenset):
        return part
    array = _converted(part)
    if not isinstance(array, np.ndarray):
        return part if array is None else array
    if array.ndim == 0 and array.dtype.kind in "mM":
        return part
    return array.tolist() if array.ndim == 0 or array.dtype.kind in "OT" else array


def _converted(value: Any) -> npt.NDArray[Any] | list[Any] | None:  # noqa: ANN401  an object of any library
    """Return a sequence as a list, the array in an object of a library, and None for any other object."""
    if isinstance(value, Sequence | KeysView | ValuesView):
        return None if isinstance(value, str | bytes | bytearray | memoryview) else list(value)
    for module, name, convert in _LIBRARIES:
        if isinstance(value, getattr(sys.modules.get(module), name, ())):
            return convert(value)
    if hasattr(value, "to_pylist"):  # pyarrow
        return list(value.to_pylist())
    if hasattr(value, "toarray"):  # SciPy
        value = value.toarray()
    elif hasattr(value, "to_numpy"):  # pandas, polars
        value = value.to_numpy()
    if not hasattr(value, "__array__") and not hasattr(value, "__array_interface__"):
        return None
    array = np.asarray(value)
    # Other packages bring types such as bfloat16, which NumPy holds as void and cannot compare.
    small = array.dtype.kind == "V" and array.dtype.names is None and np.can_cast(array.dtype, np.float32)
    return array.astype(np.float32) if small else array


def _of_tensor(tensor: Any) -> npt.NDArray[Any]:  # noqa: ANN401  torch is not imported
    """Return a torch tensor on any device, sparse or dense, with or without gradients, as an array."""
    dense = tensor.detach().to_dense()
    if dense.is_floating_point() and dense.element_size() < 4:
        dense = dense.float()  # NumPy does not have bfloat16 and float8
    array: npt.NDArray[Any] = dense.numpy(force=True)
    return array


def _of_masked(array: Any) -> npt.NDArray[Any]:  # noqa: ANN401  numpy.ma is not imported
    if array.mask.any():
        raise EmptyInput("have masked values. Fill them, or leave these items out.")
    return np.asarray(array)


_LIBRARIES = (("torch", "Tensor", _of_tensor), ("numpy.ma", "MaskedArray", _of_masked))
"""Types of libraries whose objects are not converted through a common method: module, name, and conversion."""


def as_array(values: Given, forms: str) -> npt.NDArray[Any]:
    """Return values as an array of booleans, integers or floats.

    Raises:
        UserError: If rows differ in length, or values are anything but real numbers. It ends in the accepted ``forms``.
    """
    found = values.values
    if isinstance(found, list):
        if any(isinstance(row, set | frozenset | str | bytes | dict) for row in found):
            raise WrongShape(f"The {values.what} have rows that are not lists of numbers. {forms}")
        try:
            found = np.array(found)
        # Rows of different lengths raise a ValueError, and objects that NumPy cannot read raise errors of their own types.
        except Exception as error:
            raise WrongShape(f"The {values.what} have rows that differ in length or type. {forms}") from error
    if found.dtype.kind not in NUMBERS:
        raise WrongType(f"The {values.what} hold values of type {_type_name(found)}. {forms}")
    return found


def table(values: Given, forms: str) -> npt.NDArray[Any]:
    """Return rows of numbers as a table, ``(items, columns)`` of booleans, integers or floats.

    Raises:
        UserError: If they are not a table; see `as_array`.
    """
    found = as_array(values, forms)
    if found.ndim != 2:
        raise WrongShape(f"The {values.what} have shape {found.shape}. {forms}")
    return found


def _type_name(found: npt.NDArray[Any]) -> str:
    if found.dtype.kind != "O":
        return str(found.dtype)
    return next((type(value).__name__ for value in found.flat if not isinstance(value, int | float)), "int")


def same_columns(first: Given, second: Given) -> npt.NDArray[np.int64] | None:
    """Return the order of the second data frame's columns that gives them the names of the first; None if it is the same.

    Raises:
        UserError: If both are data frames, and their columns have different names.
    """
    mine, theirs = first.columns, second.columns
    if min(len(mine), len(theirs)) < 2 or mine == theirs:
        return None
    if len(set(mine)) < len(mine) or set(mine) != set(theirs) or len(mine) != len(theirs):
        other = next((name for name in (*mine, *theirs) if name not in mine or name not in theirs), mine[0])
        raise OrderDiffers(
            f'The data frames of {first.what} and of {second.what} have different columns, such as "{other}". '
            "Give both the same columns, or give .to_numpy() of both if the order is the same."
        )
    place = {name: column for column, name in enumerate(theirs)}
    return np.array([place[name] for name in mine], np.int64)


def check_same_rows(*parts: Given | None) -> None:
    """Check that pandas objects that describe the same items have the same index, because they are joined by position.

    Raises:
        UserError: If two of them have different indexes.
    """
    named = [part for part in parts if part is not None and part.index is not None]
    for first, other in pairwise(named):
        if not first.index.equals(other.index):
            raise OrderDiffers(
                f"The {first.what} and the {other.what} have different row names (their pandas index). "
                "Bring them into the same order, and then give .reset_index(drop=True) of both."
            )


def whole(name: str, value: object, lowest: int, highest: float = math.inf) -> int:
    """Return a whole number.

    Raises:
        UserError: If the value is not a whole number, or is below ``lowest`` or above ``highest``.
    """
    found = int(value) if isinstance(value, int | np.integer) and not isinstance(value, bool) else None
    if found is None or not lowest <= found <= highest:
        limits = f"of at least {lowest}" if highest == math.inf else f"from {lowest} to {highest:,}"
        raise OutOfRange(f"{name} is {visible(repr(value))[:LONGEST_DETAIL]}. Use a whole number {limits}.")
    return found


@contextmanager
def enough_memory() -> Iterator[None]:
    """Translate the failure to allocate memory.

    Raises:
        UserError: If there is not enough memory.
    """
    try:
        yield
    except MemoryError as error:
        raise OutOfMemory(
            "There is not enough memory for so many codes, labels or neighbors. Give fewer at a time."
        ) from error
