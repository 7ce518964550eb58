"""Conditions on the columns that silos release of their items, and counts of their values.

A condition such as ``museum=Louvre`` or ``year>=1900`` compares the values of a column: of a further column of the archive
that the silo's policy releases (``columns``), or of a released field such as ``labels``. All conditions of a search must be
true.

Numbers are compared by value, and dates in ISO form by the period that they name: ``2001-05`` is a month, ``2001`` a year.
A period is less than another one if it ends before that begins.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Annotated, Literal, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from pydantic import Field

from silohash.base.errors import OutOfRange, WrongForm, WrongType
from silohash.base.names import tidy
from silohash.search.fields import Text

MOST_CONDITIONS, MOST_VALUES = 20, 100
"""Most conditions of a search, and most values of a condition."""

MOST_FACETS, MOST_VALUE_CHARACTERS = 5, 256
"""Most columns of a search whose values are counted, and most characters of a value that is counted."""

Operator: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">="]

Mask: TypeAlias = npt.NDArray[np.bool_]
"""Whether each item of an index passes, ``(n,)``."""

Period: TypeAlias = tuple[float, float]
"""Where a value begins, and where the next one can begin."""

LABELS, SILO = "labels", "silo"
"""The labels of items, of which an item can have several, and the silo of each, which is no column of its own."""

DAY_SECONDS = 86_400
_NUMBER = re.compile(r"[+-]?(0|[1-9]\d*)(\.\d+)?(e[+-]?\d{1,3})?", re.IGNORECASE)
_DATE = re.compile(r"(\d{4})(?:-(\d\d)(?:-(\d\d)([T ]\d\d:.+)?)?)?")
_CONDITION = re.compile(r"\s*(.+?)\s*(!=|<=|>=|<|>|==?)\s*(.+?)\s*")


class Condition(NamedTuple):
    """Hold one condition of a filter.

    Attributes:
        column: Name of the column.
        operator: How its values are compared.
        values: The values to compare with. ``=`` is true if one of them is equal, and ``!=`` if none is.
    """

    column: Text
    operator: Operator
    values: Annotated[tuple[Text, ...], Field(min_length=1, max_length=MOST_VALUES)]

    @classmethod
    def of(cls, text: str) -> Condition:
        """Return the condition that a text states. A value that contains a comma stands in double quotes.

        Raises:
            WrongForm: If the text is not a condition.

        Example:
            >>> Condition.of('museum = Louvre, "Orsay, Paris"')
            Condition(column='museum', operator='=', values=('Louvre', 'Orsay, Paris'))
            >>> str(Condition.of("year>=1900"))
            'year>=1900'
        """
        found = _CONDITION.fullmatch(text)
        if found is None:
            raise WrongForm(
                f'"{text}" is not a condition. Give a column and a value, such as museum=Louvre or year>=1900.'
            )
        [values] = csv.reader([found[3]], skipinitialspace=True)
        return cls(found[1], cast(Operator, found[2].replace("==", "=")), tuple(values))

    def __str__(self) -> str:
        """Return the text that states the condition."""
        quoted = ('"' + value.replace('"', '""') + '"' if set(value) & set(',"') else value for value in self.values)
        return f"{self.column}{self.operator}{','.join(quoted)}"

    def check(self) -> None:
        """Check that the values can be compared.

        Raises:
            UserError: If they cannot.
        """
        if not all(isinstance(value, str) for value in self.values):
            raise WrongType(f"{self.column} is compared with {', '.join(map(repr, self.values))}. Give texts.")
        if not all(map(str.strip, self.values)) or len(self.values) > MOST_VALUES:
            raise WrongForm(
                f'"{self}" has an empty value, or more than {MOST_VALUES}. Give the values to compare with.'
            )
        compared = [number(value) or date_of(value) for value in self.values]
        if self.operator not in ("=", "!=") and (len(compared) != 1 or compared[0] is None):
            raise WrongForm(
                f'"{self}" does not compare with one number or date. Give a number, or a date such as 2001-05-31 or 2001-05.'
            )


def conditions_of(given: str | Condition | Iterable[str | Condition]) -> tuple[Condition, ...]:
    """Return the conditions that texts state.

    Raises:
        UserError: If one is not a condition, or there are too many.
    """
    if not isinstance(given, Iterable):
        raise WrongType(f"where is {given!r}. Give conditions such as museum=Louvre.")
    several = [given] if isinstance(given, str | Condition) else [*given]
    if len(several) > MOST_CONDITIONS:
        raise OutOfRange(f"The search has {len(several)} conditions. Give at most {MOST_CONDITIONS}.")
    conditions = tuple(Condition.of(each) if isinstance(each, str) else each for each in several)
    for condition in conditions:
        condition.check()
    return conditions


def columns_in(conditions: Iterable[Condition], newest_by: str | None) -> list[str]:
    """Return the columns that conditions and an order use."""
    return [*(condition.column for condition in conditions), *([] if newest_by is None else [newest_by])]


def labeled(labels: str | Collection[str] | None) -> tuple[Condition, ...]:
    """Return the conditions that an item has all of some labels."""
    several = labels if isinstance(labels, list | tuple | set | None) else [cast(str, labels)]
    return tuple(Condition(LABELS, "=", (label,)) for label in several or ())


def number(text: str) -> Period | None:
    """Return the number that a text states, as a period; None for another text. Texts like 007 are not numbers."""
    value = float(text) if _NUMBER.fullmatch(text) else math.inf
    return (value, math.nextafter(value, math.inf)) if math.isfinite(value) else None


def date_of(text: str) -> Period | None:
    """Return the period of the date that a text states, in seconds since the year 0; None for another text.

    Example:
        >>> begin, end = date_of("2000-02")
        >>> (end - begin) / DAY_SECONDS, date_of("February")
        (29.0, None)
    """
    found = _DATE.fullmatch(text)
    try:
        if found is None:
            return None
        year, month, day, time = found.groups()
        if time is not None:
            moment = datetime.fromisoformat(text)
            moment = moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)
            seconds = DAY_SECONDS + (moment - datetime.min).total_seconds()
            return seconds, math.nextafter(seconds, math.inf)
        first = date(int(year), int(month or 1), int(day or 1)).toordinal()
        if day is not None:
            end = first + 1
        elif month is not None:
            end = date(int(year) + int(month) // 12, int(month) % 12 + 1, 1).toordinal()
        else:
            end = date(int(year) + 1, 1, 1).toordinal()
        return float(first * DAY_SECONDS), float(end * DAY_SECONDS)
    except (ValueError, OverflowError):
        return None


@dataclass(frozen=True, eq=False)
class Column:
    """Hold the values of a column of an index's items.

    Attributes:
        values: The different values.
        rows: ``(m,)`` int64 the position of the item of each entry. An item with several labels has several entries.
        codes: ``(m,)`` int32 the position of the value of each entry among ``values``.
        exact: Whether only texts are equal, and not numbers or dates with the same value.
    """

    values: tuple[str, ...]
    rows: npt.NDArray[np.int64]
    codes: npt.NDArray[np.int32]
    exact: bool = False

    @classmethod
    def of(cls, entries: Iterable[tuple[int, str]], known: Column | None = None) -> Column:
        """Return the column with those of a known one and further entries: the position of an item and its value."""
        codes: dict[str, int] = {} if known is None else {value: code for code, value in enumerate(known.values)}
        rows, found = ([], []) if known is None else (known.rows.tolist(), known.codes.tolist())
        for row, value in entries:
            rows.append(row)
            found.append(codes.setdefault(value, len(codes)))
        return cls(tuple(codes), np.array(rows, np.int64), np.array(found, np.int32))

    @cached_property
    def _places(self) -> Mapping[str, list[int]]:
        """The positions of the values, by the form in which they are compared."""
        places: dict[str, list[int]] = {}
        for place, value in enumerate(self.values):
            places.setdefault(tidy(value), []).append(place)
        return places

    @cached_property
    def numbers(self) -> npt.NDArray[np.float64]:
        """``(2, V)`` where each value begins and ends as a number, NaN for others."""
        return _table(map(number, self.values))

    @cached_property
    def dates(self) -> npt.NDArray[np.float64]:
        """``(2, V)`` where each value begins and ends as a date, NaN for others."""
        return _table(map(date_of, self.values))

    def passing(self, condition: Condition, count: int) -> Mask:
        """Return which of ``count`` items pass a condition. An item without a value is not equal to any."""
        operator = condition.operator
        passes = np.zeros(len(self.values), bool)
        for value in condition.values:
            for kind, table in ((number, "numbers"), (date_of, "dates")):
                period = kind(value)
                if period is not None and not (self.exact and operator in ("=", "!=")):
                    passes |= _compared(getattr(self, table), operator, period)
            if operator in ("=", "!="):
                passes[self._places.get(tidy(value), [])] = True
        found = np.zeros(count, bool)
        found[self.rows[passes[self.codes]]] = True
        return ~found if operator == "!=" else found

    def counts(self, passing: Mask) -> dict[str, int]:
        """Return the number of items with each value, out of those that pass."""
        found = np.bincount(self.codes[passing[self.rows]], minlength=len(self.values))
        return {self.values[place]: int(found[place]) for place in np.flatnonzero(found)}


def _table(periods: Iterable[Period | None]) -> npt.NDArray[np.float64]:
    """Return periods as a table, ``(2, n)``."""
    nothing = (math.nan, math.nan)
    return np.array([period or nothing for period in periods], np.float64).reshape(-1, 2).T


def _compared(values: npt.NDArray[np.float64], operator: Operator, period: Period) -> Mask:
    """Return which periods, ``(2, n)``, pass a comparison with one. For ``!=``, those that are equal."""
    (begins, ends), (begin, end) = values, period
    match operator:
        case "<":
            return np.asarray(ends <= begin)
        case "<=":
            return np.asarray(ends <= end)
        case ">":
            return np.asarray(begins >= end)
        case ">=":
            return np.asarray(begins >= begin)
    return np.asarray((begins >= begin) & (ends <= end))
