"""The pairs of a batch's items and a silo's stored items, as several local methods compare them by shared labels.

The stored outputs themselves are handled in `silohash.methods.local.base`, and the formulas are in
`silohash.methods.local.losses`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor

from silohash.methods.local.base import SiloData, SiloState
from silohash.methods.local.losses import mean_similarity, pair_likelihood, pair_weights, similarity


def labels_and_share(data: SiloData, *, graded: bool) -> dict[str, Tensor]:
    """Return the working tensors that `stored_likelihood` needs beside the stored outputs.

    Args:
        data: Pairs of the silo, with labels.
        graded: Whether similarity is the cosine of the label vectors instead of 0 or 1 (`similarity`).

    Returns:
        ``labels`` ``(n, C)``, and ``share``, the share of similar pairs, a scalar.
    """
    assert data.labels is not None  # noqa: S101  needs_labels is checked when the run is put together
    return {"labels": data.labels, "share": mean_similarity(data.labels, graded=graded)}


def stored_likelihood(
    codes: Tensor, stored: Tensor, rows: Tensor, anchors: Tensor, state: SiloState, *, graded: bool, balanced: bool
) -> Tensor:
    """Return the `pair_likelihood` of a batch's and stored items, ``(B, N)``.

    Args:
        codes: ``(B, K)`` outputs of the network in training.
        stored: ``(N, K)`` outputs of the stored items.
        rows: ``(B,)`` int64, positions of the batch's items.
        anchors: ``(N,)`` int64, positions of the stored items.
        state: Working tensors, among them those of `labels_and_share`.
        graded: Whether similarity is the cosine of the label vectors instead of 0 or 1 (`similarity`).
        balanced: Whether similar and dissimilar pairs have the same total weight (`pair_weights`).
    """
    labels = state.buffers["labels"]
    similar = similarity(labels[rows], labels[anchors], graded=graded)
    likelihood = pair_likelihood(codes, stored, similar)
    if not balanced:
        return likelihood
    return likelihood * pair_weights(similar, float(state.buffers["share"]))


def collapse_warnings(terms: Mapping[str, float], *, balanced: bool, remedy: str) -> list[str]:
    """Return a warning if the codes collapse: outputs near zero give every pair a likelihood of ln 2.

    Args:
        terms: Mean of each term, of which ``likelihood`` is read.
        balanced: Whether similar and dissimilar pairs have the same total weight. There is then no warning.
        remedy: What the user can do, as a sentence.
    """
    if balanced or abs(terms.get("likelihood", 0.0) - math.log(2)) > 1e-4:
        return []
    return [f"The codes have collapsed: the likelihood per pair is ln 2, as if every output were zero. {remedy}"]
