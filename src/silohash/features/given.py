"""Precomputed feature vectors of either modality, standardized to mean zero and standard deviation one.

Optionally, they are whitened: their columns become uncorrelated. Or they are left as they are, or scaled one by one.
Tokens, such as the patches of a picture, can have vectors beside those of their items.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from silohash.base.errors import ArchiveUnsuitable, ConflictingOptions, NotFinite, QueryUnsuitable, RevealsItems
from silohash.base.types import Arrays, Modality, Rows
from silohash.data.archive import Column, is_features
from silohash.features import base

BLOCK_ROWS = 1_024
BLOCK_ITEMS = 256
TOKEN = "token_"  # noqa: S105  no password
"""Begins the names of the sums over tokens."""

SHRINKAGE = 0.01
"""Share of the mean variance that whitening adds to the variance of each direction, so that noise is not magnified."""

WHITENING: Mapping[str, Any] = {"whiten": False, "reveal_items": False}
"""Options of whitening, with their defaults."""


@dataclass(frozen=True, eq=False)
class GivenFeatures:
    """Precomputed vectors, by default standardized per column.

    Missing (NaN) and infinite numbers are left out of the sums and become zero, which is the mean. A row without any
    finite number is an item that lacks the modality. Standardized, a constant column becomes zero.

    Attributes:
        summed: The added sums of the silos: ``count``, ``sum``, ``sum_squares``, each ``(width,)`` float64. With
            whitening, also ``whitening (width, width)`` float32, the map of standardized vectors (see `whitening`).
        standardize: Whether to standardize the vectors. If not, only missing numbers are replaced, by zero.
        equal_lengths: Whether to scale each vector to the length sqrt(width), so that its mean square is 1. This does
            not need sums over the silos. Zeros stay zeros.
    """

    modality: Modality
    width: int
    summed: Arrays | None = None
    whiten: bool = False
    standardize: bool = True
    equal_lengths: bool = False

    kind: ClassVar[str] = "given"
    options: ClassVar[Mapping[str, Any]] = {**WHITENING, "standardize": True, "equal_lengths": False}

    @classmethod
    def make(cls, kind: str, modality: Modality, column: Column, options: Mapping[str, Any]) -> Self:
        """Return an unfitted featurizer for a column of vectors.

        Raises:
            UserError: If the column does not hold vectors, or if an option is invalid or does not go with another.
        """
        if not isinstance(column, np.ndarray) or not is_features(column):
            raise base.lacking(kind, modality, "feature vectors")
        base.check_switches(options, "standardize", "equal_lengths")
        standardize, equal_lengths = options["standardize"], options["equal_lengths"]
        whiten = is_whitened(modality, options)
        if whiten and not standardize:
            raise ConflictingOptions(
                f"[features] whiten applies to standardized vectors, but features.{modality}.standardize is false. Remove "
                "one of the two."
            )
        if equal_lengths and standardize:
            raise ConflictingOptions(
                f"[features] equal_lengths takes the place of standardized columns. Set features.{modality}.standardize = "
                "false, or remove equal_lengths."
            )
        return cls(modality, column.shape[1], whiten=whiten, standardize=standardize, equal_lengths=equal_lengths)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one vector, ``(width,)``."""
        return (self.width,)

    def statistics(self, column: Column, rows: Rows) -> Arrays:
        """Return sums over the rows.

        Returns:
            ``count``, ``sum`` and ``sum_squares`` of the finite numbers per column, each ``(width,)`` float64. With
            whitening, also sums over the rows whose numbers are all finite: ``rows (1,)``, ``row_sum (width,)`` and
            ``products``, the upper triangle of the sum of x x^T, ``(width (width + 1) / 2,)``.
        """
        vectors = self._vectors(column)
        count, total, squares = (np.zeros(self.width) for _ in range(3))
        number, row_sum = 0, np.zeros(self.width)
        products = np.zeros((self.width, self.width)) if self.whiten else None
        for _, block in base.blocks(rows, BLOCK_ROWS):
            values = vectors[block].astype(np.float64)
            there = np.isfinite(values)
            values = np.where(there, values, 0.0)
            count += there.sum(axis=0)
            total += values.sum(axis=0)
            squares += np.square(values).sum(axis=0)
            if products is not None:
                whole = values[there.all(axis=1)]
                number, row_sum = number + len(whole), row_sum + whole.sum(axis=0)
                products += whole.T @ whole
        sums = {"count": count, "sum": total, "sum_squares": squares}
        if products is not None:
            sums |= {"rows": np.array([number]), "row_sum": row_sum, "products": products[np.triu_indices(self.width)]}
        return sums

    def added(self, parts: Iterable[npt.NDArray[np.float32]]) -> Arrays:
        """Return the `MOMENTS` over all vectors ``(n, width)`` of several parts."""
        totals = {name: np.zeros(self.width) for name in base.MOMENTS}
        for part in parts:
            for name, array in self.statistics(part, np.arange(len(part))).items():
                totals[name] += array
        return totals

    def fitted(self, summed: Arrays) -> Self:
        """Return a featurizer with the mean, the standard deviation and the whitening over all silos."""
        kept = {name: summed[name] for name in base.MOMENTS}
        return replace(self, summed=kept | ({"whitening": whitening(summed)} if self.whiten else {}))

    def transform(self, column: Column, rows: Rows) -> npt.NDArray[np.float32]:
        """Return the rows, standardized and whitened as the options say, ``(n, width)`` float32."""
        vectors = self._vectors(column)
        mean, scale = self._center_and_scale()
        scaled = np.empty((len(rows), self.width), np.float32)
        for place, block in base.blocks(rows, BLOCK_ROWS):
            values = vectors[block].astype(np.float64)
            found = np.where(np.isfinite(values), (np.nan_to_num(values) - mean) * scale, 0.0)
            scaled[place] = of_equal_lengths(found) if self.equal_lengths else found
        return scaled @ base.known(self.summed, self.kind)["whitening"] if self.whiten else scaled

    def _center_and_scale(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return what is subtracted from each column, and the factor on the difference, both ``(width,)``."""
        mean, deviation = base.mean_and_deviation(base.known(self.summed, self.kind))
        if not self.standardize:
            return np.zeros_like(mean), np.ones_like(mean)
        return mean, np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)

    def encode_one(self, value: base.Value) -> npt.NDArray[np.float32]:
        """Return one vector, ``(width,)`` or ``(1, width)``, as ``(1, width)`` float32.

        Raises:
            UserError: If the query is a text or a picture, has another width, or does not have any finite number.
        """
        if not isinstance(value, np.ndarray):
            what = "a text" if isinstance(value, str) else "a picture"
            raise QueryUnsuitable(
                f"The run was trained on precomputed {self.modality} features with {self.width} columns, and the query is "
                f"{what}. Pass a .npy vector that was computed like those features."
            )
        vectors = self._vectors(value.reshape(1, -1))
        if not np.isfinite(vectors).any():
            raise NotFinite("The query is a vector without any finite number. Compute it again.")
        return self.transform(vectors, np.zeros(1, np.int64))

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return the sums and the settings."""
        about = {"kind": self.kind, "modality": self.modality, "width": self.width}
        about |= {} if self.standardize else {"standardize": False}
        about |= {"equal_lengths": True} if self.equal_lengths else {}
        return dict(self.summed or {}), about | self.settings()

    def settings(self) -> dict[str, Any]:
        """Return the setting of whitening for `state`; empty without it."""
        return {"whiten": True} if self.whiten else {}

    @classmethod
    def from_state(cls, arrays: Arrays, about: Mapping[str, Any]) -> Self:
        """Return the featurizer with a given state."""
        width, whiten = about["width"], bool(about.get("whiten", False))
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(base.MOMENTS, (width,))
        shapes |= {"whitening": (width, width)} if whiten else {}
        standardize, equal_lengths = bool(about.get("standardize", True)), bool(about.get("equal_lengths", False))
        return cls(about["modality"], width, base.stored_sums(arrays, shapes), whiten, standardize, equal_lengths)

    def _vectors(self, column: Column) -> npt.NDArray[Any]:
        if not isinstance(column, np.ndarray) or not is_features(column) or column.dtype.kind not in "fiub":
            raise ArchiveUnsuitable(
                f"The run was trained on precomputed {self.modality} features with {self.width} columns, and this archive "
                "does not have any. Use an archive with such features."
            )
        if column.shape[1] != self.width:
            raise ArchiveUnsuitable(
                f"The run was trained on precomputed {self.modality} features with {self.width} columns, and these have "
                f"{column.shape[1]:,}. Compute them like the features of the run."
            )
        return column


@dataclass(frozen=True, eq=False)
class TokenVectors:
    """The vector of each item and those of its tokens, in arrays of one row per item.

    The vectors of items are standardized with their own mean and deviation. All tokens share another mean and deviation,
    whatever their position. A token of zeros is padding: it is not part of the sums, and stays zero.

    Attributes:
        tokens: Number of tokens per item, with padding.
        item: Standardizes the vectors of items, ``(D,)``.
        token: Standardizes the vectors of tokens, ``(D,)``.
    """

    tokens: int
    item: GivenFeatures
    token: GivenFeatures

    @classmethod
    def make(cls, modality: Modality, width: int, tokens: int) -> Self:
        """Return an unfitted one for rows of ``width = (1 + tokens) * D`` numbers."""
        column = GivenFeatures(modality, width // (1 + tokens))
        return cls(tokens, column, column)

    @property
    def modality(self) -> Modality:
        """The modality of the inputs."""
        return self.item.modality

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an item, ``(1 + tokens, D)``."""
        return (1 + self.tokens, self.item.width)

    @property
    def width(self) -> int:
        """Number of columns of the arrays, ``(1 + tokens) * D``."""
        return (1 + self.tokens) * self.item.width

    @property
    def summed(self) -> Arrays | None:
        """The added sums of the silos, or None before fitting."""
        if self.item.summed is None or self.token.summed is None:
            return None
        return {**self.item.summed, **{f"{TOKEN}{name}": array for name, array in self.token.summed.items()}}

    def statistics(self, column: npt.NDArray[np.float32], rows: Rows) -> Arrays:
        """Return the `MOMENTS` of items and of their tokens, each ``(D,)`` float64, of rows of a column ``(n, width)``."""
        sums = self.item.statistics(column[:, : self.item.width], rows)
        of_tokens = self.token.added(self._tokens(column[block]) for _, block in base.blocks(rows, BLOCK_ITEMS))
        return {**sums, **{f"{TOKEN}{name}": array for name, array in of_tokens.items()}}

    def fitted(self, summed: Arrays) -> Self:
        """Return one with the means and deviations over all silos."""
        of_tokens = {name: summed[f"{TOKEN}{name}"] for name in base.MOMENTS}
        return replace(self, item=self.item.fitted(summed), token=self.token.fitted(of_tokens))

    def transform(self, column: npt.NDArray[np.float32], rows: Rows) -> npt.NDArray[np.float32]:
        """Return the standardized vectors of items and tokens, ``(n, 1 + tokens, D)`` float32."""
        found = np.empty((len(rows), *self.shape), np.float32)
        for place, block in base.blocks(rows, BLOCK_ITEMS):
            tokens = self._tokens(column[block])
            found[place, 0] = self.item.transform(column[block][:, : self.item.width], np.arange(len(block)))
            standardized = self.token.transform(tokens, np.arange(len(tokens)))
            found[place, 1:] = standardized.reshape(len(block), self.tokens, self.item.width)
        return found

    def encode_one(self, value: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the vectors of one item, ``(1, 1 + tokens, D)`` float32, from ``(1, width)``."""
        return self.transform(value.reshape(1, -1), np.zeros(1, np.int64))

    def settings(self) -> dict[str, Any]:
        """Return the settings to store."""
        return {"tokens": self.tokens}

    @classmethod
    def from_state(cls, arrays: Arrays, about: Mapping[str, Any]) -> Self:
        """Return one with given sums and settings."""
        made = cls.make(about["modality"], about["width"], about["tokens"])
        names = (*base.MOMENTS, *(f"{TOKEN}{name}" for name in base.MOMENTS))
        sums = base.stored_sums(arrays, dict.fromkeys(names, (made.item.width,)))
        return made if sums is None else made.fitted(sums)

    def _tokens(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the vectors of the tokens of some items, ``(n * tokens, D)``, where padding is NaN."""
        tokens = values[:, self.item.width :].reshape(-1, self.item.width).copy()
        # Padding becomes NaN, which the standardization leaves out of its sums and turns into zero.
        tokens[~tokens.any(axis=1)] = np.nan
        return tokens


def of_equal_lengths(vectors: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.floating[Any]]:
    """Return vectors ``(n, D)``, each scaled to the length sqrt(D). Zeros stay zeros.

    Example:
        >>> of_equal_lengths(np.array([[3.0, 4.0], [0.0, 0.0]])).round(4).tolist()
        [[0.8485, 1.1314], [0.0, 0.0]]
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    factors = np.divide(math.sqrt(vectors.shape[1]), lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return np.asarray(vectors * factors)


def is_whitened(modality: Modality, options: Mapping[str, Any]) -> bool:
    """Return whether vectors are whitened, which the user must allow.

    Raises:
        UserError: If an option is not a truth value, or if the user does not allow what whitening reveals.
    """
    base.check_switches(options, *WHITENING)
    if options["whiten"] and not options["reveal_items"]:
        raise RevealsItems(
            f"[features] whiten: each silo sends second moments of its {modality} vectors, from which a server that sees "
            f"them one silo at a time can compute the vectors of a small silo. Set features.{modality}.reveal_items = true "
            "if the server may learn them, or remove whiten."
        )
    return bool(options["whiten"])


def whitening(summed: Arrays) -> npt.NDArray[np.float32]:
    """Return the map from standardized vectors to uncorrelated ones, ``(width, width)`` float32.

    R^(-1/2), where R is the correlation matrix over all silos plus `SHRINKAGE` times the identity. Of all maps that remove
    the correlations, it is the one that changes the vectors least.

    Source: Kessy, Lewin and Strimmer, "Optimal Whitening and Decorrelation", The American Statistician 2018, ZCA-cor.
    """
    width, rows = len(summed["row_sum"]), max(float(summed["rows"][0]), 1.0)
    products = np.zeros((width, width))
    products[np.triu_indices(width)] = summed["products"]
    mean = summed["row_sum"] / rows
    covariance = (products + np.triu(products, 1).T) / rows - np.outer(mean, mean)
    _, deviation = base.mean_and_deviation(summed)
    scale = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)
    values, vectors = np.linalg.eigh(covariance * np.outer(scale, scale))
    roots = 1.0 / np.sqrt(np.maximum(values, 0.0) + SHRINKAGE)
    return np.asarray((vectors * roots) @ vectors.T, np.float32)
