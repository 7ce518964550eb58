"""Texts as the word pieces of a published model: its tokenizer, and the featurizer for a tower that fine-tunes the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from silohash.base.arrays import whole
from silohash.base.errors import DamagedFile
from silohash.base.files import read_json
from silohash.base.forms import reading
from silohash.base.types import Arrays, Modality, Rows
from silohash.data.archive import Column
from silohash.features.base import Value, blocks
from silohash.features.model_folder import COPY_AGAIN, find_model, first_line, needing_transformers
from silohash.features.text import check_texts, query_text, texts_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PADDING = -1
"""Fills the rows of short texts. It is not the id of any piece, whichever id the model pads with."""

LONGEST = 512
BLOCK_ROWS = 4_096
COUNTING_FROM_PADDING = ("roberta", "xlm-roberta", "camembert", "mpnet")
"""Models whose positions start after the id of their padding."""


@dataclass(frozen=True)
class WordPieces:
    """A tokenizer that is serialized as one text, so that it does not need a folder. It is thread-safe.

    Attributes:
        tokenizer: The serialized tokenizer of the package tokenizers.
        most: Number of pieces after which a text is truncated, including the special pieces at both ends.
        padding: The id that the model's tokenizer pads with.
    """

    tokenizer: str
    most: int
    padding: int

    unit: ClassVar[str] = "word pieces"

    def ids(self, texts: Sequence[str], *, width: int | None = None) -> npt.NDArray[np.int32]:
        """Return the ids of the pieces, ``(n, width)`` int32, padded with `PADDING`, by default to the longest text."""
        pieces = [encoding.ids for encoding in self._opened.encode_batch(list(texts))]
        columns = max((len(row) for row in pieces), default=0) if width is None else width
        ids = np.full((len(pieces), columns), PADDING, np.int32)
        for place, row in enumerate(pieces):
            ids[place, : len(row)] = row
        return ids

    def unread(self, texts: Sequence[str]) -> list[str]:
        """Return the end of each text that is beyond `most` pieces; empty for a text that is read to its end."""
        found = self._opened.encode_batch(list(texts))
        ends = [max((end for _, end in encoding.offsets), default=0) for encoding in found]
        # The last character can be read in part, so an overflowing text has an end of at least one character.
        return [
            (text[end:] or text[-1:]).strip() if encoding.overflowing else ""
            for text, end, encoding in zip(texts, ends, found, strict=True)
        ]

    @cached_property
    def _opened(self) -> Tokenizer:
        with needing_transformers("A published model's tokenizer"):
            from tokenizers import Tokenizer
        opened: Tokenizer = Tokenizer.from_str(self.tokenizer)
        opened.no_padding()
        opened.enable_truncation(self.most)
        return opened


def read_word_pieces(folder: Path, most: int = LONGEST) -> WordPieces:
    """Return the tokenizer of a model's folder, which truncates texts after ``most`` pieces or the model's lower limit.

    Raises:
        UserError: If the folder does not have a readable tokenizer.
    """
    with needing_transformers(f"The tokenizer in {folder}"):
        from transformers import AutoTokenizer
    try:
        found = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        content = found.backend_tokenizer.to_str()
    # A missing file, a damaged one and a tokenizer without a fast form raise errors of many types.
    except Exception as error:
        raise DamagedFile(
            f"{folder} does not have a readable tokenizer ({first_line(error)}). Copy tokenizer.json from the source of the "
            "model."
        ) from error
    padding = 0 if found.pad_token_id is None else int(found.pad_token_id)
    return WordPieces(content, min(most, LONGEST, int(found.model_max_length), _places(folder, padding)), padding)


def _places(folder: Path, padding: int) -> int:
    whole = read_json(folder / "config.json", dict[str, Any], remedy=COPY_AGAIN)
    with reading(folder / "config.json", remedy=COPY_AGAIN):
        config = whole.get("text_config") or whole
        places = int(config.get("max_position_embeddings") or LONGEST)
        return places - padding - 1 if config.get("model_type") in COUNTING_FROM_PADDING else places


@dataclass(frozen=True, eq=False)
class TokenFeatures:
    """Texts as the ids of their word pieces, ``(length,)`` int32, padded with -1.

    Nothing is fitted. The state holds the whole tokenizer, so the model's folder is not needed to encode queries. The
    length is that after which the tokenizer truncates texts.
    """

    pieces: WordPieces

    kind: ClassVar[str] = "tokens"
    modality: ClassVar[Modality] = "text"
    options: ClassVar[Mapping[str, Any]] = {"model": "", "length": 64, "download": False}

    @classmethod
    def make(cls, kind: str, modality: Modality, column: Column, options: Mapping[str, Any]) -> TokenFeatures:
        """Return the featurizer that the options describe."""
        check_texts(kind, modality, column)
        whole("[features] length in word pieces", options["length"], 3)
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
        """Return the ids of the word pieces of the rows, ``(n, length)`` int32."""
        texts = texts_of(column)
        ids = np.empty((len(rows), *self.shape), np.int32)
        for place, block in blocks(rows, BLOCK_ROWS):
            ids[place] = self.pieces.ids(texts[block].tolist(), width=self.pieces.most)
        return ids

    def encode_one(self, value: Value) -> npt.NDArray[np.int32]:
        """Return one text as ``(1, length)`` int32."""
        return self.pieces.ids([query_text(value)], width=self.pieces.most)

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return the serialized tokenizer as bytes, and the settings."""
        sizes = {"length": self.pieces.most, "padding": self.pieces.padding}
        tokenizer = np.frombuffer(self.pieces.tokenizer.encode(), np.uint8)
        return {"tokenizer": tokenizer}, {"kind": self.kind, "modality": self.modality, **sizes}

    @classmethod
    def from_state(cls, arrays: Arrays, about: Mapping[str, Any]) -> TokenFeatures:
        """Return the featurizer with a given state."""
        return cls(WordPieces(arrays["tokenizer"].tobytes().decode(), about["length"], about["padding"]))
