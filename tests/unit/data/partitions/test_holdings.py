"""Which silo holds a row: the first with a modality, and the first with the most modalities."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from silohash.data.partitions.base import Partition, SiloRows
from silohash.data.partitions.holdings import Holdings
from tests.archives import made_up_archive


@pytest.fixture
def holdings() -> Holdings:
    """Eight rows, of which row 5 has no text and row 7 belongs to no silo."""
    archive = made_up_archive(8)
    archive = replace(archive, has_text=np.arange(8) != 5)
    silos = (
        SiloRows("pictures", np.array([0, 1, 2]), has_text=False),
        SiloRows("texts", np.array([1, 2, 3, 5]), has_image=False),
        SiloRows("both", np.array([2, 4, 5])),
        SiloRows("again", np.array([2, 4, 6])),
    )
    return Holdings(archive, Partition("iid", {}, 0, silos))


def test_the_first_silo_with_a_modality_is_its_owner(holdings: Holdings) -> None:
    assert holdings.owner["image"].tolist() == [0, 0, 0, -1, 2, 2, 3, -1]
    assert holdings.owner["text"].tolist() == [-1, 1, 1, 1, 2, -1, 3, -1]


def test_the_first_silo_with_the_most_modalities_is_the_holder(holdings: Holdings) -> None:
    assert holdings.holder.tolist() == [0, 0, 2, 1, 2, 2, 3, -1]
    assert holdings.together["image"].tolist() == [True, True, True, False, True, True, True, False]
    assert holdings.together["text"].tolist() == [False, False, True, True, True, False, True, False]


def test_rows_of_a_silo_have_the_modality_in_the_archive_and_in_the_silo(holdings: Holdings) -> None:
    assert holdings.rows_of(0, "text").tolist() == []
    assert holdings.rows_of(1, "text").tolist() == [1, 2, 3]
    assert holdings.rows_of(2, "text").tolist() == [2, 4]
    assert holdings.items_of(2, ["text"]).tolist() == [2, 4]
    assert holdings.items_of(2, ["image", "text"]).tolist() == [2, 4, 5]
