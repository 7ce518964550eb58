"""Partitions: an archive's items, spread over silos.

A partition covers query, database and training items alike. Each class is cut by the same proportions within each split,
so that what a silo trains on, stores and queries follows one rule. Each cut is off by less than one item.

Items of the same picture, such as a photograph with five captions, are drawn as one item and go to the same silo. Their
class and their splits are those of the first one. A partition by a column separates them where their values differ.
"""

import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from silohash.base import errors
from silohash.base.files import digest_arrays, digest_json
from silohash.base.forms import of_json, reading
from silohash.base.registry import suggestion
from silohash.base.seeds import numpy_generator
from silohash.base.types import Rows
from silohash.base.visible import visible
from silohash.data.archive import SPLITS, Archive
from silohash.data.partitions import PARTITIONS, kinds

SCHEMA = 1
MOST_ITEMS = 1 << 30
"""Largest number of items of a silo that is read."""

DRAWS = 200
"""Largest number of draws that try to give every silo its ``minimum``."""

DEFAULT_MINIMUM = 32
"""Training items that every silo gets by default; fewer where items are scarce."""

LACKING: Mapping[str, str] = {"missing_image": "pictures", "missing_text": "texts", "unpaired": "pairs"}
"""Setting of a partition, the share of the silos that lack something -> what they lack."""

SHARED_DEFAULTS: kinds.Settings = {"minimum": None, **dict.fromkeys(LACKING, 0.0)}

OPTIONAL: kinds.Settings = {"bootstrap": "", "separate_queries": False, "without": (), "without_items": 0}
"""Settings of every kind that a partition records only if they are given."""


