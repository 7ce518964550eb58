"""Local methods with gradient steps fulfill the contract also with FedCAFE and FedHAP, which train beside them.

`make test` performs a few checks of each pair, and `make test-slow` performs the others.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from silohash.methods.local import LOCAL_METHODS
from silohash.methods.local.base import ClosedForm
from silohash.testing import Check, federated_method_checks

FEDERATED = ("fedcafe", "fedhap")
QUICK = ("fedcafe-trains-without-all-classes-but-one", "fedhap-trains-without-texts")
"""Checks that `make test` performs."""


def cases() -> Iterator[object]:
    """Yield the checks of all pairs. Those with DCMH belong to the contract of the federated methods."""
    trained = [
        name
        for name in LOCAL_METHODS.names()
        if not issubclass(kind := LOCAL_METHODS.resolve(name), ClosedForm) and not kind.traits.scores_pairs
    ]
    for local in trained:
        for federated in FEDERATED if local != "dcmh" else ():
            for check in federated_method_checks(federated, local=local):
                quick = check.name.removeprefix(f"{local}-") in QUICK
                yield pytest.param(check, id=check.name, marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize("check", list(cases()))
def test_contract(check: Check) -> None:
    check()
