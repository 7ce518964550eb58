"""Which items have the same picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from silohash.data.pairs import groups_of, picture_numbers, shares
from silohash.data.pictures.reading import PictureFiles
from tests.archives import made_up_archive

NAMES = ("b", "a", "b", "", "", "c")


def alike(numbers: np.ndarray) -> list[list[bool]]:
    return (numbers[:, None] == numbers).tolist()


def expected(names: tuple[str, ...]) -> list[list[bool]]:
    return [[i == j or (bool(a) and a == b) for j, b in enumerate(names)] for i, a in enumerate(names)]


@pytest.mark.parametrize("place", ["image", "preview", "column"])
def test_items_that_name_the_same_picture(place: str) -> None:
    archive = made_up_archive(6)
    other = np.array(["x"] * 6)
    if place == "column":
        found = picture_numbers(replace(archive, columns={"picture": np.array(NAMES)}))
    else:
        found = picture_numbers(replace(archive, columns={"picture": other}, **{place: PictureFiles(Path(), NAMES)}))
    assert found.dtype == np.int64
    assert alike(found) == expected(NAMES)


def test_without_names_every_item_has_its_own_picture() -> None:
    for image in ("features", "pictures", None):
        assert len(np.unique(picture_numbers(made_up_archive(6, image=image)))) == 6


def test_groups_are_in_the_order_of_their_first_rows() -> None:
    numbers = np.random.default_rng(0).integers(0, 30, 80)
    first, of_row = groups_of(numbers)
    seen: list[int] = []
    for number in numbers.tolist():
        if number not in seen:
            seen.append(number)
    assert first.tolist() == [numbers.tolist().index(number) for number in seen]
    assert of_row.tolist() == [seen.index(number) for number in numbers.tolist()]
    for alone in (np.array([5, 2, 9]), np.zeros(0, np.int64)):
        assert [rows.tolist() for rows in groups_of(alone)] == [list(range(len(alone)))] * 2


def test_empty_names_are_not_shared() -> None:
    assert shares(["a", "b", "a"])
    assert not shares(["a", "", "b", ""])
    assert not shares([])
