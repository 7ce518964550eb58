"""Transformations of updates that a config refuses, with the sentence that says why and what to change."""

from __future__ import annotations

from typing import Any

import pytest

from silohash.base.errors import UserError
from silohash.methods.federated import FEDERATED_METHODS
from silohash.run.config.load import ResolvedConfig, load_resolved
from silohash.run.config.sections import RunConfig


def resolved(compression: dict[str, Any], local: str = "dcmh", **federated: Any) -> Any:
    return load_resolved(
        {
            "data": {"name": "glyphs"},
            "partition": {"silos": 9},
            "local": {"name": local},
            "federated": federated,
            "exchange": {"compression": compression},
        }
    )


@pytest.mark.parametrize(
    ("compression", "local", "federated", "part"),
    [
        ({"kind": "half"}, "dcmh", {"name": "local"}, 'no effect: with federated.name = "local", silos do not send'),
        ({"kind": "half"}, "dcmh", {"name": "centralized"}, 'no effect: with federated.name = "centralized"'),
        ({"kind": "int8"}, "dcmh", {"name": "fedproto"}, 'no effect: with federated.name = "fedproto"'),
        ({"kind": "half"}, "scm", {"name": "fedavg"}, 'local.name = "scm" computes its model once'),
        ({"kind": "int8"}, "dcmh", {"rounds": 1}, '"int8" sends what it leaves out in the next round'),
        ({"kind": "top_k"}, "dcmh", {"rounds": 1}, '"top_k" sends what it leaves out in the next round'),
        ({"kind": "top_k"}, "dcmh", {"robust": {"rule": "median"}}, 'the rule "median" takes for what the silos agree'),
        ({"kind": "hash_layers"}, "dcmh", {"name": "fedcmr"}, '"fedcmr" trains one per silo'),
        ({"kind": "hash_layers"}, "dcmh", {"name": "fedcafe"}, '"fedcafe" needs a trained classifier'),
        ({"kind": "int8", "share": 0.2}, "dcmh", {}, 'share has no effect: "int8" does not use it'),
    ],
)
def test_refusals(compression: dict[str, Any], local: str, federated: dict[str, Any], part: str) -> None:
    with pytest.raises(UserError) as error:
        resolved(compression, local, **federated)
    assert "exchange.compression" in str(error.value)
    assert part in str(error.value)
    assert str(error.value).endswith(".")


@pytest.mark.parametrize(
    ("compression", "federated"),
    [
        ({"kind": "half"}, {"rounds": 1}),
        ({"kind": "int8", "share": 0.1}, {"name": "fedcafe"}),
        ({"kind": "top_k", "share": 1.0}, {"name": "plfedcmh"}),
        ({"kind": "top_k", "share": 0.01}, {"robust": {"rule": "clip"}}),
        ({"kind": "int8"}, {"robust": {"rule": "median"}, "server": {"optimizer": "fedadam"}}),
        ({"kind": "hash_layers"}, {"name": "feduch"}),
        ({"kind": "int8"}, {"name": "fedridge", "reveal_items": True}),
        ({"kind": "int8"}, {"name": "compose"}),
    ],
)
def test_settings_that_fit(compression: dict[str, Any], federated: dict[str, Any]) -> None:
    assert resolved(compression, **federated).config.exchange.compression.kind == compression["kind"]


def test_a_kind_alone_is_told_how_to_be_written() -> None:
    with pytest.raises(UserError, match=r'Write compression = \{kind = "top_k"\}'):
        load_resolved({"data": {"name": "glyphs"}, "exchange": {"compression": "top_k"}})


def encrypted(**sections: Any) -> Any:
    exchange = {"encryption": "ckks", **sections.pop("exchange", {})}
    return load_resolved({"data": {"name": "glyphs"}, "exchange": exchange, "partition": {"silos": 9}, **sections})


