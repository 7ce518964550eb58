"""Relevance of items to queries: by shared labels, or by pairs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from silohash.base.errors import BitsDiffer, LengthsDiffer, OutOfRange, RepeatedValue, WrongShape
from silohash.base.types import Rows

Packed = npt.NDArray[np.generic]
"""Packed codes ``(n, W)`` of an unsigned type."""

Words = npt.NDArray[np.uint64]
MAX_SHARED_LABELS = 255
LEFT_OUT = np.uint16(65535)
"""Value that marks an item that a ranking leaves out, in place of its relevance."""


def to_words(packed: Packed, bits: int) -> Words:
    """Return packed codes ``(N, W)`` of an unsigned type as 64-bit words, ``(N, ceil(bits / 64))`` uint64.

    The order of the bits is little-endian, and those beyond the length of the codes are zero.

    Raises:
        UserError: If the array is not of that form.
    """
    if packed.ndim != 2 or packed.dtype.kind != "u":
        raise WrongShape(f"Codes must be a table of unsigned words, not {packed.dtype} of shape {packed.shape}.")
    held = packed.shape[1] * packed.dtype.itemsize
    width = -(-bits // 64)
    if not 1 <= bits <= 256 or held * 8 < bits or held > width * 8:
        raise BitsDiffer(
            f"Codes of {held * 8} bits were given as codes of {bits} bits; 1 to 256 bits can be evaluated."
        )
    little = np.ascontiguousarray(packed.astype(packed.dtype.newbyteorder("<"), copy=False))
    words = _joined(little.view(np.uint8).reshape(len(packed), held), width)
    if bits % 64 and np.any(words[:, -1] >> np.uint64(bits % 64)):
        raise BitsDiffer(f"Some codes have bits beyond their length of {bits}. Were they packed with another length?")
    return words


def label_words(labels: npt.NDArray[np.uint8]) -> Words:
    """Return multi-hot labels ``(N, C)`` as bit masks, ``(N, ceil(C / 64))`` uint64."""
    octets = np.packbits(labels.astype(np.uint8, copy=False), axis=1, bitorder="little")
    return _joined(octets, max(1, -(-labels.shape[1] // 64)))


def _joined(octets: npt.NDArray[np.uint8], width: int) -> Words:
    """Return rows of bytes as rows of ``width`` 64-bit words, filled up with zeros."""
    padded = np.zeros((len(octets), width * 8), np.uint8)
    padded[:, : octets.shape[1]] = octets
    return padded.view(np.dtype("<u8")).astype(np.uint64, copy=False)


@dataclass(frozen=True)
class Relevance:
    """Relevance by labels: an item is relevant to a query if they share a label that is not ignored.

    Attributes:
        query_labels: ``(Q, C)`` uint8 multi-hot.
        database_labels: ``(N, C)`` uint8 multi-hot.
        ignore: Label columns that do not count.
        left_out: ``(Q,)`` int64, the item that each query's ranking leaves out (its own), -1 for none; or ``(Q, m)`` for
            several items, filled up with -1; or None.

    Example:
        >>> import numpy as np
        >>> both = np.array([[1, 1, 0], [1, 0, 0]], np.uint8)
        >>> Relevance(both, both).gains(np.array([0]))
        array([[2, 1]], dtype=uint16)
        >>> Relevance(both, both, ignore=(0,)).gains(np.array([0]))
        array([[1, 0]], dtype=uint16)
    """

    query_labels: npt.NDArray[np.uint8]
    database_labels: npt.NDArray[np.uint8]
    ignore: tuple[int, ...] = ()
    left_out: Rows | None = None

    def __post_init__(self) -> None:
        if self.query_labels.ndim != 2 or self.database_labels.ndim != 2:
            raise WrongShape(
                f"Labels of shapes {self.query_labels.shape} and {self.database_labels.shape} are not tables. "
                "Give one row per item and one column per class."
            )
        classes = self.query_labels.shape[1]
        if classes != self.database_labels.shape[1]:
            raise LengthsDiffer(
                f"The queries have {classes} classes and the database has {self.database_labels.shape[1]}. "
                "Use the same classes in both."
            )
        wrong = [column for column in self.ignore if not 0 <= column < classes]
        if wrong:
            raise OutOfRange(f"Label column {wrong[0]} cannot be ignored. Give columns from 0 to {classes - 1}.")
        own = self.left_out
        if own is not None and (
            len(own) != self.queries or own.min(initial=-1) < -1 or own.max(initial=-1) >= self.items
        ):
            raise OutOfRange(
                f"{len(own)} of {self.queries} queries name an item to leave out, from {own.min(initial=-1)} to "
                f"{own.max(initial=-1)}. Each must name one of the {self.items} items, or -1."
            )

    @property
    def queries(self) -> int:
        """The number of queries."""
        return len(self.query_labels)

    @property
    def items(self) -> int:
        """The number of items in the database."""
        return len(self.database_labels)

    @cached_property
    def kept(self) -> npt.NDArray[np.int64]:
        """The label columns that count, ``(c,)`` int64."""
        return np.setdiff1d(np.arange(self.query_labels.shape[1]), np.array(self.ignore, np.int64))

    def _kept_of(self, labels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        return labels[:, self.kept] if self.ignore else labels

    @cached_property
    def query_words(self) -> Words:
        """The labels of the queries that count, as bit masks ``(Q, L)`` uint64."""
        return label_words(self._kept_of(self.query_labels))

    @cached_property
    def database_words(self) -> Words:
        """The labels of the items that count, as bit masks ``(N, L)`` uint64."""
        return label_words(self._kept_of(self.database_labels))

    def left_out_pairs(self, query_rows: Rows | None = None) -> tuple[Rows, Rows]:
        """Return the pairs of a query and an item that its ranking leaves out, for all queries or those in some rows.

        Given rows, the queries are returned as positions among these rows.
        """
        if self.left_out is None:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        own = self.left_out if query_rows is None else self.left_out[query_rows]
        own = own[:, None] if own.ndim == 1 else own
        rows, places = np.nonzero(own >= 0)
        return rows, own[rows, places]

    def shared_with_left_out(self) -> tuple[Rows, npt.NDArray[np.int64]]:
        """Return the queries of `left_out_pairs`, and the number of labels that count and are shared with the item."""
        rows, items = self.left_out_pairs()
        both = self.query_words[rows] & self.database_words[items]
        return rows, np.bitwise_count(both).sum(1, dtype=np.int64)

    def query_label_lists(self) -> npt.NDArray[np.int64]:
        """Return each query's labels as positions in `kept`, ``(Q, most)`` int64, padded with -1."""
        held = self.query_labels[:, self.kept] != 0
        most = int(held.sum(1).max(initial=0))
        order = np.argsort(~held, axis=1, kind="stable")[:, :most]
        return np.where(np.take_along_axis(held, order, 1), order, -1).astype(np.int64)

    def most_shared(self) -> int:
        """Return an upper bound on the number of labels that a query shares with an item.

        Raises:
            UserError: If it exceeds 255.
        """
        most = min(int(np.bitwise_count(w).sum(1).max(initial=0)) for w in (self.query_words, self.database_words))
        if most > MAX_SHARED_LABELS:
            raise OutOfRange(
                f"Items share up to {most} labels, and at most {MAX_SHARED_LABELS} can be graded. Ignore some labels."
            )
        return most

    def gains(self, rows: Rows) -> npt.NDArray[np.uint16]:
        """Return the number of labels that some queries share with each item, ``(len(rows), N)`` uint16."""
        shared = np.zeros((len(rows), self.items), np.uint16)
        for word in range(self.query_words.shape[1]):
            shared += np.bitwise_count(self.query_words[rows, word, None] & self.database_words[None, :, word])
        return shared


