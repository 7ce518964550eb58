"""Every local method fulfills its contract, also with FedAvg. The federated methods are tested with DCMH."""

from __future__ import annotations

import pytest

from silohash.methods.local import LOCAL_METHODS
from silohash.testing import Check, local_method_checks

CHECKS = [
    check
    for name in LOCAL_METHODS.names()
    for check in local_method_checks(name, federated=None if name == "dcmh" else "fedavg")
]


@pytest.mark.parametrize("check", CHECKS, ids=str)
def test_contract(check: Check) -> None:
    check()
