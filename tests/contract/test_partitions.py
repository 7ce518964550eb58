"""What every kind of partition keeps."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.data.partitions import PARTITIONS
from silohash.data.partitions.base import partition
from tests.archives import made_up_archive, stored_partition

NEEDED = {"column": {"column": "place"}}


@pytest.mark.parametrize("kind", PARTITIONS.names())
@pytest.mark.parametrize("image", ["features", "pictures"])
def test_partition(kind, image):
    archive = made_up_archive(400, image=image)
    made = partition(archive, kind, 3, 7, **NEEDED.get(kind, {}))
    assert len(made) == 3
    assert len({silo.name for silo in made.silos}) == 3
    every = np.concatenate([silo.rows for silo in made.silos])
    np.testing.assert_array_equal(np.unique(every), np.arange(400))
    assert made.disjoint == (len(every) == 400)
    for silo in made.silos:
        assert silo.rows.dtype == np.int64
        assert (np.diff(silo.rows) > 0).all()
        assert len(silo.split(archive, "train")) >= 1
        assert silo.has_image
        assert silo.has_text
    assert partition(archive, kind, 3, 7, **NEEDED.get(kind, {})).digest() == made.digest()
    assert stored_partition(made.to_json()).digest() == made.digest()
    assert len(made.describe(archive).splitlines()) == 5
    table = made.label_table(archive)
    assert (table.sum(axis=0) >= archive.labels.sum(axis=0)).all()


@pytest.mark.parametrize("kind", PARTITIONS.names())
def test_one_silo_holds_everything(kind):
    archive = made_up_archive(120)
    more = {"shards": {"classes": 7}, "pseudo": {"clusters": 4}}
    made = partition(archive, kind, 1, 0, **NEEDED.get(kind, {}), **more.get(kind, {}))
    np.testing.assert_array_equal(made.silos[0].rows, np.arange(120))
