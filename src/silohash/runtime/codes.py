"""The codes of a run's items by each of its models, encoded when they are first needed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
import numpy.typing as npt

from silohash.features.vectors import vectors
from silohash.index.codes import Words
from silohash.runtime.run import Run
from silohash.types import SIDES, Modality, Rows, Side


class RunCodes:
    """Encode some archive rows with any model of a run, once per model and modality.

    Args:
        run: a trained run.
        rows: ``(n,)`` int64, sorted and unique archive rows. Rows without a modality are encoded from zeros.

    Attributes:
        label_sides: the sides of a search whose items are encoded with their true labels, once an item was encoded.
    """

    def __init__(self, run: Run, rows: Rows) -> None:
        self._run = run
        self.label_sides: tuple[Side, ...] = ()
        self._rows = rows
        self._position = np.full(len(run.archive), -1, np.int64)
        self._position[rows] = np.arange(len(rows))
        self._encoded: dict[tuple[str, Modality, Side], Words] = {}

    def words(self, name: str, modality: Modality, rows: Rows, side: Side = "database") -> Words:
        """Return one model's codes of archive rows, ``(n, W)``.

        Args:
            name: name of the model, "global" or that of a silo.
            modality: the modality to encode.
            rows: ``(n,)``, archive rows among those of this object.
            side: the side of the search that they are on. It matters if the model encodes items with their true labels.
        """
        if (name, modality, side) not in self._encoded:
            self._encode(name, modality, side)
        return self._encoded[name, modality, side][self._position[rows]]

    def _encode(self, name: str, modality: Modality, side: Side) -> None:
        """Encode all rows for one side, and store the codes for the other side too if they are the same."""
        archive, encoder = self._run.archive, self._run.model.encoder(name, run_by="torch")
        labels = encoder.labels_for(side, archive, self._rows)
        codes = encoder.codes_of(self._vectors[modality], modality, archive.ids[self._rows], labels)
        self.label_sides = encoder.label_sides
        same = [other for other in SIDES if (other in self.label_sides) == (side in self.label_sides)]
        self._encoded |= {(name, modality, other): codes.words for other in same}

    @cached_property
    def _vectors(self) -> Mapping[Modality, npt.NDArray[np.generic]]:
        archive = self._run.archive
        return {
            modality: vectors(archive, featuriser, self._rows, archive.has(modality)[self._rows])
            for modality, featuriser in self._run.model.featurisers.items()
        }
