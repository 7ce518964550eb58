"""Rules of compositions: who decides what, and what cannot be combined."""

from __future__ import annotations

import pytest

from silohash.methods.federated import FEDERATED_METHODS
from silohash.methods.federated.base import FederatedMethod
from silohash.methods.federated.composition_rules import combined_traits, decides, overrides
from silohash.methods.federated.general.fedavg import FedAvg, FedAvgParams
from silohash.methods.federated.general.fedprox import FedProx, FedProxParams
from silohash.methods.federated.hashing.fedcafe import FedCAFE, FedCAFEParams
from silohash.methods.federated.shared_means import SharedMean
from tests.unit.methods.federated.compositions import CAFE, HAP, error_of, whole


@pytest.mark.parametrize(
    ("methods", "part"),
    [
        (
            ("fednova", "local"),
            '"fednova" and "local" both decide how the server averages (aggregate), but only one method can.',
        ),
        (("local", "fedala"), "how a silo's round begins and its phases (begin_round)"),
        (("fedproto", "fedcmr"), "which parameters are shared (shared_parameters, broadcast)"),
        (("fedcmr", "plfedcmh"), "which parameters are shared (shared_parameters, broadcast)"),
        (("fednova", "plfedcmh"), "which parameters a silo sends (silo_update)"),
        (("moon", "local", "fedprox", "local"), '"local" and "local-2" both decide'),
        (
            ("fedcafe", "fedhap"),
            "the weight of a silo (weight), but only one method can. Leave one of them out, "
            'or set weighting = "examples" in "fedcafe", or set weighting = "examples" in "fedhap".',
        ),
        (
            ("fedprox", "fednova"),
            'Set proximal_weight in "fednova", which accounts only for its own, and leave "fedprox" out',
        ),
        (("centralized", "moon"), '"centralized" pools all data'),
        (("moon", "compose"), '"compose" is a composition itself. List its members instead.'),
    ],
)
def test_pairs_that_cannot_be_composed_are_refused_with_the_reason(methods: tuple[str, ...], part: str) -> None:
    text = error_of(*({"name": name} for name in methods))
    assert text.startswith("federated.methods: ")
    assert part in text


def test_a_pair_is_composed_once_parameters_say_that_one_only_adds() -> None:
    assert whole({"name": "fedcafe"}, HAP).deciders == dict.fromkeys(("weight", "silo_update", "aggregate"), "fedcafe")
    assert whole(CAFE, {"name": "fedhap"}).deciders == {"weight": "fedhap"}
    assert whole({"name": "fedala"}, {"name": "fedbignns"}).deciders["begin_round"] == "fedala"
    assert "begin_round" in error_of({"name": "fedala"}, {"name": "fedbignns", "local_mix": 0.5})


def test_one_training_loop_serves_networks_and_adaptations_that_agree() -> None:
    assert whole({**HAP, "judge_learning_rate": 0.01}).auxiliary_learning_rate == 0.01
    assert whole({"name": "moon"}).auxiliary_learning_rate is None
    text = error_of(HAP, {**HAP, "judge_learning_rate": 0.01})
    assert '"fedhap" and "fedhap-2" both decide the learning rate of auxiliary networks' in text
    assert whole({"name": "moon"}, {**CAFE, "hash_on": "raw"}).adapts_training is False
    assert whole({"name": "moon"}, CAFE).adapts_training is True
    assert "is trained on adapted outputs (adapt_outputs, adapts_training)" in error_of(
        CAFE, {**CAFE, "hash_on": "raw"}
    )


def test_what_is_declared_to_add_is_filled() -> None:
    for name in FEDERATED_METHODS.names():
        kind = FEDERATED_METHODS.resolve(name)
        method = kind(kind.Params(**kind.presets["recommended"]))
        assert all(overrides(method, hook) for hook in kind.adds), name
        assert all(key in kind.Params.model_fields for under in kind.adds.values() for key in under), name


def test_a_method_may_say_itself_that_it_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.unit.methods.federated.everything import Everything

    monkeypatch.setitem(FEDERATED_METHODS.table, "everything", "tests.unit.methods.federated.everything:Everything")  # type: ignore[arg-type]
    assert "(silo_update)" in error_of({"name": "fednova"}, {"name": "everything"})
    monkeypatch.setattr(Everything, "adds", {"silo_update": {}, "aggregate": {}})
    assert whole({"name": "fednova"}, {"name": "everything"}).deciders["aggregate"] == "fednova"


def test_traits_follow_from_the_members() -> None:
    plain = whole({"name": "fedprox"}, {"name": "moon"})
    assert (plain.needs_labels, plain.uplink, plain.encode_extras, plain.class_head) == (False, "sum", (), False)
    assert (plain.shares_parameters, plain.personalized, plain.codes_comparable) == (True, False, True)
    rich = whole({"name": "moon"}, CAFE)
    assert (rich.needs_labels, rich.uplink, rich.class_head) == (True, "records", True)
    assert rich.encode_extras == ("fedcafe/memory",)
    personal = whole({"name": "fedprox"}, {"name": "plfedcmh"}, {"name": "fedala"})
    assert (personal.uniform_broadcast, personal.personalized, personal.codes_comparable) == (False, True, False)
    assert not whole({"name": "local"}, {"name": "moon"}).shares_parameters


def test_a_parameter_that_makes_a_hook_an_addition_counts() -> None:
    examples, memory = (FedCAFE(FedCAFEParams(weighting=weighting)) for weighting in ("examples", "memory"))
    for hook in ("weight", "silo_update", "aggregate"):
        assert (decides(examples, hook), decides(memory, hook)) == (False, True)
    assert not decides(examples, "personalize")
    assert overrides(FedAvg(FedAvgParams()), "weight")
    assert not overrides(FedProx(FedProxParams()), "weight")


def test_traits_of_two_members() -> None:
    class Two(FederatedMethod):
        min_modalities, needs_labels, codes_comparable, averages = 2, True, False, False
        encode_extras = ("a", "b")
        means = (SharedMean("sum", "count", like="table"),)
        unprotected = "It is odd. Leave it out."

    found = combined_traits({"plain": FederatedMethod(None), "two": Two(None)})
    assert found == {
        "needs_labels": True, "personalized": False, "class_head": False, "uniform_broadcast": True, "averages": False,
        "shares_parameters": True, "codes_comparable": False, "min_modalities": 2, "uplink": "sum",
        "encode_extras": ("two/a", "two/b"), "unprotected": "It is odd. Leave it out.",
        "means": (SharedMean("two/sum", "two/count", like="two/table"),),
    }  # fmt: skip
