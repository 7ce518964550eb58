"""How an archive's items are spread over silos.

A partition covers query, database and train rows alike. Each class is cut by the same proportions within each split by
itself, so that what a silo trains on, stores and asks follows one rule; each cut is off by less than one item.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from silohash.data.archive import SPLITS, Archive
from silohash.data.partition.cuts import check_count, counted_rows, cut, nested, strata_of
from silohash.data.partition.kinds import KINDS, Kind
from silohash.files import digest_arrays, digest_json
from silohash.registry import suggestion
from silohash.seeds import numpy_generator
from silohash.types import Modality, Rows, UserError

SCHEMA = 1
DRAWS = 200
"""How often sizes are drawn anew before a partition gives up on ``minimum``."""

DEFAULT_MINIMUM = 32
"""Items to train on that every silo gets by default, where there are plenty."""

NESTED = "nested"
NESTED_DEFAULTS: Mapping[str, Any] = {"fractions": None}
SHARED_DEFAULTS: Mapping[str, Any] = {"minimum": None, "missing_image": 0.0, "missing_text": 0.0}


@dataclass(frozen=True, eq=False)
class SiloRows:
    """What one silo holds.

    Attributes:
        name: the silo's name, fit for a folder.
        rows: ``(n,)`` int64, all rows of the archive that the silo holds, of every split; sorted.
        has_image: False where the silo was given no pictures.
        has_text: False where the silo was given no texts.
    """

    name: str
    rows: Rows
    has_image: bool = True
    has_text: bool = True

    def split(self, archive: Archive, name: str) -> Rows:
        """Returns the silo's rows of one split, sorted."""
        return np.intersect1d(self.rows, archive.split(name), assume_unique=True)


