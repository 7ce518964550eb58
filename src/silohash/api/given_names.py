"""Names in the forms in which they are held: texts and whole numbers, which never name the same thing."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.base.names import canonical
from silohash.base.types import UserError
from silohash.base.visible import visible

Name: TypeAlias = str | int

MISSING_TYPES = frozenset({"NoneType", "NAType", "NaTType", "Null"})
MISSING_TEXTS = frozenset({"", "nan", "NaN", "None", "<NA>", "NaT", "null", "NULL", "N/A", "n/a"})
"""Texts that stand for missing values in what NumPy, pandas, databases and spreadsheets write."""


def is_missing(value: object) -> bool:
    """Return whether a value is None, NaN, or what pandas has in their place."""
    return type(value).__name__ in MISSING_TYPES or (isinstance(value, float | np.floating) and bool(np.isnan(value)))


def name_of(what: str, value: Any) -> Name:  # noqa: ANN401  an element of any type
    r"""Return a text or a whole number that names something. Texts are in the form in which names are compared.

    Args:
        what: What the names are, in the plural, for error messages.
        value: A str, or an integer or float that is a whole number.

    Raises:
        UserError: If the value is another one, such as a boolean or the text of a missing value.

    Example:
        >>> name_of("labels", " cafe\u0301"), name_of("labels", 2.0)
        ('café', 2)
    """
    if isinstance(value, str):
        text = canonical(value)
        if text not in MISSING_TEXTS:
            return text
    elif isinstance(value, int | float | np.number) and not isinstance(value, bool) and float(value).is_integer():
        return int(value)
    shown = visible(repr(value))[:100]
    raise UserError(
        f"The {what} hold {shown} of type {type(value).__name__}. Give a text or a whole number; None stands for a missing "
        "label."
    )


def check_exact(what: str, values: npt.NDArray[Any]) -> None:
    """Check that floats are small enough for their type to hold every whole number up to the largest.

    Raises:
        UserError: If different numbers can have become the same.
    """
    if values.dtype.kind == "f":
        largest = np.abs(values[np.isfinite(values)]).max(initial=0)
        if largest > 2.0 ** (np.finfo(values.dtype).nmant + 1):
            raise UserError(
                f"The {what} are {values.dtype} of up to {largest:g}, which are rounded. Give integers or texts."
            )


def check_kinds(what: str, *names: Iterable[Name]) -> None:
    """Check that all names are texts, or all are numbers, because the text "1" and the number 1 are different names.

    Raises:
        UserError: If there are both.
    """
    if len(set(map(type, chain.from_iterable(names)))) < 2:
        return
    text = next((name for name in chain.from_iterable(names) if isinstance(name, str)), None)
    number = next((name for name in chain.from_iterable(names) if isinstance(name, int)), None)
    if text is not None and number is not None:
        raise UserError(
            f'The {what} are both texts, such as "{visible(text)}", and numbers, such as {number}. '
            "Give all as texts or all as numbers."
        )