@dataclass(frozen=True)
class Pairs:
    """Relevance by pairs, such as a picture and its captions.

    Attributes:
        query_rows: ``(p,)`` int64, the query of each pair.
        database_rows: ``(p,)`` int64, the item of each pair.
    """

    queries: int
    items: int
    query_rows: Rows
    database_rows: Rows

    def __post_init__(self) -> None:
        if len(self.query_rows) != len(self.database_rows):
            raise LengthsDiffer(
                f"{len(self.query_rows)} queries are paired with {len(self.database_rows)} items. Give as many of each."
            )
        for rows, count, what in ((self.query_rows, self.queries, "query"), (self.database_rows, self.items, "item")):
            if len(rows) and not (rows.min() >= 0 and rows.max() < count):
                raise OutOfRange(f"A pair names {what} {rows.max()}, and there are {count}. Count them from 0.")
        if len(np.unique(self.query_rows * max(1, self.items) + self.database_rows)) != len(self.query_rows):
            raise RepeatedValue("Some pairs of a query and an item are given twice. Give each once.")

    @staticmethod
    def of_groups(query_groups: npt.NDArray[np.generic], database_groups: npt.NDArray[np.generic]) -> Pairs:
        """Return the pairs of queries and items with the same name, such as captions and pictures of one file.

        Example:
            >>> import numpy as np
            >>> Pairs.of_groups(np.array(["a", "b"]), np.array(["b", "a", "a"])).database_rows
            array([1, 2, 0])
        """
        order = np.argsort(database_groups, kind="stable")
        ordered = database_groups[order]
        first = np.searchsorted(ordered, query_groups, "left")
        partners = np.searchsorted(ordered, query_groups, "right") - first
        query_rows = np.repeat(np.arange(len(query_groups)), partners)
        within = np.arange(len(query_rows)) - np.repeat(np.cumsum(partners) - partners, partners)
        return Pairs(len(query_groups), len(database_groups), query_rows, order[np.repeat(first, partners) + within])

    @property
    def unlabeled(self) -> Relevance:
        """The same queries and items without any label, so that no item is relevant."""
        return Relevance(np.zeros((self.queries, 0), np.uint8), np.zeros((self.items, 0), np.uint8))

    def gains(self, rows: Rows) -> npt.NDArray[np.uint16]:
        """Return 1 for the partners of some queries and 0 for other items, ``(len(rows), N)`` uint16."""
        gains = np.zeros((len(rows), self.items), np.uint16)
        for at, row in enumerate(rows):
            gains[at, self.database_rows[self.query_rows == row]] = 1
        return gains


def marked_gains(relevance: Relevance | Pairs, rows: Rows) -> npt.NDArray[np.uint16]:
    """Return the relevance of all items to some queries, ``(len(rows), N)``, or `LEFT_OUT` where a query leaves one out."""
    gains = relevance.gains(rows)
    if isinstance(relevance, Relevance):
        gains[relevance.left_out_pairs(rows)] = LEFT_OUT
    return gains


def without_left_out(ranked: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint16]:
    """Return rankings of marked gains ``(n, N)`` without the items that were left out, with zeros at the end instead."""
    left_out = ranked == LEFT_OUT
    if not left_out.any():
        return ranked
    closed = np.take_along_axis(ranked, np.argsort(left_out, axis=1, kind="stable"), axis=1)
    closed[closed == LEFT_OUT] = 0
    return closed
