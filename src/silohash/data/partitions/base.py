"""Partitions: an archive's items, spread over silos.

A partition covers query, database and training items alike. Each class is cut by the same proportions within each split,
so that what a silo trains on, stores and queries follows one rule. Each cut is off by less than one item.

Items of the same picture, such as a photograph with five captions, are drawn as one item and go to the same silo. Their
class and their splits are those of the first one. A partition by a column separates them where their values differ.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from silohash.base.files import digest_arrays, digest_json
from silohash.base.forms import fault, of_json, of_value, reading
from silohash.base.registry import suggestion
from silohash.base.seeds import numpy_generator
from silohash.base.types import Rows, UserError
from silohash.base.visible import visible
from silohash.data.archive import SPLITS, Archive
from silohash.data.pairs import groups_of, picture_numbers
from silohash.data.partitions.kinds import KINDS, Classes, Kind, Shares, is_number, whole
from silohash.data.partitions.lacking import LACKING, silos_that_lack
from silohash.data.partitions.stored import StoredPartition, as_runs, from_runs

SCHEMA = 1
MAKE_AGAIN = "Make it again with `silohash partition`."
DRAWS = 200
"""Largest number of draws that try to give every silo its ``minimum``."""

DEFAULT_MINIMUM = 32
"""Training items that every silo gets by default; fewer where items are scarce."""

NESTED = "nested"
NESTED_DEFAULTS: Mapping[str, Any] = {"fractions": None}
SHARED_DEFAULTS: Mapping[str, Any] = {"minimum": None, **dict.fromkeys(LACKING, 0.0)}

NESTED_SMALLEST = 0.6
"""Share of the items in the smallest nested silo by default (FedBi-GNNs: 100, 80 and 60 %)."""


@dataclass(frozen=True, eq=False)
class SiloRows:
    """Items of one silo.

    Attributes:
        name: The silo's name, which can be the name of a folder.
        rows: ``(n,)`` int64, sorted rows of the archive, of every split.
        has_image: False if the silo has no pictures.
        has_text: False if the silo has no texts.
        paired: False if the silo trains without knowing which picture and which text belong to the same item.
    """

    name: str
    rows: Rows
    has_image: bool = True
    has_text: bool = True
    paired: bool = True

    @property
    def lacks(self) -> tuple[str, ...]:
        """What the silo lacks in training, of ``pictures``, ``texts`` and ``pairs``."""
        held = {"pictures": self.has_image, "texts": self.has_text, "pairs": self.paired}
        return tuple(name for name, there in held.items() if not there)

    def split(self, archive: Archive, name: str) -> Rows:
        """Return the silo's rows of one split, sorted."""
        return np.intersect1d(self.rows, archive.split(name), assume_unique=True)


