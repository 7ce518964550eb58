"""The kinds of partition: which class an item counts as, and how each class is shared out among the silos.

Every kind but ``nested`` is two functions. ``classes`` gives each row one class (a label, a column's value, a cluster;
or the same class for all), and ``shares`` gives each class a row of proportions over the silos.
`silohash.data.partition.cuts` then cuts every class by its shares within each split by itself, so that a silo's queries
follow the same proportions as what it trains on.
"""

# ruff: noqa: ARG001  every kind answers the same two calls

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.data.archive import Archive
from silohash.registry import suggestion
from silohash.seeds import numpy_generator
from silohash.types import UserError

Settings: TypeAlias = Mapping[str, Any]
Shares: TypeAlias = npt.NDArray[np.float64]

REST = "*"
"""In ``groups`` of a partition by column: every value that no other silo names."""


@dataclass(frozen=True)
class Classes:
    """The class of each item.

    Attributes:
        of_row: ``(N,)`` int64, the class that each row counts as.
        count: how many classes there are.
        silos: names of the silos where the kind itself names them, else empty.
    """

    of_row: npt.NDArray[np.int64]
    count: int
    silos: tuple[str, ...] = ()

    def sizes(self) -> npt.NDArray[np.int64]:
        """Returns the number of items a class, ``(count,)``."""
        return np.bincount(self.of_row, minlength=self.count)


@dataclass(frozen=True)
class Kind:
    """A kind of partition.

    Attributes:
        summary: what it does, in one line, for lists and messages.
        classes: (archive, silos asked for or None, settings, seed) -> the class of each item.
        shares: (items a class, silos, settings, generator) -> ``(C, S)`` proportions, each row of sum one.
        defaults: the parameters that it takes and their defaults.
        drawn: whether another draw could give other sizes.
    """

    summary: str
    classes: Callable[[Archive, int | None, Settings, int], Classes]
    shares: Callable[[npt.NDArray[np.int64], int, Settings, np.random.Generator], Shares]
    defaults: Settings = field(default_factory=dict)
    drawn: bool = True


