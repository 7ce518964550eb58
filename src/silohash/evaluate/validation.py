"""The score of a silo's held-back items, and what tells whether their labels or pairs match the codes."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from silohash.base.types import Rows
from silohash.evaluate.ties import Histogram


class ValidationScore(NamedTuple):
    """How well held-back items are found.

    Attributes:
        score: The score that chooses the round, from 0 to 1; NaN if nothing can be searched.
        chance: The same score of random codes.
        auc: The mean area under the ROC curve of the items, which does not depend on how many are searched; NaN if unknown.
        auc_error: The standard error of ``auc``; NaN with fewer than two items.
        judged: The number of items that ``auc`` is the mean of.
    """

    score: float = float("nan")
    chance: float = float("nan")
    auc: float = float("nan")
    auc_error: float = float("nan")
    judged: int = 0


def validation_score_of(
    scores: Sequence[float], chances: Sequence[float], found: Sequence[tuple[Rows, Histogram]]
) -> ValidationScore:
    """Return the mean of the scores of all tasks, with the area under the ROC curve.

    ``found`` has per task the item of each query, ``(Q,)``, and the counts. All queries of an item, such as the texts of a
    picture in all tasks, are one observation, because they are not independent.
    """
    if not scores:
        return ValidationScore()
    areas = np.concatenate([counts.auc() for _, counts in found])
    known = np.isfinite(areas)
    _, item = np.unique(np.concatenate([items for items, _ in found])[known], return_inverse=True)
    means = np.bincount(item, areas[known]) / np.bincount(item)
    judged = len(means)
    error = float(means.std(ddof=1)) / judged**0.5 if judged > 1 else float("nan")
    auc = float(means.mean()) if judged else float("nan")
    return ValidationScore(float(np.mean(scores)), float(np.mean(chances)), auc, error, judged)
