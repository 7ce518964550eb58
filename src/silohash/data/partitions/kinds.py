"""The kinds of partition: the class of each item, and the share of each class that each silo gets.

Every kind but ``nested`` is two functions. ``classes`` gives each item one class: a label, the value of a column, a
cluster, or the same class for all. ``shares`` gives each class one proportion per silo. `silohash.data.partitions.base`
then cuts each class within each split by its proportions, so that a silo's queries follow the same proportions as its
training items.
"""

# ruff: noqa: ARG001  all kinds take the same arguments

import math
import warnings
from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.base import arrays
from silohash.base.errors import ConflictingOptions, DependencyMissing, ModalityNeeded, OutOfRange, TooFew
from silohash.base.seeds import derive, numpy_generator
from silohash.base.types import Modality, Rows
from silohash.data.archive import SPLITS, Archive, Pictures, is_features
from silohash.data.catalogue import check_option
from silohash.data.pairs import groups_of, picture_numbers
from silohash.data.partitions.columns import silos_of_values
from silohash.data.regions import Regions

Settings: TypeAlias = Mapping[str, Any]

Shares: TypeAlias = npt.NDArray[np.float64]
"""``(C, S)`` proportions of each class over the silos; each row sums to 1."""

Sizes: TypeAlias = npt.NDArray[np.int64]
"""``(C,)`` number of items per class."""

BOOTSTRAP = ("", "train", "database")
"""Values of the setting ``bootstrap``: the split from which a silo draws its training items with replacement, if any."""

QUERIES_ALONE = 1 << SPLITS.index("query")
"""What `strata_of` returns for queries that are in no other split."""

FITTED_ROWS = 5_000
"""K-means is fitted on at most this many rows, drawn at random. The others go to the nearest center."""

NESTED_SMALLEST = 0.6
"""Share of the items in the smallest nested silo by default (FedBi-GNNs: 100, 80 and 60 %)."""

BLOCK_ROWS = 4_096
SIDE_PIXELS = 8
HASHED_WORDS = 256


