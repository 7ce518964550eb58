"""The class memory of FedCAFE and the weights derived from it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from silohash.methods.federated.class_memory import (
    UNRELATED,
    MemoryRows,
    common_memory,
    memories_of,
    memory_likelihood,
    powers,
    self_weight,
    silo_weights,
)
from silohash.methods.message import Message
from tests.unit.methods.federated.helpers import draw, hot


def test_memory_weights_are_likelihoods_to_a_power_and_at_least_e_to_the_minus_600() -> None:
    likelihoods = [0.5, 0.7, 0.6, 0.69]
    for sharpness in (1.0, 0.5, 2.0):
        powers = np.asarray(likelihoods) ** (1 / sharpness)
        np.testing.assert_allclose(silo_weights(likelihoods, sharpness=sharpness, cap=4.0), powers / powers.sum())
        own = np.asarray([self_weight(value, sharpness=sharpness, cap=1e9) for value in likelihoods])
        np.testing.assert_allclose(own / own.sum(), powers / powers.sum())
    sharp = silo_weights(likelihoods, sharpness=1e-4, cap=4.0)
    smallest = math.exp(-600)
    np.testing.assert_allclose(sharp, [smallest, 1.0, smallest, (0.69 / 0.7) ** 1e4])
    assert silo_weights(likelihoods, sharpness=1e-4, cap=1.5).max() == pytest.approx(1.5 / 4)
    assert self_weight(0.7, sharpness=1e-4, cap=3.0) == 3.0
    np.testing.assert_allclose(self_weight(0.5, sharpness=1e-4, cap=3.0), smallest)


def test_likelihood_is_finite_for_many_classes_and_least_for_the_same_memory() -> None:
    rows = torch.nn.functional.normalize(draw(80, 128), dim=1)
    mask = torch.ones(80, dtype=torch.bool)
    same, other = memory_likelihood(rows, rows, mask), memory_likelihood(-rows, rows, mask)
    assert 0 < float(same) < float(other) < math.inf
    assert float(memory_likelihood(rows, rows, ~mask)) == pytest.approx(math.log(2))


def test_likelihood_of_clusters_is_that_of_a_double_loop() -> None:
    memory, common = draw(4, 6, seed=1), draw(5, 6, seed=2)
    mask, same = torch.tensor([True, False, True, True]), hot(3, 5, seed=3)
    expected = [
        math.log1p(math.exp(theta)) - float(same[i, j]) * theta
        for i, row in enumerate(memory[mask]) for j in range(5) for theta in [0.5 * float(row @ common[j])]
    ]  # fmt: skip
    assert float(memory_likelihood(memory, common, mask, same)) == pytest.approx(np.mean(expected))


def test_likelihood_of_matching_classes_is_that_of_a_double_loop() -> None:
    memory, common = draw(4, 6, seed=1), draw(4, 6, seed=2)
    mask = torch.tensor([True, False, True, True])
    expected = [
        math.log1p(math.exp(theta)) - (i == j) * theta
        for i in (0, 2, 3) for j in range(4) for theta in [0.5 * float(memory[i] @ common[j])]
    ]  # fmt: skip
    assert float(memory_likelihood(memory, common, mask)) == pytest.approx(np.mean(expected))
    assert pytest.approx(math.log(2)) == UNRELATED


def test_powers_are_relative_and_limited() -> None:
    np.testing.assert_allclose(powers([1.0, 2.0, 4.0], 2.0, 0.5), [0.25, 1.0, 4.0])
    np.testing.assert_allclose(np.log(powers([1e-9, 1e9], 1.0, 1e-3)), [-600.0, 600.0])


def test_a_silo_weighs_itself_relative_to_unrelated_rows() -> None:
    assert self_weight(math.log(2), sharpness=0.5, cap=3.0) == pytest.approx(1.0)
    assert self_weight(2 * math.log(2), sharpness=0.5, cap=3.0) == 3.0
    assert self_weight(2 * math.log(2), sharpness=1.0, cap=3.0) == pytest.approx(2.0)


def test_weights_of_two_silos_with_a_cap_below_equality() -> None:
    np.testing.assert_allclose(silo_weights([0.6, 0.3], sharpness=1.0, cap=2.0), [2 / 3, 1 / 3])
    np.testing.assert_allclose(silo_weights([0.6, 0.3], sharpness=1.0, cap=1.2), [0.6, 0.4])
    np.testing.assert_allclose(silo_weights([0.6, 0.3], sharpness=1.0, cap=9.0), [2 / 3, 1 / 3])


def test_memories_are_read_from_records_and_missing_rows_kept() -> None:
    rows, mask = np.asarray([[1.0, 2.0], [0.0, 0.0]], np.float32), np.asarray([True, False])
    update = Message("update", "s", 0, records={"memory": rows, "mask": mask})
    memories, masks = memories_of([update, update])
    assert [memory.tolist() for memory in memories] == [rows.tolist()] * 2
    assert [mask.tolist() for mask in masks] == [[True, False]] * 2
    assert common_memory(rows, np.full((2, 2), 5.0)).tolist() == [[1.0, 2.0], [5.0, 5.0]]
    assert common_memory(np.asarray([[0.0, 1.0]]), np.ones((1, 2))).tolist() == [[0.0, 1.0]]


class TestRows:
    """Two silos with three classes in two dimensions. The first silo lacks class 2, the second class 1."""

    memories = (torch.tensor([[3.0, 0.0], [0.0, 2.0], [0.0, 0.0]]), torch.tensor([[0.0, 4.0], [9.0, 9.0], [-6.0, 0.0]]))
    masks = (torch.tensor([True, True, False]), torch.tensor([True, False, True]))

    def test_unit_rows_have_length_1_and_means_stay_as_they_are(self) -> None:
        values = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
        torch.testing.assert_close(MemoryRows("unit").scaled(values), torch.tensor([[0.6, 0.8], [0.0, 0.0]]))
        assert MemoryRows("mean").scaled(values) is values

    def test_seeds_are_means_over_the_silos_that_have_the_row(self) -> None:
        found = MemoryRows("mean").seeds(self.memories, self.masks)
        assert found.tolist() == [[1.5, 2.0], [0.0, 2.0], [-6.0, 0.0]]
        unit = MemoryRows("unit").seeds(self.memories, self.masks)
        torch.testing.assert_close(unit, torch.tensor([[0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]]))

    def test_the_common_rows_are_the_means_of_their_clusters(self) -> None:
        # (3, 0) is nearest to the seed (1.5, 2); (0, 2) and (0, 4) are nearest to (0, 2); (-6, 0) to itself
        found = MemoryRows("mean", steps=1).merged(self.memories, self.masks)
        assert found.tolist() == [[3.0, 0.0], [0.0, 3.0], [-6.0, 0.0]]
        unit = MemoryRows("unit", steps=1).merged(self.memories, self.masks)
        assert unit.tolist() == [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]
        assert MemoryRows("mean", steps=0).merged(self.memories, self.masks).tolist()[0] == [1.5, 2.0]

    def test_free_clusters_of_too_few_values_are_zero_rows(self) -> None:
        values = torch.tensor([[2.0, 0.0], [4.0, 0.0], [0.0, 9.0]])
        for seed in range(4):
            generator = torch.Generator().manual_seed(seed)
            found = MemoryRows("mean").free(values, 4, least=1, generator=generator)
            assert found.shape == (4, 2)
            assert sorted(found[:3].sum(1).tolist()) == [2.0, 4.0, 9.0]
            assert found[3].tolist() == [0.0, 0.0]
            pair = MemoryRows("unit").free(values, 3, least=2, generator=torch.Generator().manual_seed(seed))
            assert sorted(pair.tolist()) == [[0.0, 0.0], [0.0, 0.0], [1.0, 0.0]]

    def test_free_common_rows_may_follow_the_order_of_the_previous_ones(self) -> None:
        before = np.asarray([[0.0, 1.0], [1.0, 0.0]], np.float32)
        memories, masks = [torch.tensor([[5.0, 0.0], [0.0, 3.0]])], [torch.tensor([True, True])]
        for align, order in {True: [1, 0], False: [0, 1]}.items():
            found = MemoryRows("mean").merged_freely(memories, masks, before, align=align)
            assert found.tolist() == memories[0][order].tolist()

    def test_likelihoods_of_means_have_no_limit(self) -> None:
        common, opposite = torch.eye(2), [-torch.eye(2)]
        mask = [torch.tensor([True, True])]
        by_hand = (math.log1p(math.exp(-0.5)) + 0.5 + math.log(2)) / 2
        assert MemoryRows().likelihoods(common, opposite, mask, by_cluster=False) == [pytest.approx(by_hand)]
        (far,) = MemoryRows("mean").likelihoods(9 * common, [-9 * torch.eye(2)], mask, by_cluster=False)
        assert far == pytest.approx((40.5 + math.log(2)) / 2)

    def test_clusters_of_means_depend_on_their_length(self) -> None:
        common = torch.tensor([[10.0, 0.0], [1.0, 1.0]])
        near, mask = [torch.tensor([[2.0, 0.5], [0.0, 0.0]])], [torch.tensor([True, False])]
        thetas = [10.0, 1.25]
        total = sum(math.log1p(math.exp(theta)) for theta in thetas)
        for scale, own in {"mean": 1, "unit": 0}.items():
            (found,) = MemoryRows(scale, steps=0).likelihoods(common, near, mask, by_cluster=True)
            assert found == pytest.approx((total - thetas[own]) / 2, rel=1e-5)
