"""The cuts that make a partition: each class by its shares within each split, or growing prefixes of one order."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from silohash.data.archive import SPLITS, Archive
from silohash.data.partition.kinds import Classes, Shares
from silohash.seeds import numpy_generator
from silohash.types import Rows, UserError

NESTED_SMALLEST = 0.6
"""The smallest of the nested silos holds this share by default (FedBi-GNNs: 100, 80 and 60 %)."""


def check_count(silos: object, items: int) -> int:
    """Returns the number of silos.

    Raises:
        UserError: if it is no whole number above zero, or more than there are items to train on.
    """
    if isinstance(silos, bool) or not isinstance(silos, int) or silos < 1:
        raise UserError(f"[partition] silos is {silos!r}; it must be a whole number of at least 1.")
    if silos > items:
        raise UserError(
            f"[partition] {silos} silos are asked for, and there are {items} items to train on. Ask for fewer."
        )
    return silos


def counted_rows(archive: Archive) -> npt.NDArray[np.bool_]:
    """Returns the items that ``minimum`` counts: those to train on, or all where there is no such split."""
    train = archive.splits.get("train")
    counted = np.zeros(len(archive), bool)
    counted[slice(None) if train is None or not len(train) else train] = True
    return counted


def strata_of(archive: Archive) -> npt.NDArray[np.int64]:
    """Returns a number for each row that says which splits it stands in, ``(N,)``."""
    stratum = np.zeros(len(archive), np.int64)
    for place, name in enumerate(SPLITS):
        if name in archive.splits:
            stratum[archive.splits[name]] += 1 << place
    return stratum


def cut(
    classes: Classes, strata: npt.NDArray[np.int64], shares: Shares, generator: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Cuts each class within each stratum at random by its shares; every silo gets its share rounded up or down."""
    count = len(strata)
    key = strata * classes.count + classes.of_row
    order = generator.permutation(count)
    order = order[np.argsort(key[order], kind="stable")]
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    silo_of = np.empty(count, np.int64)
    for start, stop in zip(starts, [*starts[1:], count], strict=True):
        rows = order[start:stop]
        row = shares[classes.of_row[rows[0]]]
        at = (np.arange(len(rows)) + generator.random()) / len(rows)
        places = np.searchsorted(np.cumsum(row) / row.sum(), at, side="right")
        silo_of[rows] = np.minimum(places, np.flatnonzero(row)[-1])
    return silo_of


def nested(archive: Archive, silos: int | None, asked: object, seed: int) -> tuple[list[Rows], list[float]]:
    """Returns growing prefixes of one order of each split, the last of them whole."""
    if asked is None:
        count = check_count(silos, int(counted_rows(archive).sum()))
        fractions = [float(f) for f in np.linspace(NESTED_SMALLEST, 1.0, count).round(6)] if count > 1 else [1.0]
    else:
        fractions = _fractions(asked, silos)
    strata = strata_of(archive)
    order = numpy_generator(seed, "partition nested").permutation(len(archive))
    groups = [order[strata[order] == stratum] for stratum in np.unique(strata)]
    parts = [
        np.sort(np.concatenate([rows[: math.ceil(fraction * len(rows) - 1e-9)] for rows in groups]))
        for fraction in fractions
    ]
    return parts, fractions


def _fractions(asked: object, silos: int | None) -> list[float]:
    numbers = list(asked) if isinstance(asked, Sequence) and not isinstance(asked, str) else []
    good = numbers and all(isinstance(f, int | float) and not isinstance(f, bool) and 0 < f <= 1 for f in numbers)
    if not good or sorted(numbers) != numbers or numbers[-1] != 1:
        raise UserError(
            f"[partition] fractions is {asked!r}; it must be growing shares that end with 1 (so that no item is lost), "
            "as [0.6, 0.8, 1.0]."
        )
    if silos is not None and silos != len(numbers):
        raise UserError(
            f"[partition] silos is {silos}, and fractions names {len(numbers)}. Set silos = {len(numbers)}."
        )
    return [float(f) for f in numbers]
