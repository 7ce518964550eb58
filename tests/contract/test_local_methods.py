"""Every local method fulfills its contract, also with FedAvg. The federated methods are tested with DCMH.

`make test` performs every check of the recommended presets and some of the others; `make test-slow` performs the others.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from silohash.methods.local import LOCAL_METHODS
from silohash.testing import Check, local_method_checks

OF_OTHER_PRESETS = ("learns-both-multi", "hashes-both-multi", "ignores-padding")
"""Checks of presets that only set other values, and perhaps another form of a loss that its unit tests compare."""

WITH_FEDAVG = ("trains-in-bfloat16", "trains-without-texts")
"""Checks of the loop that a local method can break; FedAvg's own contract has all of them."""

OF_ONE_MODALITY = ("learns-image-multi", "learns-text-single", "hashes-image-multi", "hashes-text-single")
"""Checks of learning that are performed of those with one modality. The others differ only in the labels."""

LONGEST = ("sgraf-recommended-learns", "joint_attention-recommended-learns")
"""Checks that take as long as those of ten other methods."""


def is_quick(name: str, check: str) -> bool:
    """Return whether `make test` performs a check of a method."""
    preset, _, checked = check.removeprefix(f"{name}-").partition("-")
    if check in LONGEST:
        return False
    if preset == "fedavg":
        return checked in WITH_FEDAVG
    if preset == "recommended":
        return not checked.startswith(("learns-image", "learns-text", "hashes-image", "hashes-text")) or (
            checked in OF_ONE_MODALITY
        )
    return preset not in LOCAL_METHODS.resolve(name).presets or checked in OF_OTHER_PRESETS


def cases() -> Iterator[object]:
    """Yield the checks of all methods."""
    for name in LOCAL_METHODS.names():
        for check in local_method_checks(name, federated=None if name == "dcmh" else "fedavg"):
            yield pytest.param(check, id=check.name, marks=() if is_quick(name, check.name) else pytest.mark.slow)


@pytest.mark.parametrize("check", list(cases()))
def test_contract(check: Check) -> None:
    check()
