"""A composition of one member is that member, bit for bit; of members whose terms are off, FedAvg; and no order matters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from silohash.methods.federated.base import FederatedMethod, entries_under
from silohash.run.events import RoundRecord
from silohash.training.checkpoint import RunState
from tests.parity.test_federated_methods import OFF, blended, farthest
from tests.runs import Records, prepared, run_loop, same_arrays

SINGLE: Mapping[str, Mapping[str, Any]] = {
    "fedavg": {"weighting": "uniform"},
    "local": {},
    "fedprox": {"proximal_weight": 1.0},
    "moon": {},
    "fednova": {},
    "fedproto": {"min_count": 1},
    "fedproc": {"min_count": 1},
    "fedala": {},
    "personal": {"private": "hash"},
    "fedcmr": {},
    "plfedcmh": {"min_count": 1},
    "fedcafe": {"min_count": 1},
    "fedhap": {"min_count": 1},
    "fedbignns": {"local_mix": 0.3},
}
FORMS: Mapping[str, Mapping[str, Any]] = {
    "class means": {"min_count": 1, "memory": "class_mean"},
    "authors' code": {"preset": "authors_code"},
    "reference memory": {"min_count": 1, "memory": "reference"},
}
SERVERS = [
    ("fedproc", {"robust": {"rule": "median"}}),
    ("fedhap", {"robust": {"rule": "clip"}, "server": {"optimizer": "fedadam", "learning_rate": 0.01}}),
    ("fedcafe", {"weight_cap": 0.4, "server": {"optimizer": "fedavgm"}}),
    ("fednova", {"robust": {"rule": "trimmed_mean"}}),
]


def ended(name: str, *, wire: bool = False, **federated: Any) -> tuple[RunState, list[RoundRecord]]:
    listener = Records()
    given = prepared((30, 20, 10), federated={"name": name, "rounds": 3, **federated}, train={"learning_rate": 0.01})
    return run_loop(given, listener, wire=wire), listener.records


def assert_same(
    name: str, alone: tuple[RunState, list[RoundRecord]], whole: tuple[RunState, list[RoundRecord]]
) -> None:
    """Holds a composition of one member to that member: what it kept, sent, received, scored and lost."""
    (one, told), (other, heard) = alone, whole
    assert same_arrays(one.server.params, other.server.params)
    assert same_arrays({f"{name}/{n}": a for n, a in one.server.extras.items()}, other.server.extras)
    private = {n if n.startswith("server/") else f"{name}/{n}": a for n, a in one.server.private.items()}
    assert same_arrays(private, other.server.private)
    for silo, kept in one.silos.items():
        assert same_arrays({f"{name}/{n}": a for n, a in kept.items()}, other.silos[silo])
    assert one.best_score == other.best_score
    for first, second in zip(told, heard, strict=True):
        own = {n: value for n, value in second.terms.items() if "/" not in n} | entries_under(name, second.terms)
        assert (first.loss, dict(first.terms)) == (second.loss, own)
        assert (first.uplink_bytes, first.downlink_bytes) == (second.uplink_bytes, second.downlink_bytes)


@pytest.mark.parametrize("name", SINGLE)
def test_of_one_member_it_is_that_member(name: str) -> None:
    whole = ended("compose", methods=[{"name": name, **SINGLE[name]}], wire=True)
    assert_same(name, ended(name, **SINGLE[name]), whole)


@pytest.mark.parametrize("form", FORMS)
def test_of_fedcafe_in_its_other_forms_it_is_fedcafe(form: str) -> None:
    whole = ended("compose", methods=[{"name": "fedcafe", **FORMS[form]}])
    assert_same("fedcafe", ended("fedcafe", **FORMS[form]), whole)


@pytest.mark.parametrize(("name", "settings"), SERVERS)
def test_the_servers_own_settings_work_as_with_any_method(name: str, settings: Mapping[str, Any]) -> None:
    whole = ended("compose", methods=[{"name": name, **SINGLE[name]}], **settings)
    assert_same(name, ended(name, **SINGLE[name], **settings), whole)
    assert not same_arrays(ended(name, **SINGLE[name])[0].server.params, whole[0].server.params)


def test_of_members_with_their_terms_off_it_is_federated_averaging() -> None:
    # The private phase of PT-FUCH does not compose with the start of other methods' rounds.
    methods = [{"name": name, **params} for name, params in OFF.items() if name != "ptfuch"]
    assert farthest(ended("fedavg")[0].server, ended("compose", methods=methods)[0].server) == 0.0


def test_with_their_terms_on_it_is_neither_of_both() -> None:
    whole = ended("compose", methods=[{"name": "fedprox", "proximal_weight": 1.0}, {"name": "moon"}])[0].server
    for name, params in (("fedavg", {}), ("fedprox", {"proximal_weight": 1.0}), ("moon", {})):
        assert farthest(whole, ended(name, **params)[0].server) > 1e-5


def test_members_that_only_add_may_stand_in_any_order() -> None:
    methods = [{"name": "fedproc", "min_count": 1}, {"name": "moon"}, {"name": "fednova"}, {"name": "fedala"}]
    first, second = (ended("compose", methods=order)[0] for order in (methods, methods[::-1]))
    assert farthest(first.server, second.server) < 1e-4  # sums of terms are taken in another order
    assert first.server.extras.keys() == second.server.extras.keys()


@pytest.mark.whole_run
def test_a_server_that_sees_only_sums_ends_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    methods = [
        {"name": "fedproc", "min_count": 1},
        {"name": "fedhap", "min_count": 1, "weighting": "examples"},
        {"name": "fedbignns"},
        {"name": "fedcafe", "min_count": 1, "memory": "class_mean", "weighting": "examples"},
    ]
    plain = ended("compose", methods=methods)[0].server
    given = prepared(federated={"name": "compose", "rounds": 3, "methods": methods}, train={"learning_rate": 0.01})
    method: FederatedMethod = given.resolved.federated
    aggregate = method.aggregate
    monkeypatch.setattr(method, "aggregate", lambda server, updates: aggregate(server, [blended(list(updates))]))
    seen = run_loop(given).server
    assert farthest(plain, seen) < 2e-5
    assert seen.extras.keys() == plain.extras.keys()
    for name, array in plain.extras.items():
        assert array.dtype == seen.extras[name].dtype
        assert abs(array.astype(float) - seen.extras[name].astype(float)).max() < 2e-5, name