@dataclass(frozen=True, eq=False)
class Partition:
    """An archive's items, spread over silos.

    Attributes:
        kind: One of `kinds`.
        params: Every setting, including defaults.
        seed: Seed of all random choices.
        silos: The items of each silo.
        disjoint: False if silos overlap (``nested``).
        archive: Digest of the ids of the archive that the partition was made for.
    """

    kind: str
    params: Mapping[str, Any]
    seed: int
    silos: tuple[SiloRows, ...]
    disjoint: bool = True
    archive: str = ""

    def __len__(self) -> int:
        """Return the number of silos."""
        return len(self.silos)

    def __repr__(self) -> str:
        """Return the kind, the seed, and the numbers of silos and of their items, in one line."""
        items = [len(silo.rows) for silo in self.silos]
        return (
            f"Partition({self.kind}, seed {self.seed}: {len(self):,} silos with {min(items, default=0):,} to "
            f"{max(items, default=0):,} items)"
        )

    def check(self, archive: Archive) -> None:
        """Check that the partition was made for this archive.

        Raises:
            UserError: If the archive has other ids.
        """
        if self.archive != digest_arrays({"ids": archive.ids}):
            raise UserError(
                f'The partition ({self.kind}, seed {self.seed}) was not made for the items of "{archive.card.name}". '
                "Give the archive that the run was trained on, or make the partition again."
            )

    def label_table(self, archive: Archive) -> npt.NDArray[np.int64]:
        """Count items by silo and label. An item counts once for each of its labels.

        Returns:
            ``(S, C)`` int64; C is 0 if the archive has no labels.
        """
        if archive.labels is None:
            return np.zeros((len(self.silos), 0), np.int64)
        return np.stack([(archive.labels[silo.rows] > 0).sum(axis=0, dtype=np.int64) for silo in self.silos])

    def describe(self, archive: Archive) -> str:
        """Return a plain table of the silos: sizes by split, what each lacks, and most common labels."""
        splits = [name for name in SPLITS if name in archive.splits]
        head = ["silo", "items", *splits, "lacks", "most common labels"]
        lines = []
        for silo, counts in zip(self.silos, self.label_table(archive), strict=True):
            sizes = [len(silo.rows), *(len(silo.split(archive, name)) for name in splits)]
            labels = _common_labels(archive, counts)
            lines.append([silo.name, *(f"{size:,}" for size in sizes), " ".join(silo.lacks) or "-", labels or "-"])
        overlap = "" if self.disjoint else ", silos overlap"
        title = f"partition {self.kind}, seed {self.seed}{overlap}, digest {self.digest()[:12]}"
        return "\n".join([title, *aligned([head, *lines], right=range(1, 2 + len(splits)))])

    def to_json(self) -> dict[str, Any]:
        """Return the partition as a JSON value, with rows as runs: ``"0-5 9 12-40"``."""
        silos = [{**vars(silo), "items": len(silo.rows), "rows": as_runs(silo.rows)} for silo in self.silos]
        return {"schema": SCHEMA, **vars(self), "params": dict(self.params), "silos": silos}

    @classmethod
    def from_json(cls, value: object) -> Partition:
        """Return the partition of a value that `to_json` gave.

        Raises:
            UserError: If it is not a partition, or has another schema.
        """
        if not isinstance(value, Mapping) or value.get("schema") != SCHEMA:
            raise UserError(f"This is not a partition of schema {SCHEMA}. {MAKE_AGAIN}")
        try:
            return _restored(of_value(value, StoredPartition))
        except ValidationError as error:
            raise UserError(f"The partition is damaged ({fault(error)}). {MAKE_AGAIN}") from error
        except ValueError as error:
            raise UserError(f"The partition is damaged ({error}). {MAKE_AGAIN}") from error

    def digest(self) -> str:
        """Return a digest of the whole partition."""
        return digest_json(self.to_json())


def _restored(stored: StoredPartition) -> Partition:
    """Return the partition that is stored in a form.

    Raises:
        ValueError: If it has another schema, or the rows of a silo are not sorted or not as many as its items.
    """
    if stored.schema != SCHEMA:
        raise ValueError(f"its schema is {stored.schema}, and this silohash reads schema {SCHEMA}")
    silos = tuple(
        SiloRows(silo.name, from_runs(silo.rows, silo.items), silo.has_image, silo.has_text, silo.paired)
        for silo in stored.silos
    )
    return Partition(stored.kind, stored.params, stored.seed, silos, stored.disjoint, stored.archive)


def read_partition(path: Path) -> Partition:
    """Read ``partition.json``.

    Raises:
        UserError: If the file is missing or damaged.
    """
    with reading(path, remedy="Restore the file, or train the run again."):
        return _restored(of_json(path.read_bytes(), StoredPartition))


def kinds() -> dict[str, str]:
    """Return every kind of partition with a summary of one line."""
    return {
        **{name: kind.summary for name, kind in KINDS.items()},
        NESTED: "growing subsets, each of which contains the smaller ones",
    }


