"""Checks of federated methods: a method with a fault fails the check of that fault."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from silohash.base.errors import UnknownName
from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.federated.base import NO_RUN, FederatedMethod, RunFacts
from silohash.methods.federated.general.fedavg import FedAvg
from silohash.testing import ContractError, federated_method_checks


class Forgetful(FedAvg):
    """Counts rounds in an attribute, which a resumed run lacks."""

    def __init__(self, params: Any, run: RunFacts = NO_RUN) -> None:
        super().__init__(params, run)
        self.rounds = 0

    def aggregate(self, server: Any, updates: Any) -> Any:
        after = super().aggregate(server, updates)
        self.rounds += 1
        for array in after.params.values():
            array *= 1 + self.rounds / 1000
        return after


class Untrue(FedAvg):
    """States a trait that it does not have."""

    traits = replace(FedAvg.traits, codes_comparable=False)


@pytest.fixture(autouse=True)
def methods(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: dict[str, type[FederatedMethod]] = {"forgetful": Forgetful, "untrue": Untrue}
    resolve = type(FEDERATED_METHODS).resolve
    for name in kinds:
        monkeypatch.setitem(FEDERATED_METHODS.table, name, f"{__name__}:{name}")  # type: ignore[arg-type]
    monkeypatch.setattr(
        type(FEDERATED_METHODS), "resolve", lambda self, name: kinds[name] if name in kinds else resolve(self, name)
    )


def outcome(name: str, check: str) -> str:
    """Return the message of a check that fails, or an empty string."""
    (found,) = (each for each in federated_method_checks(name) if str(each) == f"dcmh-{name}-{check}")
    try:
        found()
    except ContractError as error:
        return str(error)
    return ""


def test_state_outside_of_the_state_is_found() -> None:
    assert outcome("forgetful", "is-deterministic-also-through-bytes") == ""
    assert "Keep all state in named arrays" in outcome("forgetful", "resumes-from-a-checkpoint")
    assert outcome("fedavg", "resumes-from-a-checkpoint") == ""


def test_traits_that_are_not_true_are_found() -> None:
    assert outcome("untrue", "has-the-traits-that-it-states") == "codes_comparable = False needs personalized = True."
    assert outcome("fedavg", "has-the-traits-that-it-states") == ""


def test_checks_leave_out_what_a_method_does_not_support() -> None:
    both = [name for name in FEDERATED_METHODS.names() if FEDERATED_METHODS.resolve(name).traits.min_modalities == 2]
    for name in ("fedavg", *both[:1]):
        learned = [str(check) for check in federated_method_checks(name) if "-learns-" in str(check)]
        assert len(learned) == (2 if name in both else 6)
    assert all(str(check).startswith("triplet-fedavg-") for check in federated_method_checks("fedavg", local="triplet"))
    with pytest.raises(UnknownName):
        federated_method_checks("fedavgg")
