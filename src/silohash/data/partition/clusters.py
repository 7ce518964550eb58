"""Clusters in place of labels, so that an archive without labels can be spread unevenly.

They only simulate silos. No method sees them.
"""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt

from silohash.data.archive import Archive, Pictures, is_features
from silohash.seeds import derive, numpy_generator
from silohash.types import Modality, Rows, UserError

FITTED_ROWS = 5_000
"""K-means is fitted on at most this many rows, drawn at random. The others go to the nearest center."""

BLOCK_ROWS = 4_096
SIDE_PIXELS = 8
HASHED_WORDS = 256


def pseudo_classes(archive: Archive, clusters: int, over: str, seed: int) -> npt.NDArray[np.int64]:
    """Cluster the items by k-means over given features, small pictures or hashed words.

    Args:
        archive: the items.
        clusters: number of clusters.
        over: ``"image"``, ``"text"``, or ``"auto"`` for the pictures if there are any.
        seed: seed of the partition.

    Returns:
        ``(N,)`` int64, the cluster of each item. Items that lack the modality get the number ``clusters``.

    Raises:
        UserError: if the archive lacks the modality, has fewer such items than clusters, or scikit-learn is missing.

    Source: the partition of PT-FUCH's published code (k-means pseudo-classes on image features).
    """
    try:
        from sklearn.cluster import KMeans
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
    except ImportError as error:
        raise UserError(
            '[partition] kind = "pseudo" needs scikit-learn. Install it: pip install "silohash[train]".'
        ) from error
    modality = _modality(archive, over)
    rows = np.flatnonzero(archive.has(modality))
    if len(rows) < clusters:
        raise UserError(
            f"[partition] clusters is {clusters}, and {len(rows)} items have a {modality}. "
            f"Set clusters = {max(len(rows), 1)} or fewer."
        )
    fitted = rows
    if len(rows) > FITTED_ROWS:
        fitted = np.sort(numpy_generator(seed, "partition k-means rows").choice(rows, FITTED_ROWS, replace=False))
    model = KMeans(clusters, n_init=1, max_iter=100, random_state=derive(seed, "partition k-means") % 2**32)
    found = np.full(len(archive), clusters, np.int64)
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer distinct items than clusters: some clusters stay empty
        model.fit(_vectors(archive, modality, fitted))  # in one thread, so that its sums are reproducible
        for block in np.split(rows, range(BLOCK_ROWS, len(rows), BLOCK_ROWS)):
            found[block] = model.predict(_vectors(archive, modality, block))
    return found


def _modality(archive: Archive, over: str) -> Modality:
    if over == "auto":
        return "image" if archive.has_image.any() else "text"
    modality: Modality = "image" if over == "image" else "text"
    if not archive.has(modality).any():
        other = "text" if modality == "image" else "image"
        raise UserError(f'[partition] over is "{over}", and no item has a {modality}. Set over = "{other}".')
    return modality


def _vectors(archive: Archive, modality: Modality, rows: Rows) -> npt.NDArray[np.float32]:
    column = archive.values(modality)
    if isinstance(column, Pictures):
        pictures = (column.picture(int(row)).convert("RGB") for row in rows)
        small = [np.asarray(picture.resize((SIDE_PIXELS, SIDE_PIXELS)), np.float32) for picture in pictures]
        return np.stack(small).reshape(len(rows), -1) / np.float32(255)
    if column is not None and is_features(column):
        given = np.nan_to_num(column[rows].astype(np.float32), posinf=0.0, neginf=0.0)
        length = np.linalg.norm(given, axis=1, keepdims=True)
        return np.asarray(given / np.maximum(length, np.finfo(np.float32).tiny), np.float32)
    from sklearn.feature_extraction.text import HashingVectorizer

    texts = [] if column is None else [str(column[row]) for row in rows]
    vectorizer = HashingVectorizer(n_features=HASHED_WORDS, alternate_sign=False, dtype=np.float32)
    return np.asarray(vectorizer.transform(texts).toarray(), np.float32)
