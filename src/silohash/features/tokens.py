"""Texts as the word pieces of a published model, for a text tower that fine-tunes that model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from silohash.base.types import Arrays, Modality, Rows, UserError
from silohash.data.archive import Column
from silohash.features.base import Value, blocks
from silohash.features.model_folder import find_model
from silohash.features.text import check_texts, query_text, texts_of
from silohash.features.word_pieces import WordPieces, read_word_pieces

BLOCK_ROWS = 4_096


@dataclass(frozen=True, eq=False)
class TokenFeatures:
    """Texts as the ids of their word pieces, ``(length,)`` int32, padded with -1.

    Nothing is fitted. The state holds the whole tokenizer, so the model's folder is not needed to encode queries.

    Attributes:
        pieces: The tokenizer. Its ``most`` is the length.
    """

    pieces: WordPieces

    kind: ClassVar[str] = "tokens"
    modality: ClassVar[Modality] = "text"
    options: ClassVar[Mapping[str, Any]] = {"model": "", "length": 64, "download": False}

    @classmethod
    def make(cls, kind: str, modality: Modality, column: Column, options: Mapping[str, Any]) -> TokenFeatures:
        """Return the featurizer that the options describe.

        Raises:
            UserError: If the column does not hold texts, if an option is invalid, or if the model is not available.
        """
        check_texts(kind, modality, column)
        if type(options["length"]) is not int or options["length"] < 3:
            raise UserError(
                f"[features] length is {options['length']!r}; it must be an integer of at least 3, in word pieces."
            )
        folder = find_model(options["model"], "features.text", download=options["download"])
        return cls(read_word_pieces(folder, options["length"]))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one text, ``(length,)``."""
        return (self.pieces.most,)

    def statistics(self, column: Column, rows: Rows) -> Arrays:
        """Return the number of texts, ``texts (1,)`` int64. Nothing is fitted."""
        return {"texts": np.array([len(rows)], np.int64)}

    def fitted(self, summed: Arrays) -> TokenFeatures:
        """Return the featurizer itself, because nothing is fitted."""
        return self

    def transform(self, column: Column, rows: Rows) -> npt.NDArray[np.int32]:
        """Return the ids of the word pieces of the rows, ``(n, length)`` int32.

        Raises:
            UserError: If the column does not hold texts.
        """
        texts = texts_of(column)
        ids = np.empty((len(rows), *self.shape), np.int32)
        for place, block in blocks(rows, BLOCK_ROWS):
            ids[place] = self.pieces.ids(texts[block].tolist(), width=self.pieces.most)
        return ids

    def encode_one(self, value: Value) -> npt.NDArray[np.int32]:
        """Return one text as ``(1, length)`` int32.

        Raises:
            UserError: If the query is not a text.
        """
        return self.pieces.ids([query_text(value)], width=self.pieces.most)

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return the serialized tokenizer as bytes, and the settings."""
        tokenizer = np.frombuffer(self.pieces.tokenizer.encode(), np.uint8)
        about = {
            "kind": self.kind,
            "modality": self.modality,
            "length": self.pieces.most,
            "padding": self.pieces.padding,
        }
        return {"tokenizer": tokenizer}, about

    @classmethod
    def from_state(cls, arrays: Arrays, about: Mapping[str, Any]) -> TokenFeatures:
        """Return the featurizer with a given state."""
        return cls(WordPieces(arrays["tokenizer"].tobytes().decode(), about["length"], about["padding"]))
