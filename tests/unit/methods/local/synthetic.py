"""A synthetic archive on which the reference figures of the local methods were measured.

The labels are random. Images are noisy nonnegative features and texts are bags of words, both linear in the labels, so a
method that learns from labels clearly exceeds one that does not. Mean average precision of random codes is about 0.24.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import torch

from silohash.base.types import MODALITIES, Modality
from silohash.evaluate.relevance import Relevance
from silohash.evaluate.ties import average_precision, histogram
from silohash.index.codes import pack
from silohash.methods.local.base import SiloData
from silohash.methods.local.label_counts import federation_labels, label_sums

ITEMS, QUERIES, TRAINING = 3300, 300, 1500
CLASSES, IMAGE_WIDTH, TEXT_WIDTH = 12, 96, 150
LABEL_SHARE = 0.13
BAND = 0.05
"""Largest difference between a method's figure and its reference figure."""


@dataclass(frozen=True)
class Items:
    """Items with both modalities.

    Attributes:
        image: ``(n, 96)`` float32, standardized over all items.
        text: ``(n, 150)`` float32, 0 or 1.
        labels: ``(n, 12)`` uint8, 0 or 1, at least one per item.
    """

    image: npt.NDArray[np.float32]
    text: npt.NDArray[np.float32]
    labels: npt.NDArray[np.uint8]

    def __getitem__(self, rows: slice) -> Items:
        """Return some of the items."""
        return Items(self.image[rows], self.text[rows], self.labels[rows])

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self.labels)

    def silo(self) -> SiloData:
        """Return the items as the training pairs of the only silo of a federation."""
        present = torch.ones(len(self), dtype=torch.bool)
        return SiloData(
            name="synthetic",
            image=torch.from_numpy(self.image),
            text=torch.from_numpy(self.text),
            labels=torch.from_numpy(self.labels).float(),
            has_image=present,
            has_text=present,
            federation=federation_labels(label_sums([self.labels]), 0, torch.device("cpu")),
        )


@dataclass(frozen=True)
class Split:
    """The three parts of the archive. The training items are the first of the database.

    Attributes:
        query: 300 items.
        database: 3,000 items.
        train: the first 1,500 items of the database.
    """

    query: Items
    database: Items
    train: Items


@cache
def synthetic() -> Split:
    """Return the archive."""
    generator = np.random.default_rng(0)
    labels = generator.random((ITEMS, CLASSES)) < LABEL_SHARE
    labels[np.arange(ITEMS), generator.integers(0, CLASSES, ITEMS)] |= ~labels.any(axis=1)
    image = 0.8 * labels @ generator.normal(size=(CLASSES, IMAGE_WIDTH))
    image = np.maximum(image + 2.2 * generator.normal(size=(ITEMS, IMAGE_WIDTH)), 0.0)
    words = 1.0 / (1.0 + np.exp(3.0 - 1.1 * labels @ generator.normal(size=(CLASSES, TEXT_WIDTH))))
    items = Items(
        image=((image - image.mean(axis=0)) / image.std(axis=0)).astype(np.float32),
        text=(generator.random((ITEMS, TEXT_WIDTH)) < words).astype(np.float32),
        labels=labels.astype(np.uint8),
    )
    database = items[QUERIES:]
    return Split(query=items[:QUERIES], database=database, train=database[:TRAINING])


def mean_average_precision(query: npt.NDArray[np.float32], database: npt.NDArray[np.float32]) -> float:
    """Return the mAP@all expected under a random order of ties.

    Args:
        query: ``(300, K)``, outputs of the queries, of which the signs count.
        database: ``(3000, K)``, outputs of the database.
    """
    split = synthetic()
    relevance = Relevance(query_labels=split.query.labels, database_labels=split.database.labels)
    counts = histogram(pack(query), pack(database), relevance, query.shape[1])
    return float(average_precision(counts).expected.mean())


def figures(query: Mapping[Modality, torch.Tensor], database: Mapping[Modality, torch.Tensor]) -> tuple[float, float]:
    """Return the mAP@all of images to texts and of texts to images.

    Args:
        query: ``(300, K)`` per modality, as `silohash.methods.local.base.outputs_of` returns them.
        database: ``(3000, K)`` per modality.
    """
    image, text = MODALITIES
    return (
        mean_average_precision(query[image].numpy(), database[text].numpy()),
        mean_average_precision(query[text].numpy(), database[image].numpy()),
    )
