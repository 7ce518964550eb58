"""The choice of the silos that lack pictures, texts or pairs."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.base.types import UserError
from silohash.data.partitions.lacking import LACKING, affected, silos_that_lack


@pytest.mark.parametrize(
    ("part", "silos", "count"),
    [(0.0, 5, 0), (0.01, 5, 1), (0.29, 5, 1), (0.3, 5, 2), (0.5, 5, 3), (1.0, 5, 5), (0.1, 1, 1)],
)
def test_a_share_is_rounded_half_up_and_at_least_one(part: float, silos: int, count: int) -> None:
    assert affected(part, silos) == count


def settings(**given: float) -> dict[str, float]:
    return {**dict.fromkeys(LACKING, 0.0), **given}


def test_no_silo_is_affected_twice() -> None:
    chosen = silos_that_lack(settings(missing_image=0.2, missing_text=0.3, unpaired=0.5), 10, 0)
    assert {name: len(places) for name, places in chosen.items()} == {
        "missing_image": 2, "missing_text": 3, "unpaired": 5
    }  # fmt: skip
    assert sorted(np.concatenate(list(chosen.values())).tolist()) == list(range(10))
    again = silos_that_lack(settings(missing_image=0.2, missing_text=0.3, unpaired=0.5), 10, 0)
    assert all(np.array_equal(chosen[name], again[name]) for name in chosen)


def test_a_larger_share_affects_the_same_silos_and_more() -> None:
    fewer, more = (set(silos_that_lack(settings(unpaired=part), 10, 3)["unpaired"].tolist()) for part in (0.2, 0.6))
    assert (len(fewer), len(more)) == (2, 6)
    assert fewer < more
    others = {tuple(silos_that_lack(settings(unpaired=0.2), 10, seed)["unpaired"].tolist()) for seed in range(5)}
    assert len(others) > 1


def test_settings_that_cannot_hold() -> None:
    with pytest.raises(
        UserError,
        match=r"missing_image takes the pictures of 2, unpaired takes the pairs of 3 silos, and each of the 4 ",
    ):
        silos_that_lack(settings(missing_image=0.5, unpaired=0.75), 4, 0)
    with pytest.raises(UserError, match=r"unpaired is 1\.1; it must be a number between 0 and 1"):
        silos_that_lack(settings(unpaired=1.1), 4, 0)
    with pytest.raises(UserError, match=r"missing_text is -0\.1"):
        silos_that_lack(settings(missing_text=-0.1), 4, 0)
