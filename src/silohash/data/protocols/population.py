"""Which items of a data set's files count, under which labels and tags: the first half of a protocol."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from silohash.data.archive import Features, Texts, as_texts, is_features
from silohash.data.benchmarks.raw import Raw
from silohash.data.protocols.rule import SplitProtocol
from silohash.types import Rows, UserError

PROMINENT = "_r1"


@dataclass(frozen=True)
class Population:
    """The items that count.

    Attributes:
        rows: their rows in the files, ascending.
        labels: ``(len(rows), C)`` uint8 multi-hot, or None.
        label_names: C names.
        text: their texts, without the tags that do not count, or None.
        notes: what was set aside.
    """

    rows: Rows
    labels: npt.NDArray[np.uint8] | None
    label_names: tuple[str, ...]
    text: Texts | Features | None
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Labelled:
    """Labels of every row of the files, and what was set aside of them."""

    labels: npt.NDArray[np.uint8] | None
    names: tuple[str, ...]
    notes: Mapping[str, str]


def population_of(raw: Raw, protocol: SplitProtocol, *, scaled: bool) -> Population:
    """Chooses labels and items.

    Files that hold exactly as many items as the population are taken to be that population: they were cut before, and
    the numbers in the rules are of the release that they were cut from.

    Args:
        raw: every item of the files.
        protocol: its rules.
        scaled: whether the numbers in the rules shrink with the files, and fewer labels will do.

    Raises:
        UserError: if the files have fewer labels than the protocol, or none of the texts or labels that its rule needs.
    """
    whole = len(raw) == protocol.items
    least = protocol.least
    if scaled and protocol.collected:
        least = max(1, round(least * min(1.0, len(raw) / protocol.collected)))
    kept = np.full(len(raw), fill_value=True)
    columns = np.full(len(raw.label_names), fill_value=True)
    if protocol.population == "frequent labels" and not whole:
        kept, columns = _frequent_labels(raw, protocol, least)
    chosen = _labels(raw, protocol, columns, scaled=scaled)
    text, notes = raw.text, {**chosen.notes}
    if protocol.population in {"labelled", "tagged", "frequent tags", "many tags"} and not whole:
        kept &= _labels_of(raw, protocol, chosen.labels).any(axis=1)
    if protocol.population in {"tagged", "frequent tags", "many tags"} and not whole:
        text, counts, told = _tags(raw, protocol, least if protocol.population == "frequent tags" else 1)
        kept &= counts >= (least if protocol.population == "many tags" else 1)
        notes |= told
    rows = np.flatnonzero(kept)
    return Population(
        rows=rows,
        labels=None if chosen.labels is None else chosen.labels[rows],
        label_names=chosen.names,
        text=None if text is None else text[rows],
        notes=notes,
    )


def _labels_of(raw: Raw, protocol: SplitProtocol, labels: npt.NDArray[np.uint8] | None) -> npt.NDArray[np.uint8]:
    if labels is None:
        raise UserError(
            f'Protocol "{protocol.name}" of {protocol.dataset} counts {protocol.rules()["population"]}, and the files hold '
            f"no labels for their {len(raw):,} items. Bring the files of labels as well."
        )
    return labels


def _frequent_labels(
    raw: Raw, protocol: SplitProtocol, least: int
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Returns the rows all of whose labels are frequent, and the columns of those labels."""
    labels = _labels_of(raw, protocol, raw.labels)
    frequent = labels.sum(axis=0, dtype=np.int64) >= least
    kept = labels.any(axis=1) & ~labels[:, ~frequent].any(axis=1)
    return np.asarray(kept), np.asarray(frequent)


def _labels(raw: Raw, protocol: SplitProtocol, allowed: npt.NDArray[np.bool_], *, scaled: bool) -> _Labelled:
    """Takes as many label columns as the protocol has, by its rule."""
    if raw.labels is None:
        return _Labelled(None, (), {})
    columns = np.flatnonzero(allowed)
    wanted = protocol.classes or len(columns)
    if protocol.labels == "without _r1":
        plain = np.array([not name.endswith(PROMINENT) for name in raw.label_names])
        columns = columns[plain[columns]]
    if len(columns) > wanted and protocol.labels == "most frequent":
        often = raw.labels[:, columns].sum(axis=0, dtype=np.int64)
        columns = np.sort(columns[np.argsort(-often, kind="stable")[:wanted]])
    elif len(columns) > wanted and protocol.labels == "last":
        columns = columns[-wanted:]
    if len(columns) != wanted and not (scaled and len(columns) < wanted):
        raise UserError(
            f'Protocol "{protocol.name}" of {protocol.dataset} has {wanted} labels, and the files hold '
            f"{len(raw.label_names)} ({', '.join(raw.label_names[:4])}, ...). Read the files with as many "
            f"({_reader_option(protocol)}), or choose a protocol for these."
        )
    notes = {}
    aside = np.setdiff1d(np.arange(len(raw.label_names)), columns)
    if len(aside):
        notes["labels set aside"] = f"{len(aside)} of {len(raw.label_names)}"
    return _Labelled(np.ascontiguousarray(raw.labels[:, columns]), tuple(raw.label_names[c] for c in columns), notes)


def _reader_option(protocol: SplitProtocol) -> str:
    given = ", ".join(f"{name} = {value}" for name, value in protocol.reader.items())
    return f"option {given}" if given else "by the reader's options"


def _tags(
    raw: Raw, protocol: SplitProtocol, least: int
) -> tuple[Texts | Features, npt.NDArray[np.int64], dict[str, str]]:
    """Returns the texts with the tags that stand on enough items alone, and how many each item keeps."""
    if raw.text is None:
        raise UserError(
            f'Protocol "{protocol.name}" of {protocol.dataset} counts {protocol.rules()["population"]}, and the files hold '
            "no tags. Bring the files of tags as well."
        )
    if is_features(raw.text):
        values = np.asarray(raw.text, np.float32)
        held = values > 0
        often = held.sum(axis=0) >= least
        if not often.all():
            values, held = np.ascontiguousarray(values[:, often]), held[:, often]
        return values, held.sum(axis=1), _told(int(often.sum()), len(often), least)
    lists = [value.split() for value in raw.text.tolist()]
    counts = Counter(tag for tags in lists for tag in set(tags))
    kept = [[tag for tag in tags if counts[tag] >= least] for tags in lists]
    text, _ = as_texts([" ".join(tags) for tags in kept])
    of_item = np.array([len(set(tags)) for tags in kept], np.int64)
    return text, of_item, _told(sum(count >= least for count in counts.values()), len(counts), least)


def _told(kept: int, found: int, least: int) -> dict[str, str]:
    return {} if kept == found else {"tags": f"{kept:,} of {found:,}, those on {least:,} items or more"}
