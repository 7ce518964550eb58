"""What a reader of community files returns, and how a layout says which files it needs."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from silohash.data.archive import Features, Pictures, Texts, is_features
from silohash.data.pictures.packing import PictureFiles
from silohash.types import Modality, Rows

BLOCK_ROWS = 4096


@dataclass(frozen=True)
class Raw:
    """Every item of a data set's files in the files' own order, before a protocol chooses population and splits.

    Attributes:
        ids: ``(N,)`` strings, each once.
        image: pictures (decoded or read when asked for), ``(N, D)`` given features, or None.
        text: ``(N,)`` strings, ``(N, V)`` given features, or None.
        labels: ``(N, C)`` uint8 multi-hot, or None.
        label_names: C names; ``class 0`` ... where the files name none.
        stated: the rows of each split that the files themselves state (``query``, ``database``, ``train``,
            ``validation``); empty where they state none.
        notes: what was found in the files, for the archive's card: axes, structs, names that were probed.
        captions: ``(N,)`` strings for people, where ``text`` holds features.
        columns: further columns, ``(N,)`` strings each.
    """

    ids: npt.NDArray[np.str_]
    image: Pictures | Features | None
    text: Texts | Features | None
    labels: npt.NDArray[np.uint8] | None
    label_names: tuple[str, ...]
    stated: Mapping[str, Rows] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    captions: Texts | None = None
    columns: Mapping[str, npt.NDArray[np.str_]] = field(default_factory=dict)

    def __len__(self) -> int:
        """Returns how many items there are."""
        return len(self.ids)

    def has(self, modality: Modality) -> npt.NDArray[np.bool_]:
        """Returns which items have the modality, ``(N,)`` bool.

        A picture file without a name, an empty string and a row without any finite number stand for a missing one.
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
        there = np.empty(len(self), np.bool_)
        for start in range(0, len(self), BLOCK_ROWS):
            there[start : start + BLOCK_ROWS] = np.isfinite(column[start : start + BLOCK_ROWS]).any(axis=1)
        return there


@dataclass(frozen=True)
class Need:
    """A file that a layout needs.

    Attributes:
        pattern: glob relative to the data set's folder; any one match is enough.
        what: what is in it, for people.
        optional: whether the layout can be read without it.
    """

    pattern: str
    what: str
    optional: bool = False


@dataclass(frozen=True)
class Layout:
    """One set of files in which a data set circulates.

    Attributes:
        name: what a user types, as ``dcmh-mat``.
        summary: one line: who distributes it, what is in it.
        needs: its files.
        reader: ``module:function``, called as ``function(root, **options)``; returns a `Raw`.
        options: keyword options of the reader with what they mean.
    """

    name: str
    summary: str
    needs: tuple[Need, ...]
    reader: str
    options: Mapping[str, str] = field(default_factory=dict)

    def missing(self, root: Path) -> list[Need]:
        """Returns the needed files that are not under the folder."""
        return [need for need in self.needs if not need.optional and not any(root.glob(need.pattern))]

    def read(self, root: Path, **options: Any) -> Raw:  # noqa: ANN401  the reader's own options
        """Reads the files.

        Raises:
            UserError: if a file is missing, damaged, or its arrays do not belong together.
        """
        module, _, attribute = self.reader.partition(":")
        raw: Raw = getattr(importlib.import_module(module), attribute)(root, **options)
        return raw
