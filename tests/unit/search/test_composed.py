"""What is searched for and what is excluded in a text, the parts of a query, and regions of pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from silohash.base.errors import ConflictingOptions, EmptyInput, OutOfRange, UserError, WrongForm
from silohash.search.composed import MOST_EXCLUDED, TEXT_WEIGHT, Composed, cropped, parsed_text, parts_of

PICTURE = Image.fromarray(np.arange(20 * 10, dtype=np.uint8).reshape(10, 20))


@pytest.mark.parametrize(
    ("typed", "searched", "excluded"),
    [
        ("boats -station", "boats", ("station",)),
        ("-station  boats\n-train at sea", "boats at sea", ("station", "train")),
        ("-station -station", "", ("station",)),
        ("boats at  sea ", "boats at  sea ", ()),
        ("sea-side well-known", "sea-side well-known", ()),
        ("boats - station", "boats - station", ()),
        ("boats -- -!? station", "boats -- -!? station", ()),
        ('"-station" boats', "-station boats", ()),
        ('boats "at -5 degrees" -ice', "boats at -5 degrees", ("ice",)),
        ('the "old boats" of 12" -vinyl 7"', 'the "old boats" of 12" 7"', ("vinyl",)),
        ("“-station” boats −train －鸚鵡", "-station boats", ("train", "鸚鵡")),
        ('boats -"red sails" -tea-time,', "boats", ("red sails", "tea-time")),
        ("boats -l'école", "boats", ("l'école",)),
        ("", "", ()),
    ],
)
def test_excluded_words(typed: str, searched: str, excluded: tuple[str, ...]) -> None:
    assert parsed_text(typed) == (searched, excluded)


def test_the_number_of_excluded_words_is_limited() -> None:
    words = [f"-w{number}" for number in range(MOST_EXCLUDED)]
    assert len(parsed_text(" ".join(words))[1]) == MOST_EXCLUDED
    with pytest.raises(OutOfRange):
        parsed_text(" ".join([*words, "-more"]))


def test_parts_of_a_query() -> None:
    assert parts_of("boats -station", "text", scores_pairs=True) == ({"text": "boats"}, "boats -station", TEXT_WEIGHT)
    assert parts_of(PICTURE, "image", scores_pairs=True) == ({"image": PICTURE}, None, TEXT_WEIGHT)
    both = Composed(PICTURE, "boats -station")
    values, text, _ = parts_of(both, "image", scores_pairs=False)
    assert (list(values.items()), text) == ([("image", PICTURE), ("text", "boats")], "boats -station")
    with pytest.raises(ConflictingOptions):
        parts_of(both, "image", scores_pairs=True)
    assert parts_of(Composed(PICTURE, "-a"), "image", scores_pairs=True) == ({"image": PICTURE}, "-a", TEXT_WEIGHT)
    with pytest.raises(EmptyInput):
        parts_of("-station -boat", "text", scores_pairs=False)


@pytest.mark.parametrize(
    ("region", "columns", "rows"),
    [
        ("0,0,1,1", (0, 20), (0, 10)),
        ((0.1, 0.2, 0.5, 0.9), (2, 10), (2, 9)),
        ([0.25, 0, 0.7, 0.3], (5, 14), (0, 3)),
        (" 0.5, 0.5,0.501 ,0.501", (10, 11), (5, 6)),
        ((0.999, 0.999, 1, 1), (19, 20), (9, 10)),
    ],
)
def test_regions(region: Any, columns: tuple[int, int], rows: tuple[int, int]) -> None:
    found = np.asarray(cropped(PICTURE, region))
    assert np.array_equal(found, np.asarray(PICTURE)[slice(*rows), slice(*columns)])


@pytest.mark.parametrize(
    ("region", "error"),
    [
        ("0,0,1", WrongForm), ("a,b,c,d", WrongForm), ((0, 0, 1, 1, 1), WrongForm), (5, WrongForm), ("", WrongForm),
        ((0.5, 0, 0.5, 1), OutOfRange), ((0, 0.6, 1, 0.5), OutOfRange), ((-0.1, 0, 1, 1), OutOfRange),
        ((0, 0, 1.1, 1), OutOfRange), ("nan,0,1,1", OutOfRange), ("0,0,inf,1", OutOfRange),
    ],
)  # fmt: skip
def test_regions_that_are_refused(region: Any, error: type[UserError]) -> None:
    with pytest.raises(error):
        cropped(PICTURE, region)
