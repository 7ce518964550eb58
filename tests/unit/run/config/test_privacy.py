"""Configs under which differential privacy would not hold are refused, with what to change."""

from __future__ import annotations

from typing import Any

import pytest

from silohash.base.errors import UserError
from silohash.methods.federated import FEDERATED_METHODS
from silohash.run.config.load import ResolvedConfig, load_resolved
from silohash.run.config.sections import RunConfig

DATA = {"data": {"name": "glyphs"}}


def resolved(unit: str = "record", **sections: dict[str, Any]) -> ResolvedConfig:
    base = {
        **DATA, "exchange": {"privacy": {"unit": unit}}, "local": {"name": "csq", "bits": 16},
        "federated": {"name": "fedavg"}, "evaluate": {"validation": 0.0},
    }  # fmt: skip
    return load_resolved({**base, **{name: {**base.get(name, {}), **keys} for name, keys in sections.items()}})


def refusal(unit: str = "record", **sections: dict[str, Any]) -> str:
    with pytest.raises(UserError) as error:
        resolved(unit, **sections)
    return str(error.value)


@pytest.mark.parametrize(
    ("unit", "allowed"),
    [("record", {"fedavg", "moon", "feduch", "fedproc"}), ("silo", {"fedavg", "moon", "feduch", "fedprox"})],
)
def test_methods_whose_messages_have_no_guarantee_are_refused(unit: str, allowed: set[str]) -> None:
    for name in FEDERATED_METHODS.table.keys() - {"fedsums"}:  # it refuses local methods with gradient steps
        federated = {"name": name, **({"min_count": 1} if name == "fedproc" else {})}
        if name in allowed:
            assert resolved(unit, federated=federated).federated.traits.private_units
        else:
            message = refusal(unit, federated=federated)
            assert "has no guarantee" in message, (name, message)
            assert "another federated method" in message


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("centralized", "the items of all silos are pooled"),
        ("local", "silos do not send parameters that are averaged"),
        ("personal", "each silo deploys a model of its own"),
        ("fednova", "silos send more than parameters and class means"),
        ("fedprox", 'Set exchange.privacy.unit = "silo", or choose'),
    ],
)
def test_a_refusal_says_why(name: str, why: str) -> None:
    assert why in refusal(federated={"name": name})


@pytest.mark.parametrize("name", ["dcmh", "greedyhash", "dgcpn", "dscmr"])
def test_losses_that_compare_items_are_refused_per_item_only(name: str) -> None:
    assert "an item takes part in the gradients of others" in refusal(local={"name": name})
    resolved("silo", local={"name": name})


@pytest.mark.parametrize("unit", ["record", "silo"])
@pytest.mark.parametrize(
    ("sections", "why"),
    [
        ({"local": {"name": "shdch"}}, "sends exact sums from which the server computes class codes"),
        ({"local": {"name": "scm"}, "federated": {"rounds": 1}}, "computes the parameters from exact sums"),
        ({"local": {"name": "centerap"}}, "needs the exact numbers of items per label"),
        ({"evaluate": {"validation": 0.1}}, "Set evaluate.validation = 0"),
        ({"federated": {"weight_cap": 0.5}}, "federated.weight_cap has no effect"),
        ({"model": {"image": {"backbone": "cnnf"}}}, "fine-tune published networks"),
    ],
)
def test_what_would_leave_a_silo_exactly_is_refused(unit: str, sections: dict[str, Any], why: str) -> None:
    assert why in refusal(unit, **sections)


def test_statistics_are_released_by_noisy_counts_and_with_a_limit_per_item() -> None:
    assert "federated.min_count = 5 releases a class by its exact number" in refusal(federated={"name": "fedproc"})
    uniform = {"name": "fedproc", "min_count": 1, "prototype_weighting": "uniform"}
    assert "lets a single item change a class mean by any amount" in refusal(federated=uniform)


def test_rules_for_single_updates_exclude_the_unit_silo() -> None:
    robust = {"robust": {"rule": "median"}}
    assert "only their sum is hidden" in refusal("silo", federated=robust)
    resolved("record", federated=robust)
    assert "train.clip_norm = 1 has no effect" in refusal(train={"clip_norm": 1.0})


@pytest.mark.parametrize("kind", ["half", "int8", "top_k"])
def test_noise_that_silos_share_is_not_compressed(kind: str) -> None:
    exchange = {"compression": {"kind": kind}}
    assert f'"{kind}" changes each part by itself' in refusal("silo", exchange=exchange)
    resolved("record", exchange=exchange)
    resolved("silo", exchange={"compression": {"kind": "hash_layers"}})


def test_without_privacy_nothing_is_refused_and_the_digest_is_that_of_earlier_runs() -> None:
    plain = load_resolved({**DATA, "local": {"name": "dcmh"}})
    assert plain.config.exchange.privacy is None
    assert "privacy" not in plain.config.to_toml()
    private = RunConfig(**DATA, exchange={"privacy": {"unit": "silo"}})
    assert private.digest() != RunConfig(**DATA).digest()
    assert "exchange" not in RunConfig(**DATA)._deciding()
