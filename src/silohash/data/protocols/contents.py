"""The contents of a data set's files, and a protocol's population: its items, labels and tags."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from silohash.base.errors import LabelsNeeded, ProtocolUnmet
from silohash.base.types import Modality, Rows
from silohash.data.archive import Features, Pictures, Texts, as_texts, is_features
from silohash.data.pictures.reading import PictureFiles
from silohash.data.protocols.rule import SplitProtocol
from silohash.data.regions import Regions

Labels: TypeAlias = npt.NDArray[np.uint8]

BLOCK_ROWS = 4096

PROMINENT = "_r1"
"""Ending of labels that mark only the pictures in which a concept is prominent."""

NEEDS_LABELS = frozenset({"labeled", "tagged", "frequent tags", "many tags"})
NEEDS_TAGS = frozenset({"tagged", "frequent tags", "many tags"})
SHOWN_LABELS = 4


@dataclass(frozen=True)
class Contents:
    """Every item of a data set's files, in the order of the files.

    Attributes:
        ids: ``(N,)`` unique strings.
        image: Pictures (decoded on demand), ``(N, D)`` given features, regions of pictures, or None.
        text: ``(N,)`` strings, ``(N, V)`` given features, or None.
        labels: ``(N, C)`` uint8 multi-hot, or None.
        label_names: C names; ``class 0`` ... if the files do not name the classes.
        stated: The rows of each split that the files state (``query``, ``database``, ``train``, ``validation``); empty
            if they state none.
        notes: Findings for the archive's card, such as the order of axes or missing pictures.
        columns: Further columns, ``(N,)`` strings each.
    """

    ids: npt.NDArray[np.str_]
    image: Pictures | Features | Regions | None
    text: Texts | Features | None
    labels: Labels | None
    label_names: tuple[str, ...]
    stated: Mapping[str, Rows] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, npt.NDArray[np.str_]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def has(self, modality: Modality) -> npt.NDArray[np.bool_]:
        """Return which items have the modality, ``(N,)`` bool.

        An item lacks it if its picture does not have a file name, its text is empty, or none of its features is a finite
        number.
        """
        column = self.image if modality == "image" else self.text
        if column is None:
            return np.zeros(len(self), np.bool_)
        if isinstance(column, PictureFiles):
            return np.array([bool(name) for name in column.names], np.bool_)
        if not isinstance(column, np.ndarray):
            return np.ones(len(self), np.bool_)
        if not is_features(column):
            return np.asarray(column != "", np.bool_)
        present = np.empty(len(self), np.bool_)
        for start in range(0, len(self), BLOCK_ROWS):
            present[start : start + BLOCK_ROWS] = np.isfinite(column[start : start + BLOCK_ROWS]).any(axis=1)
        return present


@dataclass(frozen=True)
class Population:
    """Some items of the files, and what a protocol keeps of them.

    Attributes:
        rows: Their rows in the files, ascending.
        labels: ``(len(rows), C)`` uint8 multi-hot, or None.
        text: Their texts without the tags that the protocol drops, or None.
        notes: What was left out, and what differs from the published protocol.
    """

    rows: Rows
    labels: Labels | None
    label_names: tuple[str, ...]
    text: Texts | Features | None
    notes: Mapping[str, str]


def population_of(contents: Contents, protocol: SplitProtocol, *, scaled: bool) -> Population:
    """Select the items and labels that a protocol includes.

    Files that hold exactly as many items as the population are used as they are. They were filtered before, and the
    thresholds in the rules refer to the release that they were taken from. With ``scaled``, the thresholds shrink with the
    files, and fewer labels are acceptable.

    Raises:
        UserError: If the files have fewer labels than the protocol, or lack the texts or labels that its rule needs.
    """
    rule = "all" if len(contents) == protocol.items else protocol.population
    least = protocol.least
    if scaled and protocol.collected:
        least = max(1, round(least * min(1.0, len(contents) / protocol.collected)))
    kept = np.full(len(contents), fill_value=True)
    columns = np.full(len(contents.label_names), fill_value=True)
    if rule == "frequent labels":
        found = _require_labels(contents, protocol, contents.labels)
        columns = np.asarray(found.sum(axis=0, dtype=np.int64) >= least)
        kept = np.asarray(found.any(axis=1) & ~found[:, ~columns].any(axis=1))
    labels, label_names, notes = _choose_labels(contents, protocol, columns, scaled=scaled)
    text = contents.text
    if rule in NEEDS_LABELS:
        kept &= _require_labels(contents, protocol, labels).any(axis=1)
    if rule in NEEDS_TAGS:
        text, counts, tag_notes = _frequent_tags(contents, protocol, least if rule == "frequent tags" else 1)
        kept &= counts >= (least if rule == "many tags" else 1)
        notes |= tag_notes
    rows = np.flatnonzero(kept)
    return Population(
        rows=rows,
        labels=None if labels is None else labels[rows],
        label_names=label_names,
        text=None if text is None else text[rows],
        notes=notes,
    )


def _require_labels(contents: Contents, protocol: SplitProtocol, labels: Labels | None) -> Labels:
    if labels is None:
        raise LabelsNeeded(
            f'Protocol "{protocol.name}" of {protocol.dataset} includes {protocol.rules()["population"]}, but the files '
            f"do not contain labels for their {len(contents):,} items. Add the files of labels."
        )
    return labels


def _choose_labels(
    contents: Contents, protocol: SplitProtocol, allowed: npt.NDArray[np.bool_], *, scaled: bool
) -> tuple[Labels | None, tuple[str, ...], dict[str, str]]:
    """Return the labels of every row of the files that the protocol's rule keeps, their names, and a note on the others."""
    if contents.labels is None:
        return None, (), {}
    names = contents.label_names
    wanted = protocol.classes or int(allowed.sum())
    columns = _columns_by_rule(contents.labels, names, protocol, np.flatnonzero(allowed))
    if len(columns) != wanted and not (scaled and len(columns) < wanted):
        options = ", ".join(f"{name} = {value}" for name, value in protocol.reader.items())
        advice = f"option {options}" if options else "see the reader's options"
        raise ProtocolUnmet(
            f'Protocol "{protocol.name}" of {protocol.dataset} has {wanted} labels, but the files hold {len(names)} '
            f"({', '.join(names[:SHOWN_LABELS])}, ...). Read the files with {wanted} labels "
            f"({advice}), or choose another protocol."
        )
    dropped = len(names) - len(columns)
    notes = {"labels left out": f"{dropped} of {len(names)}"} if dropped else {}
    return np.ascontiguousarray(contents.labels[:, columns]), tuple(names[c] for c in columns), notes


