"""Texts as word pieces, by a published model's own tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from silohash.features.model_folder import needs_transformers
from silohash.files import read_json
from silohash.types import UserError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PADDING = -1
"""Stands where a text has no more pieces: no number of a piece, whatever the model pads with."""

LONGEST = 512
COUNTING_FROM_PADDING = ("roberta", "xlm-roberta", "camembert", "mpnet")
"""Models whose positions begin behind the number of their padding."""


@dataclass(frozen=True)
class WordPieces:
    """A tokenizer that is all in one text, so that it needs no folder. Several threads may use it at once.

    Attributes:
        tokenizer: as the package tokenizers writes it.
        most: texts are cut to so many pieces, those that mark begin and end included.
        padding: what the model's own tokenizer pads with.
    """

    tokenizer: str
    most: int
    padding: int

    def ids(self, texts: Sequence[str], *, width: int | None = None) -> npt.NDArray[np.int32]:
        """Return the pieces' numbers, ``(n, width)`` int32, `PADDING` behind a text's last.

        Args:
            texts: n texts.
            width: how many columns; those that the longest text needs by default.
        """
        pieces = [encoding.ids for encoding in self._opened.encode_batch(list(texts))]
        columns = max((len(row) for row in pieces), default=0) if width is None else width
        ids = np.full((len(pieces), columns), PADDING, np.int32)
        for place, row in enumerate(pieces):
            ids[place, : len(row)] = row
        return ids

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
    """Read the tokenizer of a model's folder.

    Args:
        folder: the folder.
        most: texts are cut to so many pieces, or fewer where the model takes fewer.

    Raises:
        UserError: if the folder has none that can be read.
    """
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise needs_transformers(f"The tokenizer in {folder}") from error
    try:
        found = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        content = found.backend_tokenizer.to_str()
    except Exception as error:  # of many kinds: no file, a damaged one, one without a fast form
        raise UserError(
            f"{folder} has no tokenizer that can be read ({str(error).splitlines()[0] if str(error) else error!r}). Put "
            "tokenizer.json there from where the model came."
        ) from error
    padding = 0 if found.pad_token_id is None else int(found.pad_token_id)
    return WordPieces(content, min(most, LONGEST, int(found.model_max_length), _places(folder, padding)), padding)


def _places(folder: Path, padding: int) -> int:
    """Return for how many pieces a model has positions."""
    config = read_json(folder / "config.json")
    config = config.get("text_config") or config
    places = int(config.get("max_position_embeddings") or LONGEST)
    return places - padding - 1 if config.get("model_type") in COUNTING_FROM_PADDING else places