@dataclass(frozen=True, eq=False)
class Partition:
    """An archive's items, spread over silos.

    Attributes:
        kind: a name of `kinds`.
        params: every parameter, also those left at their default.
        seed: what it was drawn with.
        silos: what each silo holds.
        disjoint: False where silos overlap (``nested``).
        archive: digest of the archive's ids, by which a partition knows the archive it belongs to.
    """

    kind: str
    params: Mapping[str, Any]
    seed: int
    silos: tuple[SiloRows, ...]
    disjoint: bool = True
    archive: str = field(default="")

    def __len__(self) -> int:
        """Returns how many silos there are."""
        return len(self.silos)

    def check(self, archive: Archive) -> None:
        """Checks that the partition was made for this archive.

        Raises:
            UserError: if the archive's ids are others.
        """
        if self.archive != digest_arrays({"ids": archive.ids}):
            raise UserError(
                f'The partition ({self.kind}, seed {self.seed}) was not made for the items of "{archive.card.name}". '
                "Give the archive that the run was trained on, or make the partition again."
            )

    def label_table(self, archive: Archive) -> npt.NDArray[np.int64]:
        """Counts items by silo and label; an item counts for each of its labels.

        Returns:
            ``(S, C)`` int64; C = 0 where the archive has no labels.
        """
        if archive.labels is None:
            return np.zeros((len(self.silos), 0), np.int64)
        return np.stack([(archive.labels[silo.rows] > 0).sum(axis=0, dtype=np.int64) for silo in self.silos])

    def describe(self, archive: Archive) -> str:
        """Returns a plain table of the silos: their sizes by split, what they lack, and their commonest labels."""
        splits = [name for name in SPLITS if name in archive.splits]
        head = ["silo", "items", *splits, "lacks", "commonest labels"]
        table = self.label_table(archive)
        lines = [[silo.name, f"{len(silo.rows):,}"] for silo in self.silos]
        for line, silo, counts in zip(lines, self.silos, table, strict=True):
            line += [f"{len(silo.split(archive, name)):,}" for name in splits]
            line.append(" ".join(_lacks(silo)) or "-")
            common = [c for c in np.argsort(-counts, kind="stable")[:3] if counts[c]]
            line.append(", ".join(f"{archive.label_names[c]} {counts[c]:,}" for c in common) or "-")
        widths = [max(len(line[place]) for line in [head, *lines]) for place in range(len(head))]
        numbers = range(1, 2 + len(splits))
        body = [
            "  ".join(
                cell.rjust(width) if place in numbers else cell.ljust(width)
                for place, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in [head, *lines]
        ]
        overlap = "" if self.disjoint else ", silos overlap"
        return "\n".join([f"partition {self.kind}, seed {self.seed}{overlap}, digest {self.digest()[:12]}", *body])

    def to_json(self) -> dict[str, Any]:
        """Returns the whole partition as a JSON value; rows as runs, ``"0-5 9 12-40"``."""
        return {
            "schema": SCHEMA,
            "kind": self.kind,
            "params": dict(self.params),
            "seed": self.seed,
            "disjoint": self.disjoint,
            "archive": self.archive,
            "silos": [
                {
                    "name": silo.name,
                    "has_image": silo.has_image,
                    "has_text": silo.has_text,
                    "items": len(silo.rows),
                    "rows": _as_runs(silo.rows),
                }
                for silo in self.silos
            ],
        }

    @classmethod
    def from_json(cls, value: object) -> Partition:
        """Reads what `to_json` gave.

        Raises:
            UserError: if it is no partition, or one of another schema.
        """
        if not isinstance(value, Mapping) or value.get("schema") != SCHEMA:
            raise UserError(f"This is no partition of schema {SCHEMA}. Make it again with `silohash partition`.")
        try:
            silos = tuple(
                SiloRows(str(silo["name"]), _from_runs(silo["rows"]), bool(silo["has_image"]), bool(silo["has_text"]))
                for silo in value["silos"]
            )
            if any(len(silo.rows) != said["items"] for silo, said in zip(silos, value["silos"], strict=True)):
                raise ValueError("a silo's rows are not as many as it says")
            return cls(
                str(value["kind"]),
                dict(value["params"]),
                int(value["seed"]),
                silos,
                bool(value["disjoint"]),
                str(value["archive"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"The partition is damaged ({error}). Make it again with `silohash partition`.") from error

    def digest(self) -> str:
        """Returns a digest of all that the partition says."""
        return digest_json(self.to_json())


def kinds() -> dict[str, str]:
    """Returns every kind of partition and what it does in one line."""
    return {**{name: kind.summary for name, kind in KINDS.items()}, NESTED: "growing subsets that contain each other"}


def partition(archive: Archive, kind: str, silos: int | None, seed: int, **params: object) -> Partition:
    """Spreads an archive's items over silos.

    Args:
        archive: the items.
        kind: ``iid``; ``dirichlet`` (beta, primary); ``shards`` (classes, primary, leftover); ``quantity`` (beta);
            ``nested`` (fractions); ``column`` (column, groups); ``pseudo`` (clusters, over, spread, beta, classes,
            leftover).
        silos: how many silos; None lets ``column`` and ``nested`` take one a value, group or fraction.
        seed: equal seeds give equal partitions.
        **params: the kind's own parameters, and for every kind ``minimum`` (items to train on that each silo must get;
            None: 32, less where items are scarce) and ``missing_image`` and ``missing_text`` (the shares of silos that
            are given no pictures or no texts; rounded, at least one silo where above zero, never both for one silo).

    Returns:
        A partition in which every row stands exactly once (``nested``: at least once).

    Raises:
        UserError: if a parameter is unknown or out of range, the archive lacks what the kind needs, there are more
            silos than items, or no draw gave every silo its minimum.
    """
    if kind not in kinds():
        raise UserError(f'There is no partition "{kind}"{suggestion(kind, kinds())}; there are: {", ".join(kinds())}.')
    settings = _settings(kind, params)
    digest = digest_arrays({"ids": archive.ids})
    if kind == NESTED:
        parts, settings["fractions"] = nested(archive, silos, settings["fractions"], seed)
        names: tuple[str, ...] = ()
    else:
        parts, names = _disjoint(archive, kind, silos, settings, seed)
    names = names or tuple(f"silo-{number}" for number in range(1, len(parts) + 1))
    held = tuple(SiloRows(name, rows) for name, rows in zip(names, parts, strict=True))
    made = Partition(kind, settings, seed, held, disjoint=kind != NESTED, archive=digest)
    return _without_modalities(made, archive)


def _settings(kind: str, params: Mapping[str, object]) -> dict[str, Any]:
    own = NESTED_DEFAULTS if kind == NESTED else KINDS[kind].defaults
    known = {**own, **SHARED_DEFAULTS}
    for name in params:
        if name not in known:
            raise UserError(
                f'[partition] kind "{kind}" takes no "{name}"{suggestion(name, known)}; it takes: {", ".join(known)}.'
            )
    return {**known, **params}


def _minimum(settings: Mapping[str, Any], kind: Kind, items: int, silos: int) -> int:
    asked = settings["minimum"]
    if asked is None:
        return max(1, min(DEFAULT_MINIMUM, items // (4 * silos))) if kind.drawn else 1
    if isinstance(asked, bool) or not isinstance(asked, int) or asked < 0:
        raise UserError(f"[partition] minimum is {asked!r}; it must be a whole number of items, 0 or more.")
    return asked


def _disjoint(
    archive: Archive, name: str, asked: int | None, settings: Mapping[str, Any], seed: int
) -> tuple[list[Rows], tuple[str, ...]]:
    kind, counted, strata = KINDS[name], counted_rows(archive), strata_of(archive)
    items = int(counted.sum())
    if asked is not None or name != "column":
        check_count(asked, items)
    classes = kind.classes(archive, asked, settings, seed)
    silos = len(classes.silos) or check_count(asked, items)
    minimum = _minimum(settings, kind, items, silos)
    most = -1
    for draw in range(DRAWS if kind.drawn else 1):
        generator = numpy_generator(seed, f"partition {name}", round=draw)
        shares = kind.shares(classes.sizes(), silos, settings, generator)
        silo_of = cut(classes, strata, shares, generator)
        smallest = int(np.bincount(silo_of[counted], minlength=silos).min())
        if smallest >= minimum:
            return [np.flatnonzero(silo_of == silo) for silo in range(silos)], classes.silos
        most = max(most, smallest)
    remedy = "raise beta, ask for fewer silos" if "beta" in settings else "ask for fewer silos"
    if not kind.drawn:
        remedy = "group its values by `groups`, ask for fewer silos"
    raise UserError(
        f'[partition] kind "{name}" left a silo with {most} items to train on, and {minimum} are wanted '
        f"({silos} silos, {items:,} items; the best of {DRAWS if kind.drawn else 1} draws). "
        f"To mend it, {remedy}, or lower it to minimum = {most}."
    )


def _lacks(silo: SiloRows) -> Iterator[Modality]:
    if not silo.has_image:
        yield "image"
    if not silo.has_text:
        yield "text"


def _silos_without(made: Partition, name: str) -> int:
    share = made.params[name]
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise UserError(f"[partition] {name} is {share!r}; it must be a share of the silos between 0 and 1.")
    return max(1, math.floor(share * len(made) + 0.5)) if share > 0 else 0


def _without_modalities(made: Partition, archive: Archive) -> Partition:
    """Takes the pictures from some silos and the texts from others, drawn at random."""
    no_image, no_text = _silos_without(made, "missing_image"), _silos_without(made, "missing_text")
    if no_image + no_text > len(made):
        raise UserError(
            f"[partition] missing_image takes the pictures of {no_image} silos, missing_text the texts of {no_text}; "
            f"there are {len(made)} silos, and each must keep one of the two. Lower one of them."
        )
    order = numpy_generator(made.seed, "partition missing modality").permutation(len(made))
    silos = list(made.silos)
    for place in order[:no_image]:
        silos[place] = _keeping(silos[place], archive, "text")
    for place in order[no_image : no_image + no_text]:
        silos[place] = _keeping(silos[place], archive, "image")
    return replace(made, silos=tuple(silos))


def _keeping(silo: SiloRows, archive: Archive, kept: Modality) -> SiloRows:
    if not archive.has(kept)[silo.rows].any():
        option = "missing_image" if kept == "text" else "missing_text"
        raise UserError(
            f'[partition] {option} would leave silo "{silo.name}" without anything: none of its items has a {kept}. '
            f"Set {option} = 0."
        )
    return replace(silo, has_image=kept == "image", has_text=kept == "text")


def _as_runs(rows: Rows) -> str:
    if not len(rows):
        return ""
    breaks = np.flatnonzero(np.diff(rows) != 1)
    firsts, lasts = rows[np.r_[0, breaks + 1]], rows[np.r_[breaks, len(rows) - 1]]
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(firsts.tolist(), lasts.tolist(), strict=True))


def _from_runs(text: str) -> Rows:
    runs = [run.split("-") for run in text.split()]
    parts = [np.arange(int(run[0]), int(run[-1]) + 1, dtype=np.int64) for run in runs]
    rows = np.concatenate([np.zeros(0, np.int64), *parts])
    if (np.diff(rows) <= 0).any():
        raise ValueError("rows are not sorted")
    return rows
