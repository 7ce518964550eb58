"""Ids of items, by which a query's own items leave its ranking."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from silohash.api.given_names import MISSING_TEXTS, Name, check_exact, check_kinds, is_missing, name_of
from silohash.base.arrays import Given, given
from silohash.base.types import Rows, UserError
from silohash.index.codes import Codes


def given_ids(
    queries: object, database: object, query_ids: object, database_ids: object
) -> tuple[Given | None, Given | None]:
    """Return the ids of both sides: those that are given, otherwise those of `Codes`, and None for a side without ids."""
    if query_ids is None and database_ids is None and not (isinstance(queries, Codes) and isinstance(database, Codes)):
        return None, None
    first = queries.ids if query_ids is None and isinstance(queries, Codes) else query_ids
    second = database.ids if database_ids is None and isinstance(database, Codes) else database_ids
    return (
        None if first is None else given("query ids", first),
        None if second is None else given("database ids", second),
    )


def own_items(query_ids: Given | None, database_ids: Given | None) -> Rows | None:
    """Return the rows of the items with each query's id, ``(Q, m)`` filled up with -1; None without ids.

    Raises:
        UserError: If only one side has ids, or those of one side are texts and those of the other are numbers.
    """
    if query_ids is None and database_ids is None:
        return None
    if query_ids is None or database_ids is None:
        side = "database" if query_ids is None else "queries"
        raise UserError(
            f"Only the {side} {'has' if query_ids is None else 'have'} ids. Give the ids of both sides, or none."
        )
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
            raise UserError(f"The {given.what} have shape {values.shape}. Give one id per item.")
        check_exact(given.what, values)
        values = values.tolist()
    if set(map(type, values)) == {str}:  # many ids, most of which are in the form in which names are compared
        text = " ".join(values)
        if text.isascii() and ".0" not in text and text.split() == values and MISSING_TEXTS.isdisjoint(values):
            return list(values)
    if any(is_missing(value) for value in values):
        raise UserError(f"The {given.what} hold a missing value. Give every item an id, or leave ids out.")
    return [name_of(given.what, value) for value in values]
