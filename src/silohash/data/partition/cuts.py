"""Cut the items of an archive into silos: each class by its shares within each split, or nested prefixes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from silohash.data.archive import SPLITS, Archive
from silohash.data.partition.kinds import Classes, Shares
from silohash.data.partition.settings import is_number, whole
from silohash.seeds import numpy_generator
from silohash.types import Rows, UserError

NESTED_SMALLEST = 0.6
"""Share of the items in the smallest nested silo by default (FedBi-GNNs: 100, 80 and 60 %)."""


def check_count(silos: int | None, items: int) -> int:
    """Return the number of silos.

    Raises:
        UserError: if it is not a whole number above zero, or exceeds the number of training items.
    """
    count = whole({"silos": silos}, "silos", 1)
    if count > items:
        raise UserError(f"[partition] silos is {count}, and there are {items} items to train on. Use fewer silos.")
    return count


def counted_rows(archive: Archive) -> npt.NDArray[np.bool_]:
    """Return the items that ``minimum`` counts, ``(N,)`` bool: the training items, or all where there are none."""
    train = archive.splits.get("train")
    counted = np.zeros(len(archive), bool)
    counted[slice(None) if train is None or not len(train) else train] = True
    return counted


def strata_of(archive: Archive) -> npt.NDArray[np.int64]:
    """Return a number for each item that encodes its splits, ``(N,)``."""
    stratum = np.zeros(len(archive), np.int64)
    for place, name in enumerate(SPLITS):
        if name in archive.splits:
            stratum[archive.splits[name]] += 1 << place
    return stratum


def cut(
    classes: Classes, strata: npt.NDArray[np.int64], shares: Shares, generator: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Return the silo of each item, ``(N,)``.

    Each class within each stratum is cut at random by its shares. Every silo gets its share, rounded up or down.
    """
    key = strata * classes.count + classes.of_row
    order = generator.permutation(len(strata))
    order = order[np.argsort(key[order], kind="stable")]
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    silo_of = np.empty(len(strata), np.int64)
    for rows in np.split(order, starts[1:]):
        row = shares[classes.of_row[rows[0]]]
        at = (np.arange(len(rows)) + generator.random()) / len(rows)
        places = np.searchsorted(np.cumsum(row) / row.sum(), at, side="right")
        silo_of[rows] = np.minimum(places, np.flatnonzero(row)[-1])
    return silo_of


def nested(archive: Archive, silos: int | None, fractions: object, seed: int) -> tuple[list[Rows], list[float]]:
    """Return the rows of each silo and the fractions: growing prefixes of one random order of each split.

    The last silo holds all items. Without ``fractions`` they grow evenly from 0.6 to 1.
    """
    if fractions is not None:
        shares = _checked_fractions(fractions, silos)
    else:
        count = check_count(silos, int(counted_rows(archive).sum()))
        shares = np.linspace(1.0, NESTED_SMALLEST, count).round(6)[::-1].tolist()
    strata = strata_of(archive)
    order = numpy_generator(seed, "partition nested").permutation(len(archive))
    groups = [order[strata[order] == stratum] for stratum in np.unique(strata)]
    cuts = [[rows[: math.ceil(share * len(rows) - 1e-9)] for rows in groups] for share in shares]
    return [np.sort(np.concatenate(rows)) for rows in cuts], shares


def _checked_fractions(fractions: object, silos: int | None) -> list[float]:
    numbers = list(fractions) if isinstance(fractions, Sequence) and not isinstance(fractions, str) else []
    shares = [float(number) if is_number(number) else 0.0 for number in numbers]
    if not shares or min(shares) <= 0 or sorted(shares) != shares or shares[-1] != 1:
        raise UserError(
            f"[partition] fractions is {fractions!r}; it must be growing shares that end with 1 (so that no item is lost), "
            "as [0.6, 0.8, 1.0]."
        )
    if silos is not None and silos != len(shares):
        raise UserError(f"[partition] silos is {silos}, and fractions names {len(shares)}. Set silos = {len(shares)}.")
    return shares