@pytest.mark.parametrize(
    ("sections", "part"),
    [
        ({"federated": {"name": "local"}}, 'no effect: with federated.name = "local", silos do not send anything'),
        ({"federated": {"name": "centralized"}}, 'no effect: with federated.name = "centralized"'),
        ({"federated": {"name": "plfedcmh"}}, "the server computes with the message of each silo"),
        ({"federated": {"name": "ptfuch"}, "local": {"name": "ucch"}}, "the server computes with the message of each"),
        ({"federated": {"name": "fedcafe"}}, "the server computes with the message of each silo"),
        (
            {"federated": {"name": "compose", "methods": [{"name": "fedprox"}, {"name": "fedcafe"}]}},
            "the server computes with the message of each silo",
        ),
        ({"federated": {"robust": {"rule": "multi_krum"}}}, 'the rule "multi_krum" compares the updates of single'),
        ({"federated": {"weight_cap": 0.5}}, "a cap needs the weights of single silos"),
        ({"federated": {"norm_limit": 5}}, "federated.norm_limit compares the updates of single silos"),
        ({"exchange": {"compression": {"kind": "int8"}}}, 'encrypted parameters cannot be compressed with "int8"'),
        ({"federated": {"fraction": 0.1}}, "the sum over one silo is that silo's update"),
    ],
)
def test_what_a_server_that_sees_sums_only_cannot_do(sections: dict[str, Any], part: str) -> None:
    with pytest.raises(UserError) as error:
        encrypted(**sections)
    assert "exchange.encryption" in str(error.value)
    assert part in str(error.value)
    assert str(error.value).endswith(".")


@pytest.mark.parametrize("name", [name for name in FEDERATED_METHODS.table if name not in ("fedsums", "separate")])
def test_every_method_whose_uplink_is_sums_can_be_encrypted(name: str) -> None:
    method = load_resolved({"data": {"name": "glyphs"}, "federated": {"name": name}}).federated
    if method.traits.uplink == "sum" and not method.traits.pooled and name != "local":
        assert encrypted(federated={"name": name}).config.exchange.encryption == "ckks"
    else:
        with pytest.raises(UserError, match=r"exchange\.encryption"):
            encrypted(federated={"name": name})


@pytest.mark.parametrize(
    "sections",
    [
        {"federated": {"name": "fedcafe", "memory": "class_mean"}},
        {"federated": {"name": "fedsums"}, "local": {"name": "scm", "variant": "orth", "bits": 16}},
        {"federated": {"server": {"optimizer": "fedadam"}}},
        {"exchange": {"compression": {"kind": "hash_layers"}}},
    ],
)
def test_settings_that_can_be_encrypted(sections: dict[str, Any]) -> None:
    assert encrypted(**sections).config.exchange.encryption == "ckks"


DATA = {"data": {"name": "glyphs"}}


def private(unit: str = "record", **sections: dict[str, Any]) -> ResolvedConfig:
    base = {
        **DATA, "exchange": {"privacy": {"unit": unit}}, "local": {"name": "csq", "bits": 16},
        "federated": {"name": "fedavg"}, "evaluate": {"validation": 0.0},
    }  # fmt: skip
    return load_resolved({**base, **{name: {**base.get(name, {}), **keys} for name, keys in sections.items()}})


def refusal(unit: str = "record", **sections: dict[str, Any]) -> str:
    with pytest.raises(UserError) as error:
        private(unit, **sections)
    return str(error.value)


@pytest.mark.parametrize(
    ("unit", "allowed"),
    [("record", {"fedavg", "moon", "feduch", "fedproc"}), ("silo", {"fedavg", "moon", "feduch", "fedprox"})],
)
def test_methods_whose_messages_have_no_guarantee_are_refused(unit: str, allowed: set[str]) -> None:
    for name in FEDERATED_METHODS.table.keys() - {"fedsums"}:  # it refuses local methods with gradient steps
        federated = {"name": name, **({"min_count": 1} if name == "fedproc" else {})}
        if name in allowed:
            assert private(unit, federated=federated).federated.traits.private_units
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
    private("silo", local={"name": name})


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
    private("record", federated=robust)
    assert "only their sum is hidden" in refusal("silo", federated={"norm_limit": 5})
    private("record", federated={"norm_limit": 5})
    assert "train.clip_norm = 1 has no effect" in refusal(train={"clip_norm": 1.0})


@pytest.mark.parametrize("kind", ["half", "int8", "top_k"])
def test_noise_that_silos_share_is_not_compressed(kind: str) -> None:
    exchange = {"compression": {"kind": kind}}
    assert f'"{kind}" changes each part by itself' in refusal("silo", exchange=exchange)
    private("record", exchange=exchange)
    private("silo", exchange={"compression": {"kind": "hash_layers"}})


def test_without_privacy_nothing_is_refused_and_the_digest_is_that_of_earlier_runs() -> None:
    plain = load_resolved({**DATA, "local": {"name": "dcmh"}})
    assert plain.config.exchange.privacy is None
    assert "privacy" not in plain.config.to_toml()
    private = RunConfig(**DATA, exchange={"privacy": {"unit": "silo"}})
    assert private.digest() != RunConfig(**DATA).digest()
    assert "exchange" not in RunConfig(**DATA)._deciding()
