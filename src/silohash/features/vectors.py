"""From the rows of an archive to the arrays that the towers take, the same way for training, indexing and search."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from silohash.base.types import Arrays, Modality, Rows
from silohash.data.archive import Archive
from silohash.features.base import Featuriser
from silohash.features.image import PixelFeatures


def vectors(
    archive: Archive, featuriser: Featuriser, rows: Rows, has: npt.NDArray[np.bool_] | None = None
) -> npt.NDArray[np.generic]:
    """Return the vectors of some rows of an archive.

    Args:
        archive: the archive, which must have the featuriser's modality.
        featuriser: a fitted featuriser.
        rows: ``(n,)``, positions in the archive.
        has: ``(n,)``, whether each row has the modality. None if every row has it.

    Returns:
        ``(n, *shape)``, with zeros where ``has`` is False.
    """
    column = archive.values(featuriser.modality)
    assert column is not None  # noqa: S101  a featuriser was made for it
    if has is None or has.all():
        return featuriser.transform(column, rows)
    values = featuriser.transform(column, rows[has])
    spread = np.zeros((len(rows), *values.shape[1:]), values.dtype)
    spread[has] = values
    return spread


def pixel_statistics(featurisers: Mapping[Modality, Featuriser]) -> Arrays:
    """Return the mean and the deviation that standardize pixels.

    Returns:
        ``pixel_mean`` and ``pixel_deviation``, each ``(c, 1, 1)`` float32; empty if images are not given as pixels.
    """
    featuriser = featurisers.get("image")
    if not isinstance(featuriser, PixelFeatures):
        return {}
    mean, deviation = np.float32(featuriser.mean), np.float32(featuriser.deviation)
    return {"pixel_mean": mean.reshape(-1, 1, 1), "pixel_deviation": deviation.reshape(-1, 1, 1)}
