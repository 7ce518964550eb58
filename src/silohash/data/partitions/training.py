"""The items that the silos of a partition train on, and those that they hold back for validation."""

from collections.abc import Container, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from silohash.base import seeds
from silohash.base.types import MODALITIES, Modality, Rows
from silohash.data.archive import Archive
from silohash.data.pairs import picture_numbers


@dataclass(frozen=True)
class TrainingSilo:
    """The archive rows that one silo trains on, and those that it holds back for validation, both in ascending order.

    Rows that were drawn with replacement can occur several times among those to train on.
    """

    name: str
    train: Rows
    validation: Rows
    has_image: bool = True
    has_text: bool = True
    paired: bool = True

    def holds(self, modality: Modality) -> bool:
        """Return whether the silo has the modality."""
        return self.has_image if modality == "image" else self.has_text


@dataclass(frozen=True)
class SiloItems:
    """The items that a silo trains on or holds back, by archive row, and which of them have a modality.

    A row can occur several times, in unpaired silos and if rows were drawn with replacement.
    """

    rows: Rows
    has: Mapping[Modality, npt.NDArray[np.bool_]]

    def __len__(self) -> int:
        return len(self.rows)


def items_of(archive: Archive, silo: TrainingSilo, rows: Rows, modalities: Container[Modality]) -> SiloItems:
    """Return the items of some of a silo's archive rows ``(n,)``, with the modalities of the model only.

    In a silo without pairs, a row with a picture and a text becomes two items: the picture, and further down the text.
    """
    has = {name: archive.has(name)[rows] & silo.holds(name) & (name in modalities) for name in MODALITIES}
    if silo.paired:
        return SiloItems(rows, has)
    both = has["image"] & has["text"]
    texts = np.ones(np.count_nonzero(both), bool)
    return SiloItems(
        rows=np.concatenate([rows, rows[both]]),
        has={"image": np.concatenate([has["image"], ~texts]), "text": np.concatenate([has["text"] & ~both, texts])},
    )


def parts_of(archive: Archive, silo: TrainingSilo, modalities: Container[Modality]) -> tuple[SiloItems, SiloItems]:
    """Return the items that a silo trains on, and those that it holds back, with the modalities of the model only."""
    train, validation = (items_of(archive, silo, rows, modalities) for rows in (silo.train, silo.validation))
    return train, validation


def bootstrap_sample(rows: Rows, seed: int, silo: int) -> Rows:
    """Return as many of a silo's rows ``(n,)`` as there are, drawn with replacement, in ascending order.

    Source: Efron, "Bootstrap Methods: Another Look at the Jackknife", 1979. The seed is that of the partition.
    """
    if not len(rows):
        return rows
    return np.sort(seeds.numpy_generator(seed, "partition bootstrap", silo=silo).choice(rows, len(rows)))


def held_back_pairs(archive: Archive, share: float, seed: int, split: str = "train") -> Rows:
    """Return the training rows that are held back if pairs choose the round: a share of the pictures, rounded down.

    All texts of a picture are held back together, in all silos. Otherwise a held-back picture would be trained on with
    another of its texts.
    """
    rows = archive.split(split)
    rows = rows[(archive.has_image & archive.has_text)[rows]]
    pictures, of_row = np.unique(picture_numbers(archive)[rows], return_inverse=True)
    order = seeds.numpy_generator(seed, "validation/pairs").permutation(len(pictures))
    return np.asarray(rows[np.isin(of_row, order[: int(share * len(pictures))])])
