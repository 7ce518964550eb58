"""The codes of a run's items by each of its models, encoded when they are first needed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
import numpy.typing as npt

from silohash.features.vectors import vectors
from silohash.index.codes import Words
from silohash.runtime.run import Run
from silohash.types import Modality, Rows


class RunCodes:
    """Encode some archive rows with any model of a run, once per model and modality.

    Args:
        run: a trained run.
        rows: ``(n,)`` int64, sorted and unique archive rows. Rows without a modality are encoded from zeros.
    """

    def __init__(self, run: Run, rows: Rows) -> None:
        self._run = run
        self._rows = rows
        self._position = np.full(len(run.archive), -1, np.int64)
        self._position[rows] = np.arange(len(rows))
        self._encoded: dict[tuple[str, Modality], Words] = {}

    def words(self, name: str, modality: Modality, rows: Rows) -> Words:
        """Return one model's codes of archive rows, ``(n, W)``.

        Args:
            name: name of the model, "global" or that of a silo.
            modality: the modality to encode.
            rows: ``(n,)``, archive rows among those of this object.
        """
        key = (name, modality)
        if key not in self._encoded:
            encoder = self._run.model.encoder(name, run_by="torch")
            codes = encoder.codes_of(self._vectors[modality], modality, self._run.archive.ids[self._rows])
            self._encoded[key] = codes.words
        return self._encoded[key][self._position[rows]]

    @cached_property
    def _vectors(self) -> Mapping[Modality, npt.NDArray[np.generic]]:
        archive = self._run.archive
        return {
            modality: vectors(archive, featuriser, self._rows, archive.has(modality)[self._rows])
            for modality, featuriser in self._run.model.featurisers.items()
        }
