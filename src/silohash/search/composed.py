"""Queries of several parts: a picture with words, words to leave out, and a region of a picture.

In a text, a word with a minus before it is excluded (``boats -station``): it is not encoded, and silos that may compare words
leave out the items that hold it. A minus inside a word, alone, or in quotation marks excludes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np

from silohash.base.analysis import UNICODE, words_of
from silohash.base.errors import EmptyInput, NoEffect, OutOfRange, WrongForm, WrongType
from silohash.base.types import Modality
from silohash.search.policy import Source

if TYPE_CHECKING:
    from PIL import Image

    from silohash.features.base import Value
    from silohash.index.codes import Codes
    from silohash.run.model.encoder import Encoder

TEXT_WEIGHT = 0.5
"""Weight of the words in a query with a picture and words, unless it is given."""

MOST_EXCLUDED = 31
"""Most words that a query may exclude."""

RegionLike: TypeAlias = "str | Sequence[float]"
"""A region of a picture: left, top, right and bottom as shares of its width and height, as numbers or as one text."""

_QUOTED_OR_EXCLUDED = re.compile(r'(?<!\S)(?:["“]([^"“”]*)["”]|[-−－](["“][^"“”]*["”]|\S+))')
_EXCLUDED = re.compile(r"(?<!\S)[-−－]\S")


@dataclass(frozen=True)
class TypedText:
    """The parts of a text as someone typed it.

    Attributes:
        searched: What is encoded, and whose words are compared; empty if there is nothing else than excluded words.
        excluded: The excluded words, each once and without its minus.
    """

    searched: str
    excluded: tuple[str, ...]


def parsed_text(typed: str) -> TypedText:
    """Divide a text into what is searched for and what is excluded.

    Quotation marks are removed if they keep a word with a minus from being excluded.

    Raises:
        OutOfRange: If more than `MOST_EXCLUDED` words are excluded.

    Example:
        >>> parsed_text("sea-side - boats -station")
        TypedText(searched='sea-side - boats', excluded=('station',))
        >>> parsed_text('"-5 degrees" -"red boat"')
        TypedText(searched='-5 degrees', excluded=('red boat',))
    """
    excluded: dict[str, None] = {}

    def kept(found: re.Match[str]) -> str:
        """Return what remains of a quotation or of an excluded word."""
        quoted, word = found.groups()
        if quoted is not None:
            return quoted if _EXCLUDED.search(quoted) else found[0]
        if not words_of(word, UNICODE):
            return found[0]
        excluded[word.strip('"“”.,;:!?')] = None
        return ""

    rest = _QUOTED_OR_EXCLUDED.sub(kept, typed)
    if len(excluded) > MOST_EXCLUDED:
        raise OutOfRange(f"The text excludes {len(excluded):,} words. Exclude at most {MOST_EXCLUDED}.")
    return TypedText(" ".join(rest.split()) if excluded else rest, tuple(excluded))


@dataclass(frozen=True, eq=False)
class Composed:
    """A picture and a text as one query.

    Attributes:
        picture: The picture, as in `silohash.search.requests.SearchRequest`.
        text: The text as it was typed.
        text_weight: Weight of the text, from 0 for the picture alone to 1 for the words alone.
    """

    picture: Image.Image
    text: str
    text_weight: float = TEXT_WEIGHT

    def __post_init__(self) -> None:
        """Check the text and its weight.

        Raises:
            UserError: If the text is not a text or is empty, or the weight is not a number from 0 to 1.
        """
        if not isinstance(self.text, str):
            raise WrongType(f"The text is of type {type(self.text).__name__}. Give the words as a str.")
        if not self.text.strip():
            raise EmptyInput("The text is empty. Give words, or leave the text out to search for the picture alone.")
        if not (isinstance(self.text_weight, float | int) and 0 <= self.text_weight <= 1):
            raise OutOfRange(f"text_weight is {self.text_weight!r}. Use a number from 0 to 1.")


def with_text(picture: Value, text: str | None, text_weight: float | None) -> Value | Composed:
    """Return a picture with words as one query, or the picture alone if there are none.

    Raises:
        UserError: As for `Composed`, or if there is a weight without a text.
    """
    if text is not None:
        weight = TEXT_WEIGHT if text_weight is None else text_weight
        return Composed(cast("Image.Image", picture), text, weight)
    if text_weight is not None:
        raise NoEffect("text_weight is set without a text, whose weight it is. Add a text, or leave it out.")
    return picture


@dataclass(frozen=True, eq=False)
class Parts:
    """What is encoded and compared of a query.

    Attributes:
        values: Maps a modality to what is encoded of it: at least one.
        text: The text as it was typed; None if there is none.
        text_weight: Weight of the text, if there are two values.
    """

    values: Mapping[Modality, Value]
    text: str | None = None
    text_weight: float = TEXT_WEIGHT

    @classmethod
    def of(cls, value: Value | Composed, modality: Modality) -> Parts:
        """Return the parts of a query, whose picture or vector has a modality.

        Raises:
            EmptyInput: If nothing is left to search for without the excluded words.
        """
        picture = value.picture if isinstance(value, Composed) else value
        values: dict[Modality, Value] = {} if isinstance(picture, str) else {modality: picture}
        text = value.text if isinstance(value, Composed) else value if isinstance(value, str) else None
        if text is not None and (searched := parsed_text(text).searched):
            values["text"] = searched
        if not values:
            raise EmptyInput(f'The text "{text}" only excludes words. Add words or a picture to search for.')
        return cls(values, text, value.text_weight if isinstance(value, Composed) else TEXT_WEIGHT)

    @property
    def modality(self) -> Modality | None:
        """The modality of the only value; None if there are two."""
        return next(iter(self.values)) if len(self.values) == 1 else None

    @property
    def source(self) -> Source:
        """What the code is made from; a picture if there are a picture and a text."""
        first = next(iter(self.values.values()))
        return "text" if isinstance(first, str) else "vector" if isinstance(first, np.ndarray) else "picture"

    def codes(self, encoder: Encoder, *, with_text: bool = True) -> Codes:
        """Return the code of the query. Without its text, a query with a picture has the code of the picture."""
        first = next(iter(self.values.items()))
        if len(self.values) == 1 or not with_text:
            return encoder.encode(first[1], first[0])
        weights = {name: self.text_weight if name == "text" else 1 - self.text_weight for name in self.values}
        return encoder.encode_sum(self.values, weights)


def cropped(picture: Image.Image, region: RegionLike) -> Image.Image:
    """Return a region of a picture, of at least one pixel.

    Raises:
        UserError: If the region does not have four numbers, or is not within the picture.

    Example:
        >>> from PIL import Image
        >>> cropped(Image.new("L", (40, 10)), "0.5,0,1,0.7").size
        (20, 7)
    """
    try:
        left, top, right, bottom = map(float, region.split(",") if isinstance(region, str) else region)
    except (TypeError, ValueError) as error:
        raise WrongForm(
            f"The region is {region!r}. Give left, top, right and bottom as shares, such as 0.1,0.2,0.5,0.9."
        ) from error
    if not (0 <= left < right <= 1 and 0 <= top < bottom <= 1):
        raise OutOfRange(
            f"The region is {region!r}. Its left must be below its right, its top below its bottom, in 0 to 1."
        )

    def span(first: float, last: float, pixels: int) -> tuple[int, int]:
        """Return the first pixel of a span, and the one after its last."""
        start = min(round(first * pixels), pixels - 1)
        return start, max(round(last * pixels), start + 1)

    columns, rows = span(left, right, picture.width), span(top, bottom, picture.height)
    return picture.crop((columns[0], rows[0], columns[1], rows[1]))
