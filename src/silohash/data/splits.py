"""Splits of an archive: rows of query, database and train."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from silohash.seeds import derive
from silohash.types import Rows

QUERY_SHARE = 0.1
MOST_QUERIES = 2000


def splits_of(parts: Sequence[str] | npt.NDArray[np.str_], *, search_training: bool = True) -> dict[str, Rows]:
    """Return the rows of ``query``, ``database`` and ``train``.

    Args:
        parts: ``query``, ``database`` or ``train`` for each item; an item with another word is in no split.
        search_training: whether items to train on are in the database as well.
    """
    part = np.asarray(parts, dtype=np.str_)
    database = ("database", "train") if search_training else ("database",)
    return {
        "query": np.flatnonzero(part == "query"),
        "database": np.flatnonzero(np.isin(part, database)),
        "train": np.flatnonzero(part == "train"),
    }


def default_splits(keys: Sequence[str], whole: npt.NDArray[np.bool_] | None = None) -> dict[str, Rows]:
    """Split items into queries (a tenth, at least 1, at most 2,000) and a database that is also trained on.

    Which items become queries depends on their keys alone, not on their order. Items with the same key stay together, so
    that no picture with five captions is both query and database.

    Args:
        keys: one key per item: the name of its picture, or its id.
        whole: ``(N,)`` bool, items with both modalities. Other items become queries only if these are too few.

    Returns:
        Rows of ``query``, ``database`` and ``train``.
    """
    complete = whole.tolist() if whole is not None else [True] * len(keys)
    groups: dict[str, list[int]] = {}
    for row, key in enumerate(keys):
        groups.setdefault(key, []).append(row)
    wanted = min(MOST_QUERIES, max(1, round(QUERY_SHARE * len(keys)))) if len(groups) > 1 else 0

    def order(key: str) -> tuple[bool, int]:
        return not all(complete[row] for row in groups[key]), derive(0, f"default split/{key}")

    query: list[int] = []
    for key in sorted(groups, key=order)[:-1]:
        if len(query) >= wanted:
            break
        query.extend(groups[key])
    query_rows = np.sort(np.array(query, dtype=np.int64))
    rest = np.setdiff1d(np.arange(len(keys), dtype=np.int64), query_rows)
    return {"query": query_rows, "database": rest, "train": rest}
