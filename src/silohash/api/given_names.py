"""Labels and ids in the forms in which they are held, read only where the form is certain.

==========================================  ================================================================
form                                        an item has a label where
==========================================  ================================================================
table ``(items, classes)``                  the value is 1: of 0 and 1, of -1 and +1, or of booleans
class numbers ``(items,)``, ``(items, 1)``  the number, at least 0, is its own
one name per item                           the text is its own
a list or set of these for each item        the text or number is in it; without labels if it is empty
==========================================  ================================================================

Numbers can have any type, so 1.0 is 1. None and NaN in place of a single label are an item without labels. Lists of 0 and 1
of equal length are a table. Both sides have the same form.

Ids, by which a query's own items leave its ranking, are one text or whole number per item. A text and a whole number never
name the same thing.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.base.arrays import NUMBERS, Given, given, same_columns
from silohash.base.errors import AmbiguousForm, EmptyInput, LengthsDiffer, MixedKinds, OutOfRange, WrongShape, WrongType
from silohash.base.names import canonical
from silohash.base.types import Rows
from silohash.base.visible import visible
from silohash.index.codes import Codes

Name: TypeAlias = str | int
MultiHot: TypeAlias = npt.NDArray[np.uint8]
Table: TypeAlias = npt.NDArray[Any]

MISSING_TYPES = frozenset({"NoneType", "NAType", "NaTType", "Null"})
MISSING_TEXTS = frozenset({"", "nan", "NaN", "None", "<NA>", "NaT", "null", "NULL", "N/A", "n/a"})
"""Texts that stand for missing values in what NumPy, pandas, databases and spreadsheets write."""

FORMS = (
    "Give a table of shape (items, classes) of 0 and 1 or of -1 and +1, one class number of at least 0 or one name per "
    "item, or one set of these per item."
)
MARKERS = frozenset(2**bits - 1 for bits in (8, 16, 31, 32, 63, 64))
"""Highest numbers of integer types, which often mark items without a class."""

NUMERIC_TEXTS = frozenset({"0", "1", "-1", "0.0", "1.0", "-1.0", "True", "False", "true", "false"})

_LIST = re.compile(r"""\[\s*(['"\d-].*)?\]|[({]\s*['"].*[)}]""", re.DOTALL)
_SEPARATOR = re.compile(r"\s*[|,;]\s*")


class _Named(NamedTuple):
    """The names of all items: the number of items, and for each name the row of its item."""

    items: int
    rows: Rows
    names: list[Name]


def multi_hot(queries: Given, database: Given) -> tuple[MultiHot, MultiHot]:
    """Return the labels of both sides as multi-hot tables over the same classes, ``(Q, C)`` and ``(N, C)`` uint8.

    Classes that only one side has are left out if the labels are names or numbers.

    Raises:
        UserError: If the form is ambiguous or differs between the sides, or a value does not belong to it.
    """
    tables = [_table(side) for side in (queries, database)]
    if tables[0] is not None and tables[1] is not None:
        widths = tables[0].shape[1], tables[1].shape[1]
        if widths == (1, 1):
            if not any((side > 1).any() for side in tables if side is not None):
                raise AmbiguousForm(
                    "Labels of shape (items, 1) with values up to 1 are class numbers or a table of one class. "
                    "Give labels[:, 0] for class numbers, or one set of names per item."
                )
        elif widths[0] != widths[1]:
            raise LengthsDiffer(
                f"The queries have {widths[0]} classes and the database has {widths[1]}. Use the same in both. {FORMS}"
            )
        else:
            order = same_columns(queries, database)
            second = tables[1] if order is None else tables[1][:, order]
            return _has(tables[0], queries.what), _has(second, database.what)
    return _joined(_named(queries, tables[0]), _named(database, tables[1]))


def _table(labels: Given) -> Table | None:
    """Return labels that are rows of numbers of one length, ``(items, columns)``; None for another form."""
    values = labels.values
    if isinstance(values, list):
        return _table_of_rows(values)
    if values.ndim > 2 or 0 in values.shape[1:] or values.dtype.kind not in NUMBERS + "U":
        raise WrongShape(f"The {labels.what} are {values.dtype} of shape {values.shape}. {FORMS}")
    return values if values.ndim == 2 and values.dtype.kind != "U" else None


def _table_of_rows(rows: list[Any]) -> Table | None:
    if not all(isinstance(row, list | tuple | np.ndarray) for row in rows) or len(set(map(len, rows))) != 1:
        return None
    try:
        values = np.array(rows)
    except ValueError:  # rows of lists
        return None
    return values if values.ndim == 2 and values.shape[1] and values.dtype.kind in NUMBERS else None


def _has(values: Table, what: str) -> MultiHot:
    """Return which labels items have."""
    has, has_not, minus = values == 1, values == 0, values == -1
    if not (has | has_not).all() and not (has | minus).all():
        strange = ~(has | has_not | minus)
        row, column = np.argwhere(strange if strange.any() else minus)[0]
        found = values[row, column]
        remedy = FORMS if np.isfinite(found) else "Write 0 for labels that an item does not have or that are unknown."
        raise OutOfRange(
            f"The {what} are a table with {found:g} in row {row}, column {column}, and not all 0 and 1 or all -1 and +1. "
            f"{remedy}"
        )
    return np.asarray(has, np.uint8)


def _named(labels: Given, rows: Table | None) -> _Named:
    values = labels.values
    if rows is not None and rows.shape[1] > 1 and (rows is values or (np.abs(rows) <= 1).all()):
        raise MixedKinds(f"The {labels.what} are a table {rows.shape}, but not those of the other side. {FORMS}")
    if isinstance(values, np.ndarray):
        if values.dtype == np.bool_:
            raise AmbiguousForm(f"The {labels.what} are one boolean per item, which is not a class number. {FORMS}")
        if values.dtype.kind in "iu" and not (values < 0).any():
            return _Named(len(values), np.arange(len(values)), values.reshape(-1).tolist())
        check_exact(labels.what, values)
        values = values.tolist()
    widths = {len(item) if isinstance(item, list | tuple | np.ndarray) else 0 for item in values}
    names = [_names_of_item(item, labels.what, of_one_length=len(widths) == 1 < len(values)) for item in values]
    held = np.repeat(np.arange(len(names)), list(map(len, names)))
    return _Named(len(names), held, list(chain.from_iterable(names)))


def _names_of_item(item: Any, what: str, *, of_one_length: bool) -> list[Name]:  # noqa: ANN401  one label or several
    several = isinstance(item, list | tuple | set | frozenset | np.ndarray)
    parts = list(item) if several else [item]
    names = [name_of(what, part) for part in parts if not is_missing(part)]
    if len(parts) > 1 and not isinstance(item, set | frozenset) and _is_like_a_row(parts, names, of_one_length):
        raise WrongType(
            f"The {what} have the list {visible(repr(item))[:100]}, which is neither different labels nor a row of numbers. "
            f"{FORMS}"
        )
    if any(isinstance(name, int) and name < 0 for name in names):
        raise OutOfRange(f"The {what} hold a class number below 0 ({item!r}). Give None for an item without a class.")
    return names


def _is_like_a_row(parts: list[Any], names: list[Name], of_one_length: bool) -> bool:
    """Return whether a list holds repeated or missing numbers, 0 and 1 as texts, or repeated texts like every column."""
    different = len(set(names))
    if any(isinstance(name, int) for name in names):
        return different < len(parts)
    return (of_one_length and different < len(names)) or (bool(names) and NUMERIC_TEXTS.issuperset(names))


def _joined(queries: _Named, database: _Named) -> tuple[MultiHot, MultiHot]:
    """Return names as tables over the classes that occur on both sides."""
    asked, held = set(queries.names), set(database.names)
    every = asked | held
    check_kinds("labels", every)
    for name in every:
        if isinstance(name, str) and (
            _LIST.fullmatch(name) or (_SEPARATOR.search(name) and every.issuperset(_SEPARATOR.split(name)))
        ):
            raise AmbiguousForm(
                f'The label "{visible(name)[:100]}" is a list in a text. Give a list or set of texts per item.'
            )
    highest = max((name for name in every if isinstance(name, int)), default=0)
    if highest in MARKERS and highest - 1 not in every:
        raise AmbiguousForm(
            f"The highest class number is {highest}, and {highest - 1} does not occur. If it marks items without a class, "
            "give None in its place; otherwise give names."
        )
    classes = {name: column for column, name in enumerate(asked & held)}
    return _as_table(queries, classes), _as_table(database, classes)


def _as_table(labels: _Named, classes: dict[Name, int]) -> MultiHot:
    columns = np.array([classes.get(name, -1) for name in labels.names], np.int64)
    rows = np.zeros((labels.items, max(1, len(classes))), np.uint8)
    rows[labels.rows[columns >= 0], columns[columns >= 0]] = 1
    return rows


def given_ids(
    queries: object, database: object, query_ids: object, database_ids: object
) -> tuple[Given | None, Given | None]:
    """Return the ids of both sides: those that are given, otherwise those of `Codes`, and None for a side without ids."""
    if query_ids is None and database_ids is None and not (isinstance(queries, Codes) and isinstance(database, Codes)):
        return None, None
    first = queries.ids if query_ids is None and isinstance(queries, Codes) else query_ids
    second = database.ids if database_ids is None and isinstance(database, Codes) else database_ids
    asking = None if first is None else given("query ids", first)
    return asking, None if second is None else given("database ids", second)


def own_items(query_ids: Given | None, database_ids: Given | None) -> Rows | None:
    """Return the rows of the items with each query's id, ``(Q, m)`` filled up with -1; None without ids.

    Raises:
        UserError: If only one side has ids, or those of one side are texts and those of the other are numbers.
    """
    if query_ids is None and database_ids is None:
        return None
    if query_ids is None or database_ids is None:
        side = "database" if query_ids is None else "queries"
        raise MixedKinds(f"Only the {side} {'has' if query_ids is None else 'have'} ids. Give ids for both, or none.")
    asking, held = read_ids(query_ids), read_ids(database_ids)
    check_kinds("ids", asking, held)
    rows_of: defaultdict[object, list[int]] = defaultdict(list)
    for row in np.flatnonzero(np.fromiter(map(set(asking).__contains__, held), bool, len(held))).tolist():
        rows_of[held[row]].append(row)
    own = np.full((len(asking), max(map(len, rows_of.values()), default=1)), -1, np.int64)
    for query, name in enumerate(asking):
        if name in rows_of:
            own[query, : len(rows_of[name])] = rows_of[name]
    return own


def read_ids(given: Given) -> list[Name]:
    """Return ids, one per item.

    Raises:
        UserError: If they are not one text or whole number per item.
    """
    values = given.values
    if isinstance(values, np.ndarray):
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim != 1:
            raise WrongShape(f"The {given.what} have shape {values.shape}. Give one id per item.")
        check_exact(given.what, values)
        values = values.tolist()
    if set(map(type, values)) == {str}:  # many ids, most of which are in the form in which names are compared
        text = " ".join(values)
        if text.isascii() and ".0" not in text and text.split() == values and MISSING_TEXTS.isdisjoint(values):
            return list(values)
    if any(is_missing(value) for value in values):
        raise EmptyInput(f"The {given.what} hold a missing value. Give every item an id, or leave ids out.")
    return [name_of(given.what, value) for value in values]


def is_missing(value: object) -> bool:
    """Return whether a value is None, NaN, or what pandas has in their place."""
    return type(value).__name__ in MISSING_TYPES or (isinstance(value, float | np.floating) and bool(np.isnan(value)))


def name_of(what: str, value: Any) -> Name:  # noqa: ANN401  an element of any type
    r"""Return a text or a whole number (as an integer or a float) that names something, in the form that is compared.

    For error messages, ``what`` is what the names are, in the plural.

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
    raise WrongType(
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
            raise WrongType(f"The {what} are {values.dtype} of up to {largest:g}, so rounded. Give integers or texts.")


def check_kinds(what: str, *names: Iterable[Name]) -> None:
    """Check that all names are texts, or all are numbers, because the text "1" and the number 1 are different names.

    Raises:
        UserError: If there are both.
    """
    by_text = {isinstance(name, str): name for name in chain.from_iterable(names)}
    if len(by_text) > 1:
        raise MixedKinds(
            f'The {what} are both texts, such as "{visible(str(by_text[True]))}", and numbers, such as {by_text[False]}. '
            "Give all as texts or all as numbers."
        )
