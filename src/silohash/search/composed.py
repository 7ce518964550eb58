"""Queries of several parts: a picture with words, words to leave out, and a region of a picture.

In a text, a word with a minus before it is excluded, as in ``boats -station``. It is not encoded, and silos that may compare
words leave out the items that hold it. A minus alone, inside a word or in quotation marks excludes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from silohash.base.analysis import UNICODE, words_of
from silohash.base.errors import ConflictingOptions, EmptyInput, OutOfRange, WrongForm
from silohash.base.types import Modality

if TYPE_CHECKING:
    from PIL import Image

    from silohash.features.base import Value

TEXT_WEIGHT = 0.6
"""Default weight of the words in a query with a picture and words, chosen on validation items (docs/how-to/search.md)."""

MOST_EXCLUDED = 31
"""Most words that a query may exclude."""

ABOUT_WEIGHT = "Weight of the words beside a picture, from 0 for the picture alone to 1 for the words alone."
ABOUT_REGION = "Part of the picture to search for: left,top,right,bottom as shares of its width and height."

RegionLike: TypeAlias = "str | Sequence[float]"
"""A region of a picture: left, top, right and bottom as shares of its width and height, as numbers or as one text."""

_Values: TypeAlias = "dict[Modality, Value]"
_QUOTED_OR_EXCLUDED = re.compile(r'(?<!\S)(?:["“]([^"“”]*)["”]|[-−－](["“][^"“”]*["”]|\S+))')
_EXCLUDED = re.compile(r"(?<!\S)[-−－]\S")


def parsed_text(typed: str) -> tuple[str, tuple[str, ...]]:
    """Return what is searched for of a text, and its excluded words, each once and without its minus.

    Quotation marks are removed if they keep a word with a minus from being excluded.

    Raises:
        OutOfRange: If more than `MOST_EXCLUDED` words are excluded.

    Example:
        >>> parsed_text("sea-side - boats -station")
        ('sea-side - boats', ('station',))
        >>> parsed_text('"-5 degrees" -"red boat"')
        ('-5 degrees', ('red boat',))
    """
    excluded: dict[str, None] = {}

    def kept(found: re.Match[str]) -> str:
        """Return what remains of a quotation or of an excluded word."""
        quoted, word = found.groups()
        if quoted is not None:
            return str(quoted) if _EXCLUDED.search(quoted) else found[0]
        if not words_of(word, UNICODE):
            return found[0]
        excluded[word.strip('"“”.,;:!?')] = None
        return ""

    rest = _QUOTED_OR_EXCLUDED.sub(kept, typed)
    if len(excluded) > MOST_EXCLUDED:
        raise OutOfRange(f"The text excludes {len(excluded):,} words. Exclude at most {MOST_EXCLUDED}.")
    return " ".join(rest.split()) if excluded else rest, tuple(excluded)


def compared_text(own: str | None, sent: str | None, *, accepted: bool) -> str | None:
    """Return the text whose words a silo compares: that of this process, or that of another machine if it is accepted."""
    return sent if accepted and own is None else own


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


def parts_of(value: Value | Composed, modality: Modality, *, scores_pairs: bool) -> tuple[_Values, str | None, float]:
    """Return what is encoded of a query by its modality, the text as it was typed if there is one, and its weight.

    Raises:
        UserError: If the query only excludes words, or too many, or the model scores pairs and there are two values.
    """
    text, weight = value if isinstance(value, str) else None, TEXT_WEIGHT
    if isinstance(value, Composed):
        text, weight, value = value.text, value.text_weight, value.picture
    values: _Values = {} if isinstance(value, str) else {modality: value}
    if text is not None and (searched := parsed_text(text)[0]).strip():
        values["text"] = searched
    if not values:
        raise EmptyInput(f'The text "{text}" only excludes words. Add words or a picture to search for.')
    if scores_pairs and len(values) > 1:
        raise ConflictingOptions("The model scores pictures with texts. Search for the picture or the words alone.")
    return values, text, weight


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
        raise WrongForm(f"The region is {region!r}. Give four numbers, such as 0.1,0.2,0.5,0.9.") from error
    if not (0 <= left < right <= 1 and 0 <= top < bottom <= 1):
        raise OutOfRange(f"The region is {region!r}. Give left below right and top below bottom, all from 0 to 1.")
    x, y = (min(round(start * size), size - 1) for start, size in zip((left, top), picture.size, strict=True))
    return picture.crop((x, y, max(round(right * picture.width), x + 1), max(round(bottom * picture.height), y + 1)))