def objections_to_settings(kind: str, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a kind and the names of its settings, as the key in ``[partition]`` and a message."""
    if kind not in kinds():
        yield "kind", f'There is no partition "{kind}"{suggestion(kind, kinds())}. Available: {", ".join(kinds())}.'
        return
    known = _defaults(kind)
    for name in names:
        if name not in known:
            near = suggestion(name, known)
            yield name, f'[partition] kind "{kind}" does not take "{name}"{near}; it takes: {", ".join(known)}.'


def _defaults(kind: str) -> dict[str, Any]:
    return {**(NESTED_DEFAULTS if kind == NESTED else KINDS[kind].defaults), **SHARED_DEFAULTS}


def partition(archive: Archive, kind: str, silos: int | None, seed: int, **params: object) -> Partition:
    """Spread an archive's items over silos.

    Args:
        archive: The items.
        kind: ``iid``; ``dirichlet`` (beta, primary); ``shards`` (classes, primary, leftover); ``quantity`` (beta);
            ``nested`` (fractions); ``column`` (column, groups, mixed); ``pseudo`` (clusters, over, spread, beta, classes,
            leftover).
        silos: Number of silos. None lets ``column`` and ``nested`` take one per value, group or fraction.
        seed: Seed of all random choices; equal seeds give equal partitions.
        **params: Settings of the kind. Every kind also takes ``minimum`` (training items that each silo must get; None:
            32, fewer where items are scarce), and ``missing_image``, ``missing_text`` and ``unpaired``: the share of the
            silos that have no pictures, no texts, or no pairs (they train on the pictures and the texts of their items
            without knowing which belong together). Shares are rounded, to at least one silo if above 0. A silo is
            affected by one of the three at most.

    Returns:
        A partition in which every item is in exactly one silo (``nested``: in at least one).

    Raises:
        UserError: If a setting is unknown or out of range, the archive lacks what the kind needs, there are more silos
            than items, or no draw gave every silo its minimum.
    """
    for _, message in objections_to_settings(kind, params):
        raise UserError(message)
    settings = {**_defaults(kind), **params}
    names: tuple[str, ...] = ()
    if kind == NESTED:
        parts, settings["fractions"] = nested(archive, silos, settings["fractions"], seed)
    else:
        parts, names = _disjoint(archive, kind, silos, settings, seed)
    names = names or tuple(f"silo-{number}" for number in range(1, len(parts) + 1))
    held = tuple(SiloRows(name, rows) for name, rows in zip(names, parts, strict=True))
    digest = digest_arrays({"ids": archive.ids})
    return _without_modalities(Partition(kind, settings, seed, held, kind != NESTED, digest), archive)


def _minimum(settings: Mapping[str, Any], kind: Kind, quarter: int) -> int:
    if settings["minimum"] is not None:
        return whole(settings, "minimum", 0)
    return max(1, min(DEFAULT_MINIMUM, quarter)) if kind.drawn else 1


def _disjoint(
    archive: Archive, name: str, requested: int | None, settings: Mapping[str, Any], seed: int
) -> tuple[list[Rows], tuple[str, ...]]:
    """Return the rows of each silo, and their names where the kind gives them."""
    kind, counted, strata = KINDS[name], counted_rows(archive), strata_of(archive)
    items = int(counted.sum())
    if requested is not None or name != "column":
        check_count(requested, items)
    classes = kind.classes(archive, requested, settings, seed)
    silos = len(classes.silos) or check_count(requested, items)
    minimum = _minimum(settings, kind, items // (4 * silos))
    first, group_of = _groups(archive, None if kind.drawn else classes)
    of_group = replace(classes, of_row=classes.of_row[first])
    most = -1
    for draw in range(DRAWS if kind.drawn else 1):
        generator = numpy_generator(seed, f"partition {name}", round=draw)
        shares = kind.shares(of_group.sizes(), silos, settings, generator)
        silo_of = cut(of_group, strata[first], shares, generator)[group_of]
        smallest = int(np.bincount(silo_of[counted], minlength=silos).min())
        if smallest >= minimum:
            return [np.flatnonzero(silo_of == silo) for silo in range(silos)], classes.silos
        most = max(most, smallest)
    raise UserError(
        f'[partition] kind "{name}": {f"in the best of {DRAWS} draws, " * kind.drawn}one silo has {most} items to train '
        f"on, and minimum is {minimum} ({silos} silos, {items:,} items). To continue, {_remedy(settings)}use fewer silos, "
        f"or set minimum = {most}."
    )


def _remedy(settings: Mapping[str, Any]) -> str:
    """Return what a kind with these settings offers if a silo has too few items, for a message; empty without any."""
    remedies = {"beta": "raise beta, ", "groups": "group the values by `groups`, "}
    return next((remedies[setting] for setting in settings if setting in remedies), "")


def _groups(archive: Archive, apart: Classes | None = None) -> tuple[Rows, Rows]:
    """Return the first row of each group of items that stay together, and the group of each item (see `groups_of`).

    Args:
        archive: The items. Those of the same picture are a group.
        apart: Classes that separate items of the same picture; none by default.
    """
    numbers = picture_numbers(archive)
    return groups_of(numbers if apart is None else numbers * apart.count + apart.of_row)


def _common_labels(archive: Archive, counts: npt.NDArray[np.int64]) -> str:
    common = [label for label in np.argsort(-counts, kind="stable")[:3] if counts[label]]
    return ", ".join(f"{archive.label_names[label]} {counts[label]:,}" for label in common)


def _without_modalities(made: Partition, archive: Archive) -> Partition:
    """Take the pictures from some silos, the texts from others and the pairs from others, chosen at random."""
    chosen = silos_that_lack(made.params, len(made), made.seed)
    silos = list(made.silos)
    for place in chosen["missing_image"]:
        _require(archive.has("text")[silos[place].rows], "missing_image", silos[place], "a text")
        silos[place] = replace(silos[place], has_image=False)
    for place in chosen["missing_text"]:
        _require(archive.has("image")[silos[place].rows], "missing_text", silos[place], "a picture")
        silos[place] = replace(silos[place], has_text=False)
    for place in chosen["unpaired"]:
        silos[place] = replace(silos[place], paired=False)
    if len(chosen["unpaired"]) and not (archive.has_image & archive.has_text).any():
        raise UserError(
            f"[partition] unpaired is {made.params['unpaired']}, but no item has both a picture and a text. "
            "Set unpaired = 0."
        )
    return replace(made, silos=tuple(silos))


def _require(left: npt.NDArray[np.bool_], option: str, silo: SiloRows, kept: str) -> None:
    """Check that a silo keeps something.

    Raises:
        UserError: If it does not.
    """
    if not left.any():
        raise UserError(
            f'[partition] {option} would leave silo "{silo.name}" without anything, because none of its items has {kept}. '
            f"Set {option} = 0."
        )


def aligned(lines: Sequence[Sequence[str]], *, right: Container[int]) -> list[str]:
    """Return the lines of a table with aligned columns.

    Args:
        lines: Cells of each line, the head first.
        right: Positions of the columns that are aligned to the right, as those of numbers.
    """
    shown = [[visible(cell) for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    formats = [f"{{:{'>' if place in right else '<'}{width}}}" for place, width in enumerate(widths)]
    return ["  ".join(formats).format(*line).rstrip() for line in shown]


def check_count(silos: int | None, items: int) -> int:
    """Return the number of silos.

    Raises:
        UserError: If it is not a whole number above zero, or exceeds the number of training items.
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
    """Return the silo of each item or group of items, ``(N,)``.

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
    first, group_of = _groups(archive)
    strata = strata_of(archive)[first]
    order = numpy_generator(seed, "partition nested").permutation(len(first))
    parts = [order[strata[order] == stratum] for stratum in np.unique(strata)]
    cuts = [[part[: math.ceil(share * len(part) - 1e-9)] for part in parts] for share in shares]
    return [np.flatnonzero(np.isin(group_of, np.concatenate(groups))) for groups in cuts], shares


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
