"""The splits of an archive that brings none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from silohash.seeds import derive
from silohash.types import Rows

QUERY_SHARE = 0.1
MOST_QUERIES = 2000


def default_splits(keys: Sequence[str], whole: npt.NDArray[np.bool_] | None = None) -> dict[str, Rows]:
    """Splits items into queries (a tenth, at least one, at most 2,000) and a database that is also trained on.

    Which items are queries depends on their keys alone, not on their order; items of one key stay together, so that a
    picture with five captions is not both query and database.

    Args:
        keys: one key an item: its picture's name, or its id.
        whole: ``(N,)`` bool, items with both modalities; the others become queries only where these do not suffice.

    Returns:
        Rows of ``query``, ``database`` and ``train``.
    """
    complete = whole.tolist() if whole is not None else [True] * len(keys)
    groups: dict[str, list[int]] = {}
    for row, key in enumerate(keys):
        groups.setdefault(key, []).append(row)
    wanted = min(MOST_QUERIES, max(1, round(QUERY_SHARE * len(keys)))) if len(groups) > 1 else 0

    def _order(key: str) -> tuple[bool, int]:
        return not all(complete[row] for row in groups[key]), derive(0, f"default split/{key}")

    query: list[int] = []
    for key in sorted(groups, key=_order)[:-1]:
        if len(query) >= wanted:
            break
        query.extend(groups[key])
    query_rows = np.sort(np.array(query, dtype=np.int64))
    rest = np.setdiff1d(np.arange(len(keys), dtype=np.int64), query_rows)
    return {"query": query_rows, "database": rest, "train": rest}
