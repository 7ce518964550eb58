"""Texts as word pieces, with the tokenizer of a published model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from silohash.base.files import read_json
from silohash.base.forms import reading
from silohash.base.types import UserError
from silohash.features.model_folder import COPY_AGAIN, needs_transformers

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PADDING = -1
"""Fills the rows of short texts. It is not the id of any piece, whichever id the model pads with."""

LONGEST = 512
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
        """Return the ids of the pieces, ``(n, width)`` int32, padded with `PADDING`.

        Args:
            texts: ``(N,)`` texts.
            width: Number of columns. The default is the number of pieces of the longest text.
        """
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
        return [
            (text[end:] or text[-1:]).strip() if encoding.overflowing else ""  # the last character can be read in part
            for text, end, encoding in zip(texts, ends, found, strict=True)
        ]

    @cached_property
    def _opened(self) -> Tokenizer:
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise needs_transformers("A published model's tokenizer") from error
        opened: Tokenizer = Tokenizer.from_str(self.tokenizer)
        opened.no_padding()
        opened.enable_truncation(self.most)
        return opened


def read_word_pieces(folder: Path, most: int = LONGEST) -> WordPieces:
    """Return the tokenizer of a model's folder.

    Args:
        folder: The folder.
        most: Number of pieces after which a text is truncated. The model's limit applies if it is lower.

    Raises:
        UserError: If the folder does not have a readable tokenizer.
    """
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise needs_transformers(f"The tokenizer in {folder}") from error
    try:
        found = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        content = found.backend_tokenizer.to_str()
    except Exception as error:  # many types: no file, a damaged file, no fast tokenizer
        raise UserError(
            f"{folder} does not have a readable tokenizer ({str(error).splitlines()[0] if str(error) else error!r}). Copy "
            "tokenizer.json from the source of the model."
        ) from error
    padding = 0 if found.pad_token_id is None else int(found.pad_token_id)
    return WordPieces(content, min(most, LONGEST, int(found.model_max_length), _places(folder, padding)), padding)


def _places(folder: Path, padding: int) -> int:
    """Return the number of pieces for which a model has positions."""
    whole = read_json(folder / "config.json", dict[str, Any], remedy=COPY_AGAIN)
    with reading(folder / "config.json", remedy=COPY_AGAIN):
        config = whole.get("text_config") or whole
        places = int(config.get("max_position_embeddings") or LONGEST)
        return places - padding - 1 if config.get("model_type") in COUNTING_FROM_PADDING else places
