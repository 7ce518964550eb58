"""The central data type: an archive of items with a picture, a text, labels and splits."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from silohash.base.analysis import detected_languages
from silohash.base.errors import InvalidArchive, LabelsNeeded, ModalityNeeded, UnknownName
from silohash.base.files import digest_arrays, digest_json
from silohash.base.types import Modality, Rows
from silohash.base.visible import visible
from silohash.data.regions import Regions

if TYPE_CHECKING:
    from PIL import Image

SPLITS = ("query", "database", "train")
TEXT_CELLS = 1 << 29


@runtime_checkable
class Pictures(Protocol):
    """Pictures that are decoded on access."""

    def __len__(self) -> int:
        """Return the number of pictures."""

    def picture(self, row: int) -> Image.Image:
        """Decode one picture (mode ``L`` or ``RGB``)."""

    def digest(self) -> str:
        """Return a digest of the content of all pictures."""


@runtime_checkable
class NamedPictures(Pictures, Protocol):
    """Pictures that may know a name per item, by which items of the same picture are told."""

    names: Sequence[str] | None


Texts: TypeAlias = npt.NDArray[np.str_]
"""One string per item, ``(N,)``. An item without a text has an empty string."""

Features: TypeAlias = npt.NDArray[np.float32]
"""One given feature vector per item, ``(N, D)``. An item without the modality has a row of NaN."""

Column: TypeAlias = Pictures | Texts | Features | Regions


def longest_text(count: int) -> int:
    """Return the number of characters that `as_texts` keeps of each of ``count`` texts."""
    return max(256, TEXT_CELLS // max(1, count))


def as_texts(values: Sequence[str]) -> tuple[Texts, int]:
    """Return a text column, ``(N,)`` strings, and the number of texts that were cut to keep it within memory.

    A numpy string column is as wide as its longest text. Texts are cut to 256 characters, or to more as long as the
    column takes at most 2 GiB.
    """
    longest = longest_text(len(values))
    texts = [value[:longest] for value in values]
    return np.array(texts, dtype=np.str_), sum(len(value) > longest for value in values)


def is_features(column: object) -> bool:
    """Return whether a column holds given feature vectors rather than pictures or strings."""
    return isinstance(column, np.ndarray) and column.ndim == 2


def multi_hot(labels: Sequence[Iterable[Hashable]], names: Sequence[Hashable]) -> npt.NDArray[np.uint8]:
    """Return the labels of N items as an ``(N, C)`` table of zeros and ones, one column per name or class number.

    Raises:
        KeyError: If a label is not among the names.
    """
    column = {name: place for place, name in enumerate(names)}
    table = np.zeros((len(labels), len(names)), np.uint8)
    for row, of_item in enumerate(labels):
        table[row, [column[label] for label in of_item]] = 1
    return table


@dataclass(frozen=True)
class ArchiveCard:
    """Provenance of an archive.

    Attributes:
        name: Short name, as in ``[data] name``.
        source: Who collected the data, with a link.
        license: License as its owner states it.
        protocol: Name of the splits and of the relevance rule.
        digest: Digest of ids, labels, splits and content.
        skipped: One sentence per row that was left out, with file, row and reason.
        warnings: One sentence per finding that a user is likely to want to correct, such as a misspelled column.
        notes: Further facts by name, as ``relevant``: which items are relevant to each other.
    """

    name: str
    source: str
    license: str
    protocol: str = "default"
    digest: str = ""
    skipped: tuple[str, ...] = field(default=(), repr=False)
    notes: Mapping[str, str] = field(default_factory=dict, repr=False)
    warnings: tuple[str, ...] = field(default=(), repr=False)

    def remarks(self) -> list[str]:
        """Return what a user needs to know about how the archive was read, one line per warning and skipped row."""
        return [*(f"warning: {text}" for text in self.warnings), *(f"skipped: {text}" for text in self.skipped)]


@dataclass(frozen=True)
class Archive:
    """Items with a picture, a text and labels, and the rows of each split.

    Attributes:
        ids: ``(N,)`` strings, all different.
        image: Pictures, or ``(N, D)`` given features, or regions of pictures, or None.
        text: ``(N,)`` strings, or ``(N, V)`` given features, or None.
        labels: ``(N, C)`` uint8 multi-hot, or None.
        splits: Sorted rows of ``query``, ``database`` and ``train``. Usually ``train`` is a part of ``database``.
        columns: Further columns to partition by or to show, ``(N,)`` strings each.
        has_image: ``(N,)`` bool.
        has_text: ``(N,)`` bool.
        captions: ``(N,)`` strings for people to read, where ``text`` holds features.
        preview: Pictures for people to look at, where ``image`` holds features.
        query_in_database: Whether the protocol allows queries in the database. Otherwise such an archive is refused.
        automatic_splits: Whether the archive does not state splits, so that `silohash.data.splits.default_splits` made
            them.
        folder: The folder that the archive was read from; None if it has a name or was made in memory.
    """

    ids: npt.NDArray[np.str_]
    image: Pictures | Features | Regions | None
    text: Texts | Features | None
    labels: npt.NDArray[np.uint8] | None
    label_names: tuple[str, ...]
    splits: Mapping[str, Rows]
    card: ArchiveCard
    columns: Mapping[str, npt.NDArray[np.str_]] = field(default_factory=dict)
    has_image: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))
    has_text: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))
    captions: Texts | None = None
    preview: Pictures | None = None
    query_in_database: bool = False
    automatic_splits: bool = False
    folder: Path | None = None

    def __post_init__(self) -> None:
        for name, column in (("has_image", self.image), ("has_text", self.text)):
            if not len(getattr(self, name)):
                object.__setattr__(self, name, np.full(len(self), column is not None))
        for problem in chain(self._problems_of_columns(), self._problems_of_splits()):
            raise InvalidArchive(f'Archive "{self.card.name}": {problem}')

    def _problems_of_columns(self) -> Iterator[str]:
        given = ("image", "text", "labels", "has_image", "has_text", "captions", "preview")
        for name, column in {**{name: getattr(self, name) for name in given}, **self.columns}.items():
            if column is not None and len(column) != len(self):
                yield (
                    f"{name} has {len(column):,} rows and there are {len(self):,} ids. "
                    "Every column needs one row per item, in the same order."
                )
        if len(set(self.ids.tolist())) != len(self):
            values, counts = np.unique(self.ids, return_counts=True)
            yield f'the id "{values[counts > 1][0]}" occurs more than once. Make the ids unique.'
        if self.labels is not None and self.labels.shape[1] != len(self.label_names):
            yield f"there are {self.labels.shape[1]} label columns and {len(self.label_names)} label names."

    def _problems_of_splits(self) -> Iterator[str]:
        for name, rows in self.splits.items():
            if len(rows) and (rows.min() < 0 or rows.max() >= len(self)):
                yield f'split "{name}" has rows outside 0 to {len(self) - 1}.'
        none = np.zeros(0, np.int64)
        both = np.intersect1d(self.splits.get("query", none), self.splits.get("database", none))
        if len(both) and not self.query_in_database:
            yield (
                f'item "{self.ids[both[0]]}" (and {len(both) - 1} more) is both query and database, '
                "so it would be found as its own answer. Put each item into one split."
            )

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        """Return the numbers of items, labels and rows per split, in two lines."""
        held = f"{self.has_image.sum():,} with an image, {self.has_text.sum():,} with a text"
        splits = ", ".join(f"{name} {len(rows):,}" for name, rows in self.splits.items())
        return (
            f'Archive("{visible(self.card.name)}": {len(self):,} items, {held}, {len(self.label_names):,} labels,\n'
            f"  splits: {visible(splits) or 'none'})"
        )

    def has(self, modality: Modality) -> npt.NDArray[np.bool_]:
        """Return which items have the modality, ``(N,)`` bool."""
        return self.has_image if modality == "image" else self.has_text

    def values(self, modality: Modality) -> Column | None:
        """Return the column of one modality."""
        return self.image if modality == "image" else self.text

    def split(self, name: str) -> Rows:
        """Return the rows of a split.

        Raises:
            UserError: If the archive has no such split.
        """
        if name not in self.splits:
            raise UnknownName(f'Archive "{self.card.name}" has no split "{name}"; it has: {", ".join(self.splits)}.')
        return self.splits[name]

    def required_labels(self, purpose: str) -> npt.NDArray[np.uint8]:
        """Return the labels, ``(N, C)``.

        Raises:
            UserError: If the archive does not have labels. It ends in the ``purpose``: what needs them, and what to do.
        """
        if self.labels is None:
            raise LabelsNeeded(f'Archive "{self.card.name}" has no labels, {purpose}')
        return self.labels

    def held_out(self) -> Rows:
        """Return the rows of the queries that are not in the database, sorted."""
        none = np.zeros(0, np.int64)
        return np.setdiff1d(self.splits.get("query", none), self.splits.get("database", none))

    def caption(self, row: int) -> str:
        """Return an item's text for people to read, or an empty string."""
        if self.captions is not None:
            return str(self.captions[row])
        if self.text is not None and not is_features(self.text):
            return str(self.text[row])
        return ""

    def languages(self) -> tuple[str, ...]:
        """Return the codes of the languages that are detected in the texts, the most frequent first."""
        texts = self.captions if self.captions is not None else self.text
        return () if texts is None or is_features(texts) else detected_languages(texts[texts != ""].tolist())

    def pictures(self) -> Pictures | None:
        """Return pictures for people to look at, or None."""
        if self.preview is not None:
            return self.preview
        return self.image if isinstance(self.image, Pictures) else None

    def labels_of(self, row: int) -> list[str]:
        """Return the names of an item's labels."""
        if self.labels is None:
            return []
        return [self.label_names[c] for c in np.flatnonzero(self.labels[row])]

    def of_modality(self, modality: Modality) -> Archive:
        """Return the same items with this modality only. Both can still be shown to people.

        Raises:
            UserError: If no item has it.
        """
        if not self.has(modality).any():
            article = "an" if modality == "image" else "a"
            raise ModalityNeeded(
                f'Archive "{self.card.name}" has no item with {article} {modality}. Remove data.modality.'
            )
        if modality == "image":
            captions = np.array([self.caption(row) for row in range(len(self))], dtype=np.str_)
            kept = replace(self, text=None, has_text=np.zeros(len(self), bool), captions=captions)
        else:
            kept = replace(self, image=None, has_image=np.zeros(len(self), bool), preview=self.pictures())
        return kept.with_digest()

    def with_digest(self) -> Archive:
        """Return the same archive with the digest of ids, labels, splits and content on its card."""
        arrays: dict[str, npt.NDArray[np.generic]] = {f"split/{name}": rows for name, rows in self.splits.items()}
        parts: dict[str, object] = {"label_names": list(self.label_names)}
        for name in ("ids", "labels", "image", "text", "captions"):
            column = getattr(self, name)
            if isinstance(column, np.ndarray):
                arrays[name] = column
            elif column is not None:
                parts[name] = column.digest()
        digest = digest_json({**parts, "arrays": digest_arrays(arrays)})
        return replace(self, card=replace(self.card, digest=digest))