def is_number(value: object) -> bool:
    """Return whether a value is a finite number; True and False are not numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def share(settings: Settings, name: str) -> float:
    """Return a setting that must be a number between 0 and 1.

    Raises:
        UserError: If it is not.
    """
    value = settings[name]
    if not is_number(value) or not 0 <= value <= 1:
        raise OutOfRange(f"[partition] {name} is {value!r}; it must be a number between 0 and 1.")
    return float(value)


def whole(settings: Settings, name: str, least: int) -> int:
    """Return a setting that must be a whole number of at least ``least``."""
    return arrays.whole(f"[partition] {name}", settings[name], least)


def choice(settings: Settings, name: str, known: tuple[str, ...]) -> str:
    """Return a setting that must be one of some words."""
    check_option(f"[partition] {name}", settings[name], known)
    return str(settings[name])


@dataclass(frozen=True)
class Classes:
    """The class of each item.

    Attributes:
        of_row: ``(N,)`` int64, the class of each item.
        count: The number of classes.
        silos: Names of the silos where the kind itself names them, otherwise empty.
    """

    of_row: npt.NDArray[np.int64]
    count: int
    silos: tuple[str, ...] = ()

    def sizes(self) -> Sizes:
        """Return the number of items per class, ``(count,)``."""
        return np.bincount(self.of_row, minlength=self.count)


@dataclass(frozen=True)
class OverlappingKind:
    """A kind of partition in which an item can be in several silos.

    Attributes:
        rows: (archive, requested number of silos or None, settings, seed) -> sorted rows of each silo, and the settings
            with what followed from the archive.
    """

    summary: str
    rows: Callable[[Archive, int | None, Settings, int], tuple[list[Rows], Settings]]
    defaults: Settings = field(default_factory=dict)


@dataclass(frozen=True)
class Kind:
    """A kind of partition.

    Attributes:
        classes: (archive, requested number of silos or None, settings, seed) -> class of each item.
        shares: (items per class, number of silos, settings, generator) -> proportions of each class.
        drawn: Whether another draw can give other sizes.
    """

    summary: str
    classes: Callable[[Archive, int | None, Settings, int], Classes]
    shares: Callable[[Sizes, int, Settings, np.random.Generator], Shares]
    defaults: Settings = field(default_factory=dict)
    drawn: bool = True


def one_class(archive: Archive, silos: int | None, settings: Settings, seed: int) -> Classes:
    """Put every item into the same class."""
    return Classes(np.zeros(len(archive), np.int64), 1)


def primary_labels(archive: Archive, silos: int | None, settings: Settings, seed: int) -> Classes:
    """Give each item one of its labels; items without a label form one more class.

    ``primary = "uniform"`` draws one of the item's labels. ``"rarest"`` takes the label that the fewest items of the
    archive have, which keeps small classes together.

    Raises:
        UserError: If the archive has no labels.
    """
    labels = archive.required_labels(
        'which this kind of partition needs. Use kind = "iid", "quantity", "column" or "pseudo" (clusters in place of '
        "labels)."
    )
    has = labels > 0
    if choice(settings, "primary", ("uniform", "rarest")) == "rarest":
        preference = -np.argsort(np.argsort(has.sum(axis=0), kind="stable")).astype(np.float64)
    else:
        preference = numpy_generator(seed, "partition primary label").random(has.shape)
    count = has.shape[1]
    of_row = np.where(has, preference, -np.inf).argmax(axis=1) if count else np.zeros(len(archive), np.int64)
    return Classes(np.where(has.any(axis=1), of_row, count), count + 1)


def clusters(archive: Archive, silos: int | None, settings: Settings, seed: int) -> Classes:
    """Give each item a k-means cluster over given features, small pictures or hashed words in place of a label.

    So an archive without labels can be spread unevenly. No method sees the clusters. Items that lack the modality, which
    ``over = "auto"`` chooses as the pictures if there are any, are one more class.

    Raises:
        UserError: If the archive lacks the modality, has fewer such items than clusters, or scikit-learn is missing.

    Source: the partition of PT-FUCH's published code (k-means pseudo-classes on image features).
    """
    count = whole(settings, "clusters", 2)
    over = choice(settings, "over", ("auto", "image", "text"))
    try:
        from sklearn.cluster import KMeans
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
    except ImportError as error:
        raise DependencyMissing(
            '[partition] kind = "pseudo" needs scikit-learn. Install it: pip install "silohash[train]".'
        ) from error
    modality = _modality(archive, over)
    rows = np.flatnonzero(archive.has(modality))
    if len(rows) < count:
        raise TooFew(
            f"[partition] clusters is {count}, and {len(rows)} items have {modality} data. "
            f"Set clusters = {max(len(rows), 1)} or fewer."
        )
    fitted = rows
    if len(rows) > FITTED_ROWS:
        fitted = np.sort(numpy_generator(seed, "partition k-means rows").choice(rows, FITTED_ROWS, replace=False))
    # scikit-learn takes seeds of 32 bits.
    model = KMeans(count, n_init=1, max_iter=100, random_state=derive(seed, "partition k-means") % 2**32)
    found = np.full(len(archive), count, np.int64)
    # In one thread, so that the sums of floats are reproducible.
    with threadpool_limits(limits=1), warnings.catch_warnings():
        # Where items are fewer than clusters, some clusters stay empty, of which scikit-learn warns.
        warnings.simplefilter("ignore")
        model.fit(_vectors(archive, modality, fitted))
        for block in np.split(rows, range(BLOCK_ROWS, len(rows), BLOCK_ROWS)):
            found[block] = model.predict(_vectors(archive, modality, block))
    return Classes(found, count + 1)


def _modality(archive: Archive, over: str) -> Modality:
    if over == "auto":
        return "image" if archive.has_image.any() else "text"
    modality: Modality = "image" if over == "image" else "text"
    if not archive.has(modality).any():
        other = "text" if modality == "image" else "image"
        raise ModalityNeeded(f'[partition] over is "{over}", and no item has {modality} data. Set over = "{other}".')
    return modality


def _vectors(archive: Archive, modality: Modality, rows: Rows) -> npt.NDArray[np.float32]:
    column = archive.values(modality)
    if isinstance(column, Pictures):
        pictures = (column.picture(int(row)).convert("RGB") for row in rows)
        small = [np.asarray(picture.resize((SIDE_PIXELS, SIDE_PIXELS)), np.float32) for picture in pictures]
        return np.stack(small).reshape(len(rows), -1) / np.float32(255)
    if isinstance(column, Regions):
        held = column.of(rows)[:, :, :-4]
        return np.asarray(held.sum(axis=1) / np.maximum(held.any(axis=2).sum(axis=1, keepdims=True), 1), np.float32)
    if column is not None and is_features(column):
        given = np.nan_to_num(column[rows].astype(np.float32), posinf=0.0, neginf=0.0)
        length = np.linalg.norm(given, axis=1, keepdims=True)
        return np.asarray(given / np.maximum(length, np.finfo(np.float32).tiny), np.float32)
    from sklearn.feature_extraction.text import HashingVectorizer

    texts = [] if column is None else [str(column[row]) for row in rows]
    vectorizer = HashingVectorizer(n_features=HASHED_WORDS, alternate_sign=False, dtype=np.float32)
    return np.asarray(vectorizer.transform(texts).toarray(), np.float32)


def values_of_column(archive: Archive, silos: int | None, settings: Settings, seed: int) -> Classes:
    """Give each item the silo of its value of a column (see `silohash.data.partitions.columns`)."""
    names, silo_of = silos_of_values(archive, settings["column"], settings["groups"], silos)
    return Classes(silo_of, len(names), tuple(names))


def even_shares(sizes: Sizes, silos: int, settings: Settings, generator: np.random.Generator) -> Shares:
    """Give every silo the same share of every class."""
    return np.full((len(sizes), silos), 1.0 / silos)


def matching_shares(sizes: Sizes, silos: int, settings: Settings, generator: np.random.Generator) -> Shares:
    """Give class k to silo k, except for the share ``mixed`` of it, which all silos get in equal parts."""
    mixed = share(settings, "mixed")
    return (1 - mixed) * np.eye(len(sizes), silos) + mixed / silos


def dirichlet_shares(sizes: Sizes, silos: int, settings: Settings, generator: np.random.Generator) -> Shares:
    """Draw the shares of each class from a symmetric Dirichlet distribution; a small ``beta`` favors few silos.

    Raises:
        UserError: If ``beta`` is not a number above zero.
    """
    beta = settings["beta"]
    if not is_number(beta) or beta <= 0:
        raise OutOfRange(
            f'[partition] beta is {beta!r}; it must be a number above 0, as 0.5. For an even spread use kind = "iid".'
        )
    return generator.dirichlet(np.full(silos, float(beta)), size=len(sizes))


def shard_shares(sizes: Sizes, silos: int, settings: Settings, generator: np.random.Generator) -> Shares:
    """Give every silo ``classes`` of the classes, and each class in equal parts to the silos that hold it.

    Silos choose in turn, each the classes that the fewest silos hold so far (ties at random), so that every class finds a
    silo. With ``leftover = "merge"``, classes that outnumber the places are merged first, the two smallest each time.
    Items without a label form a class like the others.

    Raises:
        UserError: If there are fewer classes than a silo needs, or more than there are places for.
    """
    wanted = whole(settings, "classes", 1)
    groups = np.flatnonzero(sizes)[:, None].tolist()
    if wanted > len(groups):
        raise TooFew(
            f"[partition] classes is {wanted}, and the items have {len(groups)} classes. "
            f"Set classes = {len(groups)} or fewer."
        )
    if silos * wanted < len(groups):
        if choice(settings, "leftover", ("error", "merge")) == "error":
            raise TooFew(
                f"[partition] {silos} silos of {wanted} classes hold {silos * wanted} classes, and the items have "
                f"{len(groups)}, so some would be lost. Set classes = {math.ceil(len(groups) / silos)}, "
                f'silos = {math.ceil(len(groups) / wanted)}, or leftover = "merge".'
            )
        groups = _merged(groups, sizes, silos * wanted)
    held = np.zeros((len(groups), silos))
    for silo in range(silos):
        order = np.lexsort((generator.random(len(groups)), held.sum(axis=1)))
        held[order[:wanted], silo] = 1.0
    shares = even_shares(sizes, silos, settings, generator)
    for group, row in zip(groups, held, strict=True):
        shares[group] = row / row.sum()
    return shares


def _merged(groups: list[list[int]], sizes: Sizes, most: int) -> list[list[int]]:
    heap = sorted((int(sizes[group].sum()), group) for group in groups)
    while len(heap) > most:
        (size, group), (other_size, other), *heap = heap
        insort(heap, (size + other_size, sorted(group + other)))
    return sorted(group for _, group in heap)


def pseudo_shares(sizes: Sizes, silos: int, settings: Settings, generator: np.random.Generator) -> Shares:
    """Share clusters as labels are shared, by ``dirichlet`` or by ``shards``."""
    spread = choice(settings, "spread", ("dirichlet", "shards"))
    rule = dirichlet_shares if spread == "dirichlet" else shard_shares
    return rule(sizes, silos, settings, generator)


def picture_groups(archive: Archive, apart: Classes | None = None) -> tuple[Rows, Rows]:
    """Return the first row of each group of items that stay together, and the group of each item (see `groups_of`).

    Items of the same picture are a group, unless their classes in ``apart`` separate them.
    """
    numbers = picture_numbers(archive)
    return groups_of(numbers if apart is None else numbers * apart.count + apart.of_row)


def check_count(silos: int | None, items: int) -> int:
    """Return the number of silos.

    Raises:
        UserError: If it is not a whole number above zero, or exceeds the number of training items.
    """
    count = whole({"silos": silos}, "silos", 1)
    if count > items:
        raise TooFew(f"[partition] silos is {count}, and there are {items} items to train on. Use fewer silos.")
    return count


def training_split(settings: Settings) -> str:
    """Return the split that silos train on: ``train``, or the one from which ``bootstrap`` draws."""
    return choice({"bootstrap": "", **settings}, "bootstrap", BOOTSTRAP) or "train"


def counted_rows(archive: Archive, split: str = "train") -> npt.NDArray[np.bool_]:
    """Return the items that ``minimum`` counts, ``(N,)`` bool: those of the training split, or all where there are none."""
    train = archive.splits.get(split)
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


def nested_rows(archive: Archive, silos: int | None, settings: Settings, seed: int) -> tuple[list[Rows], Settings]:
    """Give each silo a growing prefix of one random order of each split.

    The last silo holds all items. Without ``fractions`` they grow evenly from 0.6 to 1.
    """
    if settings["fractions"] is not None:
        shares = _checked_fractions(settings["fractions"], silos)
    else:
        count = check_count(silos, int(counted_rows(archive, training_split(settings)).sum()))
        shares = np.linspace(1.0, NESTED_SMALLEST, count).round(6)[::-1].tolist()
    first, group_of = picture_groups(archive)
    strata = strata_of(archive)[first]
    order = numpy_generator(seed, "partition nested").permutation(len(first))
    parts = [order[strata[order] == stratum] for stratum in np.unique(strata)]
    # 0.07 of 100 items is 7.000000000000001 in floats, which must not become 8.
    cuts = [[part[: math.ceil(share * len(part) - 1e-9)] for part in parts] for share in shares]
    rows = [np.flatnonzero(np.isin(group_of, np.concatenate(groups))) for groups in cuts]
    return rows, {**settings, "fractions": shares}


def _checked_fractions(fractions: object, silos: int | None) -> list[float]:
    numbers = list(fractions) if isinstance(fractions, Sequence) and not isinstance(fractions, str) else []
    shares = [float(number) if is_number(number) else 0.0 for number in numbers]
    if not shares or min(shares) <= 0 or sorted(shares) != shares or shares[-1] != 1:
        raise OutOfRange(
            f"[partition] fractions is {fractions!r}; it must be growing shares that end with 1 (so that no item is lost), "
            "as [0.6, 0.8, 1.0]."
        )
    if silos is not None and silos != len(shares):
        raise ConflictingOptions(
            f"[partition] silos is {silos}, and fractions names {len(shares)}. Set silos = {len(shares)}."
        )
    return shares


IID = Kind("evenly and at random", one_class, even_shares)
DIRICHLET = Kind(
    "each label by proportions from Dirichlet(beta)", primary_labels, dirichlet_shares,
    {"beta": 0.5, "primary": "uniform"},
)  # fmt: skip
SHARDS = Kind(
    "a few labels per silo", primary_labels, shard_shares, {"classes": 3, "primary": "uniform", "leftover": "error"}
)
QUANTITY = Kind("unequal sizes from Dirichlet(beta)", one_class, dirichlet_shares, {"beta": 0.5})
COLUMN = Kind(
    "by the values of a column", values_of_column, matching_shares, {"column": None, "groups": None, "mixed": 0.0},
    drawn=False,
)  # fmt: skip
PSEUDO = Kind(
    "as dirichlet or shards, with k-means clusters in place of labels", clusters, pseudo_shares,
    {"clusters": 10, "over": "auto", "spread": "dirichlet", "beta": 0.1, "classes": 3, "leftover": "error"},
)  # fmt: skip
NESTED = OverlappingKind("growing subsets, each of which contains the smaller ones", nested_rows, {"fractions": None})
