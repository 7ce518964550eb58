"""What silos share about their items before the first round, and why it is nothing under differential privacy."""

from __future__ import annotations

import numpy as np

from silohash.base.types import Arrays, Rows, UserError
from silohash.data.archive import Column
from silohash.features.base import SETS, Featurizer
from silohash.features.given import GivenFeatures
from silohash.features.text import BagOfWords


def no_statistics(featurizer: Featurizer, column: Column, rows: Rows) -> Arrays:  # noqa: ARG001  as `Featurizer.statistics`
    """Return the sums that a silo shares under differential privacy, on which featurizers are fitted: those of no items.

    Words are then weighed equally, and unknown words cannot be told from others.

    Args:
        featurizer: The unfitted featurizer.
        column: The items.
        rows: ``(n,)``, the silo's training items that have the modality.

    Raises:
        UserError: If the featurizer needs sums.
    """
    _check_needs_none(featurizer)
    sums = featurizer.statistics(column, np.zeros(0, np.int64))
    return {name: array for name, array in sums.items() if name not in SETS}


def _check_needs_none(featurizer: Featurizer) -> None:
    """Check that vectors can be computed without sums over the items of silos.

    Raises:
        UserError: If they cannot.
    """
    given = getattr(featurizer, "given", featurizer)
    if isinstance(given, GivenFeatures) and not given.standardize:
        return
    if isinstance(featurizer, BagOfWords) and featurizer.min_texts == 1:
        return
    remedy = (
        f"Set features.{featurizer.modality}.standardize = false, and equal_lengths = true."
        if isinstance(given, GivenFeatures)
        else "Take feature vectors, with standardize = false and equal_lengths = true, or texts as "
        '"tfidf", "count" or "binary" with min_texts = 1.'
    )
    raise UserError(
        f'features.{featurizer.modality} kind "{featurizer.kind}" is fitted to exact sums over the items of silos, which '
        f"exchange.privacy does not let a silo send. {remedy}"
    )
