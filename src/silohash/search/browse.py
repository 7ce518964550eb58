"""What passes the filters of a query in the indexes of a silo: which items, the newest of them, and how often each value.

An item that is in two indexes, such as those of pictures and of texts, is one item. Both hold the same payload of it.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from silohash.base.errors import NotSearchable
from silohash.base.types import Modality
from silohash.index.base import FIELDS
from silohash.index.digests import Digests
from silohash.search.filters import DAY_SECONDS, MOST_VALUE_CHARACTERS, SILO, Mask
from silohash.search.loaded_index import Indexes, LoadedIndex, most_frequent
from silohash.search.nearest import NO_KEY, NearItems, grouped
from silohash.search.order import first_places
from silohash.search.requests import MOST_SUMMARY_LABELS, Browse

LATEST = 10_000 * 366 * DAY_SECONDS
"""A time after all dates, in seconds since the year 0."""


def check_columns(indexes: Indexes, columns: Collection[str]) -> None:
    """Check that items have values in further columns.

    Raises:
        NotSearchable: If no item has a value in one of them.
    """
    for name in columns:
        if name not in FIELDS and not any(loaded.column(name).values for loaded in indexes.values()):
            raise NotSearchable(f'None of its items has a value of "{name}". Check the name, or index the silo again.')


def passing_places(indexes: Indexes, items: NearItems, passing: Mapping[Modality, Mask]) -> list[int]:
    """Return the positions of the items that pass."""
    found = np.zeros(len(items), bool)
    for name, loaded in indexes.items():
        found |= np.isin(np.array(items.keys[name], np.int64), loaded.allowed(passing[name]))
    return [int(place) for place in np.flatnonzero(found)]


def newest_items(indexes: Indexes, passing: Mapping[Modality, Mask], request: Browse, k: int) -> NearItems:
    """Return the first k items that pass, newest first, and those of the same age by the keyed hash.

    In place of distances, they have the days before `LATEST` with the seconds of the day as order values. Without a column
    of dates, an item has the number of newer ones in its index. Of two ages in two indexes, an item has the smaller one.
    """
    ages, digests, keys = list[npt.NDArray[np.int64]](), list[Digests](), list[npt.NDArray[np.int64]]()
    for name, loaded in indexes.items():
        those = loaded.allowed(passing[name])
        age = np.arange(len(those))[::-1] * DAY_SECONDS
        if request.newest_by is not None:
            age = _ages(loaded, request.newest_by)[passing[name]]
        if k < len(age):
            near = np.flatnonzero(age <= np.partition(age, k - 1)[k - 1])
            age, those = age[near], those[near]
        ages.append(age)
        keys.append(those)
        digests.append(loaded.digests(those))
    items, item_of = grouped(np.concatenate(digests))
    age_of = np.full(len(items), np.iinfo(np.int64).max)
    np.minimum.at(age_of, item_of, np.concatenate(ages))
    ranked = first_places(age_of, items, request.tie_key, k)
    place_of = np.full(len(items), -1)
    place_of[ranked] = np.arange(len(ranked))
    columns = {name: np.full(len(ranked), NO_KEY, np.int64) for name in indexes}
    places = np.split(place_of[item_of], np.cumsum([*map(len, keys)])[:-1])
    for column, those, place in zip(columns.values(), keys, places, strict=True):
        column[place[place >= 0]] = those[place >= 0]
    days, seconds = np.divmod(age_of[ranked], DAY_SECONDS)
    return NearItems(
        days.tolist(), {name: column.tolist() for name, column in columns.items()}, tuple(seconds.tolist())
    )


def _ages(loaded: LoadedIndex, name: str) -> npt.NDArray[np.int64]:
    """Return the seconds of each item's date before `LATEST`, ``(n,)``; `LATEST` without a date."""
    column, found = loaded.column(name), np.full(len(loaded.index.keys), LATEST, np.int64)
    begins = column.dates[0][column.codes]
    dated = np.isfinite(begins)
    found[column.rows[dated]] = LATEST - np.floor(begins[dated]).astype(np.int64)
    return found


def counts_in(
    indexes: Indexes, passing: Mapping[Modality, Mask], columns: Sequence[str], silo: str
) -> dict[str, dict[str, int]]:
    """Return how many items pass with each value of some columns, of the most frequent values. `SILO` counts all items."""
    found = {name: Counter[str]() for name in columns}
    [first, *_] = indexes.values()
    for modality, loaded in indexes.items():
        mask = passing[modality] if loaded is first else passing[modality] & ~loaded.also_in(first)
        for name, counts in found.items():
            counts.update({silo: int(mask.sum())} if name == SILO else loaded.column(name).counts(mask))
    short = {
        name: {v: n for v, n in counts.items() if len(v) <= MOST_VALUE_CHARACTERS} for name, counts in found.items()
    }
    return {name: most_frequent(counts, MOST_SUMMARY_LABELS) for name, counts in short.items()}
