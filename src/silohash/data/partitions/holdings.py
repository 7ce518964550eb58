"""Which silo of a partition holds which rows of an archive, and with which modalities."""

from collections.abc import Sequence

import numpy as np

from silohash.base.types import MODALITIES, Modality, Rows
from silohash.data.archive import Archive
from silohash.data.partitions.base import Partition


class Holdings:
    """Which silo of a partition holds a row of the archive, for each modality and for the item as a whole.

    Attributes:
        owner: Per modality, ``(N,)`` int64, the first silo that holds the modality of a row; -1 if no silo does.
        holder: ``(N,)`` int64, the first of the silos that hold the most modalities of a row; -1 if no silo holds any.
        together: Per modality, ``(N,)`` bool, whether the holder of a row holds the modality.
    """

    def __init__(self, archive: Archive, partition: Partition) -> None:
        self._archive = archive
        self._partition = partition
        self.owner = {modality: np.full(len(archive), -1) for modality in MODALITIES}
        self.holder = np.full(len(archive), -1)
        self.together = {modality: np.zeros(len(archive), bool) for modality in MODALITIES}
        # from the last silo to the first, which replaces those after it
        for number in reversed(range(len(partition.silos))):
            held = {modality: np.zeros(len(archive), bool) for modality in MODALITIES}
            for modality in MODALITIES:
                held[modality][self.rows_of(number, modality)] = True
                self.owner[modality][held[modality]] = number
            count, most = (np.sum(list(masks.values()), axis=0) for masks in (held, self.together))
            better = (count > 0) & (count >= most)
            self.holder[better] = number
            for modality in MODALITIES:
                self.together[modality][better] = held[modality][better]

    def rows_of(self, number: int, modality: Modality) -> Rows:
        """Return the archive rows of a silo's items that have the modality."""
        silo = self._partition.silos[number]
        held = silo.has_image if modality == "image" else silo.has_text
        return silo.rows[self._archive.has(modality)[silo.rows] & held]

    def items_of(self, number: int, modalities: Sequence[Modality]) -> Rows:
        """Return the archive rows of a silo's items that have any of the modalities, in ascending order."""
        return np.unique(np.concatenate([self.rows_of(number, modality) for modality in modalities]))
