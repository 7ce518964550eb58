"""Traits are values that classes state and constructors complete."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from silohash.methods.local import LOCAL_METHODS
from silohash.methods.traits import EpochRules, Traits


def test_defaults_ask_for_nothing() -> None:
    traits = Traits()
    assert (traits.needs_labels, traits.scores_pairs, traits.pooled, traits.codes_comparable) == (
        False,
        False,
        False,
        True,
    )
    assert traits.epochs == EpochRules(fresh_optimizers=False, independent_batches=False)
    with pytest.raises(FrozenInstanceError):
        traits.needs_labels = True  # type: ignore[misc]


def test_parameters_complete_the_traits_of_an_object_and_not_those_of_its_class() -> None:
    kind = LOCAL_METHODS.resolve("centerap")
    assert (kind(kind.Params(item_bits=4)).traits.item_bits, kind(kind.Params()).traits.item_bits) == (4, 0)
    assert kind.traits == Traits(needs_labels=True, needs_label_counts=True)