@dataclass(frozen=True, eq=False)
class SiloRows:
    """Items of one silo.

    Attributes:
        name: The silo's name, which can be the name of a folder.
        rows: ``(n,)`` int64, sorted rows of the archive, of every split.
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
        kind: A name in `PARTITIONS`.
        params: Every setting, including defaults.
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
            raise errors.DataChanged(
                f'The partition ({self.kind}, seed {self.seed}) was not made for the items of "{archive.card.name}". '
                "Give the archive that the run was trained on, or make the partition again."
            )

    def label_table(self, archive: Archive) -> npt.NDArray[np.int64]:
        """Count items by silo and label, ``(S, C)`` int64; C is 0 without labels. An item counts for each of its labels."""
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
            common = [label for label in np.argsort(-counts, kind="stable")[:3] if counts[label]]
            labels = ", ".join(f"{archive.label_names[label]} {counts[label]:,}" for label in common)
            lines.append([silo.name, *(f"{size:,}" for size in sizes), " ".join(silo.lacks) or "-", labels or "-"])
        overlap = "" if self.disjoint else ", silos overlap"
        title = f"partition {self.kind}, seed {self.seed}{overlap}, digest {self.digest()[:12]}"
        return "\n".join([title, *aligned([head, *lines], right=range(1, 2 + len(splits)))])

    def to_json(self) -> dict[str, Any]:
        """Return the partition as a JSON value, with rows as runs: ``"0-5 9 12-40"``."""
        silos = [{**vars(silo), "items": len(silo.rows), "rows": as_runs(silo.rows)} for silo in self.silos]
        return {"schema": SCHEMA, **vars(self), "params": dict(self.params), "silos": silos}

    def digest(self) -> str:
        """Return a digest of the whole partition."""
        return digest_json(self.to_json())


@dataclass(frozen=True)
class _StoredSilo:
    name: str
    rows: str
    items: int
    has_image: bool
    has_text: bool
    paired: bool = True


@dataclass(frozen=True)
class _StoredPartition:
    """The form of ``partition.json``, in which rows are runs: ``"0-5 9 12-40"``."""

    schema: int
    kind: str
    params: dict[str, Any]
    seed: int
    silos: tuple[_StoredSilo, ...]
    disjoint: bool
    archive: str


def _restored(stored: _StoredPartition) -> Partition:
    """Return the partition that is stored in a form, or raise a ValueError if it has another schema or damaged rows."""
    if stored.schema != SCHEMA:
        raise ValueError(f"its schema is {stored.schema}, and this silohash reads schema {SCHEMA}")
    silos = tuple(
        SiloRows(silo.name, from_runs(silo.rows, silo.items), silo.has_image, silo.has_text, silo.paired)
        for silo in stored.silos
    )
    return Partition(stored.kind, stored.params, stored.seed, silos, stored.disjoint, stored.archive)


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


def read_partition(path: Path) -> Partition:
    """Read ``partition.json``.

    Raises:
        UserError: If the file is missing or damaged.
    """
    with reading(path, remedy="Restore the file, or train the run again."):
        return _restored(of_json(path.read_bytes(), _StoredPartition))


def objections_to_settings(kind: str, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a kind and the names of its settings, as the key in ``[partition]`` and a message."""
    try:
        known = {**PARTITIONS.resolve(kind).defaults, **SHARED_DEFAULTS, **OPTIONAL}
    except errors.UserError as error:
        yield "kind", str(error)
        return
    for name in names:
        if name not in known:
            near = suggestion(name, known)
            yield name, f'[partition] kind "{kind}" does not take "{name}"{near}; it takes: {", ".join(known)}.'


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
            affected by one of the three at most. With ``bootstrap = "train"`` or ``"database"``, a silo trains on a random
            sample of its items of that split, drawn with replacement and as large as the split, so on 63 % of them, some
            several times. With ``separate_queries``, the proportions of the queries are drawn independently. Silos named
            in ``without`` are left out with their items after the division, and ``without_items`` notes how many items
            the archive itself has lost; `silohash retrain` sets both.

    Returns:
        A partition in which every item is in exactly one silo (``nested``: in at least one).

    Raises:
        UserError: If a setting is unknown or out of range, the archive lacks what the kind needs, there are more silos
            than items, or no draw gave every silo its minimum.
    """
    for _, message in objections_to_settings(kind, params):
        raise errors.WrongChoice(message)
    rule: kinds.Kind | kinds.OverlappingKind = PARTITIONS.resolve(kind)
    given = {name: value.item() if isinstance(value, np.generic) else value for name, value in params.items()}
    settings: kinds.Settings = {**rule.defaults, **SHARED_DEFAULTS, **given}
    kinds.training_split(settings)
    _check_separate_queries(kind, rule, settings)
    names: tuple[str, ...] = ()
    if isinstance(rule, kinds.OverlappingKind):
        parts, settings = rule.rows(archive, silos, settings, seed)
    else:
        parts, names = _disjoint(archive, kind, rule, silos, settings, seed)
    names = names or tuple(f"silo-{number}" for number in range(1, len(parts) + 1))
    held = tuple(SiloRows(name, rows) for name, rows in zip(names, parts, strict=True))
    digest = digest_arrays({"ids": archive.ids})
    return _without_silos(
        _without_modalities(Partition(kind, settings, seed, held, isinstance(rule, kinds.Kind), digest), archive)
    )


def _without_silos(partition: Partition) -> Partition:
    out, lost = partition.params.get("without", ()), partition.params.get("without_items", 0)
    if not isinstance(out, list | tuple) or not isinstance(lost, int):
        raise errors.WrongType(
            "[partition] without must be a list of names of silos, and without_items a number of items."
        )
    names = [silo.name for silo in partition.silos]
    # A silo of a column does not exist any more if the archive has lost its items.
    unknown = [name for name in map(str, out) if name not in names and partition.kind != "column"]
    if unknown or all(name in out for name in names):
        raise errors.UnknownName(
            f"[partition] without is {out!r}. Give a list of some of the silos {', '.join(names)}."
        )
    return replace(partition, silos=tuple(silo for silo in partition.silos if silo.name not in out))


def _check_separate_queries(name: str, kind: kinds.Kind | kinds.OverlappingKind, settings: kinds.Settings) -> None:
    """Check that queries have proportions of their own only with a kind that draws proportions."""
    separate = settings.get("separate_queries", False)
    if not isinstance(separate, bool):
        raise errors.WrongType(f"[partition] separate_queries is {separate!r}; it must be true or false.")
    if separate and (isinstance(kind, kinds.OverlappingKind) or not kind.drawn or kind.shares is kinds.even_shares):
        raise errors.NoEffect(
            f'[partition] separate_queries has no effect: kind "{name}" does not draw proportions. Remove separate_queries.'
        )


def _disjoint(
    archive: Archive, name: str, kind: kinds.Kind, requested: int | None, settings: kinds.Settings, seed: int
) -> tuple[list[Rows], tuple[str, ...]]:
    """Return the rows of each silo, and their names where the kind gives them."""
    counted, strata = kinds.counted_rows(archive, kinds.training_split(settings)), kinds.strata_of(archive)
    items = int(counted.sum())
    if requested is not None or kind.drawn:
        kinds.check_count(requested, items)
    classes = kind.classes(archive, requested, settings, seed)
    silos = len(classes.silos) or kinds.check_count(requested, items)
    minimum = _minimum(settings, kind, items, silos)
    first, group_of = kinds.picture_groups(archive, None if kind.drawn else classes)
    of_group = replace(classes, of_row=classes.of_row[first])
    most = -1
    for draw in range(DRAWS if kind.drawn else 1):
        generator = numpy_generator(seed, f"partition {name}", round=draw)
        shares = kind.shares(of_group.sizes(), silos, settings, generator)
        of_groups = cut(of_group, strata[first], shares, generator)
        if settings.get("separate_queries"):
            generator = numpy_generator(seed, f"partition {name} of queries", round=draw)
            shares = kind.shares(of_group.sizes(), silos, settings, generator)
            of_queries = cut(of_group, strata[first], shares, generator)
            of_groups = np.where(strata[first] == kinds.QUERIES_ALONE, of_queries, of_groups)
        silo_of = of_groups[group_of]
        smallest = int(np.bincount(silo_of[counted], minlength=silos).min())
        if smallest >= minimum:
            return [np.flatnonzero(silo_of == silo) for silo in range(silos)], classes.silos
        most = max(most, smallest)
    remedies = {"beta": "raise beta, ", "groups": "group the values by `groups`, "}
    remedy = next((remedies[setting] for setting in settings if setting in remedies), "")
    raise errors.TooFew(
        f'[partition] kind "{name}": {f"in the best of {DRAWS} draws, " * kind.drawn}one silo has {most} items to train '
        f"on, and minimum is {minimum} ({silos} silos, {items:,} items). To continue, {remedy}use fewer silos, "
        f"or set minimum = {most}."
    )


def _minimum(settings: kinds.Settings, kind: kinds.Kind, items: int, silos: int) -> int:
    if settings["minimum"] is not None:
        return kinds.whole(settings, "minimum", 0)
    return max(1, min(DEFAULT_MINIMUM, items // (4 * silos))) if kind.drawn else 1


def _without_modalities(made: Partition, archive: Archive) -> Partition:
    """Take the pictures from some silos, the texts from others and the pairs from others, chosen at random."""
    chosen = silos_that_lack(made.params, len(made), made.seed)
    silos = list(made.silos)
    for option, lost, left, kept in (
        ("missing_image", {"has_image": False}, archive.has_text, "a text"),
        ("missing_text", {"has_text": False}, archive.has_image, "a picture"),
    ):
        for place in chosen[option]:
            if not left[silos[place].rows].any():
                raise errors.NothingUsable(
                    f'[partition] {option} would leave silo "{silos[place].name}" without anything, because none of its '
                    f"items has {kept}. Set {option} = 0."
                )
            silos[place] = replace(silos[place], **lost)
    for place in chosen["unpaired"]:
        silos[place] = replace(silos[place], paired=False)
    if len(chosen["unpaired"]) and not (archive.has_image & archive.has_text).any():
        raise errors.PairsNeeded(
            f"[partition] unpaired is {made.params['unpaired']}, but no item has both a picture and a text. "
            "Set unpaired = 0."
        )
    return replace(made, silos=tuple(silos))


def silos_that_lack(settings: kinds.Settings, silos: int, seed: int) -> dict[str, Rows]:
    """Return the positions of the silos that each setting of `LACKING` affects, at random and none by two of them.

    A share is rounded half up, to at least one silo if it is above 0.

    Raises:
        UserError: If a setting is not a share, or they affect more silos than there are.
    """
    shares = {name: kinds.share(settings, name) for name in LACKING}
    counts = {name: max(1, math.floor(part * silos + 0.5)) if part > 0 else 0 for name, part in shares.items()}
    if sum(counts.values()) > silos:
        taken = ", ".join(f"{name} takes the {LACKING[name]} of {count}" for name, count in counts.items() if count)
        raise errors.ConflictingOptions(
            f"[partition] {taken} silos, and each of the {silos} silos can lack one of these only. Lower one of them."
        )
    order = numpy_generator(seed, "partition missing modality").permutation(silos)
    ends = np.cumsum(list(counts.values()))
    return dict(zip(counts, np.split(order[: ends[-1]], ends[:-1]), strict=True))


def aligned(lines: Sequence[Sequence[str]], *, right: Container[int]) -> list[str]:
    """Return the lines of a table with aligned columns, those in the places ``right`` to the right."""
    shown = [[visible(cell) for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    formats = [f"{{:{'>' if place in right else '<'}{width}}}" for place, width in enumerate(widths)]
    return ["  ".join(formats).format(*line).rstrip() for line in shown]


def cut(
    classes: kinds.Classes, strata: npt.NDArray[np.int64], shares: kinds.Shares, generator: np.random.Generator
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
        # One offset for all rows, so that each silo gets its share, off by less than one item.
        at = (np.arange(len(rows)) + generator.random()) / len(rows)
        places = np.searchsorted(np.cumsum(row) / row.sum(), at, side="right")
        # Rounding can leave the last sum of shares below 1, beyond which there is no silo.
        silo_of[rows] = np.minimum(places, np.flatnonzero(row)[-1])
    return silo_of
