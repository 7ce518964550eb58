"""The form of ``partition.json``, in which rows are runs: ``"0-5 9 12-40"``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from silohash.base.types import Rows

MOST_ITEMS = 1 << 30
"""Largest number of items of a silo that is read."""


@dataclass(frozen=True)
class StoredSilo:
    """The form of a silo's entry."""

    name: str
    rows: str
    items: int
    has_image: bool
    has_text: bool
    paired: bool = True


@dataclass(frozen=True)
class StoredPartition:
    """The form of ``partition.json``."""

    schema: int
    kind: str
    params: dict[str, Any]
    seed: int
    silos: tuple[StoredSilo, ...]
    disjoint: bool
    archive: str


def as_runs(rows: Rows) -> str:
    """Return sorted rows as text.

    Example:
        >>> as_runs(np.array([0, 1, 2, 5, 7, 8]))
        '0-2 5 7-8'
    """
    breaks = np.diff(rows) != 1
    firsts, lasts = rows[np.r_[True, breaks][: len(rows)]], rows[np.r_[breaks, True][: len(rows)]]
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(firsts.tolist(), lasts.tolist(), strict=True))


def from_runs(text: str, items: int) -> Rows:
    """Return the rows that `as_runs` wrote, ``(items,)`` int64.

    Raises:
        ValueError: If the text has another form, the rows are not sorted, or their number is not ``items``.
    """
    runs = [[int(end) for end in run.split("-")] for run in text.split()]
    if any(len(run) > 2 or run[0] < 0 for run in runs) or sum(run[-1] + 1 - run[0] for run in runs) != items:
        raise ValueError("the number of rows of a silo differs from its items")
    if items > MOST_ITEMS:
        raise ValueError(f"a silo has {items:,} items, more than {MOST_ITEMS:,}")
    rows = np.concatenate([np.zeros(0, np.int64), *(np.arange(run[0], run[-1] + 1) for run in runs)])
    if (np.diff(rows) <= 0).any():
        raise ValueError("rows are not sorted")
    return rows
