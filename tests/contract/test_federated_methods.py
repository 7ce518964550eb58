"""Every federated method fulfills its contract, with DCMH as the local method.

Those that need a local method without gradient steps are part of the contract of such methods. `make test` lets methods
learn from both modalities of items with several labels, `make test-slow` also from one modality and with one label.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from silohash.methods.federated import FEDERATED_METHODS
from silohash.testing import Check, federated_method_checks


def cases() -> Iterator[object]:
    """Yield the checks of all methods."""
    for name in FEDERATED_METHODS.names():
        for check in (
            federated_method_checks(name) if FEDERATED_METHODS.resolve(name).traits.closed_form != "sums" else ()
        ):
            # pepfch learns by the mixtures of plfedcmh
            slow = "-learns-" in check.name and (name == "pepfch" or not check.name.endswith("-both-multi"))
            yield pytest.param(check, id=check.name, marks=pytest.mark.slow if slow else ())


@pytest.mark.parametrize("check", list(cases()))
def test_contract(check: Check) -> None:
    check()


def test_a_card_says_that_labels_are_needed_where_the_method_needs_them() -> None:
    for name in FEDERATED_METHODS.table:
        assert FEDERATED_METHODS.card(name).supervised == FEDERATED_METHODS.resolve(name).traits.needs_labels, name