def _columns_by_rule(
    labels: Labels, names: tuple[str, ...], protocol: SplitProtocol, columns: Rows
) -> npt.NDArray[np.int64]:
    wanted = protocol.classes or len(columns)
    if protocol.labels == "without _r1":
        return np.array([column for column in columns if not names[column].endswith(PROMINENT)], np.int64)
    if len(columns) <= wanted:
        return columns
    if protocol.labels == "last":
        return columns[-wanted:]
    if protocol.labels == "most frequent":
        counts = labels[:, columns].sum(axis=0, dtype=np.int64)
        return np.sort(columns[np.argsort(-counts, kind="stable")[:wanted]])
    return columns


def _frequent_tags(
    contents: Contents, protocol: SplitProtocol, least: int
) -> tuple[Texts | Features, npt.NDArray[np.int64], dict[str, str]]:
    """Return the texts with frequent tags only, the number of different tags per item, and a note."""
    if contents.text is None:
        raise ProtocolUnmet(
            f'Protocol "{protocol.name}" of {protocol.dataset} includes {protocol.rules()["population"]}, but the files '
            "do not contain tags. Add the files of tags."
        )
    if is_features(contents.text):
        values = np.asarray(contents.text, np.float32)
        held = values > 0
        often = held.sum(axis=0) >= least
        if not often.all():
            values, held = np.ascontiguousarray(values[:, often]), held[:, often]
        return values, held.sum(axis=1), _tag_note(int(often.sum()), len(often), least)
    tags_of = [value.split() for value in contents.text.tolist()]
    counts = Counter(tag for tags in tags_of for tag in set(tags))
    kept = [[tag for tag in tags if counts[tag] >= least] for tags in tags_of]
    text, _ = as_texts([" ".join(tags) for tags in kept])
    distinct = np.array([len(set(tags)) for tags in kept], np.int64)
    frequent = np.array([*counts.values()], np.int64) >= least
    return text, distinct, _tag_note(int(frequent.sum()), len(counts), least)


def _tag_note(kept: int, found: int, least: int) -> dict[str, str]:
    return {} if kept == found else {"tags": f"{kept:,} of {found:,} occur on {least:,} items or more and are kept"}
