"""Clusters in place of labels."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.data.partition.base import partition
from silohash.types import UserError
from tests.archives import made_up_archive


@pytest.mark.parametrize("over", ["image", "text"])
@pytest.mark.parametrize("image", ["features", "pictures"])
def test_clusters_stand_in_for_labels(over, image):
    archive = made_up_archive(300, labelled=False, image=image)
    made = partition(archive, "pseudo", 3, 0, clusters=4, over=over, beta=0.3)
    assert sum(len(silo.rows) for silo in made.silos) == 300
    again = partition(archive, "pseudo", 3, 0, clusters=4, over=over, beta=0.3)
    assert made.digest() == again.digest()


def test_clusters_follow_the_features():
    archive = made_up_archive(600, classes=4)
    made = partition(archive, "pseudo", 2, 0, clusters=6, spread="shards", classes=3, minimum=1)
    table = made.label_table(archive)
    assert (np.abs(table[0] / table[0].sum() - table[1] / table[1].sum())).max() > 0.1


def test_two_clusters_are_the_fewest():
    archive = made_up_archive(60, labelled=False)
    assert len(partition(archive, "pseudo", 2, 0, clusters=2, beta=50.0, minimum=1)) == 2
    with pytest.raises(UserError, match="clusters is 1; it must be a whole number of at least 2"):
        partition(archive, "pseudo", 2, 0, clusters=1)
