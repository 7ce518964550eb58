"""Vectors of items and of their tokens, standardized per column. Tokens are, for example, the patches of a picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from silohash.base.types import Arrays, Modality, Rows
from silohash.features.base import MOMENTS, blocks, stored_sums
from silohash.features.given import GivenFeatures

BLOCK_ITEMS = 256
TOKEN = "token_"  # noqa: S105  no password
"""Begins the names of the sums over tokens."""


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
    def make(cls, modality: Modality, width: int, tokens: int) -> TokenVectors:
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
        """Return sums over items, ``count``, ``sum`` and ``sum_squares``, and over their tokens, each ``(D,)`` float64.

        Args:
            column: ``(n, width)``.
            rows: Positions in the column.
        """
        sums = self.item.statistics(column[:, : self.item.width], rows)
        totals = {name: np.zeros(self.item.width) for name in MOMENTS}
        for _, block in blocks(rows, BLOCK_ITEMS):
            tokens = self._tokens(column[block])
            for name, array in self.token.statistics(tokens, np.arange(len(tokens))).items():
                totals[name] += array
        return {**sums, **{f"{TOKEN}{name}": array for name, array in totals.items()}}

    def fitted(self, summed: Arrays) -> TokenVectors:
        """Return one with the means and deviations over all silos."""
        of_tokens = {name: summed[f"{TOKEN}{name}"] for name in MOMENTS}
        return replace(self, item=self.item.fitted(summed), token=self.token.fitted(of_tokens))

    def transform(self, column: npt.NDArray[np.float32], rows: Rows) -> npt.NDArray[np.float32]:
        """Return the standardized vectors of items and tokens, ``(n, 1 + tokens, D)`` float32."""
        found = np.empty((len(rows), *self.shape), np.float32)
        for place, block in blocks(rows, BLOCK_ITEMS):
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
    def from_state(cls, arrays: Arrays, about: Mapping[str, Any]) -> TokenVectors:
        """Return one with given sums and settings."""
        made = cls.make(about["modality"], about["width"], about["tokens"])
        names = (*MOMENTS, *(f"{TOKEN}{name}" for name in MOMENTS))
        sums = stored_sums(arrays, dict.fromkeys(names, (made.item.width,)))
        return made if sums is None else made.fitted(sums)

    def _tokens(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the vectors of the tokens of some items, ``(n * tokens, D)``, where padding is NaN."""
        tokens = values[:, self.item.width :].reshape(-1, self.item.width).copy()
        tokens[~tokens.any(axis=1)] = np.nan
        return tokens
