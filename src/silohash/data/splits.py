"""How items are split into queries, a database and items to train on."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from silohash.base.seeds import derive
from silohash.base.types import Rows

QUERY_SHARE = 0.1
MOST_QUERIES = 2000


def splits_of(parts: Sequence[str] | npt.NDArray[np.str_], *, search_training: bool = True) -> dict[str, Rows]:
    """Return the rows of ``query``, ``database`` and ``train``; an item whose part has another name is in no split.

    Items to train on are in the database as well, unless ``search_training`` is False.
    """
    part = np.asarray(parts, dtype=np.str_)
    database = ("database", "train") if search_training else ("database",)
    return {
        "query": np.flatnonzero(part == "query"),
        "database": np.flatnonzero(np.isin(part, database)),
        "train": np.flatnonzero(part == "train"),
    }


def rest_searched(count: int, query: Rows) -> dict[str, Rows]:
    """Return splits in which all items except the queries are searched and trained on."""
    rest = np.setdiff1d(np.arange(count, dtype=np.int64), query)
    return {"query": query.astype(np.int64), "database": rest, "train": rest}


def default_splits(keys: Sequence[str], whole: npt.NDArray[np.bool_] | None = None) -> dict[str, Rows]:
    """Split items into queries (a tenth, at least 1, at most 2,000) and a database that is also trained on.

    Which items become queries depends on their keys alone, the name of the picture or the id, not on their order. Items with
    the same key stay together, so that no picture with five captions is both query and database. Items that are not
    ``whole``, ``(N,)`` bool, because they lack a modality, become queries only if the others are too few.
    """
    unique, group_of, sizes = np.unique(np.asarray(keys, dtype=object), return_inverse=True, return_counts=True)
    lacking = np.zeros(len(unique), bool)
    if whole is not None:
        lacking[group_of[~whole]] = True
    draws = np.array([derive(0, f"default split/{key}") for key in unique], np.int64)
    order = np.lexsort((draws, lacking))
    wanted = min(MOST_QUERIES, max(1, round(QUERY_SHARE * len(keys))))
    before = np.cumsum(sizes[order]) - sizes[order]
    # The last group stays in the database, however large the groups are.
    chosen = order[:-1][before[:-1] < wanted]
    return rest_searched(len(keys), np.flatnonzero(np.isin(group_of, chosen)))


def fold_splits(keys: Sequence[str], fold: int, folds: int) -> dict[str, Rows]:
    """Split items for cross-validation: one fold, from 0, holds the queries, all others are trained on and searched.

    Which fold an item is in depends on the set of keys, not on their order. Items with the same key stay together. The
    folds' numbers of keys differ by at most 1.
    """
    unique, group_of = np.unique(np.asarray(keys, dtype=object), return_inverse=True)
    order = np.argsort([derive(0, f"fold/{key}") for key in unique], kind="stable")
    fold_of = np.empty(len(unique), np.int64)
    fold_of[order] = np.arange(len(unique)) * folds // len(unique)
    return rest_searched(len(keys), np.flatnonzero(fold_of[group_of] == fold))