def positive(settings: Settings, name: str) -> float:
    """Returns a parameter that must be a finite number above zero.

    Raises:
        UserError: if it is anything else.
    """
    value = settings[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise UserError(
            f'[partition] {name} is {value!r}; it must be a number above 0, as 0.5. For an even spread take kind "iid".'
        )
    return float(value)


def whole(settings: Settings, name: str, least: int) -> int:
    """Returns a parameter that must be a whole number of at least ``least``.

    Raises:
        UserError: if it is anything else.
    """
    value = settings[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UserError(f"[partition] {name} is {value!r}; it must be a whole number of at least {least}.")
    return value


def choice(settings: Settings, name: str, known: tuple[str, ...]) -> str:
    """Returns a parameter that must be one of some words.

    Raises:
        UserError: if it is another; names the nearest.
    """
    value = settings[name]
    if value not in known:
        near = suggestion(str(value), known)
        raise UserError(f"[partition] {name} is {value!r}{near}; it must be one of: {', '.join(known)}.")
    return str(value)


def one_class(archive: Archive, silos: int | None, settings: Settings, seed: int) -> Classes:
    """Puts every item into the same class."""
    return Classes(np.zeros(len(archive), np.int64), 1)


def primary_labels(archive: Archive, silos: int | None, settings: Settings, seed: int) -> Classes:
    """Gives each item one of its labels; items without a label form a class of their own.

    ``primary = "uniform"`` draws the label evenly among the item's labels; ``"rarest"`` takes the one that the fewest
    items of the archive have, which keeps small classes together.

    Raises:
        UserError: if the archive has no labels.
    """
    if archive.labels is None:
        raise UserError(
            f'Archive "{archive.card.name}" has no labels, and this kind of partition goes by labels. '
            'Use kind = "iid", "quantity", "column" or "pseudo" (clusters in place of labels).'
        )
    has = archive.labels > 0
    if choice(settings, "primary", ("uniform", "rarest")) == "rarest":
        rank = np.empty(has.shape[1])
        rank[np.argsort(has.sum(axis=0), kind="stable")] = np.arange(has.shape[1])
        preference = np.where(has, -rank, -np.inf)
    else:
        drawn = numpy_generator(seed, "partition primary label").random(has.shape)
        preference = np.where(has, drawn, -np.inf)
    of_row = np.full(len(archive), has.shape[1], np.int64)
    labelled = has.any(axis=1)
    if has.shape[1]:
        of_row[labelled] = preference[labelled].argmax(axis=1)
    return Classes(of_row, has.shape[1] + 1)


def clusters(archive: Archive, silos: int | None, settings: Settings, seed: int) -> Classes:
    """Gives each item a k-means cluster in place of a label (see `silohash.data.partition.clusters`)."""
    from silohash.data.partition.clusters import pseudo_classes

    count = whole(settings, "clusters", 2)
    over = choice(settings, "over", ("auto", "image", "text"))
    return Classes(pseudo_classes(archive, count, over, seed), count + 1)


def values_of_column(archive: Archive, silos: int | None, settings: Settings, seed: int) -> Classes:
    """Gives each item the silo that its value of a column belongs to.

    Without ``groups`` the biggest ``silos`` values get a silo each, named as the value; the values that are left over
    go, biggest first, each to the silo that holds the fewest items so far. With ``groups`` (silo name -> values;
    ``"*"`` stands for all that no other silo names) every value must have a place, or the partition is refused.

    Raises:
        UserError: if there is no such column, too few values, or a value without a place.
    """
    column = settings["column"]
    if column is None:
        raise UserError(f"[partition] column is not given; this archive has: {_listed(archive.columns)}.")
    if column not in archive.columns:
        near = suggestion(str(column), archive.columns)
        raise UserError(
            f'Archive "{archive.card.name}" has no column "{column}"{near}; it has: {_listed(archive.columns)}.'
        )
    values, inverse, sizes = np.unique(archive.columns[column], return_inverse=True, return_counts=True)
    names = [str(value) for value in values]
    if settings["groups"] is not None:
        silo_names, silo_of = _by_groups(names, settings["groups"], silos, str(column))
    else:
        silo_names, silo_of = _by_size(names, sizes, silos, str(column))
    return Classes(silo_of[inverse.reshape(-1)], len(silo_names), tuple(folder_names(silo_names)))


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(names) or "no column at all"


def _by_size(
    values: list[str], sizes: npt.NDArray[np.int64], silos: int | None, column: str
) -> tuple[list[str], npt.NDArray[np.int64]]:
    asked = len(values) if silos is None else silos
    if asked > len(values):
        raise UserError(
            f'[partition] {asked} silos are asked for, and column "{column}" has {len(values)} values. '
            f"Set silos = {len(values)} or fewer, or use another column."
        )
    order = np.argsort(-sizes, kind="stable")
    silo_of = np.zeros(len(values), np.int64)
    silo_of[order[:asked]] = np.arange(asked)
    load = sizes[order[:asked]].copy()
    for value in order[asked:]:
        silo_of[value] = load.argmin()
        load[silo_of[value]] += sizes[value]
    return [values[value] for value in order[:asked]], silo_of


def _by_groups(
    values: list[str], groups: object, silos: int | None, column: str
) -> tuple[list[str], npt.NDArray[np.int64]]:
    if not isinstance(groups, Mapping) or not groups or any(isinstance(named, str) for named in groups.values()):
        raise UserError(
            '[partition] groups must name silos and lists of values, as groups = {north = ["no", "se"], rest = ["*"]}.'
        )
    if silos is not None and silos != len(groups):
        raise UserError(f"[partition] silos is {silos} and groups names {len(groups)}. Set silos = {len(groups)}.")
    place: dict[str, int] = {}
    for silo, named in enumerate(groups.values()):
        for value in named:
            if value != REST and value not in values:
                near = suggestion(str(value), values)
                raise UserError(f'[partition] groups names "{value}"{near}, and column "{column}" has no such value.')
            if value in place:
                raise UserError(f'[partition] groups names "{value}" more than once. Give each value one silo.')
            place[value] = silo
    without = [value for value in values if value not in place]
    if without and REST not in place:
        raise UserError(
            f'[partition] groups leaves out {len(without)} values of column "{column}", "{without[0]}" among them. '
            f'Name them, or give one silo the value "{REST}" (all others).'
        )
    return [str(name) for name in groups], np.array(
        [place.get(value, place.get(REST, 0)) for value in values], np.int64
    )


def folder_names(names: list[str]) -> list[str]:
    """Returns names that can be folders' names, each once, in the same order.

    Example:
        >>> folder_names(["Latin", "a/b", "a:b", ""])
        ['Latin', 'a-b', 'a-b-2', 'none']
    """
    found: list[str] = []
    taken: set[str] = set()
    for name in names:
        stem = re.sub(r"[^\w .-]+", "-", name).strip(" .-")[:60] or "none"
        candidate, number = stem, 1
        while candidate.casefold() in taken:
            number += 1
            candidate = f"{stem}-{number}"
        taken.add(candidate.casefold())
        found.append(candidate)
    return found


def even_shares(
    sizes: npt.NDArray[np.int64],
    silos: int,
    settings: Settings,
    generator: np.random.Generator,
) -> Shares:
    """Returns the same share of every class for every silo."""
    return np.full((len(sizes), silos), 1.0 / silos)


def own_shares(
    sizes: npt.NDArray[np.int64],
    silos: int,
    settings: Settings,
    generator: np.random.Generator,
) -> Shares:
    """Returns class k to silo k, but for the share ``mixed`` of it, which all silos get alike.

    Raises:
        UserError: unless ``mixed`` lies within 0 and 1.
    """
    mixed = settings["mixed"]
    if isinstance(mixed, bool) or not isinstance(mixed, int | float) or not 0 <= mixed <= 1:
        raise UserError(f"[partition] mixed is {mixed!r}; it must be a share from 0 (each its own) to 1 (all alike).")
    return (1 - mixed) * np.eye(len(sizes), silos) + mixed / silos


def dirichlet_shares(
    sizes: npt.NDArray[np.int64], silos: int, settings: Settings, generator: np.random.Generator
) -> Shares:
    """Draws each class's shares from a symmetric Dirichlet distribution; a small ``beta`` favours few silos."""
    return generator.dirichlet(np.full(silos, positive(settings, "beta")), size=len(sizes))


def shard_shares(
    sizes: npt.NDArray[np.int64], silos: int, settings: Settings, generator: np.random.Generator
) -> Shares:
    """Gives every silo ``classes`` of the classes, and each class evenly to the silos that were given it.

    Silos pick in turn, each the classes picked least so far (ties at random), so that no class stays without a silo.
    With ``leftover = "merge"`` classes that outnumber the places are first merged, the two smallest again and again.
    Items without a label form a class like the others.

    Raises:
        UserError: if there are fewer classes than a silo shall have, or more than there are places for.
    """
    wanted = whole(settings, "classes", 1)
    groups = [[int(c)] for c in np.flatnonzero(sizes)]
    if wanted > len(groups):
        raise UserError(
            f"[partition] classes is {wanted}, and the items fall into {len(groups)} classes. "
            f"Set classes = {len(groups)} or fewer."
        )
    places = silos * wanted
    if places < len(groups):
        if choice(settings, "leftover", ("error", "merge")) == "error":
            raise UserError(
                f"[partition] {silos} silos of {wanted} classes hold {places} classes, and the items fall into "
                f"{len(groups)}, so some would be lost. Set classes = {math.ceil(len(groups) / silos)}, "
                f'silos = {math.ceil(len(groups) / wanted)}, or leftover = "merge".'
            )
        groups = _merged(groups, sizes, places)
    held = np.zeros((len(groups), silos))
    for silo in range(silos):
        order = np.lexsort((generator.random(len(groups)), held.sum(axis=1)))
        held[order[:wanted], silo] = 1.0
    held /= held.sum(axis=1, keepdims=True)
    shares = np.full((len(sizes), silos), 1.0 / silos)
    for group, row in zip(groups, held, strict=True):
        shares[group] = row
    return shares


def _merged(groups: list[list[int]], sizes: npt.NDArray[np.int64], most: int) -> list[list[int]]:
    import heapq

    heap = [(int(sizes[group].sum()), group) for group in groups]
    heapq.heapify(heap)
    while len(heap) > most:
        size, group = heapq.heappop(heap)
        other_size, other = heapq.heappop(heap)
        heapq.heappush(heap, (size + other_size, sorted(group + other)))
    return sorted(group for _, group in heap)


def pseudo_shares(
    sizes: npt.NDArray[np.int64], silos: int, settings: Settings, generator: np.random.Generator
) -> Shares:
    """Shares clusters out as labels are: by Dirichlet or by shards."""
    spread = choice(settings, "spread", ("dirichlet", "shards"))
    rule = dirichlet_shares if spread == "dirichlet" else shard_shares
    return rule(sizes, silos, settings, generator)


KINDS: Mapping[str, Kind] = {
    "iid": Kind("evenly and at random", one_class, even_shares),
    "dirichlet": Kind(
        "each label by proportions from Dirichlet(beta)",
        primary_labels,
        dirichlet_shares,
        {"beta": 0.5, "primary": "uniform"},
    ),
    "shards": Kind(
        "a few labels a silo",
        primary_labels,
        shard_shares,
        {"classes": 3, "primary": "uniform", "leftover": "error"},
    ),
    "quantity": Kind("unequal sizes from Dirichlet(beta)", one_class, dirichlet_shares, {"beta": 0.5}),
    "column": Kind(
        "by the values of a column",
        values_of_column,
        own_shares,
        {"column": None, "groups": None, "mixed": 0.0},
        drawn=False,
    ),
    "pseudo": Kind(
        "as dirichlet or shards, with k-means clusters in place of labels",
        clusters,
        pseudo_shares,
        {"clusters": 10, "over": "auto", "spread": "dirichlet", "beta": 0.1, "classes": 3, "leftover": "error"},
    ),
}
"""Every kind whose silos are disjoint; ``nested`` stands in `silohash.data.partition.base`."""
