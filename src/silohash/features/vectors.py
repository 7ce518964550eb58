"""From the rows of an archive to the arrays that the towers take, the same way for training, indexing and search."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from silohash.base.types import Arrays, Modality, Rows
from silohash.data.archive import Archive
from silohash.features.base import Featurizer
from silohash.features.image import PixelFeatures


def vectors(
    archive: Archive, featurizer: Featurizer, rows: Rows, has: npt.NDArray[np.bool_] | None = None
) -> npt.NDArray[np.generic]:
    """Return the vectors of rows ``(n,)`` of an archive by a fitted featurizer of one of its modalities, ``(n, *shape)``.

    They are zeros for rows that do not have the modality, if ``has`` ``(n,)`` is given.
    """
    column = archive.values(featurizer.modality)
    assert column is not None  # noqa: S101  a featurizer was made for it
    if has is None or has.all():
        return featurizer.transform(column, rows)
    values = featurizer.transform(column, rows[has])
    spread = np.zeros((len(rows), *values.shape[1:]), values.dtype)
    spread[has] = values
    return spread


def pixel_statistics(featurizers: Mapping[Modality, Featurizer]) -> Arrays:
    """Return what standardizes pixels, if images are given as such.

    It is the ``pixel_mean`` and the ``pixel_deviation``, each ``(c, 1, 1)`` float32.
    """
    featurizer = featurizers.get("image")
    if not isinstance(featurizer, PixelFeatures):
        return {}
    mean, deviation = np.float32(featurizer.mean), np.float32(featurizer.deviation)
    return {"pixel_mean": mean.reshape(-1, 1, 1), "pixel_deviation": deviation.reshape(-1, 1, 1)}
