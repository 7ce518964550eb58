"""Every local method fulfills its contract, also with FedAvg. The federated methods are tested with DCMH.

`make test` performs every check of the recommended presets and some of the others; `make test-all` performs all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from silohash.methods.local import LOCAL_METHODS
from silohash.methods.local.base import ClosedForm
from silohash.testing import Check, local_method_checks

OF_OTHER_PRESETS = ("is-deterministic", "learns-both-multi")
"""Checks of presets that only set other values, and perhaps another form of a loss that its unit tests compare."""

WITH_FEDAVG = ("learns-both-multi", "trains-in-bfloat16", "trains-without-labels", "trains-without-texts")
"""Checks of the loop that a local method can break; FedAvg's own contract has all of them."""

LONGEST = ("sgraf-recommended-learns", "joint_attention-recommended-learns")
"""Checks that take as long as those of ten other methods."""


def is_quick(name: str, check: str) -> bool:
    """Return whether `make test` performs a check of a method."""
    preset, _, checked = check.removeprefix(f"{name}-").partition("-")
    if check in LONGEST:
        return False
    if preset == "fedavg":
        return checked in WITH_FEDAVG
    return preset not in LOCAL_METHODS.resolve(name).presets or preset == "recommended" or checked in OF_OTHER_PRESETS


def cases() -> Iterator[object]:
    """Yield the checks of all methods."""
    for name in LOCAL_METHODS.names():
        gradual = not issubclass(LOCAL_METHODS.resolve(name), ClosedForm)
        for check in local_method_checks(name, federated=None if name == "dcmh" else "fedavg"):
            quick = is_quick(name, check.name) or not gradual
            yield pytest.param(check, id=check.name, marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize("check", list(cases()))
def test_contract(check: Check) -> None:
    check()
