"""Every federated method fulfills its contract, with DCMH as the local method.

Those that need a local method without gradient steps are part of the contract of such methods.
"""

from __future__ import annotations

import pytest

from silohash.methods.federated import FEDERATED_METHODS
from silohash.testing import Check, federated_method_checks

CHECKS = [
    check
    for name in FEDERATED_METHODS.names()
    if FEDERATED_METHODS.resolve(name).traits.closed_form != "sums"
    for check in federated_method_checks(name)
]


@pytest.mark.parametrize("check", CHECKS, ids=str)
def test_contract(check: Check) -> None:
    check()
