"""Every local method fulfills its contract, also with FedAvg. The federated methods are tested with DCMH.

Methods that score pairs take longest to learn: `make test` lets each learn with its recommended preset, `make test-all` with
every preset.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from silohash.methods.local import LOCAL_METHODS
from silohash.testing import Check, local_method_checks


def cases() -> Iterator[object]:
    """Yield the checks of all methods."""
    for name in LOCAL_METHODS.names():
        for check in local_method_checks(name, federated=None if name == "dcmh" else "fedavg"):
            quick = not check.name.endswith("-learns") or check.name == f"{name}-recommended-learns"
            yield pytest.param(check, id=check.name, marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize("check", list(cases()))
def test_contract(check: Check) -> None:
    check()
