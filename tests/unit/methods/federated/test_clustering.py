"""K-means from given seeds, by cosine and by Euclidean distance."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from silohash.methods.federated.clustering import aligned, cluster_sizes, kmeans, nearest, shared_clusters
from tests.unit.methods.federated.helpers import draw


def test_kmeans_keeps_rows_in_place_and_empty_clusters_at_their_seeds() -> None:
    centers = torch.eye(3)
    values = torch.cat([centers[c] + 0.05 * draw(8, 3, seed=c).float() for c in (0, 1)])
    seeds = torch.stack([centers[0] + 0.3, centers[1] + 0.2, torch.tensor([0.0, 0.0, -1.0]), torch.zeros(3)])
    found = kmeans(values, seeds, distance="cosine")
    assert found[:2].argmax(1).tolist() == [0, 1]
    torch.testing.assert_close(found[2], torch.tensor([0.0, 0.0, -1.0]))
    assert float(found[3].abs().sum()) == 0.0


def test_cluster_sizes_count_the_nearest_and_leave_zero_rows_out() -> None:
    centers = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    values = torch.tensor([[2.0, 0.1], [0.1, 3.0], [-1.0, 0.2], [0.3, 0.2]])
    assert cluster_sizes(values, centers).tolist() == [2, 0, 2]
    assert cluster_sizes(values[:0], centers).tolist() == [0, 0, 0]


def test_rows_share_a_cluster_with_the_common_rows_that_they_lie_near() -> None:
    common = torch.tensor([[1.0, 0.0, 0.0], [0.9, 0.1, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    rows = torch.tensor([[0.0, 0.1, 1.0], [1.0, 0.0, 0.1], [0.5, 1.0, 0.0]], dtype=torch.float64)
    assert shared_clusters(rows, common, steps=0).tolist() == [[0, 0, 0, 1], [1, 0, 0, 0], [0, 1, 0, 0]]
    # rows at -40 and 16 degrees pull the clusters of 0 and 30 degrees until both common rows are in the second
    angles = torch.deg2rad(torch.tensor([-40.0, 16.0])).repeat(5)
    turned = torch.stack([angles.cos(), angles.sin()], dim=1)
    common = torch.tensor([[1.0, 0.0], [math.cos(math.pi / 6), 0.5]])
    assert shared_clusters(turned, common, steps=0)[:2].tolist() == [[1, 0], [0, 1]]
    assert shared_clusters(turned, common)[:2].tolist() == [[0, 0], [1, 1]]


def test_the_nearest_centroid_has_the_highest_cosine_and_zero_rows_have_none() -> None:
    centroids = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert nearest(torch.tensor([[-5.0, -1.0], [3.0, 1.0], [1.0, 3.0]]), centroids).tolist() == [2, 1, 2]


def test_one_step_of_kmeans_by_hand() -> None:
    values = torch.tensor([[3.0, 0.0], [0.0, 5.0], [0.0, -2.0]])  # only directions count
    seeds = torch.tensor([[2.0, 2.0], [0.0, -3.0]])
    found = kmeans(values, seeds, steps=1, distance="cosine")
    half = math.sqrt(0.5)
    torch.testing.assert_close(found, torch.tensor([[half, half], [0.0, -1.0]]))
    torch.testing.assert_close(
        kmeans(values, seeds, steps=0, distance="cosine"), torch.tensor([[half, half], [0.0, -1.0]])
    )


def test_kmeans_repeats_its_steps_until_rows_settle() -> None:
    angles = torch.deg2rad(torch.tensor([0.0, 10.0, 40.0, 50.0, 60.0]))
    values = torch.stack([angles.cos(), angles.sin()], dim=1)
    seeds = values[[0, 1]]
    expected, centroids = [0, 10], [0.0, 10.0]
    for _ in range(10):  # directions on a circle: the mean direction of nearby angles, by loops over vectors
        own: list[list[int]] = [[], []]
        for i in range(5):
            cosines = [math.cos(float(angles[i]) - math.radians(c)) for c in centroids]
            own[cosines.index(max(cosines))].append(i)
        sums = [values[rows].sum(0) for rows in own]
        centroids = [math.degrees(math.atan2(float(s[1]), float(s[0]))) for s in sums]
    found = kmeans(values, seeds, distance="cosine")
    assert torch.rad2deg(torch.atan2(found[:, 1], found[:, 0])).tolist() == pytest.approx(centroids, abs=1e-3)
    assert centroids != pytest.approx(expected)


def test_plain_kmeans_by_hand() -> None:
    values = torch.tensor([[4.0, 0.0], [2.0, 1.0], [0.5, 0.0], [0.0, 0.5]])
    seeds = torch.tensor([[3.0, 0.0], [1.0, 0.0], [0.0, 0.0], [-9.0, 9.0]])
    # (2, 1) has squared distances of 2 to both first seeds, and the first of equals is taken
    expected = torch.tensor([[3.0, 0.5], [0.25, 0.25], [0.0, 0.0], [-9.0, 9.0]])
    torch.testing.assert_close(kmeans(values, seeds, distance="euclidean", steps=1), expected)
    torch.testing.assert_close(kmeans(values, seeds, distance="euclidean", steps=0), seeds)
    assert cluster_sizes(values, seeds, "euclidean").tolist() == [2, 2, 0, 0]


def test_lengths_matter_to_the_euclidean_distance_only() -> None:
    centroids, value = torch.tensor([[10.0, 0.0], [1.0, 1.0]]), torch.tensor([[2.0, 0.5]])
    assert nearest(value, centroids, "euclidean").tolist() == [1]
    assert nearest(value, centroids).tolist() == [0]
    assert shared_clusters(value, centroids, distance="euclidean", steps=0).tolist() == [[0, 1]]


def test_nothing_to_cluster_leaves_the_seeds() -> None:
    seeds = torch.tensor([[0.0, 2.0], [0.0, 0.0]])
    assert kmeans(torch.zeros(0, 2), seeds, distance="cosine").tolist() == [[0.0, 1.0], [0.0, 0.0]]
    assert kmeans(torch.ones(3, 2), torch.zeros(2, 2), distance="cosine").tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_rows_are_aligned_one_to_one() -> None:
    before = np.asarray([[1.0, 0.0], [0.0, 1.0]])
    rows = np.asarray([[0.1, 0.9], [0.9, 0.1]])
    assert aligned(rows, before).tolist() == rows[[1, 0]].tolist()
    assert aligned(rows, np.zeros((2, 2))).tolist() == rows.tolist()
    # by direction: the long row is at 45 degrees to both, the short row at 0 to the first
    rows = np.asarray([[50.0, 50.0], [0.1, 0.0]])
    assert aligned(rows, before).tolist() == rows[[1, 0]].tolist()
