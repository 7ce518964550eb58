"""Randomness is a function of (seed, purpose, silo, round) and of nothing else."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from silohash.base import seeds


def test_seed_is_the_same_in_every_version() -> None:
    # If this fails, every stored run would resume with other numbers than it began with.
    assert seeds.derive(0, "batches") == 7447776710682974964
    assert seeds.derive(7, "weights", silo=2, round=31) == 9013788851580384551


def test_each_of_the_four_arguments_matters() -> None:
    grid = itertools.product((0, 1, 12), ("batches", "weights", "batches/1"), (-1, 0, 1, 11), (-1, 0, 1, 11))
    drawn = [seeds.derive(seed, purpose, silo=silo, round=round_) for seed, purpose, silo, round_ in grid]
    assert len(set(drawn)) == 3 * 3 * 4 * 4


@given(st.integers(), st.text(), st.integers(-1, 10**6), st.integers(-1, 10**6))
def test_seed_fits_a_signed_64_bit_integer(seed: int, purpose: str, silo: int, round_: int) -> None:
    assert 0 <= seeds.derive(seed, purpose, silo=silo, round=round_) < 2**63


def test_numpy_draws_do_not_depend_on_earlier_draws() -> None:
    alone = seeds.numpy_generator(3, "batches", silo=1, round=2).random(5)
    seeds.numpy_generator(3, "batches", silo=0, round=2).random(1000)
    np.random.default_rng(0).random(10)
    again = seeds.numpy_generator(3, "batches", silo=1, round=2).random(5)
    np.testing.assert_array_equal(alone, again)
    assert not np.array_equal(alone, seeds.numpy_generator(3, "batches", silo=2, round=2).random(5))


def test_torch_draws_do_not_depend_on_the_global_generator() -> None:
    alone = torch.rand(5, generator=seeds.torch_generator(3, "noise", silo=1))
    torch.rand(1000)
    again = torch.rand(5, generator=seeds.torch_generator(3, "noise", silo=1))
    assert torch.equal(alone, again)
    assert not torch.equal(alone, torch.rand(5, generator=seeds.torch_generator(3, "noise", silo=1, round=0)))


def test_making_a_generator_leaves_global_generators_alone() -> None:
    torch_before, python_before = torch.get_rng_state(), random.getstate()
    seeds.numpy_generator(0, "batches").random(3)
    torch.rand(3, generator=seeds.torch_generator(0, "batches"))
    assert torch.equal(torch_before, torch.get_rng_state())
    assert random.getstate() == python_before


def test_torch_globally_seeds_inside_and_restores_after() -> None:
    before = torch.get_rng_state()
    with seeds.torch_globally(5, "weights", silo=1):
        first = torch.nn.Linear(4, 3).weight.detach().clone()
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(7)
    with seeds.torch_globally(5, "weights", silo=1):
        assert torch.equal(first, torch.nn.Linear(4, 3).weight)
    with seeds.torch_globally(5, "weights", silo=2):
        assert not torch.equal(first, torch.nn.Linear(4, 3).weight)


def test_torch_globally_restores_after_an_error() -> None:
    before = torch.get_rng_state()
    with pytest.raises(RuntimeError), seeds.torch_globally(5, "weights"):
        torch.rand(1) @ torch.rand(2)
    assert torch.equal(before, torch.get_rng_state())


def test_the_permutation_of_published_splits_is_that_of_numpys_older_generator() -> None:
    assert seeds.published_permutation(6, 5).tolist() == [3, 4, 0, 1, 2]
    assert seeds.published_permutation(7, 1000).tolist() != seeds.published_permutation(8, 1000).tolist()


def test_defaults_stand_for_no_silo_and_no_round() -> None:
    expected = seeds.derive(4, "split", silo=-1, round=-1)
    assert seeds.derive(4, "split") == expected
    first = np.random.default_rng(expected).random(3)
    np.testing.assert_array_equal(seeds.numpy_generator(4, "split").random(3), first)
    assert seeds.torch_generator(4, "split").initial_seed() == expected
    with seeds.torch_globally(4, "split"):
        assert torch.initial_seed() == expected


def test_generators_without_a_silo_or_a_round_are_not_those_of_the_first() -> None:
    for name in ("silo", "round"):
        first = seeds.torch_generator(4, "split", **{name: 1}).initial_seed()
        assert first == seeds.derive(4, "split", **{name: 1}) != seeds.derive(4, "split")
        drawn = seeds.numpy_generator(4, "split", **{name: 1}).random()
        assert drawn != seeds.numpy_generator(4, "split").random()
        with seeds.torch_globally(4, "split", **{name: 1}):
            assert torch.initial_seed() == first


def test_torch_globally_draws_the_same_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    for gpu in (False, True):
        monkeypatch.setattr(torch.cuda, "is_available", lambda gpu=gpu: gpu)
        before = torch.get_rng_state()
        with seeds.torch_globally(5, "weights", silo=1):
            drawn.append(torch.rand(4))
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(*drawn)
