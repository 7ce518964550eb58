"""How far silos lie from one another: against figures worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.base.errors import LabelsNeeded
from silohash.data.catalogue import open_archive
from silohash.data.partitions.base import Partition, SiloRows, partition
from silohash.data.partitions.drift import (
    DISTANCES,
    Drift,
    drift_of,
    effective_labels,
    entropy_bits,
    hellinger,
    jensen_shannon,
    label_shares,
    total_variation,
)
from tests.runs import write_archive

HALF = np.array([0.5, 0.5, 0.0])
FIRST = np.array([1.0, 0.0, 0.0])
LAST = np.array([0.0, 0.0, 1.0])


def drift(counts, pool=None) -> Drift:
    counts = np.asarray(counts)
    names = tuple(f"silo-{number}" for number in range(len(counts)))
    return Drift(names, counts, counts.sum(axis=0) if pool is None else np.asarray(pool), counts.sum(axis=1))


def test_shares_of_counts():
    shares = label_shares([[3, 1, 0], [0, 0, 0]])
    assert shares[0].tolist() == [0.75, 0.25, 0.0]
    assert np.isnan(shares[1]).all()


@pytest.mark.parametrize("distance", DISTANCES.values())
def test_equal_is_0_and_nothing_in_common_is_1(distance):
    assert distance(HALF, HALF) == 0
    assert distance(FIRST, LAST) == pytest.approx(1, abs=1e-12)
    assert distance(HALF, FIRST) == distance(FIRST, HALF)


def test_distances_worked_out_by_hand():
    # |0.5 - 1| + |0.5 - 0| = 1, halved.
    assert total_variation(HALF, FIRST) == pytest.approx(0.5)
    # 1 - sum of roots of products = 1 - root of a half.
    assert hellinger(HALF, FIRST) == pytest.approx(np.sqrt(1 - np.sqrt(0.5)))
    # The mid is (3/4, 1/4): entropy 2 - 3/4 log2 3; less half of the 1 bit of HALF and the 0 of FIRST.
    assert jensen_shannon(HALF, FIRST) == pytest.approx(2 - 0.75 * np.log2(3) - 0.5)


def test_entropy_and_effective_labels():
    assert entropy_bits(np.array([0.25] * 4)) == 2
    assert entropy_bits(FIRST) == 0
    assert effective_labels(np.array([0.25] * 4)) == pytest.approx(4)
    # Entropy of (1/2, 1/4, 1/4) is 1.5 bits.
    assert effective_labels(np.array([0.5, 0.25, 0.25])) == pytest.approx(2**1.5)
    assert np.isnan(effective_labels(np.full(3, np.nan)))


def test_mean_and_maximum_over_pairs():
    found = drift([[2, 0], [0, 2], [1, 1]])
    # Pairs: 1, 1/2, 1/2.
    assert found.over_pairs("total variation") == pytest.approx((2 / 3, 1))
    assert found.from_pool("total variation").tolist() == [0.5, 0.5, 0]
    assert found.effective_labels.tolist() == pytest.approx([1, 1, 2])
    assert found.effective_labels_of_all == pytest.approx(2)


def test_a_silo_without_labels_stands_apart():
    found = drift([[2, 0], [0, 0], [0, 2]])
    assert found.over_pairs("Hellinger") == pytest.approx((1, 1))
    assert np.isnan(found.from_pool("Hellinger")).tolist() == [False, True, False]
    line = next(line for line in found.describe().splitlines() if line.startswith("silo-1"))
    assert line.split() == ["silo-1", "0", "-", "-", "-", "-"]
    assert drift([[1, 1]]).over_pairs("Hellinger") == pytest.approx((np.nan, np.nan), nan_ok=True)


def test_json_and_table_say_the_same():
    found = drift([[3, 1], [1, 3]])
    said = found.to_json()
    assert said["between_silos"]["total variation"] == {"mean": 0.5, "max": 0.5}
    assert said["silos"]["silo-0"]["from_pool"]["total variation"] == 0.25
    assert "total variation 0.500 (at most 0.500)" in found.describe()
    assert found.describe().splitlines()[1].split()[:2] == ["silo-0", "4"]


def test_items_that_silos_share_count_once_in_the_pool(tmp_path):
    archive = open_archive(None, write_archive(tmp_path / "archive", count=30))
    rows = np.arange(30)
    parts = Partition("nested", {}, 0, (SiloRows("all", rows), SiloRows("some", rows[:10])), disjoint=False)
    found = drift_of(parts, archive)
    assert found.pool.tolist() == archive.labels.sum(axis=0).tolist()
    assert found.from_pool("total variation")[0] == 0
    assert found.sizes.tolist() == [30, 10]


def test_beta_decides_how_far_silos_lie_apart(tmp_path):
    archive = open_archive(None, write_archive(tmp_path / "archive", count=600, single=True))
    apart = [
        drift_of(partition(archive, "dirichlet", 4, 0, beta=beta, minimum=1), archive).over_pairs("Hellinger")[0]
        for beta in (0.1, 1.0, 100.0)
    ]
    assert apart[0] > 0.5 > apart[1] > apart[2]


def test_no_labels_no_drift(tmp_path):
    archive = open_archive(None, write_archive(tmp_path / "archive", count=12))
    bare = type(archive)(**{**vars(archive), "labels": None, "label_names": ()})
    with pytest.raises(LabelsNeeded):
        drift_of(Partition("iid", {}, 0, (SiloRows("a", np.arange(12)),)), bare)
